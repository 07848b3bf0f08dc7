"""What a head does on average: its mean pattern by position and its mean output, streamed over documents.

These are the stand-ins an intervention puts in a head's place. They come from other documents than those the
intervention is measured on.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.probes.record import AnyRecording
from infoflow.probes.tap import Step


class References:
    """Consumer: per layer the mean of p(t, s) over documents where s is visible to t, and the mean head output.

    The tables are heads x queries x keys in float32 on the CPU: 4 h Q K bytes a layer, whatever the number of
    documents. A pair never seen has mean 0.
    """

    def __init__(self, heads: Sequence[int]) -> None:
        self.sums: list[Tensor | None] = [None] * len(heads)  # (h, Q, K)
        self.counts: list[Tensor] = [torch.zeros(0, 0)] * len(heads)  # (Q, K)
        self.outputs: list[Tensor] = [torch.zeros(h, 1) for h in heads]  # (h, m)
        self.queries: list[float] = [0.0] * len(heads)

    def __call__(self, step: Step) -> None:
        asked = step.counted()
        rows = asked[:, None, :, None]
        pattern = torch.where(rows, step.weights, 0.0)
        total = pattern.sum(0).float().cpu()
        seen = (step.shown()[:, 0] & asked[:, :, None]).sum(0).float().cpu()
        output = (pattern @ step.v).sum((0, 2)).float().cpu()
        l = step.layer
        old = self.sums[l]
        self.sums[l] = total if old is None else _add(old, total)
        self.counts[l] = seen if old is None else _add(self.counts[l], seen)
        self.outputs[l] = self.outputs[l] + output
        self.queries[l] += float(asked.sum())

    def pattern(self, layer: int) -> Float[Tensor, "h Q K"]:
        """m(t, s): the mean weight by position."""
        total = self.sums[layer]
        assert total is not None
        return total / self.counts[layer].clamp(min=1)

    def output(self, layer: int) -> Float[Tensor, "h m"]:
        """The mean output of each head."""
        return self.outputs[layer] / max(self.queries[layer], 1.0)


def measure_references(recording: AnyRecording) -> References:
    found = References(recording.heads)
    recording.feed(found)
    return found


def _add(a: Tensor, b: Tensor) -> Tensor:
    """a + b where one may be longer (documents of different lengths)."""
    if a.shape == b.shape:
        return a.add_(b)
    shape = [max(x, y) for x, y in zip(a.shape, b.shape, strict=True)]
    result = a.new_zeros(shape)
    for part in (a, b):
        result[tuple(slice(0, size) for size in part.shape)] += part
    return result
