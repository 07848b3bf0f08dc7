"""Weights moved until the closest ids are as far apart as their order allows.

    max g   with   gap_k + J_k y >= g  for the closest neighbours k,   |y_i| <= radius,   no extreme id moves out

Ids are smooth in the weights, so where two of them meet is a surface in the space of weights, and random weights are a
random point of a cell between such surfaces. The linear program finds the middle of the cell: P weights raise about P
of the smallest gaps at once, where K random draws gain log K only.
"""

from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

ROWS_PER_WEIGHT = 12  # the closest neighbours in the program; the radius keeps all others where they are
ROUNDS = 6
FARTHEST = 0.2  # of a vector's size in one round: few ids would let a vector run to 0, and its inverse out of float64


class Movable(Protocol):
    """Weights with the ids they produce; y moves every weight in units of the size of its vector."""

    @property
    def groups(self) -> Int[ndarray, " M"]:
        """Ids have to differ within a group."""

    @property
    def ids(self) -> Float[ndarray, " M"]:
        """The numbers that must lie apart."""

    @property
    def size(self) -> float:
        """The scale of the ids: a gap divided by it does not change when all weights grow."""

    def jacobian(self, at: Int[ndarray, " k"]) -> Float[ndarray, "k P"]:
        """Of the ids at these places, by the weights."""

    def extremes(self) -> tuple[Float[ndarray, "e P"], Float[ndarray, " e"]]:
        """rows, room: while rows @ y <= room the size does not grow, to first order."""

    def moved(self, y: Float[ndarray, " P"]) -> Self:
        """The same with its weights moved by y."""


@dataclass(frozen=True)
class Neighbours:
    """Ids in order within their groups, and the gap behind each (infinite at the end of a group)."""

    order: Int[ndarray, " M"]
    gaps: Float[ndarray, " M-1"]

    @classmethod
    def of(cls, groups: Int[ndarray, " M"], ids: Float[ndarray, " M"]) -> "Neighbours":
        """The ids sorted within their groups, and the gaps between neighbours."""
        order = np.lexsort((ids, groups))
        return cls(order, np.where(np.diff(groups[order]) == 0, np.diff(ids[order]), np.inf))

    @property
    def smallest(self) -> float:
        """The smallest gap."""
        return float(self.gaps.min(initial=np.inf))


Weights = TypeVar("Weights", bound=Movable)


def climb(start: Weights) -> Weights:
    """The start, or weights near it with a larger smallest gap in proportion to the size."""
    here, found, radius = start, Neighbours.of(start.groups, start.ids), 0.0
    for _ in range(ROUNDS):
        if not 0 < found.smallest < np.inf:
            break
        y, radius = _step(here, found, radius)
        if y is None:
            break
        there = here.moved(y)
        after = Neighbours.of(there.groups, there.ids)
        gain = (after.smallest / there.size) / (found.smallest / here.size)
        if gain > 1:
            here, found = there, after
        radius = min(1.5 * radius, FARTHEST) if gain > 1 else 0.3 * radius
        if 1 < gain < 1.02:
            break
    return here


def _step(here: Movable, found: Neighbours, radius: float) -> tuple[Float[ndarray, " P"] | None, float]:
    """The program's move and the radius it was allowed; without one, half of what closes the gaps left out."""
    from scipy.optimize import linprog

    edges, room = here.extremes()
    weights = edges.shape[1]
    finite = np.flatnonzero(np.isfinite(found.gaps))
    count = min(len(finite), max(ROWS_PER_WEIGHT * weights, 400))
    rows = finite[np.argpartition(found.gaps[finite], count - 1)[:count]]
    gaps, smallest = found.gaps[rows], found.smallest
    both = here.jacobian(np.r_[found.order[rows + 1], found.order[rows]])
    slopes = both[:count] - both[count:]
    if not radius:
        radius = min(float(gaps.max() / (2 * np.median(np.linalg.norm(slopes, axis=1)) + 1e-300)), FARTHEST)
    matrix = np.vstack(
        [  # divided by the gap reached so far, so that HiGHS sees numbers near 1
            np.hstack([-slopes * (radius / smallest), np.ones((count, 1))]),
            np.hstack([edges * (radius / here.size), np.zeros((len(edges), 1))]),
        ]
    )
    program = linprog(
        np.r_[np.zeros(weights), -1.0],
        A_ub=matrix,
        b_ub=np.r_[gaps / smallest, room / here.size],
        bounds=[(-1, 1)] * weights + [(None, None)],
        method="highs",
    )
    return (None if program.x is None else program.x[:-1] * radius), radius
