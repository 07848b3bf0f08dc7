"""min over triples of |x_i + x_j + x_k|^2 without looking at all T^3 of them.

Tokens are sorted along their first coordinate; a triple a <= b <= c of sorted tokens is found from its ends a and c. A
few triples give a radius r above the smallest |sum|; then only b with |x_a + x_b + x_c| <= r in the first coordinate
matter, neighbours in the sorted line that a table of buckets finds. For random tokens in the plane r is of order
T^-1.5, so T^1.5 triples are left. They are scored on increasing positions with the arithmetic of `NormOfSum`: the
minimum is the one that enumerating all increasing triples finds, bit for bit; of equals the first wins.

Where a C compiler is found the same search runs in C: `norm_search.c` is compiled once for each user
(`infoflow.kernels`) and must reproduce the array search on a few inputs with ties before it is used. Whatever goes
wrong there (no compiler, no folder, a wrong answer) means: no search in C, and nothing else changes.
"""

import ctypes
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from infoflow import kernels
from infoflow.cost import cores
from infoflow.errors import InfoFlowError
from infoflow.targets.arrays import (
    Array,
    concatenate,
    count,
    detach,
    epsilon,
    full,
    in_threads,
    indices,
    integers,
    is_torch,
    largest,
    lower_at,
    order,
    pick,
    smallest,
    stack,
    take,
    true_indices,
    underflow,
    where,
)
from infoflow.targets.score import NormOfSum

ROUNDING = 64  # units in the last place of the largest coordinate: more than the sums of three can be off
BUCKETS = 8  # per token
STRIDE = 3  # every third token as an end of the pairs that give the radius
PAIRS = 2**16  # pairs of one chunk; the arrays then stay in cache


