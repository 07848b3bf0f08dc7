"""Generalised D-retrieval targets are dense (head-count slides, Theorem 1), as a construction with a rate.

F on [0,1]^(T x d) with |F(x) - F(y)| <= L max_t |x(t) - y(t)|_inf. Cells of side h = 1/g with centres c, all sets S
of m = ceil(T/4) positions, features f_c(x) = |x - c|_inf:

    z_cS(X) = min_{t in S} f_c(x(t)),   F_0(z) = min over grid sequences Y of [F(Y) + 3 L max(0, |z - z(Y)|_inf - h/2)]

    |F_0(z(X)) - F(X)| <= 9 L h / 2.

Above: round X to Y; |z(X) - z(Y)| <= h/2, so F_0 <= F(Y) <= F(X) + L h/2. Below: let delta = |z(X) - z(Y)|_inf. Every
point of V_S(X) = {x(t) : t in S} has a centre within h/2, hence a point of V_S(Y) within r = h + delta, and vice versa.
Then |x(t) - y(t)| <= 3 r for every t: suppose it is more, u = x(t), v = y(t). Each S with t in it has a y(s) within r
of u, and s != t, so all but m - 1 of the y(s) are near u; likewise all but m - 1 of the x(s) are near v. As T >= 3m - 2
some S lies in both, and there u and v are within 3 r. So F(Y) >= F(X) - 3 L (h + delta), and the penalty returns
3 L (delta - h/2).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from infoflow import arguments
from infoflow.errors import InfoFlowError

Function = Callable[[Float[ndarray, "batch T d"]], Float[ndarray, " batch"]]
MOST_SEQUENCES = 200_000  # grid sequences in the table of F_0
CHUNK = 20_000_000  # differences held at once


@dataclass(frozen=True, eq=False)
class DenseRetrieval:
    """A generalised D-retrieval target near F: features |x - c|, sets of ceil(T/4) positions, an outer map F_0."""

    F: Function
    T: int
    d: int
    g: int
    lipschitz: float
    sets: tuple[tuple[int, ...], ...]

    @property
    def centres(self) -> Float[ndarray, "cells d"]:
        """Of the cells of [0, 1]^d."""
        axis = (np.arange(self.g) + 0.5) / self.g
        return np.array(list(product(axis, repeat=self.d)))

    @property
    def dimension(self) -> int:
        """D, the number of features."""
        return int(self.g**self.d) * len(self.sets)

    @property
    def bound(self) -> float:
        """4.5 L / g."""
        return 4.5 * self.lipschitz / self.g

    def features(self, X: Float[ndarray, "batch T d"]) -> Float[ndarray, "batch D"]:
        """z(X), each coordinate min over a set of f_c, in [0, 1]."""
        distance = np.abs(X[:, :, None] - self.centres).max(-1)  # (batch, T, cells)
        return np.concatenate([distance[:, list(positions)].min(1) for positions in self.sets], 1)

    @cached_property
    def table(self) -> tuple[Float[ndarray, "rows D"], Float[ndarray, " rows"]]:
        """z(Y) and F(Y) of all grid sequences."""
        cells = self.centres
        Y = np.array([cells[list(index)] for index in product(range(len(cells)), repeat=self.T)])
        return self.features(Y), self.F(Y)

    def outer(self, z: Float[ndarray, "batch D"]) -> Float[ndarray, " batch"]:
        """F_0."""
        corners, values = self.table
        rows = max(1, CHUNK // corners.size)
        found = []
        for start in range(0, len(z), rows):
            gap = np.abs(z[start : start + rows, None] - corners).max(-1)
            penalty = 3 * self.lipschitz * np.maximum(0.0, gap - 1 / (2 * self.g))
            found.append((values + penalty).min(-1))
        return np.concatenate(found)

    def __call__(self, X: Float[ndarray, "batch T d"]) -> Float[ndarray, " batch"]:
        return self.outer(self.features(X))


def dense_retrieval(F: Function, T: int, d: int, g: int, lipschitz: float) -> DenseRetrieval:
    """The target of this class within 4.5 `lipschitz`/g of F, for small T, d and g."""
    for name, value in (("T", T), ("d", d), ("g", g)):
        arguments.integer(name, value)
    if g ** (d * T) > MOST_SEQUENCES:
        raise InfoFlowError(f"expected at most {MOST_SEQUENCES} grid sequences, got {g}^{d * T}; lower T, d or g.")
    sets = tuple(combinations(range(T), math.ceil(T / 4)))
    return DenseRetrieval(F, T, d, g, lipschitz, sets)
