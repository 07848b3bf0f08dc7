"""Interval arithmetic on arrays of boxes, rounded outwards: every operation returns a superset of the true range.

numpy's elementary functions are within a few units in the last place; `wide` steps outwards by more than that.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

ROOM = 8 * 2.0**-52  # relative room: numpy documents at most 4 ulp for these functions
TINY = 1e-300  # covers products that underflow (below 2e-308), where a relative room is nothing
LARGEST = np.finfo(np.float64).max


@dataclass(frozen=True)
class Interval:
    """Arrays of lower and upper ends; every operation rounds outwards."""

    low: Float[ndarray, " ..."]
    high: Float[ndarray, " ..."]

    def __add__(self, other: "Interval") -> "Interval":
        return wide(self.low + other.low, self.high + other.high)

    def __mul__(self, other: "Interval") -> "Interval":
        products = [_product(left, right) for left in (self.low, self.high) for right in (other.low, other.high)]
        return wide(np.minimum.reduce(products), np.maximum.reduce(products))


def wide(low: ndarray, high: ndarray) -> Interval:
    """Step outwards; a bound that is not a number becomes infinite (nothing is known).

    A lower bound that overflowed to +inf stands for a value of which only this is known: it is above the largest float.
    """
    low = np.minimum(np.where(np.isnan(low), -np.inf, low), LARGEST)
    high = np.maximum(np.where(np.isnan(high), np.inf, high), -LARGEST)
    return Interval(low - np.abs(low) * ROOM - TINY, high + np.abs(high) * ROOM + TINY)


def _product(left: ndarray, right: ndarray) -> ndarray:
    """0 times infinity is 0 here: an infinite bound stands for arbitrarily large finite values."""
    return np.where((left == 0) | (right == 0), 0.0, left * right)


def integer_power(x: Interval, exponent: int) -> Interval:
    """x^exponent; a negative exponent is a reciprocal, and an even power is at least 0."""
    if exponent < 0:
        return reciprocal(integer_power(x, -exponent))
    low, high = x.low**exponent, x.high**exponent
    if exponent % 2:
        return wide(low, high)
    straddles = (x.low <= 0) & (x.high >= 0)
    return wide(np.where(straddles, 0.0, np.minimum(low, high)), np.maximum(low, high))


def reciprocal(x: Interval) -> Interval:
    """1/x; everything, where x may be 0."""
    straddles = (x.low <= 0) & (x.high >= 0)
    return wide(np.where(straddles, -np.inf, 1 / x.high), np.where(straddles, np.inf, 1 / x.low))


def exp(x: Interval) -> Interval:
    """e^x, at least 0."""
    value = wide(np.exp(x.low), np.exp(x.high))
    return Interval(np.maximum(value.low, 0.0), value.high)


def log(x: Interval) -> Interval:
    """Where the argument may be 0 or negative the function is undefined there: nothing is known."""
    return _undefined(wide(np.log(x.low), np.log(x.high)), x.low <= 0)


def sqrt(x: Interval) -> Interval:
    """The square root, undefined where x may be negative."""
    value = wide(np.sqrt(x.low), np.sqrt(x.high))
    return _undefined(Interval(np.maximum(value.low, 0.0), value.high), x.low < 0)


def tanh(x: Interval) -> Interval:
    """tanh(x), within [-1, 1]."""
    value = wide(np.tanh(x.low), np.tanh(x.high))
    return Interval(np.maximum(value.low, -1.0), np.minimum(value.high, 1.0))


def absolute(x: Interval) -> Interval:
    """|x|."""
    ends = np.abs(x.low), np.abs(x.high)
    return Interval(np.where((x.low <= 0) & (x.high >= 0), 0.0, np.minimum(*ends)), np.maximum(*ends))


def sign(x: Interval) -> Interval:
    """The sign of x, [-1, 1] where it may be either."""
    return Interval(np.where(x.low > 0, 1.0, -1.0), np.where(x.high < 0, -1.0, 1.0))


def cos(x: Interval) -> Interval:
    """cos(x) as a shifted sine, with room for the shift's rounding."""
    return sin(Interval(x.low + np.pi / 2, x.high + np.pi / 2), room=1e-15 * (1 + np.maximum(-x.low, x.high)))


def sin(x: Interval, room: float | ndarray = 0.0) -> Interval:
    """Extremes at the ends unless a quarter turn lies between; an argument beyond 1e6 gives [-1, 1]."""
    slack = room + 1e-14 * (1 + np.maximum(np.abs(x.low), np.abs(x.high)))
    low, high = x.low - slack, x.high + slack
    ends = np.sin(low), np.sin(high)
    top = np.floor((high - np.pi / 2) / (2 * np.pi)) >= np.ceil((low - np.pi / 2) / (2 * np.pi))
    bottom = np.floor((high + np.pi / 2) / (2 * np.pi)) >= np.ceil((low + np.pi / 2) / (2 * np.pi))
    unknown = ~np.isfinite(low) | ~np.isfinite(high) | (np.maximum(np.abs(low), np.abs(high)) > 1e6)
    value = wide(
        np.where(bottom | unknown, -1.0, np.minimum(*ends) - slack),
        np.where(top | unknown, 1.0, np.maximum(*ends) + slack),
    )
    return Interval(np.maximum(value.low, -1.0), np.minimum(value.high, 1.0))


def _undefined(value: Interval, where: ndarray) -> Interval:
    return Interval(np.where(where, -np.inf, value.low), np.where(where, np.inf, value.high))
