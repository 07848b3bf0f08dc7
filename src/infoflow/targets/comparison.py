"""Number of Comparison (Definition 2): how many tuples of tokens a target makes one look at, as exact integers.

For D extrema over k-tuples, nothing looping over T:

- `ordered`: D (T^k - 1), the paper's trees over ordered tuples;
- `unordered_with_repetition`: D (C(T+k-1, k) - 1), leaves are sets with repetition;
- `unordered_distinct`: D (C(T, k) - 1), the best tree known: a node may take the best arrangement inside its set, so
  order and repeats are free;
- `lower`: the bound of the argument in D.1, D (T - D) for k = 1 and C(T, k) - min(k D, T) for k >= 2, given only where
  the argument applies; `basis` says so, or why not.

For a function that can only be called, dimension and number of trees are estimated on samples (`targets.estimates`),
`estimated` is true and `basis` says what was seen.

At the end: the hypotheses of the head-count theorem, checked on a target. It speaks of F_0(min_{t in S_1} f_1(x(t)),
..., min_{t in S_D} f_D(x(t))) with f_i: [0,1]^d -> [0,1], |S_i| >= T/4, unique and well-separated minimisers, distinct
across i, with positive definite Hessian, and F_0 that depends on every coordinate. What cannot be verified here counts
as a reason against.
"""

import math
from dataclasses import dataclass

import numpy as np

from infoflow.errors import InfoFlowError
from infoflow.targets.estimates import estimate
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import Score, TreeScore, tree_form
from infoflow.targets.target import Target
from infoflow.targets.terms import Extremum, KthLargest, PositionSum, Term, ValueAtExtremum, WholeSequence

MOST_DIGITS = 4000  # of an exact count: Python itself prints no more than 4300


@dataclass(frozen=True)
class Comparison:
    """Dimension and order of comparison, the counts at length T (None where not defined), and where `lower` is from."""

    T: int
    dimension: int
    order: int
    lower: int | None
    ordered: int | None
    unordered_with_repetition: int | None
    unordered_distinct: int | None
    decomposes: bool  # every score is a sum over a tree, so attention can share inner maximisations
    basis: str  # the argument behind `lower`, or why there is none, or the samples behind an estimate
    estimated: bool = False
    active: int = 0  # tokens that were seen to have a derivative at once, where this is an estimate

    @property
    def required(self) -> dict[str, int | None]:
        """The four counts by name."""
        return {
            "lower": self.lower,
            "ordered": self.ordered,
            "unordered_with_repetition": self.unordered_with_repetition,
            "unordered_distinct": self.unordered_distinct,
        }


def comparison(target: Target, T: int) -> Comparison:
    """Dimension, order and counts of comparison of a target at length T."""
    target.check_length(T)
    if any(isinstance(term, WholeSequence) for term in target.terms):
        return _estimated(target, T)
    terms = [compared(term) for term in target.terms]
    dimension = max(_dimension(compared(term)) + _beside(term) for term in target.terms)
    _check_digits(dimension, T)
    lower, basis = _lower(target, T)
    return Comparison(
        T=T,
        dimension=dimension,
        order=dimension,
        lower=lower,
        ordered=_total([_ordered(term, T) for term in terms]),
        unordered_with_repetition=_total([_with_repetition(term, T) for term in terms]),
        unordered_distinct=_total([_distinct(term, T) for term in terms]),
        decomposes=all(_decomposes(term) for term in terms),
        basis=basis,
    )


def _estimated(target: Target, T: int) -> Comparison:
    """The counts of `trees` extrema over tuples of `dimension` tokens, as they look on samples."""
    found = estimate(target, T)
    k, D = found.dimension, found.trees
    _check_digits(k, T)
    known = not found.everything
    return Comparison(
        T=T,
        dimension=k,
        order=k,
        lower=None,
        ordered=D * (T**k - 1) if known else None,
        unordered_with_repetition=D * (math.comb(T + k - 1, k) - 1) if known else None,
        unordered_distinct=D * (math.comb(T, k) - 1) if known and k <= T else None,
        decomposes=False,
        basis=str(found),
        estimated=True,
        active=found.active,
    )


