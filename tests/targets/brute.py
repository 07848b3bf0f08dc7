"""Brute force over tuples, and random targets whose scores are small integers, so that ties are exact."""

import itertools

import numpy as np
from hypothesis import strategies as st

from infoflow.targets import Edge, Extremum, Polynomial, Target, TreeScore


def best_tuple(term: Extremum, X: np.ndarray) -> tuple[tuple[int, ...], float]:
    """The lexicographically first best tuple of one sequence (T, d) and its score."""
    sets = term.sets or (None,) * term.arity
    sign = 1 if term.kind == "max" else -1
    best: tuple[tuple[int, ...], float] | None = None
    for positions in itertools.product(*(range(len(X)) if s is None else s for s in sets)):
        if term.distinct and len(set(positions)) < len(positions):
            continue
        value = sign * float(term.score(X[list(positions)]))
        if best is None or value > best[1]:
            best = (positions, value)
    assert best is not None
    return best[0], sign * best[1]


def integer_polynomial(rng: np.random.Generator, outputs: int, d: int) -> Polynomial:
    exponents = np.vstack([np.eye(d, dtype=np.int64), rng.integers(0, 2, (2, d))])
    return Polynomial(exponents, rng.integers(-2, 3, (outputs, len(exponents))))


def integer_tree(rng: np.random.Generator, k: int, d: int) -> TreeScore:
    """A random tree with random vertex numbers, random features and integer coefficients."""
    label = rng.permutation(k)
    edges = []
    for child in range(1, k):
        ends = (int(label[rng.integers(0, child)]), int(label[child]))
        v, w = ends if rng.integers(2) else ends[::-1]
        rank = int(rng.integers(1, 3))
        edges.append(Edge(v, w, integer_polynomial(rng, rank, d), integer_polynomial(rng, rank, d)))
    unary = tuple(integer_polynomial(rng, 1, d) if rng.integers(2) else None for _ in range(k))
    return TreeScore(unary, tuple(edges), d)


@st.composite
def integer_extrema(draw: st.DrawFn) -> tuple[Extremum, np.ndarray]:
    """An extremum of a tree score with its position sets, and a batch of integer tokens it is defined on."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k, d = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    distinct = draw(st.booleans())
    T = draw(st.integers(k if distinct else 1, 5))
    sets = None
    if draw(st.booleans()):
        size = k if distinct else 1  # any k sets of at least k positions admit different ones
        sets = tuple(
            None if rng.integers(2) else tuple(rng.permutation(T)[: rng.integers(size, T + 1)].tolist())
            for _ in range(k)
        )
    kind = draw(st.sampled_from(["max", "min"]))
    term = Extremum(integer_tree(rng, k, d), kind, sets, distinct)
    return term, rng.integers(-2, 3, (3, T, d)).astype(np.float64)


def only(term: Extremum) -> Target:
    return Target.sum(term)
