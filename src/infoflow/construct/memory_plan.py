"""The plan of the head that remembers everything (Theorem 2 of the head-count slides), in numpy alone.

It takes E >= T d numbers and an encoder P(x, s) of token and position together (positions=joint): additive and
augmented codes with linear values lose the order. Attention is uniform, so the T d numbers may lie in any heads. All
work is in the read-out, five affine layers with ReLU between them; see `infoflow.construct.single_heads`.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from infoflow.certificates.rules import UNIT
from infoflow.compiler.offer import Offer, Question, Refusal, one_layer_reasons, positive, weight_reasons
from infoflow.construct.separable import Feature, features, own_domain
from infoflow.flow.normal_form import Refused
from infoflow.targets.target import Target

MOST_NUMBERS = 2**27  # 1 GiB of float64


@dataclass(frozen=True)
class MemoryPlan:
    """N levels, K intervals a coordinate, the features with their ranges, and the proved bound."""

    target: Target
    T: int
    eps: float
    terms: tuple[Feature, ...]
    constant: float
    ranges: tuple[tuple[float, float], ...]
    levels: int
    knots: int
    parts: dict[str, float]  # levels, hats, rounding: the summands of the bound

    @property
    def bound(self) -> float:
        """The error, summed over its parts."""
        return sum(self.parts.values())

    @property
    def grid(self) -> Float[np.ndarray, " knots"]:
        """The knots of the hats."""
        return np.linspace(*self.target.domain, self.knots + 1)

    @property
    def widths(self) -> tuple[int, ...]:
        """Hidden units of the read-out: hats, levels, counts, means."""
        D, T, N = len(self.terms), self.T, self.levels
        return T * self.target.dim * self.knots, D * T * (N + 1), D * N, D

    @property
    def largest_weight(self) -> float:
        """Of the read-out, biases included: hats T, levels N times the slopes and N, the outer sum and its shift."""
        spans = [top - bottom for bottom, top in self.ranges]
        pairs = zip(self.terms, spans, strict=True)
        slopes = max(float(np.abs(hat_weights(f, self.grid, span)[0]).max()) for f, span in pairs)
        outer = max(abs(f.weight) * span for f, span in zip(self.terms, spans, strict=True))
        shift = self.constant + sum(f.weight * low for f, (low, _) in zip(self.terms, self.ranges, strict=True))
        return max(self.T, self.levels * max(slopes, 1.0), outer, abs(shift), 1.0)


def fits(asked: Question) -> Offer | Refusal:
    """T d numbers in the head, all work in the read-out, whose weights grow with T and 1/eps."""
    target, arch = asked.target, asked.arch
    try:
        own_domain(target, asked.domain)
        plan = plan_memory(target, asked.T, asked.eps)
    except Refused as refused:
        return Refusal.of("memory_head", refused)
    size = asked.T * target.dim
    reasons = one_layer_reasons(arch, 1, size, None)
    if arch is not None and arch.positions != "joint":
        reasons.append(f"it encodes token and position together (positions=joint), not positions={arch.positions}")
    if reasons:
        return Refusal("memory_head", "architecture", tuple(reasons))
    reasons = weight_reasons(asked.weight_bound, math.log(plan.largest_weight), math.sqrt(target.dim))
    if reasons:
        return Refusal("memory_head", "weights", tuple(reasons))
    readout = f"four hidden layers of ReLU units, {', '.join(map(str, plan.widths))}"
    return Offer("memory_head", (1,), (size,), (max(plan.widths),), plan.bound, (0.0,), readout, plan)


def plan_memory(target: Target, T: int, eps: float) -> MemoryPlan:
    """For a target of separable features; half of a share for the levels, half for the hats, the share being what
    rounding leaves of eps.

    Levels: sum_i |w_i| span_i / (2N) <= share/2 (centred). Hats: interpolation of g with knots h apart errs by at most
    h^2/8 sup|g''|, so sum_i |w_i| curvature_i h^2/8 <= share/2. (span_i: range of the interpolated feature.)
    """
    wrong = positive(T, eps)
    if wrong:
        raise Refused(wrong)
    terms, constant = features(target, T)
    share = float(eps)
    for _ in range(4):
        plan = _sized(target, T, float(eps), share, terms, constant)
        if plan.bound <= eps:
            return plan
        share = min(0.99 * share, (eps - 2 * plan.parts["rounding"]) * (1 - 2.0**-40))
        if share < eps / 2:
            break
    raise Refused([f"float64 rounding leaves no read-out within eps={eps:g} at T={T}; take a larger eps"], "accuracy")


def _sized(target: Target, T: int, eps: float, share: float, terms: list[Feature], constant: float) -> MemoryPlan:
    low, high = target.domain
    bend = sum(abs(f.weight) * f.curvature(low, high) for f in terms)
    knots = max(1, math.ceil((high - low) * math.sqrt(bend / (4 * share))))  # intervals per coordinate
    _refuse_size(len(terms) * T * T * target.dim * knots, eps)
    ranges = tuple(_range(f, np.linspace(low, high, knots + 1)) for f in terms)
    weight = sum(abs(f.weight) * (top - bottom) for f, (bottom, top) in zip(terms, ranges, strict=True))
    levels = max(1, math.ceil(weight / share))
    D = len(terms)
    _refuse_size(D * T * (levels + 1) * max(T * target.dim * knots, D * levels), eps)
    parts = {"levels": weight / (2 * levels), "hats": bend * ((high - low) / knots) ** 2 / 8}
    plan = MemoryPlan(target, T, eps, tuple(terms), constant, ranges, levels, knots, parts)
    return replace(plan, parts=parts | {"rounding": rounding(plan)})


def rounding(plan: MemoryPlan) -> float:
    """Float64 allowance of the whole head, u = 2^-53, gamma_k = 1.01 k u; sums with zeros are exact.

    The state times T holds x in [0,1] up to (7T + 13) u (encoder 6 u a token, T of them, uniform weights), a hat up to
    e_1 = 16 (T + d) u + 80 u. A feature z = sum_k W_k hat_k, V = sum |W_k|, slopes at most S = V, g off by 16 u G:

        e_z = V e_1 + 16 K d (S + 1) u + gamma_{dK+3} (V + 1) + 64 u G / span;    a level: N e_z + 8 N u;
        1 - sum_t of two levels: 2T times that + gamma_{2T+2} (2T (N + 1) + 1);   their mean: that + 2 gamma_{N+2};
        outer sum: sum_i |w_i| span_i times that + gamma_{D+3} (sum_i |w_i| span_i + |shift|).
    """
    T, d, K, N, D = plan.T, plan.target.dim, plan.knots, plan.levels, len(plan.terms)
    low, high = plan.target.domain
    hat = UNIT * (16 * (T + d) + 80)
    total = shift = 0.0
    for feature, (bottom, top) in zip(plan.terms, plan.ranges, strict=True):
        span = top - bottom
        weights = np.abs(hat_weights(feature, plan.grid, span)[0])
        V = float(weights.sum())
        stored = 16 * K * d * (V + 1) * UNIT + 64 * UNIT * (feature.size(low, high) + abs(bottom)) / span
        z = V * hat + stored + _gamma(d * K + 3) * (V + 1)
        count = 2 * T * (N * z + 8 * N * UNIT) + _gamma(2 * T + 2) * (2 * T * (N + 1) + 1)
        total += abs(feature.weight) * span * (count + 2 * _gamma(N + 2) + _gamma(D + 3))
        shift += abs(feature.weight) * abs(bottom)
    return total + _gamma(D + 3) * (shift + abs(plan.constant))


def _gamma(terms: int) -> float:
    return 1.01 * terms * UNIT


def _refuse_size(numbers: int, eps: float) -> None:
    if numbers > MOST_NUMBERS:
        reason = f"its read-out for eps={eps:g} has {numbers} numbers (limit {MOST_NUMBERS}); take a larger eps"
        raise Refused([reason], "accuracy")


def _range(feature: Feature, grid: Float[np.ndarray, " knots"]) -> tuple[float, float]:
    """Exact range of the interpolated feature: each part is extremal at a knot."""
    values = [part(grid[:, None])[:, 0] for part in feature.parts]
    bottom, top = float(sum(v.min() for v in values)), float(sum(v.max() for v in values))
    return bottom, top if top > bottom else bottom + 1.0


def hat_weights(feature: Feature, grid: Float[np.ndarray, " knots"], span: float) -> tuple[np.ndarray, float]:
    """Weights of relu(x_j - knot_k), d K of them, of the interpolant over span, and its value at the low corner."""
    K = grid.size - 1
    weights, start = [], 0.0
    for part in feature.parts:
        values = part(grid[:, None])[:, 0]
        slopes = np.diff(values) * K / span  # per unit of the rescaled coordinate
        weights.append(np.diff(slopes, prepend=0.0))
        start += float(values[0])
    return np.concatenate(weights), start
