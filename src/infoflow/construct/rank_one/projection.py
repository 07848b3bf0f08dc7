"""One direction that keeps tokens apart: Lemmas 2 and 3, and what Theorem 2 needs of them.

A uniform draw satisfies (72) with probability at least 1 - (2/pi)(m-1)/m >= 0.363 in every dimension, so drawing and
checking is a Las Vegas algorithm: 64 draws all fail with probability below 3e-13. Theorem 2 needs less than (72):
keys need the smallest gap of p = V v against max|p|, queries the ratio min|q| / max|q| of q = V v'.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from infoflow.errors import InfoFlowError, JobError

KEPT = 4  # draws that are polished where the linear program is small
LP_LIMIT = 4_000_000  # entries of the linear program's matrix; above it the best draw stands


@dataclass(frozen=True)
class Projection:
    """A unit vector with what it does to the tokens; `quality` is gap / max|p| for keys, min|q| / max|q| for
    queries."""

    vector: Float[ndarray, " d"]
    quality: float
    method: str

    def __call__(self, tokens: Float[ndarray, "m d"]) -> Float[ndarray, " m"]:
        made: ndarray = tokens @ self.vector
        return made


def lemma_constant(m: int, d: int) -> float:
    """c of (72): |v.(x - x')| >= c |x - x'| for all pairs of m points in R^d."""
    return math.sqrt(8 / (math.pi * d)) / m**2


def satisfies_lemma(tokens: Float[ndarray, "m d"], vector: Float[ndarray, " d"]) -> bool:
    """(72) without m^2 pairs: a violating pair has |p - p'| < 2 c r_max, so it lies in a window of the sorted p."""
    c = lemma_constant(*tokens.shape)
    p = tokens @ vector
    order = np.argsort(p)
    p, points = p[order], tokens[order]
    window = c * 2 * float(np.linalg.norm(tokens, axis=1).max())
    for offset in range(1, len(p)):
        close = np.flatnonzero(p[offset:] - p[:-offset] < window)
        if not len(close):
            return True
        distance = np.linalg.norm(points[close + offset] - points[close], axis=1)
        if (p[close + offset] - p[close] < c * distance).any():
            return False
    return True


def key_quality(p: Float[ndarray, " m *k"]) -> Float[ndarray, " *k"]:
    """Smallest gap over largest magnitude; 1 for a single token (nothing to separate)."""
    if len(p) < 2:
        return np.ones(p.shape[1:])
    quality: ndarray = np.diff(np.sort(p, axis=0), axis=0).min(0) / np.abs(p).max(0)
    return quality


def query_quality(q: Float[ndarray, " m *k"]) -> Float[ndarray, " *k"]:
    """min |q| / max |q| of every column: how evenly a direction sees the tokens."""
    size = np.abs(q)
    quality: ndarray = size.min(0) / size.max(0)
    return quality


def find_projection(
    tokens: Float[ndarray, "m d"], objective: str = "key", draws: int | None = None, seed: int = 0, polish: bool = True
) -> Projection:
    """The best direction found for distinct, non-zero tokens: best of K draws, then a linear program or an exact solve.

    objective "key" maximises gap / max|p|, "query" min|q| / max|q|, "lemma" stops at the first draw that satisfies (72)
    on the tokens and 0 (Lemma 3).
    """
    m, d = tokens.shape
    rng = np.random.default_rng(seed)
    if objective == "lemma":
        return _lemma_draw(tokens, rng)
    if objective not in ("key", "query"):
        raise InfoFlowError(f"expected objective key, query or lemma, got {objective!r}.")
    quality = key_quality if objective == "key" else query_quality
    if d == 1:
        return Projection(np.ones(1), float(quality(tokens)[0]), "d = 1, nothing to search")
    draws = draws or int(np.clip(2_000_000 // m, 16, 2000))
    best = _best_draws(tokens, quality, draws, rng)
    if not polish:
        return best[0]
    candidates = best[:1]
    if objective == "key" and d >= m:
        candidates.append(_spread(tokens, best[0]))
    elif m * d <= LP_LIMIT:
        improve = _polish_key if objective == "key" else _polish_query
        candidates += [improve(tokens, start) for start in best[: int(np.clip(LP_LIMIT // (20 * m * d), 1, KEPT))]]
    return max(candidates, key=lambda found: found.quality)


def _unit(vectors: Float[ndarray, " d *k"]) -> Float[ndarray, " d *k"]:
    unit: ndarray = vectors / np.linalg.norm(vectors, axis=0)
    return unit


def _lemma_draw(tokens: Float[ndarray, "m d"], rng: np.random.Generator) -> Projection:
    points = np.vstack([tokens, np.zeros((1, tokens.shape[1]))])
    for draw in range(64):
        vector = _unit(rng.standard_normal((tokens.shape[1], 1)))[:, 0]
        if satisfies_lemma(points, vector):
            return Projection(vector, float(key_quality(tokens @ vector)), f"draw {draw + 1} satisfies (72)")
    raise JobError("expected a direction with (72) within 64 draws, found none; the tokens may hold near-duplicates.")


def _best_draws(
    tokens: Float[ndarray, "m d"], quality: Callable[[ndarray], ndarray], draws: int, rng: np.random.Generator
) -> list[Projection]:
    """The best of K uniform draws, best first, in blocks that stay in cache."""
    m, d = tokens.shape
    block = int(np.clip(4_000_000 // m, 1, draws))
    kept: list[tuple[float, ndarray]] = []
    for start in range(0, draws, block):
        vectors = _unit(rng.standard_normal((d, min(block, draws - start))))
        values = quality(tokens @ vectors)
        kept += [(float(values[k]), vectors[:, k].copy()) for k in np.argsort(values)[-KEPT:]]
        kept = sorted(kept, key=lambda pair: -pair[0])[:KEPT]
    return [Projection(vector, value, f"best of {draws} draws") for value, vector in kept]


def _spread(tokens: Float[ndarray, "m d"], start: Projection) -> Projection:
    """d >= m: V v = equally spaced values in the order of the draw, exactly ideal when the tokens are independent."""
    m = len(tokens)
    targets = np.empty(m)
    targets[np.argsort(tokens @ start.vector)] = np.linspace(-1, 1, m) if m > 1 else 1.0
    solution = np.linalg.lstsq(tokens, targets, rcond=None)[0]
    if not np.any(solution):
        return start
    vector = _unit(solution)
    return Projection(vector, float(key_quality(tokens @ vector)), "equally spaced solve")


def _polish_key(tokens: Float[ndarray, "m d"], start: Projection) -> Projection:
    """max g with v.(x_{s(i+1)} - x_{s(i)}) >= g and |v.x| <= 1, the order s fixed by the draw: d + 1 unknowns."""
    m = len(tokens)
    if m < 2:
        return start
    ordered = tokens[np.argsort(tokens @ start.vector)]
    steps = np.hstack([-np.diff(ordered, axis=0), np.ones((m - 1, 1))])
    ends = np.hstack([np.vstack([-ordered[0], ordered[-1]]), np.zeros((2, 1))])
    found = _maximise_last(np.vstack([steps, ends]), np.r_[np.zeros(m - 1), 1.0, 1.0])
    if found is None:
        return start
    vector = _unit(found)
    return Projection(vector, float(key_quality(tokens @ vector)), f"{start.method}, linear program")


def _polish_query(tokens: Float[ndarray, "m d"], start: Projection) -> Projection:
    """max t with s_i q.x_i in [t, 1]: signs s all + (tokens in a half-space), else as the draw has them."""
    m = len(tokens)
    best = start
    for signs in (np.ones(m), np.sign(tokens @ start.vector)):
        signed = tokens * signs[:, None]
        low = np.hstack([-signed, np.ones((m, 1))])
        high = np.hstack([signed, np.zeros((m, 1))])
        found = _maximise_last(np.vstack([low, high]), np.r_[np.zeros(m), np.ones(m)])
        if found is None:
            continue
        vector = _unit(found)
        quality = float(query_quality(tokens @ vector))
        if quality > best.quality:
            best = Projection(vector, quality, f"{start.method}, linear program")
        if signs.all() and (signs > 0).all() and quality > 0.01:
            break  # one half-space holds all tokens: the best sign pattern there is
    return best


def _maximise_last(matrix: Float[ndarray, "rows k"], bounds: Float[ndarray, " rows"]) -> ndarray | None:
    """max y with matrix (v, y) <= bounds; None when HiGHS finds no positive y."""
    from scipy.optimize import linprog

    cost = np.zeros(matrix.shape[1])
    cost[-1] = -1
    result = linprog(cost, A_ub=matrix, b_ub=bounds, bounds=(None, None), method="highs")
    if result.x is None or result.x[-1] <= 0 or not np.any(result.x[:-1]):
        return None
    solution: ndarray = result.x[:-1]
    return solution
