"""The supremum of a stored rule's error over its whole box, enclosed in ball arithmetic (python-flint).

Upper end: a Taylor model of the stored units with ball coefficients and a Cauchy remainder on an arc-covered circle,
every number a ball around the stored double. Lower end: the error at the corners of the box, evaluated in balls. The
true supremum lies between them.
"""

import math
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from infoflow.certificates.measured import UnitBundle, group
from infoflow.certificates.rules import ORDERS
from infoflow.installation import extra

PRECISION = 128


@dataclass(frozen=True)
class Enclosure:
    """lower <= sup |bundle - constant - sum gain y^alpha| <= upper."""

    lower: float
    upper: float


def flint() -> Any:
    """python-flint at our precision, or one sentence about how to install it."""
    module = extra("flint", "certify", "ball arithmetic")
    module.ctx.prec = PRECISION
    return module


def enclose(bundle: UnitBundle) -> Enclosure:
    """A proved upper bound of a bundle's error, in ball arithmetic."""
    arb = flint().arb
    groups, displaced = group(bundle)
    zero = arb(0)
    t = taylor_balls(bundle.bias)
    radius, maximum = circle_balls(bundle.bias)
    radii = [arb(r) for r in bundle.radii]
    total = arb(displaced)
    series = []
    for g in groups:
        direction = [arb(float(c)) for c in g.direction]
        reach = sum((abs(c) * r for c, r in zip(direction, radii, strict=True)), zero)
        nodes = _merge(g.slopes, g.outputs)
        powers = [arb(w) for _, w, _ in nodes]
        steps = [arb(s) * reach for s, _, _ in nodes]
        counts = [arb(n) for _, _, n in nodes]
        sums = []
        for _ in range(ORDERS + 1):
            sums.append(sum((p * n for p, n in zip(powers, counts, strict=True)), zero))
            powers = [p * s for p, s in zip(powers, steps, strict=True)]
        series.append(sums)
        ratio = reach * arb(float(np.abs(g.slopes).max())) / radius
        if not ratio < 1:
            return Enclosure(0.0, math.inf)
        weight = sum((abs(arb(w)) * n for (_, w, _), n in zip(nodes, counts, strict=True)), zero)
        total += weight * maximum * ratio ** (ORDERS + 1) / (1 - ratio)
    for m in range(1, ORDERS + 1):
        if m == bundle.power:
            continue
        parts = [t[m] * sums[m] for sums in series]
        total += _even(parts, zero) if m % 2 == 0 else sum((abs(p) for p in parts), zero)
    total += _order(bundle, groups, t, arb)
    return Enclosure(_corner(bundle, arb), float(total.upper()) * (1.0 + 1e-15))


def _merge(slopes: np.ndarray, outputs: np.ndarray) -> list[tuple[float, float, int]]:
    """Equal units counted once."""
    pairs, counts = np.unique(np.stack([slopes, outputs], axis=1), axis=0, return_counts=True)
    return [(float(s), float(w), int(n)) for (s, w), n in zip(pairs, counts, strict=True)]


def _even(parts: list[Any], zero: Any) -> Any:
    """max(sum of positive parts, sum of negative parts), with balls that contain 0 counted in both."""
    positive = sum((p.max(zero) for p in parts), zero)
    negative = sum(((-p).max(zero) for p in parts), zero)
    return positive.max(negative)


def _order(bundle: UnitBundle, groups: list[Any], t: list[Any], arb: Any) -> Any:
    k = bundle.power
    total = arb(0)
    sums = [sum((arb(w) * n * arb(s) ** k for s, w, n in _merge(g.slopes, g.outputs)), arb(0)) * t[k] for g in groups]
    for exponents in product(range(k + 1), repeat=len(bundle.radii)):
        if sum(exponents) != k:
            continue
        multinomial = math.factorial(k) // math.prod(math.factorial(e) for e in exponents)
        value = arb(0)
        for g, s in zip(groups, sums, strict=True):
            factor = s
            for c, e in zip(g.direction, exponents, strict=True):
                factor = factor * arb(float(c)) ** e
            value += factor
        wanted = arb(bundle.monomials.get(exponents, 0.0))
        size = arb(1)
        for r, e in zip(bundle.radii, exponents, strict=True):
            size = size * arb(r) ** e
        total += abs(value * multinomial - wanted) * size
    return total


def _corner(bundle: UnitBundle, arb: Any) -> float:
    """The largest error at the corners, rounded down."""
    rows = np.unique(np.column_stack([bundle.slopes, bundle.biases, bundle.outputs]), axis=0, return_counts=True)
    base = arb(bundle.bias).tanh()
    best = 0.0
    for signs in product((1.0, -1.0), repeat=len(bundle.radii)):
        y = [arb(s * r) for s, r in zip(signs, bundle.radii, strict=True)]
        value = arb(0)
        for row, count in zip(*rows, strict=True):
            argument = arb(float(row[-2]))
            for c, v in zip(row[:-2], y, strict=True):
                argument += arb(float(c)) * v
            value += arb(float(row[-1])) * int(count) * (argument.tanh() - base)
        wanted = arb(0)
        for exponents, gain in bundle.monomials.items():
            term = arb(gain)
            for v, e in zip(y, exponents, strict=True):
                term = term * v**e
            wanted += term
        best = max(best, float(abs(value - wanted).lower()))
    return best


@cache
def taylor_balls(bias: float) -> list[Any]:
    """Taylor coefficients of tanh at the double `bias`, as balls."""
    arb = flint().arb
    t = [arb(bias).tanh()]
    for m in range(ORDERS):
        total = sum((t[i] * t[m - i] for i in range(m + 1)), arb(0))
        t.append(((1 if m == 0 else 0) - total) / (m + 1))
    return t


@cache
def circle_balls(bias: float) -> tuple[Any, Any]:
    """(radius, ball above |tanh| on the circle): the closed form of `rules.circle_maximum` on arcs given as balls."""
    arb = flint().arb
    radius = min(0.9 * math.hypot(bias, math.pi / 2), 0.99 * math.pi / 2)
    R, arcs = arb(radius), 720
    worst = arb(1)
    for i in range(arcs):
        theta = arb((i + 0.5) * math.pi / arcs, 0.5001 * math.pi / arcs)
        x, y = arb(bias) + R * theta.cos(), R * theta.sin()
        cosine = y.cos() ** 2
        square = 1 + (1 - 2 * cosine).max(arb(0)) / (x.sinh() ** 2 + cosine).max(arb(1e-6))
        worst = worst.max(arb(square.upper()))
    return R, worst.sqrt()
