"""The networks the softmax-attention paper trains, as its published code has them, with a model axis: one attention
layer (Figure 2), one whose keys and values hold the anchors (Figure 3), two (Figure 4)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow.nn.attention import Attended, attention, attention_values
from infoflow.nn.transformer import Linear

Stack = tuple[int, ...]
OFFSET = 1.0  # the published code's t in the guided keys, whatever the offsets of the labels are


def initialise(network: nn.Module, generator: torch.Generator, factor: float) -> None:
    """Maps uniform on +-factor / sqrt(fan-in), weights and biases; scales 1; extra tokens from -1 to 1."""
    for name, parameter in network.named_parameters():
        if name.endswith("scale"):
            parameter.data.fill_(1.0)
        elif name.endswith("extra"):
            count = parameter.shape[-2]
            parameter.data.copy_(torch.linspace(-1, 1, count).to(parameter).unsqueeze(-1).expand_as(parameter))
        else:
            owner = name.removesuffix("bias") + "weight" if name.endswith("bias") else name
            limit = factor / math.sqrt(network.get_parameter(owner).shape[-1])
            parameter.data.uniform_(-limit, limit, generator=generator)


def rows_of(parameter: Tensor, x: Tensor) -> Tensor:
    """A table (*stack, rows, E) beside a batch (*stack, B, rows, E)."""
    return parameter.unsqueeze(-3) if x.ndim == parameter.ndim + 1 else parameter


class Attend(nn.Module):
    """H heads of size E / H with biases everywhere; the first `queries` columns ask, all columns answer."""

    def __init__(self, E: int, H: int, stack: Stack) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (Linear(E, E, stack) for _ in range(4))
        self.H = H

    def forward(self, x: Float[Tensor, "... p E"], queries: int) -> Float[Tensor, "... queries E"]:
        """The first `queries` rows attend to all of them."""
        q, k, v = self._heads(self.query(x[..., :queries, :])), self._heads(self.key(x)), self._heads(self.value(x))
        out = attention_values(q, k, v, q.shape[-1] ** -0.5)
        joined: Tensor = self.output(out.transpose(-3, -2).flatten(-2))
        return joined

    def _heads(self, x: Float[Tensor, "... rows E"]) -> Float[Tensor, "... H rows n"]:
        return x.unflatten(-1, (self.H, -1)).transpose(-3, -2)


class Lift(nn.Module):
    """A(X): a linear map, then an elementwise scale for every position, then p - n learned tokens."""

    def __init__(self, d: int, n: int, p: int, hidden: int, stack: Stack) -> None:
        super().__init__()
        self.embed = Linear(d, hidden, stack)
        self.scale = nn.Parameter(torch.empty(*stack, n, hidden))
        self.extra = nn.Parameter(torch.empty(*stack, p - n, hidden)) if p > n else None

    def forward(self, x: Float[Tensor, "... n d"]) -> Float[Tensor, "... p hidden"]:
        """Tokens embedded, scaled, and the learned extra rows behind them."""
        tokens: Tensor = self.embed(x)
        tokens = tokens * rows_of(self.scale, tokens)
        if self.extra is None:
            return tokens
        extra = rows_of(self.extra, tokens).expand(*tokens.shape[:-2], -1, -1)
        return torch.cat([tokens, extra], -2)


class Published(nn.Module):
    """A network of the published code: its initial weights follow the law of that code, not ours."""

    def initialise(self, generator: torch.Generator, scale: float = 1.0) -> None:
        """The law of the published code."""
        initialise(self, generator, scale)


class SingleLayer(Published):
    """Figure 2: A, then one attention layer; the label is in the first of `hidden` channels."""

    def __init__(self, d: int, n: int, p: int, hidden: int, H: int, stack: Stack) -> None:
        super().__init__()
        self.lift, self.attend = Lift(d, n, p, hidden, stack), Attend(hidden, H, stack)

    def forward(self, x: Float[Tensor, "... n d"]) -> Float[Tensor, "... n hidden"]:
        """One attention layer over the lifted tokens."""
        out: Tensor = self.attend(self.lift(x), x.shape[-2])
        return out


class TwoLayers(Published):
    """Figure 4: A_1, attention, an affine map A_2, attention, an affine read-out of the first n columns."""

    def __init__(self, d: int, n: int, p: int, hidden: int, H: int, stack: Stack) -> None:
        super().__init__()
        self.lift, self.attend_1 = Lift(d, n, p, hidden, stack), Attend(hidden, H, stack)
        self.second, self.attend_2 = Linear(hidden, hidden, stack), Attend(hidden, H, stack)
        self.readout = Linear(hidden, d, stack)
        self.p = p

    def forward(self, x: Float[Tensor, "... n d"]) -> Float[Tensor, "... n d"]:
        """Two attention layers with a map between them."""
        middle = self.second(self.attend_1(self.lift(x), self.p))
        out: Tensor = self.readout(self.attend_2(middle, x.shape[-2]))
        return out


class Guided(Published):
    """Figure 3, p = n: the last channel of the keys and one channel of the values are overwritten by the anchors L_k,

        key_k[last] = k (L_k + L_0) - 2 k t,   value_k[column] = L_k,   score = beta q . key / sqrt(hidden),

    with t = 1 whatever the labels' offsets; the rest, the output map included, is trained.
    """

    anchors: Tensor

    def __init__(
        self, d: int, n: int, hidden: int, anchors: Float[Tensor, " p"], beta: float, column: int, stack: Stack
    ) -> None:
        super().__init__()
        self.lift = Lift(d, n, len(anchors), hidden, stack)
        self.query, self.key, self.value, self.output = (Linear(hidden, hidden, stack) for _ in range(4))
        self.beta, self.column = beta, column
        self.register_buffer("anchors", anchors)

    def attended(self, x: Float[Tensor, "... n d"]) -> Attended:
        """Values and weights of a head whose keys are the theorem's."""
        tokens = self.lift(x)
        count = torch.arange(len(self.anchors), device=x.device, dtype=x.dtype)
        guide = count * (self.anchors + self.anchors[0]) - 2 * count * OFFSET
        k = overwritten(self.key(tokens), tokens.shape[-1] - 1, guide)
        v = overwritten(self.value(tokens), self.column, self.anchors)
        return attention(self.query(tokens), k, v, self.beta * tokens.shape[-1] ** -0.5)

    def forward(self, x: Float[Tensor, "... n d"]) -> Float[Tensor, "... n hidden"]:
        """The guided values through the output map."""
        out: Tensor = self.output(self.attended(x).values)
        return out


def overwritten(x: Float[Tensor, "... p E"], channel: int, values: Float[Tensor, " p"]) -> Float[Tensor, "... p E"]:
    """x with one channel replaced."""
    held = torch.arange(x.shape[-1], device=x.device) == channel
    return torch.where(held, values.to(x).unsqueeze(-1), x)
