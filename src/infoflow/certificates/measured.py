"""Bounds from stored units: how far a bundle of tanh units is from sum gain * y^alpha over a whole box.

The units sum_i w_i tanh(b_i + c_i . y), |y_k| <= r_k, are grouped by direction, c_i = slope_i * direction; each group
is a Taylor series in u = direction . y, |u| <= reach. The orders m != k of all groups together are bounded by
max(sum of positive, sum of negative) parts for even m and by the sum of absolute values for odd m; order k is compared
with gain * y^alpha coefficient by coefficient; orders beyond the table by Cauchy's estimate. A unit that is off its
group or its bias enters with its Lipschitz constant 1, so no deviation goes uncounted.
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Float

from infoflow.certificates.rules import ORDERS, UNIT, circle_maximum, taylor


@dataclass(frozen=True)
class UnitBundle:
    """Units that serve monomials of one degree: hidden weights in the variables, biases, output weights."""

    slopes: Float[np.ndarray, "units variables"]
    biases: Float[np.ndarray, " units"]
    outputs: Float[np.ndarray, " units"]
    monomials: dict[tuple[int, ...], float]  # exponents (one per variable) -> gain, all of one degree
    radii: tuple[float, ...]
    bias: float  # the bias the rule is meant to have

    @property
    def power(self) -> int:
        """The degree of its monomials."""
        return sum(next(iter(self.monomials)))


@dataclass(frozen=True)
class Group:
    """Units along one direction."""

    direction: Float[np.ndarray, " variables"]
    slopes: Float[np.ndarray, " units"]
    outputs: Float[np.ndarray, " units"]

    def reach(self, radii: tuple[float, ...]) -> float:
        """The largest |direction . x| on the box."""
        return float(np.abs(self.direction) @ np.array(radii))


def group(bundle: UnitBundle) -> tuple[list[Group], float]:
    """Units by direction, and a bound on what is displaced: units off their group, biases off the rule's."""
    radii = np.array(bundle.radii)
    displaced = float(np.abs(bundle.outputs) @ np.abs(bundle.biases - bundle.bias))
    if len(bundle.outputs) == 0:
        return [], displaced
    largest = np.abs(bundle.slopes).max(axis=1, keepdims=True)
    lead = (np.abs(bundle.slopes) >= (1 - 1e-9) * largest).argmax(axis=1)  # the first of equals, else ±(1, -1) are two
    size = bundle.slopes[np.arange(len(lead)), lead]
    moving = size != 0.0
    directions = np.zeros_like(bundle.slopes)
    directions[moving] = bundle.slopes[moving] / size[moving, None]
    keys, counts = np.unique(np.round(directions[moving], 9), axis=0, return_counts=True)
    chosen = keys[counts >= 2] if (counts >= 2).any() else keys
    groups = []
    index = np.full(len(size), -1)
    if len(chosen):
        distance = np.abs(directions[:, None, :] - chosen[None]) @ radii
        index[moving] = distance.argmin(axis=1)[moving]
    for g in range(len(chosen)):
        members = index == g
        if not members.any():
            continue
        near = directions[members][np.abs(directions[members] - chosen[g]).sum(axis=1) < 1e-8]
        exact = near[0] if len(near) else chosen[g]
        along = int(np.abs(exact).argmax())
        slopes = bundle.slopes[members, along] / exact[along]
        rest = bundle.slopes[members] - slopes[:, None] * exact
        displaced += float(np.abs(bundle.outputs[members]) @ (np.abs(rest) @ radii))
        groups.append(Group(exact, slopes, bundle.outputs[members]))
    return groups, displaced


