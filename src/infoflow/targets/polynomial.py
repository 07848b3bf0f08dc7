"""Polynomial maps R^d -> R^m: the features, unary scores and outer maps of the target grammar.

Small, exact in structure, evaluated on numpy arrays and torch tensors alike, with bounds over boxes.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from infoflow import arguments
from infoflow.errors import InfoFlowError
from infoflow.targets.arrays import Array, full, like


@dataclass(frozen=True, eq=False)
class Polynomial:
    """p(x)_j = sum_m coefficients[j, m] * prod_i x_i ** exponents[m, i]."""

    exponents: np.ndarray  # (m, d) non-negative integers
    coefficients: np.ndarray  # (outputs, m)

    def __post_init__(self) -> None:
        exponents = np.asarray(self.exponents, dtype=np.int64)
        coefficients = np.asarray(self.coefficients, dtype=np.float64)
        if exponents.ndim != 2 or coefficients.ndim != 2 or coefficients.shape[1] != exponents.shape[0]:
            raise InfoFlowError(
                "expected exponents (m, d) and coefficients (outputs, m), "
                f"got {exponents.shape} and {coefficients.shape}."
            )
        if (exponents < 0).any() or not np.isfinite(coefficients).all():
            raise InfoFlowError("expected non-negative exponents and finite coefficients in a polynomial.")
        object.__setattr__(self, "exponents", exponents)
        object.__setattr__(self, "coefficients", coefficients)

    @property
    def inputs(self) -> int:
        """Variables."""
        return int(self.exponents.shape[1])

    @property
    def outputs(self) -> int:
        """Values."""
        return int(self.coefficients.shape[0])

    @property
    def degree(self) -> int:
        """Largest total degree of a monomial with a non-zero coefficient (0 for the zero polynomial)."""
        used = np.abs(self.coefficients).max(axis=0, initial=0.0) > 0
        return int(self.exponents[used].sum(axis=1).max(initial=0))

    @property
    def is_linear(self) -> bool:
        """True when every used monomial has degree exactly one, so that p(x) = W x."""
        used = np.abs(self.coefficients).max(axis=0, initial=0.0) > 0
        return bool((self.exponents[used].sum(axis=1) == 1).all())

    def substituted(
        self, centre: np.ndarray, half: np.ndarray
    ) -> tuple[list[dict[tuple[int, ...], float]], list[float]]:
        """p(centre + half u): per output its coefficients over monomials of u, by exponents, and its constant."""
        rows: list[dict[tuple[int, ...], float]] = [{} for _ in range(self.outputs)]
        constants = [0.0] * self.outputs
        for m, exponent in enumerate(self.exponents.tolist()):
            column = self.coefficients[:, m]
            if not column.any():
                continue
            for monomial, factor in _expand(exponent, centre, half).items():
                for j in range(self.outputs):
                    if column[j] and sum(monomial):
                        rows[j][monomial] = rows[j].get(monomial, 0.0) + column[j] * factor
                    elif column[j]:
                        constants[j] += column[j] * factor
        return [{f: c for f, c in row.items() if c} for row in rows], constants

    def affine(self) -> tuple[Float[np.ndarray, "outputs d"], Float[np.ndarray, " outputs"]]:
        """(W, b) with p(x) = W x + b; refuses degree above one."""
        if self.degree > 1:
            raise InfoFlowError(f"expected an affine map, got a polynomial of degree {self.degree}.")
        weight = np.zeros((self.outputs, self.inputs))
        bias = np.zeros(self.outputs)
        for m, exponent in enumerate(self.exponents):
            if exponent.sum() == 0:
                bias += self.coefficients[:, m]
            elif exponent.sum() == 1:
                weight[:, int(exponent.argmax())] += self.coefficients[:, m]
        return weight, bias

    def __call__(self, x: Array) -> Array:
        """x (..., d) numpy or torch -> (..., outputs) of the same kind; monomials are added in the order they are
        listed, so equal tokens give equal values wherever they stand."""
        total = full((*x.shape[:-1], self.outputs), 0.0, x)
        for exponent, column in zip(self.exponents, self.coefficients.T, strict=True):
            if column.any():
                total = total + like(column, x) * _monomial(x, exponent)
        return total if self.degree else total + 0 * x[..., :1]  # a constant, too, can be differentiated

    def derivative(self, i: int) -> "Polynomial":
        """d p / d x_i, again a polynomial."""
        exponents = self.exponents.copy()
        coefficients = self.coefficients * exponents[:, i]
        exponents[:, i] = np.maximum(exponents[:, i] - 1, 0)
        return _without_zeros(exponents, coefficients)

    def bound(self, radius: Float[np.ndarray, " d"] | float) -> Float[np.ndarray, " outputs"]:
        """sup over |x_i| <= radius_i of |p(x)_j|, at most sum_m |c_jm| prod_i radius_i ** e_mi."""
        powers = np.prod(np.broadcast_to(radius, (self.inputs,)) ** self.exponents, axis=1)
        result: np.ndarray = np.abs(self.coefficients) @ powers
        return result

    def slopes(self, radius: Float[np.ndarray, " d"] | float) -> Float[np.ndarray, "d outputs"]:
        """`derivative(i).bound(radius)` for every i."""
        one_less = np.maximum(self.exponents[None] - np.eye(self.inputs, dtype=np.int64)[:, None], 0)  # (d, m, d)
        powers = self.exponents.T * np.prod(radius**one_less, axis=2)
        result: np.ndarray = powers @ np.abs(self.coefficients).T
        return result

    @classmethod
    def linear(cls, weight: Any) -> "Polynomial":
        """weight x."""
        weight = np.atleast_2d(arguments.array("the weights", weight))
        return cls(np.eye(weight.shape[1], dtype=np.int64), weight)

    @classmethod
    def affine_map(cls, weight: Any, bias: Any) -> "Polynomial":
        """weight x + bias."""
        weight = np.atleast_2d(np.asarray(weight, dtype=np.float64))
        bias = np.broadcast_to(np.asarray(bias, dtype=np.float64), (weight.shape[0],))
        exponents = np.vstack([np.eye(weight.shape[1], dtype=np.int64), np.zeros((1, weight.shape[1]), dtype=np.int64)])
        return cls(exponents, np.hstack([weight, bias[:, None]]))

    @classmethod
    def identity(cls, d: int) -> "Polynomial":
        """x itself."""
        return cls.linear(np.eye(d))

    @classmethod
    def constant(cls, value: float, d: int) -> "Polynomial":
        """One value whatever x is."""
        return cls(np.zeros((1, d), dtype=np.int64), np.array([[value]]))

    @classmethod
    def quadratic(cls, matrix: Any, vector: Any = 0.0, constant: float = 0.0) -> "Polynomial":
        """x' M x + v' x + c, one output."""
        matrix = np.asarray(matrix, dtype=np.float64)
        d = matrix.shape[0]
        unit = np.eye(d, dtype=np.int64)
        both = np.triu(matrix + matrix.T)  # twice the diagonal, which alone is 0 where M_ii is
        pairs = [(int(i), int(j)) for i, j in zip(*np.nonzero(both), strict=True)]
        squares = np.array([unit[i] + unit[j] for i, j in pairs], dtype=np.int64).reshape(-1, d)
        weights = np.array([matrix[i, i] if i == j else matrix[i, j] + matrix[j, i] for i, j in pairs])
        exponents = np.vstack([squares, unit, np.zeros((1, d), dtype=np.int64)])
        row = np.concatenate([weights, np.broadcast_to(np.asarray(vector, dtype=np.float64), (d,)), [constant]])
        return _without_zeros(exponents, row[None, :])


def _without_zeros(exponents: np.ndarray, coefficients: np.ndarray) -> Polynomial:
    """The polynomial without the monomials nobody uses (one is kept of the zero polynomial)."""
    used = np.asarray(coefficients.any(axis=0))
    used[0] = used[0] or not used.any()
    return Polynomial(exponents[used], coefficients[:, used])


def _monomial(x: Array, exponent: np.ndarray) -> Array:
    """prod_i x_i ** exponent_i as (..., 1), by repeated products; 1.0 for the constant monomial."""
    product: Array = 1.0
    for i in np.flatnonzero(exponent):
        for _ in range(int(exponent[i])):
            product = product * x[..., i : i + 1]
    return product


def _expand(exponent: list[int], centre: np.ndarray, half: np.ndarray) -> dict[tuple[int, ...], float]:
    """prod_i (centre_i + half_i u_i)^e_i over monomials of u."""
    terms: dict[tuple[int, ...], float] = {(0,) * len(exponent): 1.0}
    for i, e in enumerate(exponent):
        if not e:
            continue
        new: dict[tuple[int, ...], float] = {}
        for power in range(e + 1) if centre[i] else (e,):
            factor = math.comb(e, power) * float(half[i]) ** power * float(centre[i]) ** (e - power)
            for monomial, c in terms.items():
                key = (*monomial[:i], power, *monomial[i + 1 :])
                new[key] = new.get(key, 0.0) + c * factor
        terms = new
    return terms
