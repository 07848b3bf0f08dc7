"""Theorem 3.9 and Corollary 3.10, repaired: H heads share the anchors, A(X) = [X; I_n] is token-wise.

n >= 3 tokens carry n keys; with m = n - 2, p = m H and spacing = (b-a)/p, head h uses k = (h-1)m - 1, ..., hm, the
first and last being sentinels. Scores are -(beta/spacing)(z - L_k)^2. Sentinels have value 0, except head 1's left one
(index -1: value a) and head H's right one (index p: value b); the paper leaves these at 0 and so
outputs 0 for z > b - spacing/2.

With q = exp(-beta spacing) and eps0 = (H+1)(n-1) q, for every real z:   |out - Range(z)| <= spacing/2 + M eps0.
One owner: its two leading keys give a mean within spacing/2, its rest moves it by 2M(n-2)q, each other head leaks
M(n-1)q. Two owners see the same two leading scores, so their weights are complementary: 3M(n-2)q and M(H-2)(n-1)q.
Beyond the ends the outer sentinel leads: 2M(n-1)q and M(H-1)(n-1)q. All are at most M (H+1)(n-1) q.
"""

import math
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.certificates import Certificate, Claim, stated_limit
from infoflow.certificates.rules import UNIT
from infoflow.construct.softmax_attention.anchors import check_finite, check_interval
from infoflow.construct.softmax_attention.attacks import probes_of_interval, worst
from infoflow.construct.softmax_attention.heads import SoftmaxHead, attend
from infoflow.construct.softmax_attention.window import in_chunks, selected
from infoflow.errors import InfoFlowError