def _check_digits(dimension: int, T: int) -> None:
    digits = dimension * math.log10(T + 1)
    if digits > MOST_DIGITS:
        raise InfoFlowError(
            f"expected counts of comparisons of at most {MOST_DIGITS} digits, tuples of {dimension} of {T} tokens have "
            f"{digits:.0f}; take a smaller T or smaller tuples."
        )


Compared = Extremum | KthLargest | PositionSum


def compared(term: Term) -> Compared:
    """The term as a comparison: what is read at a winner does not say who wins."""
    assert not isinstance(term, WholeSequence)
    return term.extremum if isinstance(term, ValueAtExtremum) else term


def _beside(term: Term) -> bool:
    """Whether a leaf must hold one token more: the one that is read beside the winner."""
    return isinstance(term, ValueAtExtremum) and term.shift != 0


def _dimension(term: Compared) -> int:
    if isinstance(term, Extremum):
        return term.arity
    return term.k if isinstance(term, KthLargest) else 1


def _decomposes(term: Compared) -> bool:
    if isinstance(term, Extremum):
        return tree_form(term.score) is not None
    return isinstance(term, PositionSum) or term.k == 1


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _ordered(term: Compared, T: int) -> int | None:
    """Leaves are ordered tuples; a k-th largest, and an extremum over different positions, have no repeats in them."""
    if isinstance(term, PositionSum):
        return 0
    if isinstance(term, KthLargest):
        return math.perm(T, term.k) - 1
    if not term.distinct:
        return math.prod(_sizes(term, T)) - 1
    return math.perm(size, term.arity) - 1 if (size := _common_size(term, T)) is not None else None


def _with_repetition(term: Compared, T: int) -> int | None:
    """Leaves are multisets. Not defined where repeats are excluded or the vertices have different position sets."""
    if isinstance(term, PositionSum):
        return 0
    if isinstance(term, KthLargest):
        return T - 1 if term.k == 1 else None
    size = _common_size(term, T)
    if size is None or (term.distinct and term.arity > 1):
        return None
    return math.comb(size + term.arity - 1, term.arity) - 1


def _distinct(term: Compared, T: int) -> int | None:
    """Leaves are sets of k different positions; not defined for fewer positions than k."""
    if isinstance(term, PositionSum):
        return 0
    k = _dimension(term)
    size = T if isinstance(term, KthLargest) else _common_size(term, T)
    return None if size is None or size < k else math.comb(size, k) - 1


def _sizes(term: Extremum, T: int) -> list[int]:
    return [len(positions) for positions in term.ranges(T)]


def _common_size(term: Extremum, T: int) -> int | None:
    """The size of the position set all vertices share, None when they differ."""
    if term.sets is None:
        return T
    return _sizes(term, T)[0] if len(set(term.ranges(T))) == 1 else None


def _lower(target: Target, T: int) -> tuple[int | None, str]:
    """The bound of D.1 and the reason it is, or is not, given."""
    if all(isinstance(term, PositionSum) for term in target.terms):
        return 0, "fixed positions need no comparison"
    extrema = [term for term in target.terms if isinstance(term, Extremum)]
    if len(extrema) < len(target.terms):
        only = target.terms[0]
        if len(target.terms) == 1 and isinstance(only, KthLargest) and only.k == 1:
            return T - 1, "D.1: every position can be the maximum"
        return None, "no lower bound is proved for k-th largest values and values read at an extremum"
    if any(term.sets is not None for term in extrema):
        return None, "D.1 is argued for tuples over all positions"
    if not _uses_every_value(target):
        return None, "D.1 needs an outer map that depends on every value; this one was not seen to"
    arities = {term.arity for term in extrema}
    if len(arities) > 1:
        return None, "D.1 is argued for extrema over tuples of one size"
    k, D = arities.pop(), len(extrema)
    if k == 1:
        if not distinct_winners(target):
            return None, "D.1 needs inputs on which the D extrema sit at D different positions; none was found"
        return max(0, D * (T - D)), "D.1: D extrema can sit at any D different positions"
    if any(_collapses(term) for term in extrema):
        return None, "D.1 needs scores whose best tuples consist of different tokens; here fewer tokens decide"
    return (
        max(0, math.comb(T, k) - min(k * D, T)),
        "D.1, as argued in the paper for generic scores: every set of k positions is a leaf",
    )


