"""The plan of the head that remembers everything (Theorem 2 of the head-count slides), in numpy alone.

It takes E >= T d numbers and an encoder P(x, s) of token and position together (positions=joint): additive and
augmented codes with linear values lose the order. Attention is uniform, so the T d numbers may lie in any heads. All
work is in the read-out, five affine layers with ReLU between them; see `infoflow.construct.memory_head`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from infoflow.architecture import Architecture
from infoflow.construct.offers.offer import Offer, Refusal, one_layer_reasons, positive, weight_reasons
from infoflow.construct.separable import ROUNDING, Feature, features, own_domain
from infoflow.errors import InfoFlowError
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
    bound: float

    @property
    def grid(self) -> Float[np.ndarray, " knots"]:
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


def fits(
    target: Target,
    arch: Architecture | None,
    T: int,
    eps: float,
    weight_bound: float | None,
    domain: Any = None,
    rule: str = "memory_head",
) -> Offer | Refusal:
    try:
        own_domain(target, domain)
        plan = plan_memory(target, T, eps)
    except Refused as refused:
        return Refusal.of("memory_head", refused)
    size = T * target.dim
    reasons = one_layer_reasons(arch, 1, size, None)
    if arch is not None and arch.positions != "joint":
        reasons.append(f"it encodes token and position together (positions=joint), not positions={arch.positions}")
    if reasons:
        return Refusal("memory_head", "architecture", tuple(reasons))
    reasons = weight_reasons(weight_bound, math.log(plan.largest_weight), math.sqrt(target.dim))
    if reasons:
        return Refusal("memory_head", "weights", tuple(reasons))
    readout = f"four hidden layers of ReLU units, {', '.join(map(str, plan.widths))}"
    bound = plan.bound * (1 + ROUNDING)
    return Offer("memory_head", (1,), (size,), (max(plan.widths),), bound, (0.0,), readout, plan)


def plan_memory(target: Target, T: int, eps: float) -> MemoryPlan:
    """For a target of separable features; half of eps for the levels, half for the hats, ROUNDING of it left.

    Levels: sum_i |w_i| span_i / (2N) <= eps/2 (centred). Hats: interpolation of g with knots h apart errs by at most
    h^2/8 sup|g''|, so sum_i |w_i| curvature_i h^2/8 <= eps/2. (span_i: range of the interpolated feature.)
    """
    wrong = positive(T, eps)
    if wrong:
        raise Refused(wrong)
    try:
        terms, constant = features(target, T)
    except InfoFlowError as error:
        raise Refused([str(error).removesuffix(".")]) from None
    low, high = target.domain
    share = eps / (1 + 2 * ROUNDING)
    bend = sum(abs(f.weight) * f.curvature(low, high) for f in terms)
    knots = max(1, math.ceil((high - low) * math.sqrt(bend / (4 * share))))  # intervals per coordinate
    _refuse_size(len(terms) * T * T * target.dim * knots, eps)
    ranges = tuple(_range(f, np.linspace(low, high, knots + 1)) for f in terms)
    weight = sum(abs(f.weight) * (top - bottom) for f, (bottom, top) in zip(terms, ranges, strict=True))
    levels = max(1, math.ceil(weight / share))
    D = len(terms)
    _refuse_size(D * T * (levels + 1) * max(T * target.dim * knots, D * levels), eps)
    bound = weight / (2 * levels) + bend * ((high - low) / knots) ** 2 / 8
    return MemoryPlan(target, T, float(eps), tuple(terms), constant, ranges, levels, knots, bound)


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
