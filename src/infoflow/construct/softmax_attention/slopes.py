"""Is a stated Lipschitz constant right? Intervals prove it, a steeper place refutes it, and between them it is open.

In the sup norm the smallest constant of f on a box is sup sum_j |df/dx_j|. Boxes whose enclosure of that sum stays
below the stated constant are done; the others are halved, those with the largest enclosure first, and the sum is
evaluated at their midpoints, so that narrow peaks are found where they are.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from infoflow.construct.softmax_attention.expression import Expression, enclose, evaluate, variables
from infoflow.construct.softmax_attention.intervals import Interval

PROVED, OPEN = "proved", "open"
AT_ONCE, ROUNDS = 1024, 40
Boxes = tuple[ndarray, ndarray, ndarray]  # enclosure of the sum, low, high
ROOM = 1e-6  # relative: far above the rounding of a derivative in float64


@dataclass(frozen=True)
class Steep:
    """A place where f is steeper than stated; `point` counts entries by rows."""

    slope: float
    point: tuple[float, ...]


def steepness(f: Expression, B: float, constant: float) -> Steep | str:
    """PROVED, OPEN, or a place of [-B, B]^{d x n} that refutes the constant."""
    used = sorted(variables(f.tree))
    low, high = np.full((1, len(used)), -B), np.full((1, len(used)), B)
    if not used:
        return PROVED
    waiting: list[Boxes] = []
    for _ in range(ROUNDS):
        slopes, points = _at_middle(f, used, low, high)
        top = int(np.nan_to_num(slopes, nan=-1.0).argmax())
        if slopes[top] > constant * (1 + ROOM):
            return Steep(float(slopes[top]), tuple(points[top].ravel().tolist()))
        most = _enclosed(f, used, low, high)
        keep = ~(most <= constant)
        waiting.append((most[keep], low[keep], high[keep]))
        if not sum(len(part[0]) for part in waiting):
            return PROVED
        low, high, rest = _steepest(waiting)
        waiting = [rest]
        low, high = _halves(low, high)
    return OPEN


def _at_middle(f: Expression, used: list[tuple[int, int]], low: ndarray, high: ndarray) -> tuple[ndarray, ndarray]:
    """sum_j |df/dx_j| at the middle of every box, and the middles."""
    X = np.zeros((len(low), f.d, f.n))
    for column, place in enumerate(used):
        X[(slice(None), *place)] = (low[:, column] + high[:, column]) / 2
    with np.errstate(all="ignore"):
        return np.sum([np.abs(evaluate(f.gradient[place], X)) for place in used], axis=0), X


def _enclosed(f: Expression, used: list[tuple[int, int]], low: ndarray, high: ndarray) -> Float[ndarray, " boxes"]:
    """An upper bound of the sum on every box."""

    def box(place: tuple[int, int]) -> Interval:
        column = used.index(place)
        return Interval(low[:, column], high[:, column])

    total = np.zeros(len(low))
    with np.errstate(all="ignore"):
        for place in used:
            value = enclose(f.gradient[place], box, (len(low),))
            total += np.maximum(np.abs(value.low), np.abs(value.high))
    return np.where(np.isnan(total), np.inf, total) * (1 + 1e-12)


def _steepest(waiting: list[Boxes]) -> tuple[ndarray, ndarray, Boxes]:
    most, low, high = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
    order = np.argsort(-most, kind="stable")
    now, later = order[:AT_ONCE], order[AT_ONCE:]
    return low[now], high[now], (most[later], low[later], high[later])


def _halves(low: ndarray, high: ndarray) -> tuple[ndarray, ndarray]:
    """Every box cut across its longest side."""
    rows = np.arange(len(low))
    axis = (high - low).argmax(axis=1)
    middle = (low[rows, axis] + high[rows, axis]) / 2
    left, right = high.copy(), low.copy()
    left[rows, axis] = right[rows, axis] = middle
    return np.concatenate([low, right]), np.concatenate([left, high])
