"""Proved lower bounds on the width of one-layer models with derived constants: Theorem 4 part 1, Theorem 5, head count.

Each bound holds inside a stated class: W_V, W_O and read-out bounded by `weight_bound`, embeddings of norm at most 1, a
read-out with one hidden layer and a 1-Lipschitz activation, no layer norm; queries, keys and inverse temperatures are
free, and so are positions (the heaviest tokens are then chosen greedily, see `pigeonhole`). Without a bound on the
weights none of them holds: uniform attention with values e^{j b x} determines such targets through one head.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import floor, inf, log

import numpy as np

from infoflow.architecture import Architecture
from infoflow.targets import Extremum, KthLargest, NormOfSum, Polynomial, Target, tree_form
from infoflow.targets.comparison import quadratic_part
from infoflow.verdicts.caps import cap_angle, chord
from infoflow.verdicts.pigeonhole import LARGEST, log_width, width_of


@dataclass(frozen=True)
class ProvedWidth:
    """A theorem that speaks about this target and architecture.

    `width_at_eps`: read-out neurons that eps-accuracy needs in the Section 3 model, None at or below 1 (then nothing
    is excluded at this eps). `theorem_width`: Theorem 5's own formula, for its own class (values in [0,1]^n, a
    non-decreasing score, no output matrix), None where it says nothing; other theorems have no second number.
    """

    statement: str
    exponent: Fraction
    eps: float
    width_at_eps: float | None
    assumes: tuple[str, ...]
    theorem_width: float | None = None


def lower_bounds(
    target: Target, arch: Architecture, T: int, eps: float, weight_bound: float | None = 1.0
) -> tuple[list[ProvedWidth], list[str]]:
    """Every bound that applies, the strongest width first, and why the others say nothing here."""
    if weight_bound is None:
        return [], ["no lower bound: the theorems need bounded weights (weight_bound is None)"]
    if arch.layers != 1:
        return [], ["no lower bound: the theorems speak of one layer"]
    if arch.embed is None:
        return [], ["no lower bound: the theorems speak of a stated embedding, this one is left open"]
    theorems = (depth_separation, kth_largest, head_count)
    results = [theorem(target, arch, T, eps, weight_bound) for theorem in theorems]
    found = [result for result in results if isinstance(result, ProvedWidth)]
    found.sort(key=lambda bound: -(bound.width_at_eps or 0.0))
    return found, [reason for reason in results if isinstance(reason, str) and reason]


def theorem_4_exponent(T: int, heads: int, head_dim: int) -> Fraction:
    """The formal k = (T - H - 1) / (H (n + 1) + 1) - 1 (the informal statement's T - 2H is weaker)."""
    return Fraction(T - heads - 1, heads * (head_dim + 1) + 1) - 1


def theorem_5_exponent(T: int, k: int, head_dim: int) -> Fraction:
    """(T - k + 1) / (n + 1) - 1, what the proof gives (the two printed statements are weaker)."""
    return Fraction(T - k + 1, head_dim + 1) - 1


def head_count_exponent(T: int, heads: int, D: int, head_dim: int) -> Fraction:
    """k = (T/4 - h - D + 1) / ((n + 1) h + 1) - 1 for h < D."""
    return (Fraction(T, 4) - heads - D + 1) / ((head_dim + 1) * heads + 1) - 1


def depth_separation(target: Target, arch: Architecture, T: int, eps: float, weight_bound: float) -> ProvedWidth | str:
    """Theorem 4, part 1: min over pairs of c (1 + x(s)'x(t)) needs two layers.

    On the sphere of radius r inside the domain the score is (c/2) |x(s) + x(t)|^2 up to a constant. H + 1 separated
    caps (`caps.cap_angle`) leave one that none of the H heaviest tokens hits; the free tokens move on squared
    distances 0..L^2 from its centre, whose antipode is one fixed token. `pigeonhole` does the rest, m <= T - H - 1.
    """
    scale = _inner_product_scale(target)
    if scale is None:
        return ""
    if target.dim < 2:
        return "Theorem 4 says nothing for tokens of dimension 1: it needs caps on a sphere"
    H, n = arch.heads[0], arch.head_dims[0]
    exponent = theorem_4_exponent(T, H, n)
    if exponent <= 0:
        return f"Theorem 4 says nothing here: its exponent is {exponent}"
    radius = min(-target.domain[0], target.domain[1])
    length = chord(cap_angle(H, target.dim))
    span = scale / 2 * radius**2 * length**2
    width = width_of(log_width(span, T - H - 1, H, n, eps, weight_bound))
    statement = (
        "Theorem 4, part 1: one layer cannot take a minimum over pairs; constants by a direct pigeonhole on sums"
    )
    return ProvedWidth(statement, exponent, eps, width, _assumes(weight_bound))


def kth_largest(target: Target, arch: Architecture, T: int, eps: float, weight_bound: float) -> ProvedWidth | str:
    """Theorem 5: one head cannot retrieve the k-th largest, k >= 2.

    In the Section 3 model the score may be any function: fix the token x* that the head weighs most. If it lies in the
    upper half of the range it is one of the k - 1 tokens above the grid, otherwise it lies below a grid in the upper
    half; either way T - k positions stay free on half the range and every denominator is at least that token's weight.
    """
    if len(target.terms) != 1 or not isinstance(target.terms[0], KthLargest) or target.terms[0].k < 2:
        return ""
    scale = _linear_outer(target)
    if scale is None:
        return "Theorem 5 says nothing here: the outer map is not linear"
    if arch.heads[0] != 1:
        return f"Theorem 5 says nothing here: it speaks of one head, this layer has {arch.heads[0]}"
    term, n = target.terms[0], arch.head_dims[0]
    exponent = theorem_5_exponent(T, term.k, n)
    if exponent <= 0:
        return f"Theorem 5 says nothing here: its exponent is {exponent}"
    reach = abs(float(scale[0])) * float(np.abs(term.direction).sum()) * (target.domain[1] - target.domain[0])
    width = width_of(log_width(reach / 2, T - term.k, 1, n, eps, weight_bound))
    own = theorem_5_log_width(T, term.k, n, eps / reach, weight_bound)
    statement = "Theorem 5: one softmax head cannot retrieve the k-th largest, k >= 2"
    return ProvedWidth(statement, exponent, eps, width, _assumes(weight_bound), width_of(own))


def theorem_5_log_width(T: int, k: int, head_dim: int, eps: float, weight_bound: float = 1.0) -> float:
    """log of (k - 1) eps N^{m/(n+1)} / (4 m n B^2) with m = T - k + 1, N = floor(1 / (16 m eps)), for tokens in [0, 1].

    The theorem's own class: values f_1 in [0,1]^n, a non-decreasing score, a read-out on the head's average. It needs
    eps < 1/(64 m), and (N^{m/(n+1)}/4 + 1)^{n+1} < N^m for the pigeonhole, i.e. 3^{n+1} N^m > 4^{n+1}; else -inf.
    """
    m = T - k + 1
    if not eps < 1 / (64 * m):
        return -inf
    N = floor(min(1 / (16 * m * eps), LARGEST))
    if (head_dim + 1) * (log(4) - log(3)) >= m * log(N) - 1e-9:
        return -inf
    power = m / (head_dim + 1) * log(N)
    return log(k - 1) + log(eps) + power - log(4 * m * head_dim) - 2 * log(weight_bound)


def head_count(target: Target, arch: Architecture, T: int, eps: float, weight_bound: float) -> ProvedWidth | str:
    """The head-count theorem: sum_i a_i min_t c_i |x(t) - z_i|^2 over D terms needs D heads in one layer.

    Balls of radius L around the z_i are disjoint; D > h of them leave one, around z_i, that no heaviest token hits.
    The other z_j stand on fixed positions (so their minima stay), the free tokens move on squared distances 0..L^2 from
    z_i: m <= min |S_i| - h - (D - 1). For other features that meet the hypotheses only the exponent is stated.
    """
    if not all(isinstance(term, Extremum) and term.arity == 1 for term in target.terms):
        return ""
    D, H, n = len(target.terms), arch.heads[0], arch.head_dims[0]
    if H >= D:
        return ""
    holds, reasons = target.head_count_hypotheses(T)
    if not holds:
        return f"the head-count theorem says nothing here: {'; '.join(reasons)}"
    exponent = head_count_exponent(T, H, D, n)
    if exponent <= 0:
        return f"the head-count theorem says nothing here: its exponent is {exponent}"
    statement = f"head count: one layer with {H} heads cannot take {D} separate minima"
    spread = _separated_squares(target)
    if spread is None:
        return ProvedWidth(statement + " (exponent only)", exponent, eps, None, _assumes(weight_bound))
    smallest = min(_positions(term, T) for term in target.terms if isinstance(term, Extremum))
    width = width_of(log_width(spread, smallest - H - D + 1, H, n, eps, weight_bound))
    return ProvedWidth(statement, exponent, eps, width, _assumes(weight_bound))


def _assumes(weight_bound: float) -> tuple[str, ...]:
    return (
        "hypotheses of the theorem on the target: checked",
        f"W_V, W_O and read-out: all weights at most {weight_bound:g}",
        "embedded tokens of Euclidean norm at most 1",
        "read-out: one hidden layer, 1-Lipschitz activation",
        "no layer norm",
        "exact arithmetic; queries, keys and inverse temperatures are free",
    )


def _linear_outer(target: Target) -> np.ndarray | None:
    """a with F = a . values + constant, all a_i non-zero; None for any other outer map."""
    if not isinstance(target.outer, Polynomial) or target.outer.degree != 1 or target.outputs != 1:
        return None
    weight = target.outer.affine()[0][0]
    return weight if weight.all() else None


def _inner_product_scale(target: Target) -> float | None:
    """c > 0 when F is, up to a constant and sign, c min_{s,t} x(s)'x(t) on spheres around 0 inside the domain."""
    outer = _linear_outer(target)
    if outer is None or len(target.terms) != 1 or target.domain[0] >= 0 or target.domain[1] <= 0:
        return None
    term = target.terms[0]
    if not isinstance(term, Extremum) or term.sets is not None or term.arity != 2:
        return None
    sign = 1.0 if term.kind == "min" else -1.0
    if isinstance(term.score, NormOfSum):
        c = 2.0
    else:
        tree = tree_form(term.score)
        if tree is None or any(unary is not None and unary.degree > 0 for unary in tree.unary):
            return None
        edge = tree.edges[0]
        if not (edge.left.is_linear and edge.right.is_linear):
            return None
        product = edge.left.affine()[0].T @ edge.right.affine()[0]
        c = float(np.trace(product)) / target.dim
        if np.abs(product - c * np.eye(target.dim)).max() > 1e-12 * max(1.0, abs(c)):
            return None
    return abs(float(outer[0])) * abs(c) if sign * c > 0 else None


def _separated_squares(target: Target) -> float | None:
    """min_i |a_i| c_i L^2 for terms min c_i |x - z_i|^2 + constant, L half the least distance of the z_i and at most
    half the domain's side, so that every distance up to L occurs; None for any other kind of term."""
    outer = _linear_outer(target)
    if outer is None:
        return None
    spheres = [sphere for term in target.terms if isinstance(term, Extremum) for sphere in _spheres(term)]
    if len(spheres) != len(target.terms):
        return None
    low, high = target.domain
    points = [z for _, z in spheres]
    if any((z < low).any() or (z > high).any() for z in points):
        return None
    gaps = [float(np.linalg.norm(x - y)) for x, y in combinations(points, 2)]
    length = min(min(gaps, default=inf) / 2, (high - low) / 2) * (1 - 1e-9)
    return min(abs(float(a)) * c for a, (c, _) in zip(outer, spheres, strict=True)) * length**2


def _spheres(term: Extremum) -> Iterator[tuple[float, np.ndarray]]:
    """(c, z) when the term is the minimum of c |x - z|^2 + constant, c > 0."""
    tree = tree_form(term.score)
    if tree is None or tree.unary[0] is None:
        return
    sign = 1.0 if term.kind == "min" else -1.0
    if tree.unary[0].degree != 2:
        return
    hessian, slope = quadratic_part(tree.unary[0])
    c = float(np.trace(hessian)) / (2 * term.dim)
    if sign * c > 0 and np.abs(hessian - 2 * c * np.eye(term.dim)).max() <= 1e-12 * abs(c):
        yield abs(c), -slope / (2 * c)


def _positions(term: Extremum, T: int) -> int:
    return len(term.ranges(T)[0])