def _uses_every_value(target: Target) -> bool:
    if not isinstance(target.outer, Polynomial):
        return False
    used = np.abs(target.outer.coefficients).max(axis=0) > 0
    return bool((target.outer.exponents[used] > 0).any(axis=0).all())


def _collapses(term: Extremum) -> bool:
    """Cases in which fewer than k tokens decide: products of numbers (only the extreme tokens matter), and pair scores
    x'Mx' with sign * (M + M') positive semidefinite, whose maximum is reached at t_1 = t_2 unless that is excluded."""
    if not isinstance(term.score, TreeScore):
        return False
    if term.dim == 1:
        return True
    if term.arity != 2 or term.distinct or not all(_linear(p) for e in term.score.edges for p in (e.left, e.right)):
        return False
    edge = term.score.edges[0]
    sign = 1 if term.kind == "max" else -1
    matrix = sign * edge.left.affine()[0].T @ edge.right.affine()[0]
    return bool(np.linalg.eigvalsh(matrix + matrix.T).min() >= 0)


def _linear(polynomial: Polynomial) -> bool:
    return polynomial.is_linear


def distinct_winners(target: Target) -> bool:
    """Whether D extrema over single tokens have D different winners on an open set, shown by explicit points.

    Tries, for each term, a point that should win it: a step from the centre of the domain along its gradient, then its
    stationary point. Strict wins over the other points and over a token of no use are kept by nearby inputs.
    """
    low, high = target.domain
    centre = np.full(target.dim, (low + high) / 2)
    scores = [(1 if term.kind == "max" else -1, term.score) for term in target.terms if isinstance(term, Extremum)]
    slopes = np.array([sign * score.gradient(centre[None, :])[0] for sign, score in scores])
    norms = np.linalg.norm(slopes, axis=1, keepdims=True)
    stepped = centre + (high - low) / 4 * slopes / np.where(norms > 0, norms, 1.0)
    families = [stepped]
    if (points := stationary_points(target)) is not None:
        families.append(points)
    fillers = [centre, np.full(target.dim, low), np.full(target.dim, high)]
    return any(_each_wins(scores, points, filler) for points in families for filler in fillers)


def _each_wins(scores: list[tuple[int, Score]], points: np.ndarray, filler: np.ndarray) -> bool:
    tokens = np.vstack([points, filler])[:, None, :]
    for i, (sign, score) in enumerate(scores):
        values = sign * score(tokens)
        others = np.delete(values, i)
        if not values[i] > others.max() + 1e-9 * (1 + np.abs(values).max()):
            return False
    return True


def stationary_points(target: Target) -> np.ndarray | None:
    """Where each quadratic single-token score is stationary, (D, d); None if one is not quadratic and regular."""
    points = []
    for term in target.terms:
        if not isinstance(term, Extremum) or not isinstance(term.score, TreeScore) or term.arity != 1:
            return None
        unary = term.score.unary[0]
        if unary is None or unary.degree != 2:
            return None
        hessian, slope = quadratic_part(unary)
        if np.linalg.matrix_rank(hessian) < target.dim:
            return None
        points.append(np.linalg.solve(hessian, -slope))
    return np.array(points)


