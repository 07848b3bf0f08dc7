"""The two single heads of the head-count slides as plans, in numpy alone: what each would build, or why not.

Both read targets whose features are sums of functions of single coordinates,

    sum_i w_i ext_{t in S_i} sum_j g_ij(x_j(t)) + c,

and attend uniformly, so their numbers may lie in any heads; what they ask of weights and read-outs differs.
`infoflow.construct.single_heads` writes the networks.

*The head that remembers everything* (Theorem 2 of the slides) takes E >= T d numbers and an encoder P(x, s) of token
and position together (positions=joint): additive and augmented codes with linear values lose the order. All work is in
the read-out, five affine layers with ReLU between them.

*One head for D extrema*: head count is not information-theoretically necessary.

Uniform attention, n = D, values e^{beta (f_i - 1)}: the state R_i = mean_t e^{beta (f_i(x(t)) - 1)} has
log(R_i)/beta + 1 in [max_t f_i - log(T)/beta, max_t f_i]. The read-out takes the logarithm with N tanh units a
coordinate, a staircase with steps at R = e^{u_k}, u_k = -beta (1 - (k + 1/2)/N) - log(T)/2:

    tanh(s (R e^{-u_k} - 1)),   weights up to s e^beta: the lower bounds of both papers need bounded weights.

Everything is evaluated in log space; in plain float64 R underflows once beta > 745. As a builder: E >= D numbers in any
heads, values from the encoder, and a read-out with one hidden layer of D N tanh units.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from infoflow.certificates.rules import UNIT
from infoflow.compiler.offer import Offer, Question, Refusal, one_layer_reasons, positive, weight_reasons
from infoflow.flow.normal_form import Refused, box
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import tree_form
from infoflow.targets.target import Extremum, Target

MOST_POSITIONS = 2**22  # they are listed one by one, 64 bytes each


@dataclass(frozen=True)
class Feature:
    """weight * min over `positions` of the feature, which is sum_j g_j(x_j) with g_j given by `parts[j]`.

    A maximum has been turned into a minimum: sign = -1 says that the parts are those of -score.
    """

    weight: float
    sign: float
    positions: Sequence[int]
    parts: tuple[Polynomial, ...]  # d polynomials of one variable

    def __call__(self, x: Float[np.ndarray, "... d"]) -> Float[np.ndarray, " ..."]:
        total: np.ndarray = sum(part(x[..., j, None])[..., 0] for j, part in enumerate(self.parts))
        return total

    def curvature(self, low: float, high: float) -> float:
        """sum_j sup |g_j''| over the box, from the triangle inequality on the monomials."""
        radius = max(abs(low), abs(high))
        return float(sum(part.derivative(0).derivative(0).bound(radius)[0] for part in self.parts))

    def size(self, low: float, high: float) -> float:
        """sup |feature| over the box and more: the sum over its monomials, which bounds what its evaluation rounds."""
        radius = max(abs(low), abs(high))
        return float(sum(part.bound(radius)[0] for part in self.parts))


def own_domain(target: Target, domain: Any) -> None:
    """Refuse another box than the target's own: the single heads are written for that one."""
    if domain is None:
        return
    low, high = box(domain, target.dim)
    if (low != target.domain[0]).any() or (high != target.domain[1]).any():
        raise Refused(["the single heads are built for the target's own domain, another one was asked for"])


def features(target: Target, T: int) -> tuple[list[Feature], float]:
    """The target as weighted minima of separable features plus a constant, or a refusal that says why not."""
    target.check_length(T)
    if not isinstance(target.outer, Polynomial) or target.outer.degree > 1 or target.outputs != 1:
        raise Refused(["expected a target with an affine outer map and one output; this construction sums extrema"])
    positions = T * len(target.terms)
    if positions > MOST_POSITIONS:
        raise Refused([f"expected at most {MOST_POSITIONS} positions in all terms, T={T} has {positions}"])
    weights, bias = target.outer.affine()
    found = []
    for term, weight in zip(target.terms, weights[0], strict=True):
        if not isinstance(term, Extremum) or term.arity != 1:
            raise Refused(["expected extrema over single tokens (D-retrieval), got another kind of term"])
        tree = tree_form(term.score)
        unary = tree.unary[0] if tree is not None else None
        if unary is None:
            raise Refused(["expected a polynomial feature of each token, got another score"])
        sign = 1.0 if term.kind == "min" else -1.0
        everywhere = term.sets is None or term.sets[0] is None
        where = range(T) if everywhere else term.choices(T)[0].tolist()  # T may be a million
        found.append(Feature(float(weight) * sign, sign, where, _parts(unary, sign)))
    return found, float(bias[0])


