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
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from infoflow.construct.rank_one.climb import Neighbours, climb
from infoflow.construct.rank_one.contexts import Contexts
from infoflow.construct.rank_one.head import attention_average, attention_jacobian, average_blocks
from infoflow.construct.rank_one.projection import find_projection
from infoflow.construct.rank_one.separation import Separation
from infoflow.errors import JobError
from infoflow.progress import Progress

WORK = 60_000_000  # exponentials that a default search spends on more than its first three pairs of directions
BLOCKS = 16  # parts a candidate is evaluated in: most show a small gap in the first and go no further
CLIMBED = 16  # candidates whose weights are moved; fewer in high dimension d, where a program costs about d^3
EXTREMES = 32  # tokens with the largest |p|, which must not grow
LOGITS = np.geomspace(0.1, 60, 16)


def largest_set(contexts: Contexts) -> int:
    """The size of the largest multiset."""
    return int((contexts.members >= 0).sum(1).max())


def paper_scale(contexts: Contexts, apart: Separation) -> float:
    """(29) with the separation measured on the data."""
    m, d = contexts.vocabulary.shape
    delta = 2 * math.log(largest_set(contexts)) + 3
    return float((m + 1) ** 4 * (math.pi * d / 8) * delta / (min(apart.distance, 2 * apart.largest) * apart.smallest))


def paper_gap(contexts: Contexts, apart: Separation) -> float:
    """log10 of delta in (8), the form that scales with the data ((47) does not); at n = 1 eps/2 replaces 0."""
    m, d = contexts.vocabulary.shape
    n = largest_set(contexts)
    L, eps = math.log(n), min(apart.distance, 2 * apart.largest)
    if n == 1:
        return math.log10(eps / 2)
    volume = (m + 1) ** 4 * (2 * L + 3) * math.pi * d
    front = 2 * L**2 * eps**2 * apart.smallest / (apart.largest**2 * volume)
    return float(math.log10(front) - volume * apart.largest**2 / (4 * eps * apart.smallest) / math.log(10))


Directions = tuple[Float[ndarray, " d"], Float[ndarray, " d"]]


