"""Scores without structure: every tuple, in lexicographic order, block by block, the first best one kept."""

import math

import numpy as np

from infoflow.targets.arrays import Array, concatenate, detach, full, indices, search_bytes, take, where
from infoflow.targets.score import Score


def best_tuples(
    score: Score, X: Array, sign: int, choices: tuple[np.ndarray, ...], distinct: bool
) -> tuple[Array, Array]:
    """X (B, T, d); choices[v] the sorted positions t_v may take -> winners (B, k), sign * (their scores) (B,)."""
    X = detach(X)
    B, k, d = X.shape[0], score.arity, X.shape[2]
    cells = search_bytes(X) // (8 * k * d)  # tuples of one block, over all its sequences
    block = max(1, min(cells, math.prod(len(choice) for choice in choices), 4096))
    rows = max(1, cells // block)
    found = [_search(score, X[low : low + rows], sign, choices, distinct, block) for low in range(0, B, rows)]
    if not found:
        return indices(np.zeros((0, k)), X), full((0,), 0.0, X)
    return concatenate([w for w, _ in found], 0), concatenate([v for _, v in found], 0)


def _search(
    score: Score, X: Array, sign: int, choices: tuple[np.ndarray, ...], distinct: bool, block: int
) -> tuple[Array, Array]:
    B = X.shape[0]
    best, winners = full((B,), -np.inf, X), indices(np.zeros((B, score.arity)), X)
    for low in range(0, math.prod(len(choice) for choice in choices), block):
        tuples = tuples_at(choices, low, block)
        if distinct:
            tuples = tuples[all_different(tuples)]
        if len(tuples) == 0:
            continue
        positions = indices(tuples, X)
        values = sign * score(X[:, positions])  # (B, block, k, d) -> (B, block)
        first = values.argmax(-1)
        value = take(values, first[:, None], 1)[:, 0]
        better = value > best
        best = where(better, value, best)
        winners = where(better[:, None], positions[first], winners)
    return winners, best


def tuples_at(choices: tuple[np.ndarray, ...], low: int, count: int) -> np.ndarray:
    """Tuples number low, low + 1, ... (at most `count`) of the product of `choices`, in lexicographic order."""
    sizes = [len(choice) for choice in choices]
    number = np.arange(low, min(low + count, math.prod(sizes)), dtype=np.int64)
    columns = []
    for choice in reversed(choices):
        number, digit = np.divmod(number, len(choice))
        columns.append(choice[digit])
    return np.stack(columns[::-1], axis=-1)


def all_different(tuples: np.ndarray) -> np.ndarray:
    """Rows (n, k) whose entries are pairwise different."""
    ordered = np.sort(tuples, axis=-1)
    return (ordered[:, 1:] != ordered[:, :-1]).all(-1)