def smallest_triples(score: NormOfSum, X: Array, distinct: bool) -> Array:
    """X (B, T, d) -> the first best positions (B, 3), increasing."""
    X = detach(X)
    refuse_huge(X)
    rows = max(1, PAIRS // X.shape[1] ** 2)
    parts = [X[low : low + rows] for low in range(0, X.shape[0], rows)]
    if is_torch(X):
        found = [_Chunk(score, part, distinct).run() for part in parts]
    else:
        found = in_threads(lambda part: _Chunk(score, part, distinct).run(), parts)
    return concatenate(found, 0) if found else indices(np.zeros((0, 3)), X)


def refuse_huge(X: Array) -> None:
    """Squares of sums of three tokens, and of the spread of all, must be finite numbers."""
    if X.shape[0] and not float(abs(X).max()) < largest(X) ** 0.5 / (8 * X.shape[2]):
        raise InfoFlowError("expected tokens small enough for the target, its value overflows; scale them down.")


class _Chunk:
    """A few sequences, their tokens sorted along the first coordinate, and a table of where each value would sit."""

    def __init__(self, score: NormOfSum, X: Array, distinct: bool) -> None:
        self.score, self.X, self.apart = score, X, int(distinct)
        self.B, self.T, self.d = X.shape
        self.place = order(X[:, :, 0])  # (B, T) positions in sorted order
        self.sorted = [take(X[:, :, i], self.place, 1) for i in range(self.d)]  # d coordinates, each (B, T)
        self.line = self.sorted[0]
        self.size = -smallest(-abs(X).reshape((self.B, -1)))
        self.rows = indices(np.arange(self.B), X)
        self._fill_buckets()

    def _fill_buckets(self) -> None:
        """before[b, k] counts the tokens of sequence b in buckets below k."""
        self.buckets = BUCKETS * self.T
        self.base = self.line[:, :1]
        span = self.line[:, -1:] - self.base
        tiny = epsilon(self.X) * 2.0**-60
        self.rate = where(span > tiny, self.buckets / where(span > tiny, span, 1 + 0 * span), 0 * span)
        size = self.buckets + 2
        at = self.bucket(self.line) + 1 + self.rows[:, None] * size
        self.before = count(at.reshape(-1), self.B * size).reshape((self.B, size)).cumsum(1)

    def bucket(self, value: Array) -> Array:
        """Never decreasing in `value`, so tokens not below it lie in its bucket or in later ones."""
        return integers(((value - self.base) * self.rate).clip(0, self.buckets))

    def run(self) -> Array:
        self.bound = full((self.B,), np.inf, self.X)
        self._tighten(self._guess())
        low = (self.line <= self.radius[:, None] / 3).sum(1).max()  # the least of three is at most their mean
        high = (self.line >= -self.radius[:, None] / 3).sum(1).max()
        self.flat = [coordinate.reshape(-1) for coordinate in self.sorted]
        self.best = full((self.B,), np.inf, self.X)
        self.code = indices(np.full(self.B, self.T**3), self.X)
        row, a, b, c = self._first_in_window(int(low), self.T - int(high))
        while len(row):
            self._offer(row, a, b, c)
            inside = b + 1 + self.apart <= c
            b = where(inside, b + 1, b)
            inside = inside & (self._sum(0, a, b, c) <= pick(self.radius, row))
            row, a, b, c = _keep(inside, row, a, b, c)
        return stack([self.code // self.T**2, self.code // self.T % self.T, self.code % self.T], -1)

    def _guess(self) -> Array:
        """Scores (B,) of some triples: the first one, and the two b nearest to some pairs (a, c)."""
        best = self.score(self.X[:, [0, self.apart, 2 * self.apart]])
        ends = slice(None, None, STRIDE)
        pairs = [(x[:, ends, None] + x[:, None, ends]).reshape((self.B, -1)) for x in self.sorted]
        near = take(self.before, self.bucket(-pairs[0]), 1)
        for b in (near.clip(0, self.T - 1), (near - 1).clip(0, self.T - 1)):
            square = 0
            for pair, coordinate in zip(pairs, self.sorted, strict=True):
                total = pair + take(coordinate, b, 1)
                square = square + total * total
            if self.apart:
                square = where(self._repeats(b), np.inf + 0 * square, square)
            best = where(smallest(square) < best, smallest(square), best)
        return best

    def _tighten(self, score: Array) -> None:
        """Lower the known bound of the minimum, and the radius: it bounds |sum|, in any order of summation, for every
        triple whose score is at most the bound."""
        self.bound = where(score < self.bound, score, self.bound)
        rounding = ROUNDING * epsilon(self.X)
        self.radius = self.bound**0.5 * (1 + rounding) + rounding * self.size + underflow(self.X)

    def _repeats(self, b: Array) -> Array:
        """Which of the triples of `_guess` use a token twice."""
        ends = np.arange(0, self.T, STRIDE)
        a, c = (indices(end.reshape(-1), self.X) for end in np.meshgrid(ends, ends, indexing="ij"))
        return (b == a) | (b == c) | (a == c)

    def _first_in_window(self, low: int, high: int) -> tuple[Array, Array, Array, Array]:
        """Where a pair of ends has a b inside its window: the sequence, and a, the first such b, c as flat indices."""
        pair = (self.line[:, :low, None] + self.line[:, None, high:]).reshape((self.B, -1))
        a, c = np.divmod(np.arange(low * (self.T - high)), max(1, self.T - high))
        a, c = indices(a, self.X), indices(c + high, self.X)
        b = take(self.before, self.bucket(-pair - self.radius[:, None]), 1)
        b = where(b < a + self.apart, a + self.apart, b)
        inside = take(self.line, b.clip(0, self.T - 1), 1) + pair <= self.radius[:, None]
        keep = true_indices((inside & (b + self.apart <= c)).reshape(-1))
        row, number = keep // pair.shape[1], keep % pair.shape[1]
        first = row * self.T
        return row, first + pick(a, number), first + pick(b.reshape(-1), keep), first + pick(c, number)

    def _sum(self, i: int, a: Array, b: Array, c: Array) -> Array:
        values = self.flat[i]
        return pick(values, a) + pick(values, c) + pick(values, b)

    def _offer(self, row: Array, a: Array, b: Array, c: Array) -> None:
        """Let the triples (a, b, c) of their sequences compete: smallest score first, then first positions."""
        limit = self.radius * self.radius * (1 + ROUNDING * epsilon(self.X))
        square = 0
        for i in range(self.d):
            total = self._sum(i, a, b, c)
            square = square + total * total
        row, a, b, c = _keep(square <= pick(limit, row), row, a, b, c)
        if not len(row):
            return
        places = stack([pick(self.place.reshape(-1), end) for end in (a, b, c)], -1)
        places = take(places, order(places), 1)
        value = self.score(self.X[row[:, None], places])
        code = (places[:, 0] * self.T + places[:, 1]) * self.T + places[:, 2]
        best = lower_at(self.best, row, value)
        fresh = where(best < self.best, self.T**3 + 0 * self.code, self.code)
        code = where(value == best[row], code, self.T**3 + 0 * code)
        self.best, self.code = best, lower_at(fresh, row, code)
        self._tighten(best)


def _keep(mask: Array, *arrays: Array) -> list[Array]:
    index = true_indices(mask)
    return [pick(array, index) for array in arrays]


SOURCE = Path(__file__).with_name("norm_search.c")
FLAGS = ["-O2", "-ffp-contract=off", "-shared", "-fPIC"]
WORTH = 2**22  # pairs from which on looking for a compiler pays


def search_in_c(X: Array, distinct: bool) -> Array | None:
    """`smallest_triples` in C, or None where it does not apply."""
    if is_torch(X) or X.dtype != np.float64 or X.shape[0] * X.shape[1] ** 2 < WORTH:
        return None
    if (library := verified_library()) is None:
        return None
    refuse_huge(X)
    return run_in_c(library, X, distinct)


def run_in_c(library: Any, X: np.ndarray, distinct: bool) -> np.ndarray:
    """X (B, T, d) float64 -> winners (B, 3), on all cores this process may use."""
    X = np.ascontiguousarray(X)
    place = order(X[:, :, 0])
    line = np.ascontiguousarray(take(X[:, :, 0], place, 1))
    B, T, d = X.shape
    winners = np.zeros((B, 3), dtype=np.int64)
    cuts = np.linspace(0, B, cores() + 1).astype(int)

    def part(ends: tuple[int, int]) -> None:
        low, high = ends
        pointers = [a[low:high].ctypes.data_as(ctypes.c_void_p) for a in (X, place, line)]
        sizes = [ctypes.c_int64(n) for n in (high - low, T, d, int(distinct))]
        slack = [ctypes.c_double(ROUNDING * epsilon(X)), ctypes.c_double(underflow(X))]
        library.smallest_triples(*pointers, *sizes, *slack, winners[low:high].ctypes.data_as(ctypes.c_void_p))

    in_threads(part, list(pairwise(cuts)))
    return winners


@cache
def verified_library() -> Any:
    """The compiled search, or None."""
    try:
        library = kernels.library(SOURCE, FLAGS, ["-lm"])
        library.smallest_triples.restype = None
        return library if agrees(library) else None
    except (OSError, AttributeError):
        return None


def agrees(library: Any) -> bool:
    """Whether it finds what the array search finds, on random tokens and on integers full of ties."""
    rng = np.random.default_rng(0)
    for X in (rng.standard_normal((20, 17, 2)), rng.integers(-3, 4, (20, 9, 3)).astype(np.float64), np.ones((2, 5, 1))):
        for distinct in (False, True):
            if not np.array_equal(
                run_in_c(library, X, distinct), smallest_triples(NormOfSum(3, X.shape[2]), X, distinct)
            ):
                return False
    return True
