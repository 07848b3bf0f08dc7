"""One head as a table: F(w.x + t) for any 1-D function F, at a calibrated sharpness (not in the paper).

Scores -lambda (z - L_k)^2 on equally spaced anchors (spacing D, c = lambda D^2) and values V_k give

    T(z) = sum_k s_k(z) V_k.

Soft (c of order 1): in grid units the moments m_j(z) = sum_k s_k (k - z)^j are those of N(0, 1/(2c)) up to Poisson
aliasing a_j(c) (`alias`), which falls like exp(-pi^2/c): the head computes V * N(0, sigma^2), sigma^2 = D^2/(2c).
Hard (c large): T(z) is within Lip(F) D (1/2 + tail(c)) of F(z).
The values F - sigma^2 F''/2 remove the smoothing bias to fourth order.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.certificates import Certificate, Claim, stated_limit
from infoflow.certificates.rules import UNIT
from infoflow.construct.softmax_attention.anchors import check_finite, check_interval
from infoflow.construct.softmax_attention.attacks import probes_of_interval, worst
from infoflow.construct.softmax_attention.heads import SoftmaxHead
from infoflow.construct.softmax_attention.window import half_width, in_chunks, overshoot, selected, tail
from infoflow.errors import InfoFlowError

Function = Callable[[Float[Tensor, " ..."]], Float[Tensor, " ..."]]


def extension(c: float) -> int:
    """Anchors needed past the range of z: as far as a softmax window reaches, so that no weight is missing."""
    return half_width(c)


@dataclass(frozen=True)
class Table:
    """Anchors first + D k with values; exact domain [low, high] for z, everything else is refused by `check`."""

    values: Float[Tensor, " p"]
    first: float
    spacing: float
    c: float
    low: float
    high: float

    @property
    def p(self) -> int:
        """How many anchors the table has."""
        return len(self.values)

    @property
    def anchors(self) -> Float[Tensor, " p"]:
        """The arguments at which the table holds values."""
        return self.first + self.spacing * torch.arange(self.p, dtype=torch.float64)

    @property
    def scale(self) -> float:
        """lambda, the coefficient of (z - L_k)^2."""
        return self.c / self.spacing**2

    def __call__(self, z: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
        def one_piece(piece: Tensor) -> Tensor:
            return selected(piece, lambda k: self.values[k], self.first, self.spacing, self.c, 0, self.p - 1)

        return in_chunks(one_piece, z)

    def check(self, z: Float[Tensor, " ..."]) -> None:
        """Refuse arguments outside the range that the table covers."""
        low, high = float(z.min()), float(z.max())
        if not (low >= self.low and high <= self.high):
            raise InfoFlowError(
                f"expected arguments within [{self.low:g}, {self.high:g}] (the domain of the table), got "
                f"[{low:g}, {high:g}]; rebuild with a larger domain."
            )

    @property
    def rounding(self) -> float:
        """Of one fast evaluation: a weighted mean of values, and z - L_k off by 4 units of |z|."""
        largest = float(self.values.abs().max())
        slope = float((self.values.diff().abs() / self.spacing).max()) if self.p > 1 else 0.0
        reach = max(abs(self.first), abs(self.first + self.spacing * self.p))
        return 16 * UNIT * (largest * 2 + slope * reach * (1 + 4 * self.c))

    @property
    def explicit_rounding(self) -> float:
        """Expanded scores are off by 8 units of lambda L (L + 2|z|); each weight moves by twice that, relatively."""
        reach = max(abs(self.first), abs(self.first + self.spacing * self.p))
        relative = 32 * UNIT * 3 * self.scale * reach**2
        half = half_width(self.c)
        near = self.values.unfold(0, min(2 * half + 1, self.p), 1)
        spread = float((near.amax(-1) - near.amin(-1)).max())
        return relative * spread + self.rounding


def table(F: Function, low: float, high: float, p: int, c: float = 0.5, second: Function | None = None) -> Table:
    """p anchors in all, covering [low, high] and `extension(c)` steps beyond on both sides.

    `second` is F''; with it the values are F - sigma^2 F''/2.
    """
    check_interval(low, high)
    if not 0 < c < math.inf:
        raise InfoFlowError(f"expected a positive sharpness c, got {c}; 0.25 to 1 interpolates, 12 selects.")
    steps = p - 1 - 2 * extension(c)
    if steps < 1:
        raise InfoFlowError(
            f"expected at least {2 * extension(c) + 2} anchors at c={c:g} (it extends past its range), got p={p}."
        )
    spacing = (high - low) / steps
    first = low - extension(c) * spacing
    anchors = first + spacing * torch.arange(p, dtype=torch.float64)
    values = F(anchors)
    if second is not None:
        values = values - spacing**2 / (4 * c) * second(anchors)
    check_finite("the table's values", values)
    return Table(values, first, spacing, c, low, high)


@dataclass(frozen=True)
class Aliasing:
    """Bounds on |m_j(z) - gaussian moment| (grid units) for j = 0..6, and on the absolute moments."""

    c: float

    @cached_property
    def _fourier(self) -> list[float]:
        """A_j = 2 sum_m |(1/2pi d/dxi)^j exp(-pi^2 xi^2/c)| at xi = m: Poisson's formula without m = 0."""
        root = math.pi / math.sqrt(self.c)
        total = [0.0] * 7
        for m in range(1, 40):
            x = root * m
            hermite = [1.0, 2 * x]
            for j in range(1, 6):
                hermite.append(2 * x * hermite[j] - 2 * j * hermite[j - 1])
            for j in range(7):
                total[j] += 2 * (root / (2 * math.pi)) ** j * abs(hermite[j]) * math.exp(-x * x)
        return total

    def gaussian(self, j: int) -> float:
        """E xi^j for N(0, 1/(2c))."""
        if j % 2:
            return 0.0
        return float(math.prod(range(1, j, 2)) * (2 * self.c) ** (-j / 2))

    def deviation(self, j: int) -> float:
        """|m_j - gaussian_j| <= (A_j + gaussian_j A_0) / (1 - A_0), plus 2^-50 for the window."""
        A = self._fourier
        if A[0] >= 1:
            return math.inf
        return (A[j] + self.gaussian(j) * A[0]) / (1 - A[0]) + 2.0**-50 * max(1.0, self.gaussian(j))

    def moment(self, j: int) -> float:
        """sup of m_j, j even; for j odd an upper bound on sum s_k |k - z|^j by Cauchy-Schwarz."""
        if j % 2:
            return math.sqrt(self.moment(j - 1) * self.moment(j + 1))
        return 1.0 if j == 0 else self.gaussian(j) + self.deviation(j)

    def covariance(self, j: int) -> float:
        """|cov_s(k, (k-z)^j) - gaussian_{j+1}|, bounded through m_{j+1} - m_1 m_j."""
        return self.deviation(j + 1) + self.deviation(1) * (self.moment(j) if j else 1.0)


