"""The families of targets on which forecasts are calibrated and tested, split before anything was fitted.

A family is a way to draw a target from a random generator. Some are named targets of the house, some are what a user
would write: ranges, quadratic scores, products, mixed arities, other input laws. No two of the groups share a family;
those of `later_families.py` and `newest_families.py` came when earlier ones had been met.
"""

import numpy as np

from infoflow.forecasts.draws import Drawn, Family, seed_of
from infoflow.forecasts.later_families import FRESH, FURTHER, LATER
from infoflow.forecasts.newest_families import LATEST, NEWEST
from infoflow.targets import Extremum, Polynomial, Target, TreeScore, named
from infoflow.targets.score import Edge


def sum_of_maxima(rng: np.random.Generator) -> Drawn:
    D = int(rng.integers(1, 6))
    return Drawn(named.sum_of_maxima(D, int(rng.integers(1, 9)), seed_of(rng)), D)


def pairwise_max(rng: np.random.Generator) -> Drawn:
    D = int(rng.integers(1, 4))
    return Drawn(named.pairwise_max(D, int(rng.integers(2, 6)), seed_of(rng)), D)


def kth_largest(rng: np.random.Generator) -> Drawn:
    k = int(rng.integers(1, 5))
    return Drawn(named.kth_largest(k, int(rng.integers(1, 3))), k)


def d_retrieval(rng: np.random.Generator) -> Drawn:
    D = int(rng.integers(1, 5))
    return Drawn(named.d_retrieval(D, int(rng.integers(1, 5)), seed_of(rng)), D)


def position_sum(rng: np.random.Generator) -> Drawn:
    chosen = rng.choice(4, size=int(rng.integers(1, 4)), replace=False)
    return Drawn(named.position_sum(tuple(int(p) for p in chosen), int(rng.integers(1, 5))), len(chosen), True)


def ranges(rng: np.random.Generator) -> Drawn:
    """sum_i (max_t a_i'x(t) - min_t a_i'x(t)) of normal tokens."""
    D, d, seed = int(rng.integers(1, 3)), int(rng.integers(1, 5)), seed_of(rng)
    lines = [TreeScore.linear(a) for a in np.random.default_rng(seed).standard_normal((D, d))]
    terms = tuple(Extremum(line, kind) for line in lines for kind in ("max", "min"))
    signs = np.array([[1.0, -1.0] * D])
    spelling = f"ranges:D={D},d={d},seed={seed}"
    return Drawn(Target(terms, Polynomial.linear(signs), d, spelling, sampler="normal"), 2 * D)


def quadratic_maxima(rng: np.random.Generator) -> Drawn:
    """sum_i max_t (x(t)'Q_i x(t) + b_i'x(t)) on the box."""
    D, d, seed = int(rng.integers(1, 4)), int(rng.integers(1, 4)), seed_of(rng)
    draw = np.random.default_rng(seed)
    terms = []
    for _ in range(D):
        Q = draw.standard_normal((d, d))
        terms.append(Extremum(TreeScore((Polynomial.quadratic((Q + Q.T) / 2, draw.standard_normal(d), 0.0),), (), d)))
    return Drawn(Target.sum(*terms, spelling=f"quadratic_maxima:D={D},d={d},seed={seed}"), D)


def mixed(rng: np.random.Generator) -> Drawn:
    """max_t a'x(t) + max_{s,t} x(s)'A x(t), normal tokens: one extremum of each arity."""
    d, seed = int(rng.integers(2, 5)), seed_of(rng)
    draw = np.random.default_rng(seed)
    single = Extremum(TreeScore.linear(draw.standard_normal(d)))
    pair = Extremum(TreeScore.bilinear(draw.standard_normal((d, d))))
    return Drawn(Target.sum(single, pair, spelling=f"mixed:d={d},seed={seed}", sampler="normal"), 2)


def min_pair(rng: np.random.Generator) -> Drawn:
    return Drawn(named.min_pair(int(rng.integers(1, 6))), 1)


