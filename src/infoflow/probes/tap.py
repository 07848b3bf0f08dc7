"""The tap: one object through which every attention of a model runs while it is watched or edited.

A model's forward pass calls `Tap.attend` once per layer (adapters.py sees to that); the tap numbers the calls, lets
an `edit` replace the arithmetic, and hands a finished `Step` to `watch` as soon as the residual state behind the
attention is known. Only one layer is ever held, so memory does not grow with depth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.nn import Attended, attention


@dataclass
class Step:
    """One attention layer of one batch. B documents, h heads, Q queries, K keys, n the head dimension.

    `before` is the residual stream the layer reads, `after` the stream once the attention is added (behind the norm
    when the norm stands there). Queries are the first Q rows of `before`, or its last Q rows when only the CLS asks.
    """

    layer: int  # 0-based
    document: int  # number of the first document of the batch
    before: Float[Tensor, "B rows E"]
    after: Float[Tensor, "B Q E"]
    q: Float[Tensor, "B h Q n"]
    k: Float[Tensor, "B h K n"]
    v: Float[Tensor, "B h K m"]
    weights: Float[Tensor, "B h Q K"]
    scale: float
    visible: Bool[Tensor, " ..."] | None  # True where a key may be seen; broadcasts to (B, h, Q, K)
    asked: Bool[Tensor, "B Q"] | None = None  # False at padding; None: every query counts
    sinks: Bool[Tensor, "B K"] | None = None  # first and separator tokens; None: the input has none
    tokens: Float[Tensor, "B K d"] | None = None  # the input vectors, where tokens are vectors
    ids: Int[Tensor, "B K"] | None = None  # equal numbers for equal tokens, where tokens stand for the keys

    @property
    def scores(self) -> Float[Tensor, "B h Q K"]:
        """scale <q_t, k_s>, minus infinity where s is hidden; computed when it is asked for."""
        scores = self.q @ self.k.transpose(-1, -2) * self.scale
        return scores if self.visible is None else scores.masked_fill(~self.visible, -torch.inf)

    def shown(self) -> Bool[Tensor, "B h Q K"]:
        """The visibility mask, spelled out for every head and query."""
        shape, device = self.weights.shape, self.weights.device
        if self.visible is None:
            return torch.ones((), dtype=torch.bool, device=device).expand(shape)
        return self.visible.expand(shape)

    def counted(self) -> Bool[Tensor, "B Q"]:
        """The queries that count: not padding."""
        B, _, Q, _ = self.weights.shape
        if self.asked is None:
            return torch.ones(B, Q, dtype=torch.bool, device=self.weights.device)
        return self.asked


Edit = Callable[[int, Tensor, Tensor, Tensor, float, Tensor | None, bool], Attended | None]
Watch = Callable[[int, dict[str, Any]], None]
Entry = Callable[[int, Tensor], Tensor]


class Tap:
    """State of one watched forward pass; the adapters call the methods below in the order of the pass."""

    def __init__(self, edit: Edit | None = None, watch: Watch | None = None) -> None:
        self.edit, self.watch = edit, watch
        self.entry: Entry | None = None  # sees the stream in front of every layer, and may replace it
        self.start()

    def start(self) -> None:
        """A new forward pass begins."""
        self.layer = 0
        self.cores: list[Any] = []  # the module of each attention call, in order
        self.sizes: list[int] = []  # its number of heads
        self.block_input: Tensor | None = None
        self.core_input: Tensor | None = None
        self.core_output: Tensor | None = None
        self.pending: dict[str, Any] | None = None
        self.mask: tuple[Any, Tensor | None] | None = None

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float = 1.0,
        mask: Tensor | None = None,
        hard: bool = False,
        core: Any = None,
    ) -> Attended:
        """`infoflow.nn.attention`, numbered, edited where an edit applies, and watched."""
        layer, self.layer = self.layer, self.layer + 1
        self.cores.append(core)
        self.sizes.append(q.shape[-3])
        result = self.edit(layer, q, k, v, scale, mask, hard) if self.edit is not None else None
        result = attention(q, k, v, scale, mask, hard) if result is None else result
        if self.watch is not None:
            self.close(None)
            fields = {"q": q, "k": k, "v": v, "weights": result.weights, "scale": scale, "visible": mask}
            self.pending = {"layer": layer, **fields}
        return result

    def close(self, after: Tensor | None) -> None:
        """The state behind the pending attention is known (or, with None, must be put together): emit the step."""
        if self.pending is None or self.watch is None:
            return
        pending, self.pending = self.pending, None
        before = self.block_input
        if before is None:
            return
        if after is None:
            if self.core_output is None:
                return
            after = before + self.core_output
        layer = pending.pop("layer")
        self.watch(layer, {"before": before, "after": after, **pending})
