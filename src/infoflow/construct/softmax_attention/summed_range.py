"""Lemma G.14, reconstructed: one head whose output row is 0 except for sum_i Range_[a,b](w.x_i + t_i) in one column.

A(X) has rows X, I_n, L, L^2 (p columns), the same for every head:

    W_Q = [w' t' 0 0; 0 1' 0 0],   W_K = [0 0 2 lambda 0; 0 0 0 -lambda],   W_V reads L,   W_O = [1_n; 0] e_column'

    error <= n (interpolation error + (b-a) eps0)
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.certificates import Certificate, Claim, stated_limit
from infoflow.certificates.rules import UNIT
from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.attacks import probes_of_interval, worst
from infoflow.construct.softmax_attention.heads import SoftmaxHead
from infoflow.construct.softmax_attention.truncated_linear import TruncatedLinear, on_anchors
from infoflow.errors import InfoFlowError


def shared_affine(X: Float[Tensor, "... d n"], anchors: Anchors) -> Float[Tensor, "... rows p"]:
    """Rows X, I_n, L, L^2 on p >= n columns."""
    n, p = X.shape[-1], anchors.p
    L = anchors.points()
    constant = torch.cat([torch.eye(n, p, dtype=X.dtype), L[None], L[None] ** 2])
    padded = torch.cat([X, X.new_zeros(*X.shape[:-1], p - n)], -1)
    return torch.cat([padded, constant.expand(*X.shape[:-2], *constant.shape)], -2)


def range_head(
    w: Float[Tensor, " d"],
    t: Float[Tensor, " n"],
    anchors: Anchors,
    c: float,
    W_O: Float[Tensor, "p out"],
    W_V: Float[Tensor, "rows d_n_2"] | None = None,
) -> SoftmaxHead:
    """The head on `shared_affine`; scores -lambda (z_i - L_k)^2 up to a column constant, lambda = c / spacing^2."""
    d, n = len(w), len(t)
    scale = c / anchors.spacing**2
    W_Q, W_K = torch.zeros(2, d + n + 2, dtype=torch.float64), torch.zeros(2, d + n + 2, dtype=torch.float64)
    W_Q[0, :d], W_Q[0, d : d + n], W_Q[1, d : d + n] = w, t, 1
    W_K[0, d + n], W_K[1, d + n + 1] = 2 * scale, -scale
    if W_V is None:
        W_V = torch.zeros(1, d + n + 2, dtype=torch.float64)
        W_V[0, d + n] = 1
    return SoftmaxHead(W_K, W_Q, W_V, W_O)


@dataclass(frozen=True)
class SummedRange:
    """sum_i Range_[a,b](w.x_i + t_i) in one column of the output, by one head."""

    one: TruncatedLinear
    n_out: int
    column: int  # 0-based

    @property
    def n(self) -> int:
        """Tokens that are summed."""
        return self.one.n

    @cached_property
    def certificate(self) -> Certificate:
        """n times that of one range."""
        parts = {name: self.n * value for name, value in self.one.certificate.parts.items()}
        bound = sum(parts.values())
        claim = Claim(f"|head - sum of {self.n} ranges|", stated_limit(bound), "every real w.x + t")
        return Certificate(claim, bound, "float64 with rounding allowance", parts=parts)

    @property
    def explicit_rounding(self) -> float:
        """How far float64 may move `explicit` from `fast`."""
        grid = self.one.anchors
        reach = max(abs(grid.a), abs(grid.b)) + (grid.b - grid.a)
        score = 4 * self.one.c / grid.spacing**2 * reach**2
        return self.n * 8 * (self.one.d + 2) * UNIT * score * grid.spacing

    def head(self) -> SoftmaxHead:
        """The head's matrices."""
        grid = self.one.anchors
        W_O = torch.zeros(grid.p, self.n_out, dtype=torch.float64)
        W_O[: self.n, self.column] = 1
        return range_head(self.one.w, self.one.t.expand(self.n), grid, self.one.c, W_O)

    def explicit(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... 1 n_out"]:
        """The same as `fast`, through the dense matrices of the head: slow, to check against."""
        return self.head()(shared_affine(X, self.one.anchors))

    def fast(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... 1 n_out"]:
        """The values by the closed form of one range."""
        out = X.new_zeros(*X.shape[:-2], 1, self.n_out)
        out[..., 0, self.column] = self.one.fast(X).sum(-1)
        return out

    __call__ = fast

    def attack(self, seed: int = 0, seconds: float = 5.0) -> float:
        """All n tokens at the same worst argument."""
        grid = self.one.anchors
        points = probes_of_interval(grid.first, grid.spacing, grid.p, grid.a, grid.b)
        error = worst(lambda z: (self.one.response(z) - z.clamp(grid.a, grid.b)).abs(), points, seed, seconds)
        return self.n * error


def summed_range(
    w: Float[Tensor, " d"] | list[float],
    t: Float[Tensor, " n"] | list[float],
    anchors: Anchors,
    *,
    eps0: float = 0.01,
    n_out: int = 1,
    column: int = 0,
) -> SummedRange:
    """Build it: n tokens with shifts t, the sum written into `column` of `n_out`."""
    n = len(t)
    if not 0 <= column < n_out:
        raise InfoFlowError(f"expected a column between 1 and {n_out}, got {column + 1}; correct it.")
    one = on_anchors(w, t, anchors, eps0, n)
    if one.w.ndim != 1:
        raise InfoFlowError("expected one weight vector for all tokens, got a matrix; only t may differ by token.")
    return SummedRange(one, n_out, column)