def triangle_center(rng: np.random.Generator) -> Drawn:
    return Drawn(named.triangle_center(int(rng.integers(1, 3))), 3)


def max_plus_min(rng: np.random.Generator) -> Drawn:
    return Drawn(named.max_plus_min(), 2)


def star(rng: np.random.Generator) -> Drawn:
    k = int(rng.integers(2, 4))
    return Drawn(named.star(k, int(rng.integers(2, 5)), seed_of(rng)), k - 1)


def chain(rng: np.random.Generator) -> Drawn:
    length = int(rng.integers(2, 4))
    return Drawn(named.chain(length, int(rng.integers(2, 5)), seed_of(rng)), length - 1)


def product_of_maxima(rng: np.random.Generator) -> Drawn:
    """m_1 m_2 + m_3 with m_i = max_t a_i'x(t), uniform tokens on the box."""
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    terms = tuple(Extremum(TreeScore.linear(a)) for a in np.random.default_rng(seed).standard_normal((3, d)))
    outer = Polynomial(np.array([[1, 1, 0], [0, 0, 1]]), np.array([[1.0, 1.0]]))
    return Drawn(Target(terms, outer, d, f"product_of_maxima:d={d},seed={seed}"), 3)


def diameter(rng: np.random.Generator) -> Drawn:
    """max_{s,t} |x(s) - x(t)|^2 on the box."""
    d = int(rng.integers(1, 5))
    square = Polynomial.quadratic(np.eye(d), np.zeros(d), 0.0)
    edge = Edge(0, 1, Polynomial.linear(-2 * np.eye(d)), Polynomial.linear(np.eye(d)))
    return Drawn(Target.sum(Extremum(TreeScore((square, square), (edge,), d)), spelling=f"diameter:d={d}"), 1)


def low_rank_pairs(rng: np.random.Generator) -> Drawn:
    """sum_i max_{s,t} (a_i'x(s)) (b_i'x(t)), normal tokens."""
    D, d, seed = int(rng.integers(1, 4)), int(rng.integers(2, 5)), seed_of(rng)
    draw = np.random.default_rng(seed)
    scores = [TreeScore.bilinear(np.outer(draw.standard_normal(d), draw.standard_normal(d))) for _ in range(D)]
    terms = [Extremum(score) for score in scores]
    return Drawn(Target.sum(*terms, spelling=f"low_rank_pairs:D={D},d={d},seed={seed}", sampler="normal"), D)


def weighted_maxima(rng: np.random.Generator) -> Drawn:
    """sum_i 2^-i max_t a_i'x(t), |a_i| = 1, uniform tokens on the box: heads of falling importance."""
    D, d, seed = int(rng.integers(2, 6)), int(rng.integers(2, 5)), seed_of(rng)
    directions = np.random.default_rng(seed).standard_normal((D, d))
    directions *= 2.0 ** -np.arange(D)[:, None] / np.linalg.norm(directions, axis=1, keepdims=True)
    terms = [Extremum(TreeScore.linear(a)) for a in directions]
    return Drawn(Target.sum(*terms, spelling=f"weighted_maxima:D={D},d={d},seed={seed}"), D)


CALIBRATION: tuple[Family, ...] = (
    sum_of_maxima,
    pairwise_max,
    kth_largest,
    d_retrieval,
    position_sum,
    ranges,
    quadratic_maxima,
    mixed,
)
TEST: tuple[Family, ...] = (
    min_pair,
    triangle_center,
    max_plus_min,
    star,
    chain,
    product_of_maxima,
    diameter,
    low_rank_pairs,
    weighted_maxima,
)
GROUPS: dict[str, tuple[Family, ...]] = {
    "calibration": CALIBRATION,
    "test": TEST,
    "later": LATER,
    "further": FURTHER,
    "fresh": FRESH,
    "newest": NEWEST,
    "latest": LATEST,
}
