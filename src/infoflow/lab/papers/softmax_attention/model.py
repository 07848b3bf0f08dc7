"""The models the softmax-attention paper trains, with a model axis: one layer (C.1), guided (Figure 3), two (C.2).

A(X) is a per-token elementwise scale, a shared linear map and a learned table over the p columns, of which the last
p - n are empty tokens.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow.nn.attention import Attended, attention, attention_values
from infoflow.nn.transformer import Linear

Stack = tuple[int, ...]


def initialise(network: nn.Module, generator: torch.Generator, factor: float) -> None:
    """Uniform(+-factor/sqrt(fan-in)) for maps, tables normal with std 0.02, per-token scales 1."""
    for name, parameter in network.named_parameters():
        if name.endswith("table"):
            parameter.data.normal_(0.0, 0.02, generator=generator)
        elif name.endswith("scale"):
            parameter.data.fill_(1.0)
        else:
            owner = name.removesuffix("bias") + "weight" if name.endswith("bias") else name
            limit = factor / math.sqrt(network.get_parameter(owner).shape[-1])
            parameter.data.uniform_(-limit, limit, generator=generator)


def rows_of(parameter: Tensor, x: Tensor) -> Tensor:
    """A table (*stack, rows, E) beside a batch (*stack, B, rows, E)."""
    return parameter.unsqueeze(-3) if x.ndim == parameter.ndim + 1 else parameter


class Attend(nn.Module):
    """H heads of size E / H; the first `queries` columns ask, all columns answer."""

    def __init__(self, E: int, H: int, stack: Stack) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (Linear(E, E, stack) for _ in range(4))
        self.H = H

    def forward(self, x: Float[Tensor, "... p E"], queries: int) -> Float[Tensor, "... queries E"]:
        q, k, v = self._heads(self.query(x[..., :queries, :])), self._heads(self.key(x)), self._heads(self.value(x))
        out = attention_values(q, k, v, q.shape[-1] ** -0.5)
        joined: Tensor = self.output(out.transpose(-3, -2).flatten(-2))
        return joined

    def _heads(self, x: Float[Tensor, "... rows E"]) -> Float[Tensor, "... H rows n"]:
        return x.unflatten(-1, (self.H, -1)).transpose(-3, -2)


class Lift(nn.Module):
    """A(X): scale, linear map, empty tokens, table."""

    def __init__(self, d: int, n: int, p: int, hidden: int, stack: Stack, scaled: bool) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(*stack, n, d)) if scaled else None
        self.embed = Linear(d, hidden, stack)
        self.table = nn.Parameter(torch.empty(*stack, p, hidden))

    def forward(self, x: Float[Tensor, "... n d"]) -> Float[Tensor, "... p hidden"]:
        tokens = x if self.scale is None else x * rows_of(self.scale, x)
        lifted = self.embed(tokens)
        empty = self.table.shape[-2] - x.shape[-2]
        return nn.functional.pad(lifted, (0, 0, 0, empty)) + rows_of(self.table, lifted)


class OneLayer(nn.Module):
    """C.1: A, then one attention layer; the label is the first of `hidden` channels."""

    def __init__(self, d: int, n: int, p: int, hidden: int, H: int, stack: Stack) -> None:
        super().__init__()
        self.lift, self.attend = Lift(d, n, p, hidden, stack, scaled=True), Attend(hidden, H, stack)

    def forward(self, x: Float[Tensor, "... n d"]) -> Float[Tensor, "... n hidden"]:
        out: Tensor = self.attend(self.lift(x), x.shape[-2])
        return out

    def initialise(self, generator: torch.Generator, scale: float = 1.0) -> None:
        initialise(self, generator, scale)


class TwoLayers(nn.Module):
    """C.2: A_1, attention, A_2 (affine map and table), attention, read-out of the first n columns."""

    def __init__(self, d: int, n: int, p: int, hidden: int, H: int, stack: Stack) -> None:
        super().__init__()
        self.first, self.attend_1 = Lift(d, n, p, hidden, stack, scaled=False), Attend(hidden, H, stack)
        self.second, self.attend_2 = Lift(hidden, p, p, hidden, stack, scaled=False), Attend(hidden, H, stack)
        self.readout = Linear(hidden, d, stack)
        self.p = p

    def forward(self, x: Float[Tensor, "... n d"]) -> Float[Tensor, "... n d"]:
        middle = self.second(self.attend_1(self.first(x), self.p))
        out: Tensor = self.readout(self.attend_2(middle, x.shape[-2]))
        return out

    def initialise(self, generator: torch.Generator, scale: float = 1.0) -> None:
        initialise(self, generator, scale)


class Guided(nn.Module):
    """Figure 3: the last row of K holds the anchors, V holds them in one row, the rest is trained.

        score[k, i] = q_i . key_k - beta m_k (m_k + 2 L_0),  m_k = L_k - L_0

    With q_i . key_k = 2 beta m_k z_i this is -beta (z_i - L_k)^2 up to what does not depend on k: Theorem 3.4.
    """

    anchors: Tensor

    def __init__(self, d: int, n: int, hidden: int, anchors: Float[Tensor, " p"], beta: float, stack: Stack) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(*stack, n, d))
        self.embed = Linear(d, hidden - 1, stack)
        self.table = nn.Parameter(torch.empty(*stack, len(anchors), hidden - 1))
        self.beta = beta
        self.register_buffer("anchors", anchors)

    def attended(self, x: Float[Tensor, "... n d"]) -> Attended:
        q = self.embed(x * rows_of(self.scale, x))
        move = self.anchors - self.anchors[0]
        fixed = -self.beta * (move * (move + 2 * self.anchors[0])).unsqueeze(-1)
        q = torch.cat([q, torch.ones_like(q[..., :1])], -1)
        k = torch.cat([self.table, fixed.expand(*self.table.shape[:-1], 1)], -1)
        return attention(q, rows_of(k, q), self.anchors.unsqueeze(-1))

    def forward(self, x: Float[Tensor, "... n d"]) -> Float[Tensor, "... n"]:
        return self.attended(x).values[..., 0]

    def initialise(self, generator: torch.Generator, scale: float = 1.0) -> None:
        initialise(self, generator, scale)
