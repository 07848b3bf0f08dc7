"""The forward pass of a planted network taken apart: what each head adds to the stream, and passes where heads or
edges between heads carry the values of another input.

    x'_l(t) = x_l(t) + sum_i c_{l,i}(t),  c_{l,i}(t) = W_O,i sum_s p_i(t, s) W_V,i x_l(s)

A head's contribution has one row per query; in the last layer only the CLS asks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, attention
from infoflow.nn.transformer import AttentionLayer, _heads
from infoflow.probes.benchmark.truth import Node

Change = Callable[[int, Float[Tensor, "B h Q E"]], Float[Tensor, "B h Q E"]]


@dataclass
class Pass:
    """What one forward pass saw, layer by layer."""

    streams: list[Tensor]  # x_l (B, rows, E_l)
    contributions: list[Tensor]  # (B, h, Q, E_l)
    weights: list[Tensor]  # (B, h, Q, T)
    output: Tensor  # (B, outputs)


class Engine:
    """A planted network, layer by layer."""

    def __init__(self, model: Transformer) -> None:
        c = model.config
        if c.layer_norm or not c.residual or not c.cls or c.hard or model.stack or c.encoder == "table":
            raise InfoFlowError("expected a planted network (a CLS, residual attention, no norms), got another model.")
        self.model, self.layers, self.heads = model, c.layers, c.heads

    def nodes(self) -> list[Node]:
        return [(l, i) for l, h in enumerate(self.heads) for i in range(h)]

    def attend(self, l: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Contributions (B, h, Q, E) and weights of all heads of layer l for the stream x."""
        layer = self.layer(l)
        T, cls_only = x.shape[-2] - 1, l == self.layers - 1
        asked = x[:, T:] if cls_only else x
        q, k = _heads(asked, layer.query), _heads(x[:, :T], layer.key)
        assert layer.value is not None
        v = _heads(x[:, :T], layer.value)
        values, weights = attention(q, k, v, layer.beta, layer._visible(asked.shape[-2], T, cls_only, x.device))
        h, n = layer.query.shape[:2]
        out = layer.output.view(-1, h, n)
        return torch.einsum("bhqn,ehn->bhqe", values, out), weights

    def layer(self, l: int) -> AttentionLayer:
        layer = self.model.attentions[l]
        assert isinstance(layer, AttentionLayer)
        return layer

    def behind(self, l: int, x: Tensor, added: Tensor) -> Tensor:
        """The stream of the next layer (or the output) from x_l and the sum of the contributions."""
        asked = x[:, -1:] if l == self.layers - 1 else x
        if l < self.layers - 1:
            after: Tensor = self.model.ffns[l](asked + added)
            return after
        assert self.model.readout is not None
        y: Tensor = self.model.readout(asked + added)
        return y[:, 0]

    def run(self, X: Tensor, change: Change | None = None, start: Tensor | None = None) -> Pass:
        """A forward pass; `change` may replace the contributions of a layer, `start` the embedded stream."""
        x = self.model.embed(X) if start is None else start
        streams, contributions, weights = [], [], []
        for l in range(self.layers):
            c, p = self.attend(l, x)
            c = c if change is None else change(l, c)
            streams.append(x)
            contributions.append(c)
            weights.append(p)
            x = self.behind(l, x, c.sum(1))
        return Pass(streams, contributions, weights, x)

    def finish(self, l: int, x: Tensor, c: Tensor) -> Tensor:
        """The output from layer l on, with these contributions there and free ones behind."""
        x = self.behind(l, x, c.sum(1))
        for k in range(l + 1, self.layers):
            x = self.behind(k, x, self.attend(k, x)[0].sum(1))
        return x

    def swapped(self, clean: Pass, other: Pass, node: Node) -> Tensor:
        """The output when one head carries what it wrote on the other input."""
        l, i = node
        c = clean.contributions[l].clone()
        c[:, i] = other.contributions[l][:, i]
        return self.finish(l, clean.streams[l], c)


def spread(y: Tensor) -> float:
    """The variance of the outputs, summed over their coordinates."""
    return float(y.double().var(0, unbiased=False).sum())


def nmse(y: Tensor, wanted: Tensor) -> float:
    return float((y - wanted).double().square().sum(-1).mean()) / max(spread(wanted), 1e-30)
