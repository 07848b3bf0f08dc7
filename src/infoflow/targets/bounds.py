"""Bounds of scores over the box [low, high]^d: ranges by interval arithmetic, Lipschitz constants per token.

Every bound is widened by a factor that exceeds the rounding of its own computation.
"""

import math

import numpy as np

from infoflow.errors import InfoFlowError
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import CallableScore, NormOfSum, Score, TreeScore

WIDEN = 1e-12

Domain = tuple[float, float]


def polynomial_range(polynomial: Polynomial, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper), one entry per output, with lower <= p(x) <= upper on the box; monomial by monomial."""
    lower, upper = np.zeros(polynomial.outputs), np.zeros(polynomial.outputs)
    for exponent, column in zip(polynomial.exponents, polynomial.coefficients.T, strict=True):
        interval = (1.0, 1.0)
        for power in exponent:
            interval = _times(interval, _power(domain, int(power)))
        ends = np.outer(column, interval)
        lower, upper = lower + ends.min(1), upper + ends.max(1)
    slack = WIDEN * polynomial.bound(max(abs(domain[0]), abs(domain[1])))
    return lower - slack, upper + slack


def score_range(score: Score, domain: Domain) -> tuple[float, float]:
    """(lower, upper) with lower <= score <= upper for tokens in the box."""
    _check(domain)
    if isinstance(score, TreeScore):
        parts = [_pair(unary, domain)[0] for unary in score.unary if unary is not None]
        for edge in score.edges:
            features = zip(_pair(edge.left, domain), _pair(edge.right, domain), strict=True)
            parts.extend(_times(left, right) for left, right in features)
        low, high = sum(part[0] for part in parts), sum(part[1] for part in parts)
        slack = WIDEN * sum(max(abs(part[0]), abs(part[1])) for part in parts)
        return low - slack, high + slack
    if isinstance(score, NormOfSum):
        low, high = _power((score.arity * domain[0], score.arity * domain[1]), 2)
        return score.dim * low * (1 - WIDEN), score.dim * high * (1 + WIDEN)
    raise InfoFlowError("expected a tree score or a norm of a sum; the range of a general score is not known.")


def score_bound(score: Score, domain: Domain) -> float:
    """sup |score| over tokens in the box, from above."""
    low, high = score_range(score, domain)
    return max(abs(low), abs(high))


def lipschitz(score: Score, domain: Domain) -> tuple[float, ...]:
    """For each token a constant L_v with |score(.., x_v, ..) - score(.., y_v, ..)| <= L_v |x_v - y_v| on the box.

    L_v = sup |d score / d x_v|_2, at most the norm of the bounds of its coordinates. For |x_1 + .. + x_k|^2 it is
    2 |x_1 + .. + x_k| <= 2 k sqrt(d) max(|low|, |high|).
    """
    _check(domain)
    radius = max(abs(domain[0]), abs(domain[1]))
    if isinstance(score, NormOfSum):
        constant = 2 * score.arity * math.sqrt(score.dim) * radius * (1 + WIDEN)
        return (constant,) * score.arity
    if isinstance(score, TreeScore):
        slopes = np.zeros((score.arity, score.dim))
        for v, unary in enumerate(score.unary):
            if unary is not None:
                slopes[v] += unary.slopes(radius)[:, 0]
        for e in score.edges:
            slopes[e.v] += e.left.slopes(radius) @ e.right.bound(radius)
            slopes[e.w] += e.right.slopes(radius) @ e.left.bound(radius)
        return tuple(float(norm) * (1 + WIDEN) for norm in np.linalg.norm(slopes, axis=1))
    if isinstance(score, CallableScore) and score.lipschitz is not None:
        return (score.lipschitz,) * score.arity
    raise InfoFlowError("expected a score with a known Lipschitz constant; give `lipschitz` to the CallableScore.")


def _pair(polynomial: Polynomial, domain: Domain) -> list[tuple[float, float]]:
    """The range of each output as a pair of numbers."""
    lower, upper = polynomial_range(polynomial, domain)
    return list(zip(lower.tolist(), upper.tolist(), strict=True))


def _check(domain: Domain) -> None:
    if not domain[0] < domain[1] or not all(math.isfinite(end) for end in domain):
        raise InfoFlowError(f"expected a finite box (low, high) with low < high, got {domain}.")


def _times(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    products = [x * y for x in a for y in b]
    return float(min(products)), float(max(products))


def _power(interval: Domain, power: int) -> tuple[float, float]:
    ends = [float(end) ** power for end in interval]
    if power and power % 2 == 0 and interval[0] <= 0 <= interval[1]:
        return 0.0, max(ends)
    return min(ends), max(ends)