def bundle_error(bundle: UnitBundle) -> float:
    """sup over the box of |bundle(y) - constant - sum gain y^alpha|, rigorous up to the rounding slack it includes.

    The constant is sum_i w_i tanh(bias), which the caller adds up over a block.
    """
    groups, displaced = group(bundle)
    coefficients = taylor(bundle.bias)
    orders = np.arange(ORDERS + 1)
    series = []  # per group: t_m sum_i w_i slope_i^m reach^m
    tail = slack = 0.0
    radius, maximum = circle_maximum(bundle.bias)
    for g in groups:
        reach = g.reach(bundle.radii)
        table = (g.slopes[None, :] * reach) ** orders[:, None]
        series.append(coefficients * (table @ g.outputs))
        slack += 2.0 * UNIT * (len(g.slopes) + 8) * float((np.abs(table) @ np.abs(g.outputs)) @ np.abs(coefficients))
        ratio = float(np.abs(g.slopes).max()) * reach / radius
        if ratio >= 1.0:
            return math.inf
        tail += float(np.abs(g.outputs).sum()) * maximum * ratio ** (ORDERS + 1) / (1.0 - ratio)
    total = displaced + tail + slack + _order_defect(bundle, groups, coefficients)
    if series:
        stack = np.array(series)
        positive, negative = np.clip(stack, 0, None).sum(axis=0), np.clip(-stack, 0, None).sum(axis=0)
        by_order = np.where(orders % 2 == 0, np.maximum(positive, negative), positive + negative)
        by_order[[0, bundle.power]] = 0.0
        total += float(by_order.sum())
    return total


def _order_defect(bundle: UnitBundle, groups: list[Group], coefficients: np.ndarray) -> float:
    """Order k: sum over monomials of |coefficient - gain| r^monomial."""
    k, n = bundle.power, len(bundle.radii)
    total = 0.0
    for exponents in product(range(k + 1), repeat=n):
        if sum(exponents) != k:
            continue
        multinomial = math.factorial(k) / math.prod(math.factorial(e) for e in exponents)
        value = sum(
            coefficients[k] * float(g.outputs @ g.slopes**k) * float(np.prod(g.direction ** np.array(exponents)))
            for g in groups
        )
        wanted = bundle.monomials.get(exponents, 0.0)
        total += abs(multinomial * value - wanted) * math.prod(
            r**e for r, e in zip(bundle.radii, exponents, strict=True)
        )
    return total


def bundle_at_zero(bundle: UnitBundle) -> float:
    """sup of |bundle(y) - constant| where the first variable is 0: what a product leaves in the CLS, 0 for exact ones.

    Orders beyond ORDERS are bounded by Cauchy's estimate, group by group, as in `bundle_error`.
    """
    if len(bundle.radii) == 1:
        return float(np.abs(bundle.outputs) @ np.abs(bundle.biases - bundle.bias))
    groups, displaced = group(bundle)
    coefficients = np.abs(taylor(bundle.bias)[1:])
    orders = np.arange(1, ORDERS + 1)
    left = np.array(bundle.radii[1:])
    sums: dict[tuple[float, ...], np.ndarray] = {}  # what is left of a direction -> sum_i w_i (slope_i reach)^m
    radius, maximum = circle_maximum(bundle.bias)
    tail = slack = 0.0
    for g in groups:
        rest = g.direction[1:]
        size = float(rest[np.abs(rest).argmax()])
        if size == 0.0:
            continue
        key = tuple((np.round(rest / size, 9) + 0.0).tolist())
        reach = g.slopes * size * (np.abs(rest / size) @ left)
        ratio = float(np.abs(reach).max()) / radius
        if ratio >= 1.0:
            return math.inf
        tail += float(np.abs(g.outputs).sum()) * maximum * ratio ** (ORDERS + 1) / (1.0 - ratio)
        table = reach[None, :] ** orders[:, None]
        sums[key] = sums.get(key, 0.0) + table @ g.outputs
        slack += 2.0 * UNIT * (len(bundle.outputs) + 8) * float((np.abs(table) @ np.abs(g.outputs)) @ coefficients)
    return displaced + tail + slack + sum(float(np.abs(total) @ coefficients) for total in sums.values())
