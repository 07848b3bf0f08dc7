"""Shuffled inputs: does the pattern of a head follow the tokens, or stay at its places?

Every document runs twice in one batch, as it is and as its twin: place t of the twin holds token o(t), o a random order
of all tokens but sinks and padding. With p the pattern of the document, r that of the twin,

    follows   correlation of r(t, s) and p(o(t), o(s)): what the same tokens did
    stays     correlation of r(t, s) and p(t, s): what the same places did

Both patterns are first cut to the keys that both show, less the sinks and t itself (looking at oneself does both),
scaled to mass 1 and centred; the sums of the correlation run over queries with at least four such keys, weighted by the
smaller of the two masses. Neither a share of uniform mass nor the mask changes them: softmax over fewer keys is the
same softmax. A head by content has (1, 0), a head by position (0, 1), a head that sees all keys alike (0, 0).

In the first layer of a model this is a clean experiment. In later ones a token's state has read its neighbours, which
the shuffle exchanged: a head that looks for a *context* follows less. It is evidence beside the labels, not a label.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from infoflow.errors import InfoFlowError
from infoflow.probes.intervals import LEVEL, draws
from infoflow.probes.record import Batch, Recording, as_batches
from infoflow.probes.tap import Step

HALF = 0.5  # a correlation from which a head is said to follow or to stay
FEWEST = 4  # keys to compare a query by
ORDERED = ("X", "input_ids", "inputs_embeds")  # what is shuffled; masks and position ids belong to places


@dataclass(frozen=True)
class HeadShuffle:
    """One head: both correlations with their intervals over documents."""

    layer: int  # 0-based
    head: int
    follows: tuple[float, float, float]  # value, low, high
    stays: tuple[float, float, float]

    @property
    def reads(self) -> str:
        """tokens, places, both or neither: the correlations of at least one half."""
        follows, stays = self.follows[0] >= HALF, self.stays[0] >= HALF
        return "both" if follows and stays else "tokens" if follows else "places" if stays else "neither"

    def to_json(self) -> dict[str, Any]:
        named = {"follows": self.follows, "stays": self.stays}
        values = {name: {"value": value, "interval": [low, high]} for name, (value, low, high) in named.items()}
        return {**values, "reads": self.reads}


class Followed:
    """Consumer of batches that hold documents and, behind them, their twins in the same order."""

    def __init__(self, heads: Sequence[int], documents: int, order: Callable[[int], Int[Tensor, "B T"]]) -> None:
        self.order = order  # by the number of the first document of a batch
        # per head: (follows, stays) x (products, squares, squares, weights) x documents
        self.sums = [torch.zeros(h, 2, 4, documents, dtype=torch.float64) for h in heads]

    def __call__(self, step: Step) -> None:
        B, K = len(step.weights) // 2, step.weights.shape[-1]
        Q = 1 if step.weights.shape[-2] == 1 else K  # the CLS alone asks, or the tokens do
        order = self.order(step.document // 2).to(step.weights.device)
        weights, shown = step.weights[:, :, :Q].float(), step.shown()[:, :1, :Q]
        keys = _comparable(step, B, Q, K)
        counted = step.counted()[B:, None, :Q]
        rows = slice(step.document // 2, step.document // 2 + B)
        for number, (same, seen) in enumerate(
            ((_moved(weights[:B], order), _moved(shown[:B], order)), (weights[:B], shown[:B]))
        ):
            found = _products(weights[B:], same, shown[B:] & seen & keys, counted)
            self.sums[step.layer][:, number, :, rows] = found.permute(1, 2, 0).double().cpu()

    def evidence(self, seed: int = 0) -> list[HeadShuffle]:
        documents = self.sums[0].shape[-1]
        multiplicity = np.concatenate([np.ones((1, documents)), draws(documents, seed)])
        return [
            HeadShuffle(l, i, *(_interval(multiplicity @ part.numpy().T) for part in head))
            for l, layer in enumerate(self.sums)
            for i, head in enumerate(layer)
        ]


def _comparable(step: Step, B: int, Q: int, K: int) -> Bool[Tensor, "B 1 Q K"]:
    """Keys of the twins that are neither sinks nor the query itself."""
    keys = torch.ones(B, 1, Q, K, dtype=torch.bool, device=step.weights.device)
    if step.sinks is not None:
        keys = keys & ~step.sinks[B:, None, None, :]
    return keys & ~torch.eye(K, dtype=torch.bool, device=keys.device) if Q > 1 else keys


def _moved(table: Tensor, order: Int[Tensor, "B K"]) -> Tensor:
    """table(o(t), o(s)); a single query, the CLS, stays where it is."""
    B, h, Q, K = table.shape
    if Q > 1:
        table = table.gather(2, order[:, None, :, None].expand(B, h, Q, K))
    return table.gather(3, order[:, None, None, :].expand(B, h, Q, K))


def _products(a: Tensor, b: Tensor, keys: Bool[Tensor, "B 1 Q K"], counted: Tensor) -> Float[Tensor, "B h 4"]:
    """The weighted sums over queries that a correlation is made of."""
    number = keys.sum(-1).clamp(min=1)
    cut = [torch.where(keys, x, 0.0) for x in (a, b)]
    masses = [x.sum(-1) for x in cut]
    weight = torch.minimum(*masses) * (counted & (number >= FEWEST))
    level = 1 / number[..., None]
    a, b = (torch.where(keys, x / m.clamp(min=1e-30)[..., None] - level, 0.0) for x, m in zip(cut, masses, strict=True))
    sums = [(a * b).sum(-1), a.square().sum(-1), b.square().sum(-1), torch.ones_like(weight)]
    return torch.stack([(x * weight).sum(-1) for x in sums], -1)


def _interval(sums: Float[np.ndarray, "draws 4"]) -> tuple[float, float, float]:
    """The correlation of the sample (the first row) and its central interval; 0 where there is nothing to compare."""
    products, left, right, weights = sums.T
    least = 1e-6 * np.maximum(weights, 1e-30)
    known = (left > least) & (right > least)
    values = np.where(known, products / np.sqrt(np.maximum(left * right, 1e-60)), 0.0)
    low, high = np.quantile(values[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(values[0]), float(low), float(high)


def can_shuffle(batches: Sequence[Batch]) -> bool:
    """Whether every batch has tokens that may be put in another order."""
    return all(any(name in batch.inputs for name in ORDERED) for batch in batches)


def shuffle_evidence(model: nn.Module, inputs: Any, seed: int = 0) -> list[HeadShuffle]:
    """Whether each head follows the tokens or stays at its places, in one pass over documents and their twins."""
    batches = as_batches(inputs)
    if not can_shuffle(batches):
        raise InfoFlowError(f"expected tokens to shuffle ({', '.join(ORDERED)}), got {sorted(batches[0].inputs)}.")
    pairs, orders, document = [], {}, 0
    generator = torch.Generator().manual_seed(seed)
    for batch in batches:
        for start in range(0, batch.size, max(1, batch.size // 2)):  # twins double a batch: halve it first
            part = batch.rows(slice(start, start + max(1, batch.size // 2)))
            orders[document] = _draw(part, generator)
            pairs.append(_with_twins(part, orders[document]))
            document += part.size
    recording = Recording(model, pairs)
    followed = Followed(recording.heads, document, orders.__getitem__)
    recording.feed(followed)
    return followed.evidence()


def _draw(batch: Batch, generator: torch.Generator) -> Int[Tensor, "B T"]:
    """A random order of the tokens of every document; sinks and padding keep their places."""
    B, T = next(batch.inputs[name] for name in ORDERED if name in batch.inputs).shape[:2]
    free = torch.ones(B, T, dtype=torch.bool)
    if batch.shown is not None:
        free &= batch.shown.cpu()
    if batch.sinks is not None:
        free &= ~batch.sinks.cpu()
    order = torch.arange(T).repeat(B, 1)
    for row in range(B):
        places = free[row].nonzero()[:, 0]
        order[row, places] = places[torch.randperm(len(places), generator=generator)]
    return order


def _with_twins(batch: Batch, order: Int[Tensor, "B T"]) -> Batch:
    rows = torch.arange(batch.size)[:, None]
    inputs = {
        name: torch.cat([value, value[rows, order] if name in ORDERED else value])
        for name, value in batch.inputs.items()
    }
    return Batch(inputs, *(None if x is None else torch.cat([x, x]) for x in (batch.shown, batch.sinks)))


def by_label(labels: Sequence[str], evidence: Sequence[HeadShuffle]) -> dict[str, dict[str, Any]]:
    """For each label: heads, mean correlations, and what its heads read."""
    table = {}
    for label in dict.fromkeys(labels):
        rows = [row for own, row in zip(labels, evidence, strict=True) if own == label]
        table[label] = {
            "heads": len(rows),
            "follows": float(np.mean([row.follows[0] for row in rows])),
            "stays": float(np.mean([row.stays[0] for row in rows])),
            "reads": dict(Counter(row.reads for row in rows)),
        }
    return table