def _parts(unary: Polynomial, sign: float) -> tuple[Polynomial, ...]:
    exponents, coefficients = unary.exponents, sign * unary.coefficients[0]
    mixed = (exponents > 0).sum(1) > 1
    if (coefficients[mixed] != 0).any():
        raise Refused(["expected features without products of different coordinates, got mixed monomials"])
    parts = []
    for j in range(unary.inputs):
        mine = (exponents[:, j] > 0) | ((exponents.sum(1) == 0) & (j == 0))  # constants go to the first coordinate
        row = np.where(mine, coefficients, 0.0)
        parts.append(Polynomial(exponents[:, j : j + 1], row[None, :]))
    return tuple(parts)


MOST_NUMBERS = 2**27  # 1 GiB of float64


@dataclass(frozen=True)
class UniformHead:
    """What both heads read: T tokens, features with their ranges and a constant; the summands of the proved bound."""

    T: int
    terms: tuple[Feature, ...]
    ranges: tuple[tuple[float, float], ...]
    constant: float
    parts: dict[str, float]

    @property
    def bound(self) -> float:
        """The error, summed over its parts."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class MemoryPlan(UniformHead):
    """N levels and K intervals a coordinate; the error is that of levels, hats and rounding."""

    target: Target
    eps: float
    levels: int
    knots: int

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


def fits_memory(asked: Question) -> Offer | Refusal:
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
    weight = _reach(terms, ranges)
    levels = max(1, math.ceil(weight / share))
    D = len(terms)
    _refuse_size(D * T * (levels + 1) * max(T * target.dim * knots, D * levels), eps)
    parts = {"levels": weight / (2 * levels), "hats": bend * ((high - low) / knots) ** 2 / 8}
    plan = MemoryPlan(T, tuple(terms), ranges, constant, parts, target, eps, levels, knots)
    return replace(plan, parts=parts | {"rounding": rounding(plan)})


def _reach(terms: list[Feature], ranges: tuple[tuple[float, float], ...]) -> float:
    """sum_i |w_i| span_i: how far the weighted sum moves when every feature runs through its range."""
    return sum(abs(f.weight) * (top - bottom) for f, (bottom, top) in zip(terms, ranges, strict=True))


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


MOST_UNITS = 2**20
CHUNK = 2**22  # stairs evaluated at once


@dataclass(frozen=True, eq=False)
class ExponentialHead(UniformHead):
    """X (B, T, d) -> (B,) through D numbers; `bound` is proved over the domain, `units` is N per coordinate. The error
    is that of stairs, softmax and rounding."""

    beta: float
    units: int
    steepness: float

    @property
    def head_dim(self) -> int:
        """One coordinate a term."""
        return len(self.terms)

    @property
    def largest_log_weight(self) -> float:
        """Natural logarithm of the largest read-out weight, s e^{-u_0}."""
        return math.log(self.steepness) - float(self._steps()[0])

    def log_state(self, X: Float[np.ndarray, "B T d"]) -> Float[np.ndarray, "B D"]:
        """log R_i = logsumexp_t(beta (f_i - 1)) - log T, all features scaled to [0,1] and turned into maxima."""
        columns = []
        for feature, (bottom, top) in zip(self.terms, self.ranges, strict=True):
            f = (top - feature(X)) / (top - bottom)
            power = self.beta * (f - 1)
            peak = power.max(-1)
            columns.append(peak + np.log(np.exp(power - peak[:, None]).mean(-1)))
        return np.stack(columns, -1)

    def __call__(self, X: Float[np.ndarray, "B T d"]) -> Float[np.ndarray, " B"]:
        u = self.log_state(np.asarray(X, dtype=np.float64))
        maxima = np.empty_like(u)
        rows = max(1, CHUNK // self.units)
        with np.errstate(over="ignore"):  # tanh of an overflowing e^(u - u_k) is 1, which is right
            for i in range(u.shape[1]):
                for start in range(0, len(u), rows):
                    part = slice(start, start + rows)
                    stairs = np.tanh(self.steepness * np.expm1(u[part, i, None] - self._steps()))
                    maxima[part, i] = (1 + stairs).sum(-1) / (2 * self.units)
        weights = [-f.weight * (top - bottom) for f, (bottom, top) in zip(self.terms, self.ranges, strict=True)]
        shift = self.constant + sum(f.weight * top for f, (_, top) in zip(self.terms, self.ranges, strict=True))
        y: np.ndarray = maxima @ np.array(weights) + shift
        return y

    def _steps(self) -> Float[np.ndarray, " N"]:
        k = np.arange(self.units)
        result: np.ndarray = -self.beta * (1 - (k + 0.5) / self.units) - math.log(self.T) / 2
        return result


def exponential_head(target: Target, T: int, eps: float, units: int | None = None) -> ExponentialHead:
    """Error per feature of range 1: at most 1/(2N) + tail + log(T)/(2 beta), with steps 1/N apart (hard stairs), units
    two steps away off by e^{-2s(1 - e^{-beta/(2N)})} = tail = 1/(16N), and beta = N log T.

    Between steps k and k + 1 only these two units are open; up to half a step from u_k the next one is within `tail`
    of 0, beyond it the first is within `tail` of 1, so the stairs stay within half a step of the line.
    """
    wrong = positive(T, eps)
    if wrong:
        raise Refused(wrong)
    terms, constant = features(target, T)
    if any(len(f.positions) != T for f in terms):
        raise Refused(["expected extrema over all positions: uniform attention sees every token"])
    low, high = target.domain
    ranges = tuple(_range_on_box(f, low, high) for f in terms)
    weight = _reach(terms, ranges)
    share = float(eps)
    for _ in range(4):
        N = max(1, math.ceil(17 * weight / (16 * share))) if units is None else units
        if not 1 <= N <= MOST_UNITS:
            raise Refused([f"expected between 1 and {MOST_UNITS} units per coordinate, got {N}"], "accuracy")
        beta = N * math.log(max(T, 3))
        tail = 1 / (16 * N)
        steepness = max(1.0, math.log(1 / tail) / (2 * (1 - math.exp(-beta / (2 * N)))))
        parts = {"stairs": weight * (1 / (2 * N) + tail), "mean of exponentials": weight * math.log(T) / (2 * beta)}
        parts["rounding"] = _staircase_rounding(terms, ranges, constant, target.domain, T, N, beta)
        head = ExponentialHead(T, tuple(terms), ranges, constant, parts, beta, N, steepness)
        share = min(0.99 * share, (eps - 2 * parts["rounding"]) * (1 - 2.0**-40))
        if head.bound <= eps or units is not None or share < eps / 2:
            break
    if head.bound > eps:
        raise Refused([f"{N} units per coordinate reach an error of {head.bound:.4g}, above eps={eps:g}"], "accuracy")
    return head


def _staircase_rounding(
    terms: list[Feature],
    ranges: tuple[tuple[float, float], ...],
    constant: float,
    domain: tuple[float, float],
    T: int,
    N: int,
    beta: float,
) -> float:
    """Float64 allowance, u = 2^-53, for a feature of range 1, times |w_i| span_i and summed.

    The scaled feature errs by e_f = 32 u (sup of its monomials + |top|)/span + 8 u. The logarithm of the state errs by
    beta e_f + 8 u (beta + log T) + (T + 16) u; the stairs stay within half a step of a line of slope 1/beta, so that is
    divided by beta. A stair errs by 8 u, their mean by (N + 16) u more.
    """
    total = size = 0.0
    for feature, (bottom, top) in zip(terms, ranges, strict=True):
        span = top - bottom
        feature_error = 32 * UNIT * (feature.size(*domain) + abs(top)) / span + 8 * UNIT
        state = beta * feature_error + UNIT * (8 * (beta + math.log(T)) + T + 16)
        total += abs(feature.weight) * span * (state / beta + (N + 24) * UNIT)
        size += abs(feature.weight) * (span + abs(top))
    return 2 * total + 4 * (len(terms) + 4) * UNIT * (size + abs(constant))


def _range_on_box(feature: Feature, low: float, high: float) -> tuple[float, float]:
    """A range that holds the feature: each part of degree at most 2 is extremal at an end or at its vertex."""
    bottom = top = 0.0
    for part in feature.parts:
        if part.degree > 2:
            reach = float(part.bound(max(abs(low), abs(high)))[0])
            bottom, top = bottom - reach, top + reach
            continue
        slope = part.derivative(0)
        bend = float(slope.derivative(0)(np.zeros((1, 1)))[0, 0])
        places = [low, high]
        if bend:
            places.append(float(np.clip(-slope(np.zeros((1, 1)))[0, 0] / bend, low, high)))
        values = part(np.array(places)[:, None])[:, 0]
        bottom, top = bottom + float(values.min()), top + float(values.max())
    return bottom, top if top > bottom else bottom + 1.0


def fits_exponential(asked: Question) -> Offer | Refusal:
    """D numbers in the head and D N units behind it, whose weights grow like e^beta."""
    try:
        own_domain(asked.target, asked.domain)
        head = exponential_head(asked.target, asked.T, asked.eps)
    except Refused as refused:
        return Refusal.of("exponential_head", refused)
    D, width = head.head_dim, head.head_dim * head.units
    reasons = one_layer_reasons(asked.arch, 1, D, width)
    if reasons:
        return Refusal("exponential_head", "architecture", tuple(reasons))
    reasons = weight_reasons(asked.weight_bound, head.largest_log_weight, math.sqrt(D))
    if reasons:
        return Refusal("exponential_head", "weights", tuple(reasons))
    readout = f"one hidden layer of tanh units with weights up to e^{head.largest_log_weight:.4g}"
    return Offer("exponential_head", (1,), (D,), (width,), head.bound, (0.0,), readout, head)
