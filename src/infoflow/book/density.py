"""Generalised D-retrieval targets are dense (head-count slides, Theorem 1), as a construction with a rate.

Within eps of F with D = g^d binom(T, ceil(T/4)) features, g = ceil(4.5 L/eps); where no permutation of the tokens
changes F, none changes the target.

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
    eps: float
    lipschitz: float
    sets: tuple[tuple[int, ...], ...]

    @property
    def g(self) -> int:
        """Cells a side."""
        return _cells(self.eps, self.lipschitz)

    @property
    def centres(self) -> Float[ndarray, "cells d"]:
        """Of the cells of [0, 1]^d."""
        axis = (np.arange(self.g) + 0.5) / self.g
        return np.array(list(product(axis, repeat=self.d)))

    @property
    def dimension(self) -> int:
        """D, the number of features."""
        return int(self.g**self.d) * len(self.sets)

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


def dense_retrieval(F: Function, T: int, d: int, eps: float, lipschitz: float) -> DenseRetrieval:
    """The target of this class within `eps` of F, for small T and d and large eps."""
    dimension(T, d, eps, lipschitz)
    g = _cells(eps, lipschitz)
    if g ** (d * T) > MOST_SEQUENCES:
        raise InfoFlowError(
            f"expected at most {MOST_SEQUENCES} grid sequences, got {g}^{d * T}; lower T or d, or raise eps."
        )
    return DenseRetrieval(F, T, d, eps, lipschitz, tuple(combinations(range(T), math.ceil(T / 4))))


def dimension(T: int, d: int, eps: float, lipschitz: float) -> int:
    """The D that `eps` takes: g^d binom(T, ceil(T/4))."""
    for name, value in (("T", T), ("d", d)):
        arguments.integer(name, value)
    arguments.number("lipschitz", lipschitz, above=0)
    return int(_cells(arguments.eps(eps), lipschitz) ** d) * math.comb(T, math.ceil(T / 4))


def _cells(eps: float, lipschitz: float) -> int:
    """The least g with 4.5 L/g <= eps."""
    return math.ceil(4.5 * lipschitz / eps)
