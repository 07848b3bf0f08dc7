"""Linear forms with a remainder, for many boxes at once: what a whole network does to a small box of inputs.

    value in c + sum_i a_i xi_i + [-e, e]      for every xi in [-1, 1]^n,      and value in [low, high]

(xi places the input in its box). Sums and linear maps are exact; a product of two forms with radii r = sum |a| + e adds
at most r r' to the remainder; a function of one variable is replaced by a line with the slope of its chord and the
strip around it that holds it (`lines.py`). So the remainder shrinks with the square of the box. The interval beside it
is computed step by step as well: on large boxes it is the better of both, and where it is narrower than the remainder
alone, the form becomes its middle. Every operation widens both by more than its own rounding.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from infoflow.certificates.rules import UNIT
from infoflow.proofs.lines import ACTS, intercept

GELU_LEAST, GELU_VALLEY = -0.1700, (-0.7518, -0.7517)  # below the least value of gelu, and where it is taken
Array = Float[np.ndarray, " ..."]


@dataclass(frozen=True, eq=False)
class AffineForm:
    """c, e, low and high have one shape (boxes first), a has the n coefficients in front of it."""

    c: Array
    a: Float[np.ndarray, "n ..."]
    e: Array
    low: Array
    high: Array

    @property
    def radius(self) -> Array:
        found: np.ndarray = np.abs(self.a).sum(0) + self.e
        return found

    @property
    def size(self) -> Array:
        """What no absolute value in the form exceeds."""
        return np.abs(self.c) + self.radius

    def each(self, change: "object") -> "AffineForm":
        """The same change of shape of every array; `a` has its coefficients in front."""
        assert callable(change)
        return AffineForm(*(change(getattr(self, name)) for name in FIELDS))

    def __getitem__(self, where: object) -> "AffineForm":
        at = where if isinstance(where, tuple) else (where,)
        return AffineForm(self.c[at], self.a[(slice(None), *at)], self.e[at], self.low[at], self.high[at])

    def __add__(self, other: "AffineForm") -> "AffineForm":
        ends = self.low + other.low, self.high + other.high
        return made(self.c + other.c, self.a + other.a, self.e + other.e, ends, 4.0 * (self.size + other.size))

    def __sub__(self, other: "AffineForm") -> "AffineForm":
        ends = self.low - other.high, self.high - other.low
        return made(self.c - other.c, self.a - other.a, self.e + other.e, ends, 4.0 * (self.size + other.size))

    def __mul__(self, other: "AffineForm") -> "AffineForm":
        """(a' xi)(b' xi) = sum_i a_i b_i xi_i^2 + the rest; the squares lie in [0, 1], so half of them is known."""
        squares = self.a * other.a
        wide = self.radius * other.radius - 0.5 * np.abs(squares).sum(0)
        e = np.abs(self.c) * other.e + np.abs(other.c) * self.e + wide
        corners = [p * q for p in (self.low, self.high) for q in (other.low, other.high)]
        ends = np.minimum.reduce(corners), np.maximum.reduce(corners)
        slack = 4.0 * (len(self.a) + 4) * self.size * other.size
        return made(self.c * other.c + 0.5 * squares.sum(0), self.c * other.a + other.c * self.a, e, ends, slack)

    def times(self, factor: float) -> "AffineForm":
        ends = (factor * self.low, factor * self.high) if factor >= 0 else (factor * self.high, factor * self.low)
        return made(factor * self.c, factor * self.a, abs(factor) * self.e, ends, 4.0 * abs(factor) * self.size)

    def sum(self) -> "AffineForm":
        """Over the last axis."""
        slack = 2.0 * (self.c.shape[-1] + 4) * self.size.sum(-1)
        return made(self.c.sum(-1), self.a.sum(-1), self.e.sum(-1), (self.low.sum(-1), self.high.sum(-1)), slack)

    def mapped(self, weight: np.ndarray, bias: np.ndarray | float = 0.0) -> "AffineForm":
        """x -> x weight' + bias over the last axis."""
        up, down = np.maximum(weight, 0.0).T, np.minimum(weight, 0.0).T
        ends = self.low @ up + self.high @ down + bias, self.high @ up + self.low @ down + bias
        slack = 2.0 * (weight.shape[1] + 4) * (self.size @ np.abs(weight).T + np.abs(bias))
        return made(self.c @ weight.T + bias, self.a @ weight.T, self.e @ np.abs(weight).T, ends, slack)

    def shifted(self, constant: np.ndarray | float) -> "AffineForm":
        slack = 4.0 * (self.size + np.abs(constant))
        still = np.zeros(np.broadcast_shapes(self.c.shape, np.shape(constant)))
        return made(
            self.c + constant, self.a + still, self.e + still, (self.low + constant, self.high + constant), slack
        )

    def through(self, act: str) -> "AffineForm":
        """A function of one variable, by the chord of its range and the strip around it."""
        low, high, f = self.low, self.high, ACTS[act]
        width = high - low
        first, last = f.value(low), f.value(high)
        slope = np.where(width > 1e-6, (last - first) / np.maximum(width, 1e-6), f.slope(0.5 * (low + high)))
        top, bottom = intercept(act, 1, slope, low, high), -intercept(act, -1, -slope, low, high)
        strip = np.maximum(0.5 * (top - bottom), 0.0)
        least = np.minimum(first, last)
        if act == "gelu":  # it falls, then rises; the others rise throughout
            least = np.where((low <= GELU_VALLEY[1]) & (high >= GELU_VALLEY[0]), GELU_LEAST, least)
        slack = 64.0 * (1.0 + (1.0 + np.abs(slope)) * (np.abs(low) + np.abs(high) + self.size))
        middle = slope * self.c + 0.5 * (top + bottom)
        return made(middle, slope * self.a, np.abs(slope) * self.e + strip, (least, np.maximum(first, last)), slack)

    def within(self, low: Array, high: Array) -> "AffineForm":
        """The same value, known to lie in [low, high] as well."""
        return made(self.c, self.a, self.e, (np.maximum(self.low, low), np.minimum(self.high, high)), 0.0 * self.size)


