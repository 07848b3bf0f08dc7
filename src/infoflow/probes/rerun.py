"""One document of a model run again: attention free or frozen at given weights, the stream of a layer replaced.

    with Rerun(model, document) as rerun:
        base = rerun.run(document)                                   # output, streams, weights
        rerun.run(variants, frozen=base.weights)                     # the same heads look where they looked
        rerun.run(document, frozen=base.weights, patched=(1, streams))   # states of layer 1 put in place

A patched run takes one document up to the layer and as many streams as are given from there on. What counts as the
model's output is one vector per document: the output itself, or `read` says which part of it.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow.nn import Attended, attention
from infoflow.probes.adapters import watched
from infoflow.probes.record import Batch
from infoflow.probes.tap import Tap

Read = Callable[[Any], Float[Tensor, "N m"]]


@dataclass
class Ran:
    """One pass: the output, the stream in front of every layer, and where the heads looked."""

    output: Float[Tensor, "N m"]
    streams: list[Float[Tensor, "N rows E"]]
    weights: list[Float[Tensor, "N h Q K"]]
    values: list[Float[Tensor, "N h Q n"]]  # what every head fetched
    v: list[Float[Tensor, "N h K n"]]  # what it could fetch


class Rerun:
    """A context in which the attention of `model` runs through our hands; outside it the model is as it was."""

    def __init__(self, model: nn.Module, document: Batch, read: Read | None = None) -> None:
        self.model, self.document, self.read = model, document, read or whole_output
        self.tap, self.stack = Tap(self._attend), ExitStack()
        self.frozen: list[Tensor] | None = None
        self.patched: tuple[int, Tensor] | None = None
        self.carriers: tuple[list[Tensor], list[Tensor]] | None = None
        self.kept: tuple[list[Tensor], ...] = ([], [], [], [])

    def __enter__(self) -> Self:
        self.stack.enter_context(watched(self.model, self.tap, lambda: self.document.call(self.model)))
        self.tap.entry = self._enter
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()

    @torch.no_grad()
    def run(
        self,
        batch: Batch,
        frozen: list[Tensor] | None = None,
        patched: tuple[int, Tensor] | None = None,
        carriers: tuple[list[Tensor], list[Tensor]] | None = None,
    ) -> Ran:
        """`carriers` are, for every layer, the heads (True) that may carry a change, and what the others fetch."""
        self.frozen, self.patched, self.carriers, self.kept = frozen, patched, carriers, ([], [], [], [])
        output = self.read(batch.call(self.model))
        return Ran(output, *self.kept)

    def _attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None, hard: bool
    ) -> Attended:
        self.kept[3].append(v)
        if self.frozen is None:
            result = attention(q, k, v, scale, mask, hard)
            self.kept[1].append(result.weights)
            self.kept[2].append(result.values)
            return result
        weights = self.frozen[layer]
        values = mixed(weights, v)
        if self.carriers is not None:
            may, fixed = (part[layer] for part in self.carriers)
            values = torch.where(may[:, None, None], values, fixed)
        return Attended(values, weights)

    def _enter(self, layer: int, stream: Tensor) -> Tensor:
        if self.patched is not None and self.patched[0] == layer:
            stream = self.patched[1]
        self.kept[0].append(stream)
        return stream


def mixed(weights: Float[Tensor, "one h Q K"], v: Float[Tensor, "N h K n"]) -> Float[Tensor, "N h Q n"]:
    """weights @ v where all N share the weights: one product, for a broadcast one would copy them N times."""
    if weights.shape[0] == v.shape[0]:
        return weights @ v
    N, h, K, n = v.shape
    columns = v.permute(1, 2, 0, 3).reshape(h, K, N * n)
    return (weights[0] @ columns).view(h, -1, N, n).permute(2, 0, 1, 3)


def whole_output(output: Any) -> Float[Tensor, "N m"]:
    """A tensor as it is; of a model of transformers the last states (or the logits), all positions."""
    found = output
    if not isinstance(output, Tensor):
        found = getattr(output, "last_hidden_state", None)
        found = getattr(output, "logits", None) if found is None else found
    assert isinstance(found, Tensor)
    return found.reshape(len(found), -1)


def state_at(position: int) -> Read:
    """The last state of one position."""
    return lambda output: output.last_hidden_state[:, position].double()


def logits_at(position: int) -> Read:
    """The logits at one position, less their mean: what the softmax sees."""

    def read(output: Any) -> Tensor:
        logits: Tensor = output.logits[:, position].double()
        return logits - logits.mean(-1, keepdim=True)

    return read


def pooled(output: Any) -> Float[Tensor, "N E"]:
    """The mean of the last states over the positions."""
    states: Tensor = output if isinstance(output, Tensor) else output.last_hidden_state
    return states.double().mean(1)