def quadratic_part(polynomial: Polynomial) -> tuple[np.ndarray, np.ndarray]:
    """(H, g) with p(x) = x'Hx/2 + g'x + c, for degree at most two."""
    hessian, slope = np.zeros((polynomial.inputs, polynomial.inputs)), np.zeros(polynomial.inputs)
    for exponent, weight in zip(polynomial.exponents, polynomial.coefficients[0], strict=True):
        factors = np.repeat(np.arange(polynomial.inputs), exponent)
        if len(factors) == 1:
            slope[factors[0]] += weight
        elif len(factors) == 2:
            hessian[factors[0], factors[1]] += weight
            hessian[factors[1], factors[0]] += weight
    return hessian, slope


CORNERS = 16  # dimensions up to which the range of f_i is checked at every corner of the cube


def head_count_hypotheses(target: Target, T: int | None = None) -> tuple[bool, tuple[str, ...]]:
    """Whether the head-count theorem speaks of this target, and every reason why not."""
    reasons: list[str] = []
    if tuple(target.domain) != (0.0, 1.0):
        reasons.append(f"the tokens must lie in [0,1]^d, the domain is {target.domain}")
    points = []
    for number, term in enumerate(target.terms, start=1):
        found = _feature(term, number, T, reasons)
        if found is not None:
            points.append(found)
    reasons.extend(_close_pairs(points))
    if not isinstance(target.outer, Polynomial) or not _monotone_affine(target.outer):
        reasons.append("F_0 must have non-zero derivatives in every coordinate; only affine F_0 is verified here")
    return not reasons, tuple(reasons)


def _feature(term: object, number: int, T: int | None, reasons: list[str]) -> np.ndarray | None:
    """The minimiser of f_i when it satisfies the hypotheses; otherwise the reason is added."""
    if not isinstance(term, Extremum) or term.arity != 1:
        reasons.append(f"term {number} is not an extremum over single tokens")
        return None
    unary = getattr(term.score, "unary", (None,))[0]
    if unary is None or unary.degree > 2:
        reasons.append(f"f_{number} is not a polynomial of degree at most two; its minimiser is not verified")
        return None
    if T is not None and term.sets is not None and 4 * len(term.choices(T)[0]) < T:
        reasons.append(f"S_{number} has {len(term.choices(T)[0])} positions, fewer than T/4 = {T / 4:g}")
    hessian, slope = quadratic_part(unary)
    sign = 1 if term.kind == "min" else -1
    if not np.any(hessian):
        reasons.append(f"f_{number} is linear: its minimiser lies on the boundary and its Hessian is zero")
        return None
    if np.linalg.eigvalsh(sign * hessian).min() <= 0:
        reasons.append(f"f_{number} has no positive definite Hessian")
        return None
    point = np.linalg.solve(hessian, -slope)
    if not ((point > 0) & (point < 1)).all():
        reasons.append(f"the minimiser of f_{number} lies outside the open cube (0,1)^d")
    if not _within_unit(unary, point, sign):
        reasons.append(f"f_{number} is not seen to take values in [0,1]")
    return point


def _within_unit(unary: Polynomial, point: np.ndarray, sign: int) -> bool:
    """A convex f has its maximum over the cube at a corner and its minimum at the stationary point."""
    if unary.inputs > CORNERS:
        corners = np.where(point < 0.5, 1.0, 0.0)[None, :]  # the farthest corner, enough where H is a multiple of I
        hessian = quadratic_part(unary)[0]
        if not np.allclose(hessian, hessian[0, 0] * np.eye(unary.inputs)):
            return False
    else:
        corners = np.array(np.meshgrid(*[[0.0, 1.0]] * unary.inputs)).reshape(unary.inputs, -1).T
    values = np.append(unary(corners)[:, 0], unary(point)[0])
    room = 1e-9
    return bool(values.min() >= -room and values.max() <= 1 + room)


def _close_pairs(points: list[np.ndarray]) -> list[str]:
    for i, first in enumerate(points):
        for second in points[:i]:
            if np.linalg.norm(first - second) < 1e-6:
                return ["two features share their minimiser"]
    return []


def _monotone_affine(outer: Polynomial) -> bool:
    return outer.degree <= 1 and bool((np.abs(outer.affine()[0]) > 0).all())