def paper_directions(contexts: Contexts, seed: int) -> Directions:
    """Of up to 64 directions with (76) the one with the smallest max|p|: the exponent of the gap grows with its
    square."""
    tokens = contexts.vocabulary
    draws = int(np.clip(50_000 // len(tokens), 1, 64))
    found = [find_projection(tokens, "lemma", seed=seed + k).vector for k in range(draws)]
    v = min(found, key=lambda vector: float(np.abs(tokens @ vector).max()))
    return v, v


def sufficient_directions(contexts: Contexts, seed: int) -> Directions:
    """A key and a query direction that keep all tokens apart."""
    key = find_projection(contexts.vocabulary, "key", seed=seed).vector
    return key, find_projection(contexts.vocabulary, "query", seed=seed + 1).vector


def sufficient_scale(contexts: Contexts, key: ndarray, query: ndarray) -> float:
    """The inverse temperature at which the theorem's proof goes through."""
    p, q = np.sort(contexts.vocabulary @ key), np.abs(contexts.vocabulary @ query)
    gap = float(np.diff(p).min()) if len(p) > 1 else math.inf
    if gap == 0 or q.min() == 0:
        raise JobError(
            "expected directions that separate the tokens, found ties; the tokens are too close for float64."
        )
    return (math.log(largest_set(contexts)) + 2) / (gap * float(q.min()))


@dataclass(frozen=True)
class MovableHead:
    """A key direction and a query direction (beta inside) as weights to climb with: ids are s, measured against
    max|p|."""

    contexts: Contexts
    key: Float[ndarray, " d"]
    query: Float[ndarray, " d"]

    @property
    def groups(self) -> Int[ndarray, " M"]:
        """Only classes of one token must lie apart."""
        return self.contexts.query

    @cached_property
    def ids(self) -> Float[ndarray, " M"]:
        """The averages of every class."""
        vocabulary = self.contexts.vocabulary
        return attention_average(self.contexts, vocabulary @ self.key, vocabulary @ self.query)

    @cached_property
    def size(self) -> float:
        """The largest key p = k . x of the vocabulary: averages lie within it."""
        return float(np.abs(self.contexts.vocabulary @ self.key).max())

    @property
    def gap(self) -> float:
        """Smallest same-token gap over max|p|; infinite when no token has two contexts."""
        return Neighbours.of(self.groups, self.ids).smallest / self.size

    def jacobian(self, at: Int[ndarray, " k"]) -> Float[ndarray, "k P"]:
        """Of the ids by key and query, in units of their norms."""
        by_key, by_query = attention_jacobian(self.contexts, self.key, self.query, at)
        return np.hstack([by_key * np.linalg.norm(self.key), by_query * np.linalg.norm(self.query)])

    def extremes(self) -> tuple[Float[ndarray, "e P"], Float[ndarray, " e"]]:
        """Rows and values of the largest keys, which a step must not enlarge."""
        p = self.contexts.vocabulary @ self.key
        far = np.argsort(np.abs(p))[-EXTREMES:]
        rows = np.sign(p[far])[:, None] * self.contexts.vocabulary[far] * np.linalg.norm(self.key)
        return np.hstack([rows, np.zeros_like(rows)]), self.size - np.abs(p[far])

    def moved(self, y: Float[ndarray, " P"]) -> "MovableHead":
        """The head with key and query moved by y."""
        d = len(self.key)
        key = self.key + y[:d] * np.linalg.norm(self.key)
        return replace(self, key=key, query=self.query + y[d:] * np.linalg.norm(self.query))


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


def auto_search(contexts: Contexts, draws: int | None, seed: int) -> MovableHead:
    """The head with the largest same-token gap of s over max|p|: pairs of directions times a grid of largest logits,
    the best of them climbed.

    Without `draws` small data get up to 64 pairs of directions, large data 3.
    """
    vocabulary = contexts.vocabulary
    draws = draws or int(np.clip(WORK // (len(LOGITS) * contexts.size * contexts.members.shape[1]), 3, 64))
    climbed = int(np.clip(8 * CLIMBED // vocabulary.shape[1], 4, CLIMBED)) if draws > 3 else 4
    grid = LOGITS if vocabulary.shape[1] > 1 else np.geomspace(0.1, 60, 96)  # d = 1 has no directions to draw
    kept: list[tuple[float, MovableHead]] = []
    with Progress("auto scale", draws * len(grid)) as bar:
        for index, (v, w) in enumerate(direction_pairs(vocabulary, draws, seed)):
            p, q = vocabulary @ v, vocabulary @ w
            largest = float(np.abs(p).max())
            for k, logit in enumerate(grid):
                beta = float(logit / (largest * np.abs(q).max()))
                least = kept[-1][0] if len(kept) == climbed else -1.0
                gap = _gap_above(contexts, p, beta * q, least * largest) / largest
                if gap > least:
                    kept = sorted([*kept, (gap, MovableHead(contexts, v, beta * w))], key=lambda c: -c[0])[:climbed]
                bar.update(index * len(grid) + k + 1, f"gap {kept[0][0]:.2g}")
    return max((climb(head) for _, head in kept), key=lambda head: head.gap)


def _gap_above(contexts: Contexts, p: Float[ndarray, " m"], q: Float[ndarray, " m"], least: float) -> float:
    """The smallest same-token gap of s; once a block of classes shows one of at most `least`, that one (or 0)."""
    s = np.empty(contexts.size)
    block = max(contexts.size * contexts.members.shape[1] // BLOCKS, 1 << 15)
    for part, averages in average_blocks(contexts, p, q, block):
        s[part] = averages
        smallest = Neighbours.of(contexts.query[part], averages).smallest
        if smallest <= least:
            return smallest
    return Neighbours.of(contexts.query, s).smallest
