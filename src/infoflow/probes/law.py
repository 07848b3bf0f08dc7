"""Where a resampled token comes from, and what an effect is measured in.

A token x(s) is drawn again from its law: the sampler of the target a network was made for, or the tokens of the other
documents, pooled over positions (of token numbers, those that are no sinks). The variances an effect is divided by are
those over whole documents of the same law.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.arguments import LARGEST_SEED
from infoflow.cost import memory
from infoflow.errors import InfoFlowError
from infoflow.probes.record import Batch
from infoflow.probes.rerun import Rerun

Sample = Callable[[int, int, int], Tensor]  # (documents, T, seed) -> (documents, T, d)
DOCUMENTS = 256  # of a target's law, for the variances
LEAST = 4  # documents a variance is taken over
ROUNDING = 64  # units of the last place: what varies less does not vary
FRESH = 7_368_787  # added to the seed of the draws, so that they are no documents of the law


@dataclass
class Law:
    """Whole documents of the law; draws for the tokens of a document."""

    documents: list[Batch]
    sample: Sample | None = None  # of whole documents; None: tokens are those of the documents
    seed: int = 0

    def draws(self, document: Batch, count: int, leave_out: int | None = None) -> Tensor:
        """(count, T, d) vectors or (count, T) numbers: fresh tokens for every place of the document."""
        tokens = tokens_of(document)[1]
        memory(3 * 8 * count * tokens[0].numel(), f"{count} draws for each of {tokens.shape[1]} places", "draws or T")
        if self.sample is not None:
            return self.sample(count, tokens.shape[1], (self.seed + FRESH) % LARGEST_SEED).to(tokens)
        generator = torch.Generator().manual_seed(self.seed)
        pool = torch.cat([_plain(other) for n, other in enumerate(self.documents) if n != leave_out])
        chosen = torch.randint(len(pool), (count, tokens.shape[1]), generator=generator)
        return pool[chosen.to(pool.device)]


def tokens_of(document: Batch) -> tuple[str, Tensor]:
    """The name and the tensor of what can be resampled."""
    for name in ("X", "input_ids", "inputs_embeds"):
        if name in document.inputs:
            return name, document.inputs[name]
    raise InfoFlowError(f"expected X or input_ids to resample, got {', '.join(document.inputs)}.")


def _plain(document: Batch) -> Tensor:
    """The tokens that are neither padding nor sinks."""
    tokens = tokens_of(document)[1][0]
    kept = torch.ones(len(tokens), dtype=torch.bool, device=tokens.device)
    if document.shown is not None:
        kept &= document.shown[0]
    if document.sinks is not None:
        kept &= ~document.sinks[0]
    return tokens[kept]


def apart(batches: list[Batch]) -> list[Batch]:
    """Documents one by one, their padding cut off."""
    found = []
    for batch in batches:
        for row in range(batch.size):
            single = batch.rows(slice(row, row + 1))
            if single.shown is not None:
                length = int(single.shown[0].nonzero().max()) + 1
                inputs = {name: value[:, :length] for name, value in single.inputs.items() if name != "attention_mask"}
                sinks = None if single.sinks is None else single.sinks[:, :length]
                single = Batch(inputs, single.shown[:, :length], sinks)
            found.append(single)
    return found


@dataclass
class Variances:
    """Of the output (a number) and of the state at every layer and row, over documents of the law."""

    output: float
    states: list[Float[np.ndarray, " rows"]]  # in front of layer l, l = 0 .. L-1
    documents: int

    def of(self, layer: int, rows: int) -> Float[np.ndarray, " rows"]:
        """Cut or filled to the rows of a document; a CLS stands in the last row."""
        known = self.states[layer]
        if len(known) >= rows:
            return known[:rows]
        return np.concatenate([known, np.full(rows - len(known), known.mean())])


def variances(rerun: Rerun, law: Law) -> Variances:
    """Sum over coordinates of the variance over documents; a position only few documents have gets the mean one."""
    if (given := sum(document.size for document in law.documents)) < LEAST:
        raise InfoFlowError(
            f"expected at least {LEAST} documents to tell a large change from a small one, got {given}; "
            "give more, or a network whose header names its target."
        )
    outputs, sums = [], _Sums()
    for document in law.documents:
        ran = rerun.run(document)
        outputs.append(ran.output.double().cpu())
        for layer, stream in enumerate(ran.streams):
            sums.add(layer, stream)
    output = torch.cat(outputs).var(0).sum()
    return Variances(float(output), sums.variances(), sum(len(o) for o in outputs))


class _Sums:
    """Running sums of states by layer and row; documents may differ in length."""

    def __init__(self) -> None:
        self.layers: list[list[Tensor]] = []  # count (rows,), sum (rows, E), sum of squares (rows, E)
        self.rounding = 0.0

    def add(self, layer: int, stream: Tensor) -> None:
        N, rows, E = stream.shape
        self.rounding = max(self.rounding, (ROUNDING * torch.finfo(stream.dtype).eps) ** 2)
        stream = stream.double().cpu()
        if layer == len(self.layers):
            self.layers.append([torch.zeros(rows), torch.zeros(rows, E).double(), torch.zeros(rows, E).double()])
        known = self.layers[layer]
        if len(known[0]) < rows:
            known = [torch.cat([x, x.new_zeros(rows - len(x), *x.shape[1:])]) for x in known]
            self.layers[layer] = known
        known[0][:rows] += N
        known[1][:rows] += stream.sum(0)
        known[2][:rows] += stream.square().sum(0)

    def variances(self) -> list[np.ndarray]:
        found = []
        for count, total, squares in self.layers:
            enough = count >= LEAST
            n = count.clamp(min=2)[:, None]
            variance = ((squares - total.square() / n) / (n - 1)).clamp(min=0).sum(-1)
            variance = torch.where(variance > self.rounding * squares.sum(-1) / n[:, 0], variance, 0.0)  # a fixed state
            usual = variance[enough].mean() if bool(enough.any()) else variance.mean()
            found.append(torch.where(enough, variance, usual).numpy())
        return found
