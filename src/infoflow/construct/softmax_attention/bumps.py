"""Lemma 3.11: bumps on a grid of cells, as a ReLU network with two hidden layers.

Centres v in {B(2q+1-g)/g}^N, half width B/g, u = g (x - v)/B:

    phi(u) = clip((u+1)/delta, 0, 1) + clip((1-u)/delta, 0, 1) - 1,   FFN(x) = sum_v f(v) ReLU(sum_i phi(u_i) - N + 1)

    |FFN - f|_p^p <= omega(B/g)^p (2B(1-delta))^N + max(|f|_inf, omega)^p (2B)^N (1 - (1-delta)^N)

phi vanishes outside its own cell, so one cell answers and the network is 0 on every face: no sup-norm statement holds.
The excluded measure is (2B)^N (1 - (1-delta)^N); the paper prints B^N.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.errors import InfoFlowError


def centres(B: float, g: int) -> Float[Tensor, " g"]:
    """The middles of g equal cells of [-B, B]."""
    return B * (2 * torch.arange(g, dtype=torch.float64) + 1 - g) / g


def check_grid(B: float, g: int, delta: float) -> None:
    """Refuse a grid without cells, without extent, or with shells that are no share of a cell."""
    if g < 1:
        raise InfoFlowError(f"expected at least one cell per coordinate, got g={g}; raise g.")
    if not 0 < B < float("inf"):
        raise InfoFlowError(f"expected a positive finite B, got {B}; the domain is [-B, B].")
    if not 0 < delta < 1:
        raise InfoFlowError(f"expected a shell 0 < delta < 1, got {delta}; it is the part of a cell given up.")


@dataclass(frozen=True)
class ReluBumps:
    """f maps (..., N) to (...)."""

    f: Callable[[Float[Tensor, "... N"]], Float[Tensor, " ..."]]
    N: int
    g: int
    delta: float
    B: float = 1.0

    def __post_init__(self) -> None:
        check_grid(self.B, self.g, self.delta)

    def fast(self, x: Float[Tensor, "... N"]) -> Float[Tensor, " ..."]:
        """Only the cell that holds x can answer."""
        q = torch.floor((x + self.B) * self.g / (2 * self.B)).clamp(0, self.g - 1).to(torch.int64)
        v = centres(self.B, self.g)[q]
        u = self.g * (x - v) / self.B
        phi = ((u + 1) / self.delta).clamp(0, 1) + ((1 - u) / self.delta).clamp(0, 1) - 1
        return self.f(v) * torch.relu(phi.sum(-1) - self.N + 1)

    def layers(self) -> list[tuple[Float[Tensor, "out in"], Float[Tensor, " out"]]]:
        """(weight, bias) of the two hidden ReLU layers (4Ng, then g^N units) and of the read-out."""
        N, g, delta, B = self.N, self.g, self.delta, self.B
        if g**N > 100_000:
            raise InfoFlowError(f"expected at most 100000 cells for explicit weights, got {g}^{N}; use fast.")
        first, bias = torch.zeros(N, g, 4, N, dtype=torch.float64), torch.zeros(N, g, 4, dtype=torch.float64)
        for side, sign in enumerate((1.0, -1.0)):
            for piece in range(2):
                for i in range(N):
                    first[i, :, 2 * side + piece, i] = sign * g / (B * delta)
                bias[:, :, 2 * side + piece] = (1 - sign * g * centres(B, g) / B) / delta - piece
        cells = torch.cartesian_prod(*[torch.arange(g)] * N).reshape(g**N, N)
        second = torch.zeros(g**N, N, g, 4, dtype=torch.float64)
        signs = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
        for i in range(N):
            second[torch.arange(g**N), i, cells[:, i]] = signs
        second_bias = torch.full((g**N,), 1.0 - 2 * N, dtype=torch.float64)  # -N from the N "-1"s, then -N + 1
        read = self.f(centres(B, g)[cells])
        zero = torch.zeros(1, dtype=torch.float64)
        return [(first.reshape(-1, N), bias.reshape(-1)), (second.reshape(g**N, -1), second_bias), (read[None], zero)]

    def explicit(self, x: Float[Tensor, "... N"]) -> Float[Tensor, " ..."]:
        """The bumps through the weight matrices, layer by layer."""
        hidden = x
        *layers, (weight, bias) = self.layers()
        for inner, shift in layers:
            hidden = torch.relu(hidden @ inner.mT + shift)
        return (hidden @ weight.mT + bias)[..., 0]

    def bound(self, omega: float, largest: float, p: float = 2.0) -> float:
        """|FFN - f|_p, from omega = omega_f(B/g) in the sup norm and `largest` = |f|_inf."""
        volume = (2 * self.B) ** self.N
        core = (1 - self.delta) ** self.N
        return float((omega**p * volume * core + max(largest, omega) ** p * volume * (1 - core)) ** (1 / p))
