"""Matrices of balls that carry their derivatives: forward differentiation in python-flint's rigorous arithmetic.

Every operation encloses the exact result for every choice of points in its balls, so a Jacobian evaluated on a box
encloses all slopes of the function between points of that box (mean value theorem, entry by entry).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Scalar = Any  # flint.arb
Matrix = Any  # flint.arb_mat


@dataclass(frozen=True)
class Balls:
    """A matrix of balls and its derivatives with respect to the chosen variables, one matrix each."""

    value: Matrix
    slopes: tuple[Matrix, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.value.nrows(), self.value.ncols()

    def __add__(self, other: "Balls | Matrix") -> "Balls":
        if isinstance(other, Balls):
            slopes = tuple(a + b for a, b in zip(self.slopes, other.slopes, strict=True))
            return Balls(self.value + other.value, slopes)
        return Balls(self.value + other, self.slopes)

    def __matmul__(self, other: "Balls | Matrix") -> "Balls":
        if isinstance(other, Balls):
            pairs = zip(self.slopes, other.slopes, strict=True)
            return Balls(self.value * other.value, tuple(a * other.value + self.value * b for a, b in pairs))
        return Balls(self.value * other, tuple(a * other for a in self.slopes))

    def scaled(self, factor: float) -> "Balls":
        """Times a number."""
        from flint import arb

        return Balls(self.value * arb(factor), tuple(a * arb(factor) for a in self.slopes))

    @property
    def mT(self) -> "Balls":
        """Transposed."""
        return Balls(self.value.transpose(), tuple(a.transpose() for a in self.slopes))

    def rows(self, first: int, last: int) -> "Balls":
        """Those from `first` up to `last`."""
        return self._rearranged(lambda table: table[first:last])

    def pick(self, columns: list[int]) -> "Balls":
        """These columns."""
        return self._rearranged(lambda table: [[row[i] for i in columns] for row in table])

    def _rearranged(self, pick: Callable[[list[list[Scalar]]], list[list[Scalar]]]) -> "Balls":
        from flint import arb_mat

        return Balls(arb_mat(pick(self.value.tolist())), tuple(arb_mat(pick(a.tolist())) for a in self.slopes))

    def beside(self, other: "Balls") -> "Balls":
        """Columns of both."""
        return self._joined(other, lambda a, b: [left + right for left, right in zip(a, b, strict=True)])

    def above(self, other: "Balls") -> "Balls":
        """Rows of both."""
        return self._joined(other, lambda a, b: a + b)

    def _joined(self, other: "Balls", join: Callable[[Any, Any], Any]) -> "Balls":
        from flint import arb_mat

        def both(a: Matrix, b: Matrix) -> Matrix:
            return arb_mat(join(a.tolist(), b.tolist()))

        slopes = tuple(both(a, b) for a, b in zip(self.slopes, other.slopes, strict=True))
        return Balls(both(self.value, other.value), slopes)

    def mapped(self, function: Callable[[Scalar], Scalar], derivative: Callable[[Scalar], Scalar]) -> "Balls":
        """function entry by entry; derivative must enclose every slope of it on the ball."""
        from flint import arb_mat

        entries, shape = self.value.entries(), self.shape
        factor = [derivative(x) for x in entries] if self.slopes else []
        slopes = tuple(arb_mat(*shape, [f * s for f, s in zip(factor, a.entries(), strict=True)]) for a in self.slopes)
        return Balls(arb_mat(*shape, [function(x) for x in entries]), slopes)

    def softmax(self, visible: list[int]) -> "Balls":
        """Softmax of each row over its first visible[row] columns: dp = p (ds - sum p ds)."""
        from flint import arb, arb_mat

        columns = self.shape[1]
        weights, blank, any_share = [], arb(0), arb(0.5, 0.5)
        for row, last in zip(self.value.tolist(), visible, strict=True):
            top = max((x.mid() for x in row[:last]), default=blank)  # an exact shift: it cancels
            powers = [(x - top).exp() for x in row[:last]]
            total = sum(powers, blank)
            shares = [e / total for e in powers]
            # Wide scores lose the quotient, never the weight: it lies in [0, 1].
            weights.append([p if p.is_finite() else any_share for p in shares] + [blank] * (columns - last))
        slopes = []
        for table in (a.tolist() for a in self.slopes):
            moved = []
            for p, s in zip(weights, table, strict=True):
                mean = sum((a * b for a, b in zip(p, s, strict=True)), blank)
                moved.append([a * (b - mean) for a, b in zip(p, s, strict=True)])
            slopes.append(arb_mat(moved))
        return Balls(arb_mat(weights), tuple(slopes))

    def normalised(self, eps: float) -> "Balls":
        """Layer norm of each row without gain: c / sqrt(mean(c^2) + eps), c = x - mean(x)."""
        from flint import arb, arb_mat

        columns = self.shape[1]
        blank, n = arb(0), arb(columns)
        centred = [[x - sum(row, blank) / n for x in row] for row in self.value.tolist()]
        root = [(sum((x * x for x in row), blank) / n + arb(eps)).rsqrt() for row in centred]
        value = [[x * r for x in row] for row, r in zip(centred, root, strict=True)]
        slopes = []
        for table in (a.tolist() for a in self.slopes):
            moved = []
            for y, s, r in zip(value, table, root, strict=True):
                c = [x - sum(s, blank) / n for x in s]
                lean = sum((a * b for a, b in zip(y, c, strict=True)), blank) / n
                moved.append([r * (b - a * lean) for a, b in zip(y, c, strict=True)])
            slopes.append(arb_mat(moved))
        return Balls(arb_mat(value), tuple(slopes))


def exact(array: Any) -> Matrix:
    """A matrix of the very numbers a float array holds (float32 and float64 are dyadic, so nothing is rounded)."""
    from flint import arb, arb_mat

    table = np.atleast_2d(np.asarray(array, dtype=np.float64))
    return arb_mat(*table.shape, [arb(float(x)) for x in table.ravel()])


def constant(value: Matrix, variables: int) -> Balls:
    """A matrix that depends on no variable."""
    from flint import arb_mat

    return Balls(value, tuple(arb_mat(value.nrows(), value.ncols()) for _ in range(variables)))


def rising(function: Callable[[Scalar], Scalar]) -> Callable[[Scalar], Scalar]:
    """A non-decreasing function with values in [-1, 1]; on balls too wide for its series the values at the ends."""

    def enclosure(x: Scalar) -> Scalar:
        y = function(x)
        return y if y.is_finite() and y.rad() < 1 else function(x.lower()).union(function(x.upper()))

    return enclosure


def activation(name: str) -> tuple[Callable[[Scalar], Scalar], Callable[[Scalar], Scalar]]:
    """(function, enclosure of its slope) for the activations of the Transformer."""
    from flint import arb

    one, half = arb(1), arb(0.5)
    tanh, erf = rising(lambda x: x.tanh()), rising(lambda x: x.erf())

    def tanh_slope(x: Scalar) -> Scalar:
        y = tanh(x)
        return one - y * y

    def sigmoid(x: Scalar) -> Scalar:
        return half * (one + tanh(half * x))

    def step(x: Scalar) -> Scalar:
        return one if x > 0 else arb(0) if x < 0 else arb(0.5, 0.5)

    def relu(x: Scalar) -> Scalar:
        return x if x > 0 else arb(0) if x < 0 else x.nonnegative_part()

    def normal(x: Scalar) -> Scalar:
        return half * (one + erf(x * half.sqrt()))

    def density(x: Scalar) -> Scalar:
        return (-half * (x * x).nonnegative_part()).exp() / (2 * arb.pi()).sqrt()

    table: dict[str, tuple[Callable[[Scalar], Scalar], Callable[[Scalar], Scalar]]] = {
        "tanh": (tanh, tanh_slope),
        "sigmoid": (sigmoid, lambda x: sigmoid(x) * (one - sigmoid(x))),
        "relu": (relu, step),
        "gelu": (lambda x: x * normal(x), lambda x: normal(x) + x * density(x)),
        "identity": (lambda x: x, lambda x: one),
    }
    return table[name]