@dataclass(frozen=True)
class Derivatives:
    """sup |F^(j)| on the table's range, as far as they are known."""

    first: float
    second: float | None = None
    third: float | None = None
    fourth: float | None = None
    fifth: float | None = None


def value_error(spacing: float, c: float, lipschitz: float, second: float | None = None) -> float:
    """sup |T - F| for V = F: Lip E|L - z| in general, Lip a_1 D + sup|F''| m_2 D^2/2 when F'' is bounded."""
    alias = Aliasing(c)
    bounds = [lipschitz * spacing * (0.5 + tail(c)), lipschitz * spacing * math.sqrt(alias.moment(2))]
    if second is not None:
        bounds.append(lipschitz * spacing * alias.deviation(1) + second * spacing**2 * alias.moment(2) / 2)
    return min(bounds)


def slope_error(spacing: float, c: float, sup: Derivatives, corrected: bool) -> float:
    """sup |T' - F'|, from T'(z) = (2c/D) cov_s(k, V_k) and Taylor's formula for V at z; a stands for aliasing.

    V = F, F' Lipschitz:       0.9 sigma sup|F^(2)| (1 + a) + a
    V = F:                     sigma^2/2 sup|F^(3)| (1 + a) + a
    V = F - sigma^2 F''/2:     3 sigma^4/8 sup|F^(5)| (1 + a) + a
    No finite difference enters, so nothing is divided by its step.
    """
    if not corrected:
        kinked = _taylor_slope(spacing, c, [sup.first, sup.second])
        return min(kinked, _taylor_slope(spacing, c, [sup.first, sup.second, sup.third]))
    plain = _taylor_slope(spacing, c, [sup.first, sup.second, sup.third, sup.fourth, sup.fifth])
    return plain + spacing**2 / (4 * c) * _taylor_slope(spacing, c, [sup.third, sup.fourth, sup.fifth])


def _taylor_slope(spacing: float, c: float, sups: list[float | None]) -> float:
    """Everything in (2c/D) cov_s(k, V_k) but its Gaussian part; the last derivative is the remainder's."""
    alias = Aliasing(c)
    total = 0.0
    for j, sup in enumerate(sups, start=1):
        if sup is None:
            return math.inf
        factor = 2 * c * spacing ** (j - 1) / math.factorial(j) * sup
        if j == len(sups):  # E |k - m_1| |k - z|^j
            total += factor * (alias.moment(j + 1) + alias.deviation(1) * alias.moment(j))
        else:
            total += factor * alias.covariance(j)
    return total


