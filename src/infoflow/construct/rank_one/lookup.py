"""A table as one ReLU layer: t -> b + sum_j c_j relu(t - t_j) with prescribed values at the knots.

The solve is compensated: from left to right c_j = fl((T_{j+1} - F_j(t_{j+1})) / (t_{j+1} - t_j)), with F_j the network
*as stored so far* in exact integers (multiples of 2^-100), so the rounding of one coefficient is repaired by the
next and never accumulates. What remains is the rounding of the evaluation, about u * range * sum_j |c_j|.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from infoflow.certificates.rules import UNIT

BITS = 100  # knots and coefficients are multiples of 2^-BITS; every float64 above 2^-48 already is


@dataclass(frozen=True)
class Lookup:
    """m knots, values at them, and the coefficients of m - 1 ReLU units; constant to the left of the first knot."""

    knots: Float[ndarray, " m"]
    start: Float[ndarray, " d"]  # b: the value at and before the first knot
    coefficients: Float[ndarray, "units d"]  # c_j, j = 1..m-1
    values: Float[ndarray, "m d"]  # F(t_j), rounded once from the exact sum
    slopes: Float[ndarray, "m d"]  # slope behind each knot, rounded once

    def __call__(self, t: Float[ndarray, " k"]) -> Float[ndarray, "k d"]:
        """The same function in O(log m) per point: find the piece, one multiplication."""
        piece = np.searchsorted(self.knots, t, side="right") - 1
        at = np.maximum(piece, 0)
        step = np.where(piece < 0, 0.0, t - self.knots[at])
        made: ndarray = self.values[at] + self.slopes[at] * step[:, None]
        return made


def integers(values: ndarray) -> list[int]:
    """Float64 numbers as multiples of 2^-BITS; exact from 2^-48 upwards (and for 0), to 2^-101 below."""
    out = []
    for value in values.tolist():
        top, bottom = value.as_integer_ratio()
        out.append((top << BITS) // bottom if bottom.bit_length() <= BITS + 1 else round(value * 2.0**BITS))
    return out


def grid(values: ndarray) -> ndarray:
    """Rounded to multiples of 2^-BITS, which changes only numbers below 2^-48."""
    small = np.abs(values) < 2.0 ** (52 - BITS)
    return np.where(small, np.ldexp(np.rint(np.ldexp(values, BITS)), -BITS), values) if small.any() else values


def solve(knots: Float[ndarray, " m"], targets: Float[ndarray, "m d"]) -> Lookup:
    """Coefficients with F(t_j) = targets[j] up to one rounding each; knots strictly increasing, on the grid."""
    m, d = targets.shape
    t = integers(knots)
    coefficients = np.zeros((m - 1, d))
    values, slopes = np.empty((m, d)), np.zeros((m, d))
    for axis in range(d):
        wanted = integers(targets[:, axis])
        column, value, slope = _solve_column(t, wanted)
        coefficients[:, axis], values[:, axis], slopes[:-1, axis] = column, value, slope
        slopes[-1, axis] = slope[-1] if m > 1 else 0.0
    return Lookup(knots, values[0].copy(), coefficients, values, slopes)


def _solve_column(t: list[int], wanted: list[int]) -> tuple[list[float], list[float], list[float]]:
    """One output coordinate. value is a multiple of 2^-2 BITS, slope of 2^-BITS: all sums are exact integers."""
    unit, double = 2.0**-BITS, 1 << (2 * BITS)
    value, slope = wanted[0] << BITS, 0
    column, values, slopes = [], [value / double], []
    for j in range(1, len(t)):
        step = t[j] - t[j - 1]
        ahead = value + slope * step  # the stored network at t_j
        change = ((wanted[j] << BITS) - ahead) / step  # correctly rounded quotient of integers, in units of 2^-BITS
        exact = round(change)
        column.append(change * unit if abs(change) >= 2.0**52 else exact * unit)
        slope += exact
        value += slope * step
        values.append(value / double)
        slopes.append(slope * unit)
    return column, values, slopes


def read_back(knots: Float[ndarray, " m"], start: ndarray, coefficients: Float[ndarray, "units d"]) -> Lookup:
    """The piecewise form of stored ReLU weights, summed exactly."""
    m, d = len(knots), coefficients.shape[1]
    t, double, unit = integers(knots), 1 << (2 * BITS), 2.0**-BITS
    values, slopes = np.empty((m, d)), np.zeros((m, d))
    for axis in range(d):
        value, slope = integers(start[axis : axis + 1])[0] << BITS, 0
        values[0, axis] = value / double
        for j, change in enumerate(integers(coefficients[:, axis]), start=1):
            slope += change
            value += slope * (t[j] - t[j - 1])
            values[j, axis], slopes[j - 1, axis] = value / double, slope * unit
        slopes[-1, axis] = slope * unit
    return Lookup(knots, start, coefficients, values, slopes)


def rounding_bound(lookup: Lookup, readout_error: float, end: float) -> float:
    """The float64 error of b + sum_j c_j relu(t - t_j) for every t <= end, any order of summation:

        sum_j |c_j| (e + 2 u r_j) + gamma_{m+6} (|b| + sum_j |c_j| r_j),   r_j = max(end - t_j, 0) + e

    with e the error of the read-out t; the sum grows with t, so `end` is the worst. Of the m + 6, m + 2 are the sum's
    own, and 4 are those of `Lookup.__call__`, value + slope * step, whose terms are no larger than the sum's.
    """
    u, size = UNIT, np.abs(lookup.coefficients)
    reach = np.maximum(end - lookup.knots[:-1], 0.0) * (1 + 4 * u) + readout_error
    gamma = (len(lookup.knots) + 6) * u / (1 - (len(lookup.knots) + 6) * u)
    total = reach @ size
    worst = size.sum(0) * readout_error + 2 * u * total + gamma * (np.abs(lookup.start) + total)
    return float(worst.max(initial=0.0)) * (1 + 1e-9)
