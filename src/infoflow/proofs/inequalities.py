"""A target between affine functions of the softmax averages: what turns "for all sequences" into "for all m".

Covered are targets F = const + sum_i c_i M_i (any real c_i, several outputs) whose terms are

    max_t a' x(t), min_t a' x(t)     the k-th largest of a' x(t)     r' x(t*), t* = argmax or argmin of a' x(t)

over all T positions. For each of them and for each head k

    r' m_k - H_k <= M <= r' m_k + G_k

(r = a for the first two; G and H of `gaps.py`: H counts k - 1 tokens above the k-th, 0 for a maximum, whose averages
lie in the hull of the tokens; the value at an argmax has the same constant for r and -r). Extrema have tilted ones as
well, which say more near the sides of the box (`tilts.py`). And M lies between the least and the largest r' x of the
box. So with c_i > 0 (and the ends swapped for c_i < 0)

    net - F <= sup over m of  g(m) - const + sum_i min over ends of (-c_i) (lower end)_i(m),
    F - net <= sup over m of  const - g(m) + sum_i min over ends of c_i (upper end)_i(m):

a sum of the read-out and of concave, piecewise affine functions of the h d numbers m. T enters through G and H alone.
"""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from jaxtyping import Float

from infoflow.errors import InfoFlowError
from infoflow.proofs.gaps import gap, gap_with_margin
from infoflow.proofs.reduce import Reduced
from infoflow.proofs.tilts import tilted_gap, tilts
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import TreeScore
from infoflow.targets.target import Target
from infoflow.targets.terms import Extremum, KthLargest, Term, ValueAtExtremum


@dataclass(frozen=True, eq=False)
class Between:
    """One value of the target: lower affine functions of m <= M <= upper ones, rows (slope over h d, constant).

    The first rows are those of the heads and of the box; tilted ones follow."""

    lower: tuple[Float[np.ndarray, "pieces hd"], Float[np.ndarray, " pieces"]]
    upper: tuple[Float[np.ndarray, "pieces hd"], Float[np.ndarray, " pieces"]]
    name: str
    gaps: tuple[float, ...]  # G of every head


@dataclass(frozen=True, eq=False)
class Bracketed:
    """F_o = constant_o + sum_i weight_oi M_i with every M_i between affine functions of m."""

    values: tuple[Between, ...]
    weight: Float[np.ndarray, "outputs values"]
    constant: Float[np.ndarray, " outputs"]


def uncovered(target: Target, T: int) -> str | None:
    """Why no inequalities are known for this target; None when they are."""
    if not isinstance(target.outer, Polynomial) or target.outer.degree > 1:
        return "its outer map is not a weighted sum"
    for number, term in enumerate(target.terms, 1):
        reason = _uncovered(term, T)
        if reason:
            return f"term {number} {reason}"
    return None


def _uncovered(term: Term, T: int) -> str | None:
    inner = term.extremum if isinstance(term, ValueAtExtremum) else term
    if isinstance(inner, KthLargest):
        return None
    if not isinstance(inner, Extremum):
        return "is neither an extremum nor a k-th largest value"
    if inner.arity != 1:
        return f"compares {inner.arity} tokens at a time, which one layer cannot bracket"
    unary = inner.score.unary[0] if isinstance(inner.score, TreeScore) else None
    if unary is None or unary.degree > 1:
        return "has a score that is not linear in the token"
    if inner.sets is not None and tuple(inner.ranges(T)[0]) != tuple(range(T)):
        return "looks at some positions only"
    if isinstance(term, ValueAtExtremum) and term.shift:
        return "reads a neighbour of the winner"
    if isinstance(term, ValueAtExtremum) and term.read.degree > 1:
        return "reads a map that is not linear"
    return None


def bracket(
    target: Target, reduced: Reduced, T: int, low: Float[np.ndarray, " d"], high: Float[np.ndarray, " d"]
) -> Bracketed:
    """The inequalities of every value of the target, or the reason why there are none."""
    reason = uncovered(target, T)
    if reason:
        raise InfoFlowError(f"expected a target with known inequalities, but {reason}; no bound is proved.")
    if target.dim != reduced.dim:
        raise InfoFlowError(f"expected a target on tokens of dimension {reduced.dim}, got dimension {target.dim}.")
    assert isinstance(target.outer, Polynomial)
    weight, constant = target.outer.affine()
    values: list[Between] = []
    shifts: list[float] = []
    for number, term in enumerate(target.terms, 1):
        for between, shift in _brackets(term, reduced, T, low, high, term.name or f"term {number}"):
            values.append(between)
            shifts.append(shift)
    return Bracketed(tuple(values), weight, constant + weight @ np.array(shifts))