FIELDS = ("c", "a", "e", "low", "high")


def made(c: Array, a: np.ndarray, e: Array, ends: tuple[Array, Array], slack: Array) -> AffineForm:
    """The form widened by `slack` units of rounding, its interval cut with the form's own, the middle where it is
    better."""
    e = e + UNIT * slack
    radius = (np.abs(a).sum(0) + e) * (1.0 + 32.0 * UNIT) + 4.0 * UNIT * np.abs(c)
    low, high = np.maximum(ends[0] - UNIT * slack, c - radius), np.minimum(ends[1] + UNIT * slack, c + radius)
    half = (0.5 + UNIT) * (high - low) + 4.0 * UNIT * (np.abs(low) + np.abs(high))
    better = half < e
    return AffineForm(np.where(better, 0.5 * (low + high), c), np.where(better, 0.0, a), np.minimum(e, half), low, high)


def boxes(low: Float[np.ndarray, "boxes n"], high: Float[np.ndarray, "boxes n"]) -> AffineForm:
    """The n coordinates of the inputs of each box, as forms of shape (boxes, n)."""
    a = np.eye(low.shape[1])[:, None, :] * (0.5 * (high - low))[None]
    return AffineForm(0.5 * (low + high), a, 8.0 * UNIT * (np.abs(low) + np.abs(high)), low, high)


def joined(forms: list[AffineForm], axis: int) -> AffineForm:
    """Side by side along an axis (negative)."""
    return AffineForm(*(np.concatenate([getattr(f, name) for f in forms], axis) for name in FIELDS))


def stacked(forms: list[AffineForm], axis: int) -> AffineForm:
    """Joined along a new axis (negative)."""
    return AffineForm(*(np.stack([getattr(f, name) for f in forms], axis) for name in FIELDS))


def chosen(here: np.ndarray, new: AffineForm, old: AffineForm) -> AffineForm:
    return new if here.all() else AffineForm(*(np.where(here, getattr(new, f), getattr(old, f)) for f in FIELDS))


def constant(value: np.ndarray, n: int) -> AffineForm:
    return AffineForm(value, np.zeros((n, *value.shape)), np.zeros(value.shape), value, value)
