"""One head for D extrema: head count is not information-theoretically necessary.

Uniform attention, n = D, values e^{beta (f_i - 1)}: the state R_i = mean_t e^{beta (f_i(x(t)) - 1)} has
log(R_i)/beta + 1 in [max_t f_i - log(T)/beta, max_t f_i]. The read-out takes the logarithm with N tanh units a
coordinate, a staircase with steps at R = e^{u_k}, u_k = -beta (1 - (k + 1/2)/N) - log(T)/2:

    tanh(s (R e^{-u_k} - 1)),   weights up to s e^beta: the lower bounds of both papers need bounded weights.

Everything is evaluated in log space; in plain float64 R underflows once beta > 745.

As a builder (`fits`): E >= D numbers in any heads, values e^{beta (f_i - 1)} from the encoder, and a read-out with one
hidden layer of D N tanh units.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from infoflow.certificates.rules import UNIT
from infoflow.compiler.offer import Offer, Question, Refusal, one_layer_reasons, positive, weight_reasons
from infoflow.construct.separable import Feature, features, own_domain
from infoflow.flow.normal_form import Refused
from infoflow.targets.target import Target

MOST_UNITS = 2**20
CHUNK = 2**22  # stairs evaluated at once


@dataclass(frozen=True, eq=False)
class ExponentialHead:
    """X (B, T, d) -> (B,) through D numbers; `bound` is proved over the domain, `units` is N per coordinate."""

    terms: tuple[Feature, ...]
    ranges: tuple[tuple[float, float], ...]
    constant: float
    T: int
    beta: float
    units: int
    steepness: float
    parts: dict[str, float]  # stairs, softmax, rounding: the summands of the bound

    @property
    def bound(self) -> float:
        """The error, summed over its parts."""
        return sum(self.parts.values())

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
    ranges = tuple(_range(f, low, high) for f in terms)
    weight = sum(abs(f.weight) * (top - bottom) for f, (bottom, top) in zip(terms, ranges, strict=True))
    share = float(eps)
    for _ in range(4):
        N = max(1, math.ceil(17 * weight / (16 * share))) if units is None else units
        if not 1 <= N <= MOST_UNITS:
            raise Refused([f"expected between 1 and {MOST_UNITS} units per coordinate, got {N}"], "accuracy")
        beta = N * math.log(max(T, 3))
        tail = 1 / (16 * N)
        steepness = max(1.0, math.log(1 / tail) / (2 * (1 - math.exp(-beta / (2 * N)))))
        parts = {"stairs": weight * (1 / (2 * N) + tail), "mean of exponentials": weight * math.log(T) / (2 * beta)}
        parts["rounding"] = _rounding(terms, ranges, constant, target.domain, T, N, beta)
        head = ExponentialHead(tuple(terms), ranges, constant, T, beta, N, steepness, parts)
        share = min(0.99 * share, (eps - 2 * parts["rounding"]) * (1 - 2.0**-40))
        if head.bound <= eps or units is not None or share < eps / 2:
            break
    if head.bound > eps:
        raise Refused([f"{N} units per coordinate reach an error of {head.bound:.4g}, above eps={eps:g}"], "accuracy")
    return head


def _rounding(
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


def _range(feature: Feature, low: float, high: float) -> tuple[float, float]:
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


def fits(asked: Question) -> Offer | Refusal:
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
