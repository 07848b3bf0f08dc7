"""How large the logits are made: the theorem's scale, a sufficient one, and the one that separates best.

    paper        (29): beta = (|V|+1)^4 (pi d / 8)(2 log n + 3)/(eps r_min), one direction with (76)
    sufficient   beta = (log n + 2)/(g q_min): what the sharp lemma needs of the smallest key gap g and the smallest |q|
    auto         the largest certified gap over a grid of largest logits and several pairs of directions

The paper's scale saturates softmax: ids that are provably distinct become bit-identical in float64. Moderate logits
(0.1 to 60) separate far better: for one query the average of a multiset A is d/dl log Z_A(l) at l = beta q, so all
multisets of one length differ for all but a discrete set of beta.
"""

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from infoflow.construct.rank_one.contexts import Contexts
from infoflow.construct.rank_one.head import attention_average
from infoflow.construct.rank_one.projection import find_projection
from infoflow.construct.rank_one.separation import Separation, same_token_gap
from infoflow.errors import JobError
from infoflow.progress import Progress

WORK = 60_000_000  # exponentials that a default search spends on more than its first eight pairs of directions
REFINED = 40
LOGITS = np.geomspace(0.1, 60, 16)


def largest_set(contexts: Contexts) -> int:
    return int((contexts.members >= 0).sum(1).max())


def paper_scale(contexts: Contexts, apart: Separation) -> float:
    """(29) with the separation measured on the data."""
    m, d = contexts.vocabulary.shape
    delta = 2 * math.log(largest_set(contexts)) + 3
    return (m + 1) ** 4 * (math.pi * d / 8) * delta / (min(apart.distance, 2 * apart.largest) * apart.smallest)


def paper_gap(contexts: Contexts, apart: Separation) -> float:
    """log10 of delta in (8), the form that scales with the data ((47) does not); at n = 1 eps/2 replaces 0."""
    m, d = contexts.vocabulary.shape
    n = largest_set(contexts)
    L, eps = math.log(n), min(apart.distance, 2 * apart.largest)
    if n == 1:
        return math.log10(eps / 2)
    volume = (m + 1) ** 4 * (2 * L + 3) * math.pi * d
    front = 2 * L**2 * eps**2 * apart.smallest / (apart.largest**2 * volume)
    return math.log10(front) - volume * apart.largest**2 / (4 * eps * apart.smallest) / math.log(10)


Directions = tuple[Float[ndarray, " d"], Float[ndarray, " d"]]


def paper_directions(contexts: Contexts, seed: int) -> Directions:
    v = find_projection(contexts.vocabulary, "lemma", seed=seed).vector
    return v, v


def sufficient_directions(contexts: Contexts, seed: int) -> Directions:
    key = find_projection(contexts.vocabulary, "key", seed=seed).vector
    return key, find_projection(contexts.vocabulary, "query", seed=seed + 1).vector


def sufficient_scale(contexts: Contexts, key: ndarray, query: ndarray) -> float:
    p, q = np.sort(contexts.vocabulary @ key), np.abs(contexts.vocabulary @ query)
    gap = float(np.diff(p).min()) if len(p) > 1 else math.inf
    if gap == 0 or q.min() == 0:
        raise JobError(
            "expected directions that separate the tokens, found ties; the tokens are too close for float64."
        )
    return (math.log(largest_set(contexts)) + 2) / (gap * float(q.min()))


def direction_pairs(vocabulary: Float[ndarray, "m d"], draws: int, seed: int) -> Iterator[Directions]:
    """The searched pair first (few draws, no polish: s, not p, has to be spread), then random ones."""
    rng = np.random.default_rng(seed)
    d = vocabulary.shape[1]
    if d == 1:
        yield np.ones(1), np.ones(1)
        yield np.ones(1), -np.ones(1)
        return
    yield (
        find_projection(vocabulary, "key", draws=32, seed=seed, polish=False).vector,
        find_projection(vocabulary, "query", draws=32, seed=seed + 1, polish=False).vector,
    )
    for _ in range(draws - 1):
        pair = rng.standard_normal((2, d))
        pair /= np.linalg.norm(pair, axis=1, keepdims=True)
        yield pair[0], pair[1]


def auto_search(contexts: Contexts, draws: int | None, seed: int) -> tuple[Directions, float]:
    """The directions and beta with the largest same-token gap of s over max|p|; refined around the best grid point.

    Without `draws` small data get up to 32 pairs of directions, large data 8.
    """
    draws = draws or int(np.clip(WORK // (len(LOGITS) * contexts.size * contexts.members.shape[1]), 8, 32))
    best, found = -1.0, ((np.zeros(0), np.zeros(0)), 1.0)

    def attempt(v: ndarray, w: ndarray, beta: float) -> None:
        nonlocal best, found
        p = contexts.vocabulary @ v
        pair = same_token_gap(contexts.query, attention_average(contexts, p, contexts.vocabulary @ (beta * w)))
        gap = pair.gap / float(np.abs(p).max()) if pair else math.inf
        if gap > best:
            best, found = gap, ((v, w), beta)

    grid = LOGITS if contexts.vocabulary.shape[1] > 1 else np.geomspace(0.1, 60, 64)  # d = 1 has no directions to draw
    with Progress("auto scale", draws * len(grid)) as bar:
        for index, (v, w) in enumerate(direction_pairs(contexts.vocabulary, draws, seed)):
            p, q = np.abs(contexts.vocabulary @ v).max(), np.abs(contexts.vocabulary @ w).max()
            for k, logit in enumerate(grid):
                attempt(v, w, float(logit / (p * q)))
                bar.update(index * len(grid) + k + 1, f"gap {best:.2g}")
    (v, w), beta = found
    for factor in np.geomspace(
        0.5, 2.0, REFINED
    ):  # the gap is erratic in beta: each is a new draw where draws are good
        attempt(v, w, beta * float(factor))
    return found