def _brackets(
    term: Term, reduced: Reduced, T: int, low: np.ndarray, high: np.ndarray, name: str
) -> list[tuple[Between, float]]:
    widths = high - low
    queries = list(zip(reduced.queries, reduced.query_error, strict=True))
    if isinstance(term, KthLargest):
        up, down = (T - term.k) / term.k, (term.k - 1) / (T - term.k + 1)
        G = [gap(term.direction, q, up, widths, e) for q, e in queries]
        H = [gap(term.direction, -q, down, widths, e) for q, e in queries]
        return [(_between(term.direction, G, H, low, high, name), 0.0)]
    if isinstance(term, Extremum):
        a, shift = _linear(term)
        sign = 1.0 if term.kind == "max" else -1.0
        G = [gap(sign * a, q, T - 1.0, widths, e) for q, e in queries]
        zero = [0.0] * len(G)
        both = (G, zero) if term.kind == "max" else (zero, G)
        between = _between(a, *both, low, high, name)
        return [(_tilted(between, a, sign, reduced, T, (low, high)), shift)]
    assert isinstance(term, ValueAtExtremum)
    a, _ = _linear(term.extremum)
    a = a if term.extremum.kind == "max" else -a
    rows, shifts = term.read.affine()
    found = []
    for j, (r, shift) in enumerate(zip(rows, shifts.tolist(), strict=True)):
        G, H = (
            [gap_with_margin(s * r, a, term.margin, q, T - 1.0, widths, e) if r.any() else 0.0 for q, e in queries]
            for s in (1.0, -1.0)
        )
        found.append((_between(r, G, H, low, high, f"{name}_{j + 1}"), shift))
    return found


def _tilted(
    between: Between, a: np.ndarray, sign: float, reduced: Reduced, T: int, box: tuple[np.ndarray, np.ndarray]
) -> Between:
    """The same with the tilted gaps of `tilts.py`: sign M <= (sign a + lambda)' m_k + kappa, sign -1 for a minimum."""
    h, d = reduced.heads, reduced.dim
    rows, ends = [], []
    for k, tilt in product(range(h), tilts(a)):
        kappa = tilted_gap(sign * a, tilt, reduced.queries[k], T - 1.0, *box, reduced.query_error[k])
        rows.append(np.zeros(h * d))
        rows[-1][k * d : (k + 1) * d] = a + sign * tilt
        ends.append(sign * kappa)
    if not rows:
        return between
    slopes, constants = between.upper if sign > 0 else between.lower
    more = np.vstack([slopes, rows]), np.concatenate([constants, ends])
    return replace(between, upper=more) if sign > 0 else replace(between, lower=more)


def _linear(term: Extremum) -> tuple[np.ndarray, float]:
    assert isinstance(term.score, TreeScore)
    unary = term.score.unary[0]
    assert unary is not None
    weight, constant = unary.affine()
    return weight[0], float(constant[0])


def _between(r: np.ndarray, G: list[float], H: list[float], low: np.ndarray, high: np.ndarray, name: str) -> Between:
    """Rows of all heads, and one with slope zero for the box itself."""
    h, d = len(G), len(r)
    slopes = np.zeros((h + 1, h * d))
    for k in range(h):
        slopes[k, k * d : (k + 1) * d] = r
    most = float(np.maximum(r * low, r * high).sum())
    least = float(np.minimum(r * low, r * high).sum())
    slack = 1e-14 * (1.0 + float(np.abs(r) @ np.maximum(np.abs(low), np.abs(high))))
    upper = np.array([*(max(0.0, g) for g in G), most + slack])
    lower = np.array([*(-max(0.0, g) for g in H), least - slack])
    return Between((slopes, lower), (slopes, upper), name, tuple(max(0.0, g) for g in G))