class TableHead:
    """A table behind w.x + t, with its matrices: A(X) has rows X, ones on the first n columns, L, L^2, V."""

    def __init__(self, table: Table, w: Float[Tensor, " d"], t: float, n: int, certificate: Certificate, F: Function):
        if table.p < n:
            raise InfoFlowError(f"expected p >= n anchors (one column per token), got p={table.p}, n={n}; raise p.")
        check_finite("w", w)
        self.table, self.w, self.t, self.n, self.certificate, self.F = table, w, t, n, certificate, F

    def fast(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... n"]:
        """F(w.x + t) by the table's closed form."""
        z = self.w @ X + self.t
        self.table.check(z)
        return self.table(z)

    __call__ = fast

    def affine(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... rows p"]:
        """The input with the table's columns beside it."""
        L = self.table.anchors
        ones = (torch.arange(self.table.p) < self.n).to(X.dtype)
        rows = torch.stack([ones, L, L**2, self.table.values])
        padded = torch.cat([X, X.new_zeros(*X.shape[:-1], self.table.p - self.n)], -1)
        return torch.cat([padded, rows.expand(*X.shape[:-2], *rows.shape)], -2)

    def head(self) -> SoftmaxHead:
        """The head's matrices."""
        d = len(self.w)
        W_Q, W_K = torch.zeros(2, d + 4, dtype=torch.float64), torch.zeros(2, d + 4, dtype=torch.float64)
        W_Q[0, :d], W_Q[0, d], W_Q[1, d] = self.w, self.t, 1
        W_K[0, d + 1], W_K[1, d + 2] = 2 * self.table.scale, -self.table.scale
        W_V = torch.zeros(1, d + 4, dtype=torch.float64)
        W_V[0, d + 3] = 1
        return SoftmaxHead(W_K, W_Q, W_V, torch.eye(self.table.p, self.n, dtype=torch.float64))

    def explicit(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... n"]:
        """The same as `fast`, through the dense matrices of the head: slow, to check against."""
        self.table.check(self.w @ X + self.t)
        return self.head()(self.affine(X))[..., 0, :]

    def attack(self, seed: int = 0, seconds: float = 5.0) -> float:
        """The largest error found on the range and at the anchors' midpoints."""
        grid = self.table
        points = probes_of_interval(
            grid.first, grid.spacing, grid.p, grid.first, grid.first + grid.spacing * (grid.p - 1)
        )
        inside = points[(points >= grid.low) & (points <= grid.high)]

        def error(z: Tensor) -> Tensor:
            z = z.clamp(grid.low, grid.high)
            return (grid(z) - self.F(z)).abs()

        return worst(error, inside, seed, seconds)


def table_head(
    F: Function,
    built: Table,
    w: Float[Tensor, " d"] | list[float],
    *,
    t: float = 0.0,
    n: int = 1,
    sup: Derivatives | None = None,
) -> TableHead:
    """One head for F(w.x + t) by a `table` of F. The bound needs Lip(F) = sup|F'|, and sup|F''| to be of second order
    in 1/p, both on the table's range and the `extension(c)` anchors beyond; without them it is null.
    """
    bound, parts, promises = None, {}, []
    if sup is not None:
        parts = {"table": value_error(built.spacing, built.c, sup.first, sup.second), "rounding": built.rounding}
        bound = sum(parts.values())
        promises.append(f"F has Lipschitz constant at most {sup.first:g} on all anchors")
        promises += [] if sup.second is None else [f"|F''| is at most {sup.second:g} there"]
    certificate = Certificate(
        Claim("|head - F(w.x + t)|", stated_limit(bound), f"every w.x + t in [{built.low:g}, {built.high:g}]"),
        bound,
        "float64 with rounding allowance",
        () if sup is not None else ("no Lipschitz constant was given, so nothing is proved",),
        tuple(promises),
        parts=parts,
    )
    return TableHead(built, torch.as_tensor(w, dtype=torch.float64), t, n, certificate, F)


def soft_range(a: float, b: float, p: int, *, w: Float[Tensor, " d"] | list[float], n: int = 1) -> TableHead:
    """Range_[a,b] for every real z, with a and b among the anchors, clipped values beyond, at c = 2 (it errs least).

    T is increasing in z; for z <= a it is at most T(a) = a + D sum_m m exp(-c m^2) / sum_k exp(-c k^2), and inside the
    interval the anchors beyond a kink add no more than that to the aliasing a_1: 0.107 D + 0.023 D.
    """
    c = 2.0
    built = replace(table(lambda z: z.clamp(a, b), a, b, p, c), low=-math.inf, high=math.inf)
    kink = overshoot(c) / (1 + 2 * sum(math.exp(-c * k * k) for k in range(1, 30)))
    parts = {
        "kink": built.spacing * kink,
        "aliasing": built.spacing * Aliasing(c).deviation(1),
        "rounding": built.rounding,
    }
    bound = sum(parts.values())
    claim = Claim(f"|head - Range_[{a:g}, {b:g}](z)|", stated_limit(bound), "every real z = w.x + t")
    certificate = Certificate(claim, bound, "float64 with rounding allowance", parts=parts)
    weights = torch.as_tensor(w, dtype=torch.float64)
    return TableHead(built, weights, 0.0, n, certificate, lambda z: z.clamp(a, b))
