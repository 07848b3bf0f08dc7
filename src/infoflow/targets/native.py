"""The triple search in C, where a C compiler is found; nothing here is needed, and nothing else changes with it.

`norm_search.c` is compiled once for each user (`infoflow.kernels`). Before it is used it must reproduce the array
search on a few inputs with ties. Whatever goes wrong (no compiler, no folder, a wrong answer) means: no native search.
"""

import ctypes
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from infoflow import kernels
from infoflow.targets.arrays import Array, cores, epsilon, in_threads, is_torch, order, take, underflow
from infoflow.targets.norm_search import ROUNDING, refuse_huge, smallest_triples
from infoflow.targets.score import NormOfSum

SOURCE = Path(__file__).with_name("norm_search.c")
FLAGS = ["-O2", "-ffp-contract=off", "-shared", "-fPIC"]
WORTH = 2**22  # pairs from which on looking for a compiler pays


def search(X: Array, distinct: bool) -> Array | None:
    """`norm_search.smallest_triples` in C, or None where it does not apply."""
    if is_torch(X) or X.dtype != np.float64 or X.shape[0] * X.shape[1] ** 2 < WORTH:
        return None
    if (library := verified_library()) is None:
        return None
    refuse_huge(X)
    return run(library, X, distinct)


def run(library: Any, X: np.ndarray, distinct: bool) -> np.ndarray:
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
            if not np.array_equal(run(library, X, distinct), smallest_triples(NormOfSum(3, X.shape[2]), X, distinct)):
                return False
    return True
