"""Theorem 3.4 and Corollary G.6, repaired: one head computes n truncated linear models at once.

    out_i ~ Range_[a,b](w_i . x_i + t_i),   score[k, i] = -(beta spacing / 2) k (L_k + L_0 - 2 z_i)
                                                        = -(beta / 2) (z_i - L_k)^2 + (constant in k)

beta sits in W_K alone (the paper has it in W_K and in W_Q, so squared). With c = beta spacing^2 / 2 >= ln((p-2)/eps0):

    |out_i - Range(z_i)| <= interpolation error of the grid + (b-a) eps0        for every real z_i

because the two anchors around z hold all but eps0 of the weight (the third score is at least c below the first) and a
two-anchor mean is within spacing/2 of z; beyond the ends the end anchor holds all but sum_m m exp(-c m^2) <= p eps0.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.certificates import Certificate, Claim, stated_limit
from infoflow.certificates.rules import UNIT
from infoflow.construct.softmax_attention.anchors import Anchors, check_finite, check_interval
from infoflow.construct.softmax_attention.attacks import probes_of_interval, worst
from infoflow.construct.softmax_attention.heads import SoftmaxHead
from infoflow.construct.softmax_attention.lemma_f1 import beta_pair
from infoflow.construct.softmax_attention.window import in_chunks, selected
from infoflow.errors import InfoFlowError

MOST_ANCHORS = 2**52  # their indices are exact in float64
EXPLICIT_LIMIT = 4096  # anchors; the explicit head forms p x p scores, for verification only


@dataclass(frozen=True)
class TruncatedLinear:
    """`w` is (d,) for all tokens or (n, d); `t` a scalar tensor or (n,). `n` is the number of tokens."""

    w: Float[Tensor, " ..."]
    t: Float[Tensor, " ..."]
    anchors: Anchors
    n: int
    beta: float
    eps0: float
    asked: float | None = None  # None: the bound itself, rounded up

    @property
    def c(self) -> float:
        """lambda spacing^2, the only dimensionless number of the head."""
        return self.beta * self.anchors.spacing**2 / 2

    @property
    def d(self) -> int:
        """Numbers a token."""
        return self.w.shape[-1]

    @property
    def per_token(self) -> bool:
        """Whether weights or shifts differ from token to token."""
        return self.w.ndim == 2 or self.t.ndim == 1

    @property
    def heads(self) -> int:
        """Always 1: all tokens share the head."""
        return 1

    @property
    def explicit_rounding(self) -> float:
        """What expanded scores may add to an output of the explicit head, for z within b - a of [a, b].

        A score is at most c p (p + 2 |z - L_0| / spacing) and is off by a few units; a relative weight error r moves
        the mean of two anchors by at most r spacing / 2: a multiple of c p (b-a) u / 4.
        """
        score = 5 * self.c * self.anchors.p**2
        return 8 * (self.d + 2) * UNIT * score * self.anchors.spacing / 2

    def save(self, path: str | Path) -> Path:
        """The call that made it and its numbers; `load` makes it again and compares."""
        from infoflow.construct.softmax_attention.saving import save_truncated_linear

        return save_truncated_linear(self, path)

    @cached_property
    def certificate(self) -> Certificate:
        """Interpolation, softmax and rounding, added up."""
        width = self.anchors.b - self.anchors.a
        parts = {
            "interpolation": self.anchors.interpolation_error,
            "softmax": width * self.eps0,
            "rounding": rounding(self.anchors.a, self.anchors.b, self.c),
        }
        bound = sum(parts.values())
        limit = stated_limit(bound) if self.asked is None else self.asked
        return Certificate(
            Claim(f"|head - Range_[{self.anchors.a:g}, {self.anchors.b:g}](z)|", limit, "every real z = w.x + t"),
            bound,
            "float64 with rounding allowance, as a function of z = w.x + t",
            ("the fast evaluation, scores by direct differences",),
            parts=parts,
        )

    def preactivation(self, X: Float[Tensor, "... d tokens"]) -> Float[Tensor, "... tokens"]:
        """w.x + t of every token."""
        if self.w.ndim == 1:
            return self.w.to(X.dtype) @ X + self.t.to(X.dtype)
        return (self.w.to(X.dtype).mT * X).sum(-2) + self.t.to(X.dtype)

    def response(self, z: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
        """The head as a function of z = w.x + t, by the anchors around z."""
        grid = self.anchors

        def one_piece(piece: Tensor) -> Tensor:
            def value(k: Tensor) -> Tensor:
                return grid.first + grid.spacing * k.to(piece.dtype)

            return selected(piece, value, grid.first, grid.spacing, self.c, 0, grid.p - 1)

        return in_chunks(one_piece, z)

    def fast(self, X: Float[Tensor, "... d tokens"]) -> Float[Tensor, "... tokens"]:
        """The values by the closed form of the softmax average."""
        self._check(X)
        return self.response(self.preactivation(X))

    def target(self, X: Float[Tensor, "... d tokens"]) -> Float[Tensor, "... tokens"]:
        """What it approximates: w.x + t clamped to [a, b]."""
        return self.preactivation(X).clamp(self.anchors.a, self.anchors.b)

    def affine(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... rows p"]:
        """A(X): tokens, k-scaled weights, ell_k, values, indicator of the first n columns.

        Shared w, t: 2d + 1 + 2 rows, as in (G.4). Per token: [x_i * w_i; t_i] against k 1_{d+1}: 2(d+1) + 1 + 2 rows.
        """
        self._check(X, exactly=True)
        p, L = self.anchors.p, self.anchors.points()
        if p > EXPLICIT_LIMIT:
            raise InfoFlowError(
                f"expected at most {EXPLICIT_LIMIT} anchors for the explicit matrices, got {p}; use fast instead."
            )
        k = torch.arange(p, dtype=X.dtype)
        ell = k * (L + L[0])
        if self.per_token:
            bias = (self.t + torch.zeros(self.n, dtype=X.dtype)).expand(*X.shape[:-2], 1, self.n)
            tokens = torch.cat([(self.w.mT if self.w.ndim == 2 else self.w[:, None]) * X, bias], -2)
            keys = k.expand(self.d + 1, p)
        else:
            tokens, keys, ell = X, self.w[:, None] * k, ell - 2 * k * self.t
        ones = (torch.arange(p) < self.n).to(X.dtype)
        table = torch.stack([*keys, ell, L, ones])
        padded = torch.cat([tokens, tokens.new_zeros(*tokens.shape[:-1], p - self.n)], -1)
        return torch.cat([padded, table.expand(*X.shape[:-2], *table.shape)], -2)

    def projections(self) -> SoftmaxHead:
        """W_K, W_Q and W_V, without the p x n matrix W_O that drops the padding queries."""
        r = self.d + 1 if self.per_token else self.d
        rows = 2 * r + 3
        W_Q, W_K = torch.zeros(r + 1, rows, dtype=torch.float64), torch.zeros(r + 1, rows, dtype=torch.float64)
        W_Q[:r, :r] = -torch.eye(r, dtype=torch.float64)
        W_Q[r, 2 * r + 2] = -1
        W_K[:r, r : 2 * r] = -2 * torch.eye(r, dtype=torch.float64)
        W_K[r, 2 * r] = 1
        W_V = torch.zeros(1, rows, dtype=torch.float64)
        W_V[0, 2 * r + 1] = 1
        return SoftmaxHead(W_K * (self.beta * self.anchors.spacing / 2), W_Q, W_V)

    def head(self) -> SoftmaxHead:
        """The matrices, the output included."""
        return replace(self.projections(), W_O=torch.eye(self.anchors.p, self.n, dtype=torch.float64))

    def explicit(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... n"]:
        """The same as `fast`, through the dense matrices of the head: slow, to check against."""
        return self.head()(self.affine(X))[..., 0, :]

    __call__ = fast

    def attack(self, seed: int = 0, seconds: float = 5.0) -> float:
        """Largest error over anchors, midpoints, both ends, their neighbours, far outside and random points."""
        grid = self.anchors
        points = probes_of_interval(grid.first, grid.spacing, grid.p, grid.a, grid.b)
        return worst(lambda z: (self.response(z) - z.clamp(grid.a, grid.b)).abs(), points, seed, seconds)

    def _check(self, X: Tensor, exactly: bool = False) -> None:
        if X.ndim < 2 or X.shape[-2] != self.d:
            raise InfoFlowError(f"expected X with {self.d} rows, got shape {tuple(X.shape)}; tokens are columns.")
        if (exactly or self.per_token) and X.shape[-1] != self.n:
            raise InfoFlowError(f"expected {self.n} tokens, got {X.shape[-1]}; build the head for this length.")


def truncated_linear(
    w: Float[Tensor, " ..."] | list[float],
    t: Float[Tensor, " ..."] | float | list[float],
    a: float,
    b: float,
    eps: float,
    *,
    n: int = 1,
    grid: str = "paper",
) -> TruncatedLinear:
    """One head for Range_[a,b](w.x + t) within eps; the anchors and beta follow (Corollary G.6).

    p = max(n+1, 3, ceil(2 (b-a)/eps)); eps0 = (eps less interpolation error and rounding)/(b-a), about eps / (2 (b-a)).
    """
    check_interval(a, b)
    p, eps0 = _sizes(a, b, eps, n, grid)
    return replace(on_anchors(w, t, Anchors(a, b, p, grid), eps0, n), asked=eps)


def on_anchors(
    w: Float[Tensor, " ..."] | list[float],
    t: Float[Tensor, " ..."] | float | list[float],
    anchors: Anchors,
    eps0: float = 0.01,
    n: int = 1,
) -> TruncatedLinear:
    """One head for Range_[a,b](w.x + t) on given anchors; eps0 is the weight beside the two nearest of them.

    beta = 2 ln((p-2)/eps0) / spacing^2.
    """
    weights, bias = torch.as_tensor(w, dtype=torch.float64), torch.as_tensor(t, dtype=torch.float64)
    check_finite("w", weights)
    check_finite("t", bias)
    _check_shapes(weights, bias, n)
    p = anchors.p
    if p < 3:
        raise InfoFlowError(f"expected p >= 3 anchors, got p={p}; with two the sharpness ln(p-2) is undefined.")
    if p < n:
        raise InfoFlowError(f"expected p >= n anchors (one column per token), got p={p}, n={n}; raise p.")
    if not 0 < eps0 <= 0.5:
        raise InfoFlowError(f"expected 0 < eps0 <= 1/2, got {eps0}; choose a softmax error in that range.")
    return TruncatedLinear(weights, bias, anchors, n, 2 * beta_pair(anchors.spacing**2, p, eps0), eps0)


def rounding(a: float, b: float, c: float) -> float:
    """Of the fast evaluation: z - L_k off by a few units of max(|a|, |b|), weights by c times that in relation."""
    return 64 * UNIT * max(abs(a), abs(b)) * (1 + c)


def _sizes(a: float, b: float, eps: float, n: int, grid: str) -> tuple[int, float]:
    """(p, eps0) with interpolation + (b-a) eps0 + rounding <= eps: p as in Corollary G.6, eps0 from what is left.

    The rounding depends on c = ln((p-2)/eps0), bounded before eps0 is known by asking for eps0 >= eps/(64 (b-a)).
    """
    if not 0 < eps < math.inf:
        raise InfoFlowError(f"expected a positive error eps, got {eps}; choose eps > 0.")
    width = b - a
    if 2 * width / eps > MOST_ANCHORS:
        raise InfoFlowError(f"expected at most {MOST_ANCHORS} anchors, eps={eps:g} asks for more; raise eps.")
    p = max(n + 1, 3, math.ceil(2 * width / eps))
    lost = rounding(a, b, math.log(p * max(2.0, 64 * width / eps)))
    left = (eps - lost - Anchors(a, b, p, grid).interpolation_error) * (1 - 2.0**-30) - 4 * UNIT * eps
    if left < eps / 64:
        raise InfoFlowError(
            f"expected eps well above the rounding of float64 on [{a:g}, {b:g}], {lost:.2g}, got {eps:g}; raise eps."
        )
    return p, min(0.5, left / width)


def relu(w: Tensor | list[float], t: float, largest: float, eps: float, n: int = 1) -> TruncatedLinear:
    """Example H.1: ReLU(w.x + t) for pre-activations up to `largest`; beyond it the head saturates."""
    return truncated_linear(w, t, 0.0, largest, eps, n=n)


def hard_tanh(w: Tensor | list[float], t: float, eps: float, n: int = 1) -> TruncatedLinear:
    """Example H.2: clip(w.x + t, -1, 1)."""
    return truncated_linear(w, t, -1.0, 1.0, eps, n=n)


def clipped_relu(w: Tensor | list[float], t: float, cap: float, eps: float, n: int = 1) -> TruncatedLinear:
    """Example H.3: min(max(w.x + t, 0), cap)."""
    return truncated_linear(w, t, 0.0, cap, eps, n=n)


def _check_shapes(w: Tensor, t: Tensor, n: int) -> None:
    if n < 1 or w.ndim not in (1, 2) or w.shape[-1] < 1 or (w.ndim == 2 and len(w) != n):
        raise InfoFlowError(f"expected w of shape (d,) or ({n}, d), got {tuple(w.shape)}; one row per token.")
    if t.ndim > 1 or (t.ndim == 1 and len(t) != n):
        raise InfoFlowError(f"expected one bias or {n} of them, got shape {tuple(t.shape)}; one per token.")