@dataclass(frozen=True)
class MultiHeadTruncatedLinear:
    """`w` is (d,), or (n, d) with gated heads (n H of them, inputs within `radius`); `t` a scalar or (n,)."""

    w: Float[Tensor, " ..."]
    t: Float[Tensor, " ..."]
    a: float
    b: float
    n: int
    H: int
    eps0: float
    radius: float | None = None

    @property
    def m(self) -> int:
        """Anchors of one head."""
        return self.n - 2

    @property
    def p(self) -> int:
        """Anchors of all heads."""
        return self.m * self.H

    @property
    def spacing(self) -> float:
        """The distance between neighbouring anchors."""
        return (self.b - self.a) / self.p

    @property
    def c(self) -> float:
        """How far the softmax of the right anchor leads, in nats."""
        return math.log((self.H + 1) * (self.n - 1) / self.eps0)

    @property
    def beta(self) -> float:
        """The inverse temperature: c over the spacing."""
        return self.c / self.spacing

    @property
    def gated(self) -> bool:
        """Whether every token has weights of its own, and so heads of its own."""
        return self.w.ndim == 2

    @property
    def heads(self) -> int:
        """H, or n H where every token has weights of its own and needs gates."""
        return self.H * (self.n if self.gated else 1)

    @property
    def bonus(self) -> float:
        """Lambda: exceeds every score difference a foreign query can meet in a head, by c and by ln of the heads.

        (beta/spacing)|L_k - L_s||2z - L_k - L_s| <= c n (2|z| + 2M + 2 n spacing)/spacing if |z| <= radius |w|_1 + |t|.
        """
        if not self.gated or self.radius is None:
            return 0.0
        reach = self.radius * float(self.w.abs().sum(-1).max()) + float(self.t.abs().max())
        M = max(abs(self.a), abs(self.b))
        return self.c * self.n * 2 * (reach + M + self.n * self.spacing) / self.spacing + self.c + math.log(self.heads)

    def save(self, path: str | Path) -> Path:
        """The call that made it and its numbers; `load` makes it again and compares."""
        from infoflow.construct.softmax_attention.saving import save_truncated_linear

        return save_truncated_linear(self, path)

    @cached_property
    def certificate(self) -> Certificate:
        """Interpolation, softmax and rounding, added up."""
        M = max(abs(self.a), abs(self.b))
        parts = {
            "interpolation": self.spacing / 2,
            "softmax": M * self.eps0,
            "rounding": 64 * UNIT * M * (1 + self.c) * (self.H + 1),
        }
        inputs = f"{self.n} tokens with any w.x + t"
        if self.gated:
            parts["gates"] = self.heads * self.n * M * math.exp(-self.c) / self.heads
            inputs = f"{self.n} tokens with entries within {self.radius:g} (the gates' bonus covers no more)"
        bound = sum(parts.values())
        claim = Claim(f"|heads - Range_[{self.a:g}, {self.b:g}](w.x + t)|", stated_limit(bound), inputs)
        return Certificate(claim, bound, "float64 with rounding allowance", parts=parts)

    def affine(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... rows n"]:
        """The input with one-hot positions beneath it."""
        self._check(X)
        positions = torch.eye(self.n, dtype=X.dtype)
        return torch.cat([X, positions.expand(*X.shape[:-2], self.n, self.n)], -2)

    def head(self, h: int, token: int | None = None) -> SoftmaxHead:
        """SoftmaxHead h (1-based); `token` (0-based) names the token a gated head serves."""
        k = torch.arange((h - 1) * self.m - 1, h * self.m + 1, dtype=torch.float64)
        L = self.a + self.spacing * k
        d, n = self.w.shape[-1], self.n
        w = self.w if token is None else self.w[token]
        keys = [*(-2 * k * w[:, None]), k * (L + self.a), -2 * k]
        W_K = torch.zeros(d + 2, d + n, dtype=torch.float64)
        W_K[:, d:] = -self.beta * torch.stack(keys)
        W_Q = torch.zeros(d + 2, d + n, dtype=torch.float64)
        W_Q[:d, :d] = torch.eye(d, dtype=torch.float64)
        W_Q[d, d:] = 1
        W_Q[d + 1, d:] = self.t
        W_V = torch.zeros(1, d + n, dtype=torch.float64)
        W_V[0, d + 1 : -1] = L[1:-1]
        W_V[0, d] = self.a if h == 1 else 0.0
        W_V[0, -1] = self.b if h == self.H else 0.0
        if token is None:
            return SoftmaxHead(W_K, W_Q, W_V)
        gate_key, gate_query = torch.zeros(1, d + n, dtype=torch.float64), torch.zeros(1, d + n, dtype=torch.float64)
        gate_key[0, -1 if h == 1 else d] = 1  # a sentinel of value 0: the right one of head 1, the left one of others
        gate_query[0, d:] = self.bonus
        gate_query[0, d + token] = 0
        return SoftmaxHead(torch.cat([W_K, gate_key]), torch.cat([W_Q, gate_query]), W_V)

    def all_heads(self) -> list[SoftmaxHead]:
        """Every head's matrices, token by token where they are gated."""
        if self.gated:
            return [self.head(h, token) for token in range(self.n) for h in range(1, self.H + 1)]
        return [self.head(h) for h in range(1, self.H + 1)]

    def explicit(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... n"]:
        """The values through the matrices of all heads."""
        return attend(self.all_heads(), self.affine(X))[..., 0, :]

    @property
    def explicit_rounding(self) -> float:
        """How far float64 may move `explicit` from `fast`."""
        score = 3 * self.c * self.p * (self.p + 2)
        if self.gated:
            score += self.bonus
        return 16 * (self.w.shape[-1] + 3) * UNIT * score * max(abs(self.a), abs(self.b), self.spacing) * 2

    def preactivation(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... n"]:
        """w.x + t of every token."""
        product = (self.w.mT * X).sum(-2) if self.gated else self.w @ X
        return product + self.t

    def response(self, z: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
        """All heads that have weight at z: the owner and the neighbours whose leak exp(-c(1 + 2m(r-1))) is visible."""
        reach = 1 + math.ceil(max(0.0, (42 / self.c - 1) / (2 * self.m)))
        return in_chunks(lambda piece: self._heads_near(piece, reach), z)

    def _heads_near(self, z: Float[Tensor, " tokens"], reach: int) -> Float[Tensor, " tokens"]:
        owner = torch.floor((z - self.a) / (self.spacing * self.m)).clamp(0, self.H - 1).to(torch.int64)
        total = torch.zeros_like(z)
        for step in range(-reach, reach + 1):
            head = owner + step
            inside = (head >= 0) & (head < self.H)
            low = head.clamp(0, self.H - 1) * self.m - 1
            high = low + self.m + 1
            value = partial(self._value, low=low[:, None], high=high[:, None], dtype=z.dtype)
            out = selected(z, value, self.a, self.spacing, self.c, low, high)
            total += torch.where(inside, out, torch.zeros_like(out))
        return total

    def _value(self, k: Tensor, low: Tensor, high: Tensor, dtype: torch.dtype) -> Tensor:
        value = self.a + self.spacing * k.to(dtype)
        value = torch.where((k == low) | (k == high), torch.zeros_like(value), value)
        value = torch.where(k < 0, torch.full_like(value, self.a), value)
        return torch.where(k >= self.p, torch.full_like(value, self.b), value)

    def fast(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... n"]:
        """The values by the closed form of the softmax averages."""
        self._check(X)
        return self.response(self.preactivation(X))

    __call__ = fast

    def target(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... n"]:
        """What it approximates: w.x + t clamped to [a, b]."""
        return self.preactivation(X).clamp(self.a, self.b)

    def attack(self, seed: int = 0, seconds: float = 5.0) -> float:
        """The largest error found on the range and at the anchors' midpoints."""
        points = probes_of_interval(self.a, self.spacing, self.p, self.a, self.b)
        return worst(lambda z: (self.response(z) - z.clamp(self.a, self.b)).abs(), points, seed, seconds)

    def _check(self, X: Tensor) -> None:
        if X.ndim < 2 or tuple(X.shape[-2:]) != (self.w.shape[-1], self.n):
            raise InfoFlowError(
                f"expected X of shape ({self.w.shape[-1]}, {self.n}), got {tuple(X.shape)}; tokens are columns."
            )
        if self.radius is not None and float(X.abs().max()) > self.radius:
            raise InfoFlowError(
                f"expected entries within {self.radius:g}, got {float(X.abs().max()):g}; rebuild with a larger radius."
            )


def multi_head_truncated_linear(
    w: Float[Tensor, " ..."] | list[float],
    t: Float[Tensor, " ..."] | float | list[float],
    a: float,
    b: float,
    *,
    n: int,
    H: int,
    eps0: float = 0.01,
    radius: float | None = None,
) -> MultiHeadTruncatedLinear:
    """H heads for n tokens (n H gated ones when w has a row per token; these need `radius` >= sup |X|)."""
    check_interval(a, b)
    weights, bias = torch.as_tensor(w, dtype=torch.float64), torch.as_tensor(t, dtype=torch.float64)
    check_finite("w", weights)
    check_finite("t", bias)
    if n < 3:
        raise InfoFlowError(f"expected n >= 3 tokens (two keys are sentinels), got n={n}; use truncated_linear.")
    if H < 1:
        raise InfoFlowError(f"expected at least one head, got H={H}; raise H.")
    if not 0 < eps0 <= 0.5:
        raise InfoFlowError(f"expected 0 < eps0 <= 1/2, got {eps0}; choose a softmax error in that range.")
    if weights.ndim not in (1, 2) or (weights.ndim == 2 and len(weights) != n) or bias.shape not in ((), (n,)):
        raise InfoFlowError(
            f"expected w of shape (d,) or ({n}, d) and one bias or {n}, got {tuple(weights.shape)} and "
            f"{tuple(bias.shape)}."
        )
    if weights.ndim == 1 and radius is not None:
        raise InfoFlowError(f"expected no radius for weights that all tokens share, got {radius:g}; leave it out.")
    if weights.ndim == 2 and (H < 2 or radius is None or not 0 < radius < math.inf):
        raise InfoFlowError(
            f"expected H >= 2 and a finite radius for per-token weights, got H={H}, radius={radius}; the gates send "
            "foreign tokens to a sentinel of value 0, and their strength depends on the size of X."
        )
    return MultiHeadTruncatedLinear(weights, bias, a, b, n, H, eps0, radius if weights.ndim == 2 else None)
