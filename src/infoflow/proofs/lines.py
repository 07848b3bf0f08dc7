"""Straight lines above +-act on an interval, for every activation that is trained with.

For any slope s the lowest line s z + t above f on [l, u] has t = max over [l, u] of h(z) = f(z) - s z. Where f is
convex h has no inner maximum, so only the ends and the regions where f is concave count. On a concave region cut with
[l, u], [a, b], every point p gives

    h(z) <= h(p) + h'(p) (z - p) <= h(p) + max(h'(p) (a - p), h'(p) (b - p)),        h' = f' - s,

so any guess p of the touching point is sound and the exact one is tight. Regions where f is concave:

    f = gelu    (-inf, -sqrt 2] and [sqrt 2, inf): gelu'' = phi(z) (2 - z^2); gelu' is in [-0.13, 0] on the first and in
                [1, 1.13] on the second, so a slope touches one of them at most and both are looked at
    f = -gelu   [-sqrt 2, sqrt 2]
    f = tanh, sigmoid   [0, inf);   f = -tanh, -sigmoid   (-inf, 0]
    f = relu    none;   f = -relu   everywhere, with a kink at 0;   identity: both are straight
    f = softplus   none;   f = -softplus   everywhere
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import erf, expit

BEND = math.sqrt(2.0)
STEPS = 8  # of the search for a touching point; the bound holds after any number of them
Array = Float[np.ndarray, " ..."]


def _gelu(z: Array) -> Array:
    return 0.5 * z * (1.0 + erf(z / BEND))


def _gelu_slope(z: Array) -> Array:
    return 0.5 * (1.0 + erf(z / BEND)) + z * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class Act:
    """An activation with its slope, and the regions where it (sign +1) and its negative (sign -1) are concave."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    concave: tuple[tuple[float, float], ...]
    convex: tuple[tuple[float, float], ...]

    def regions(self, sign: int) -> tuple[tuple[float, float], ...]:
        return self.concave if sign > 0 else self.convex


INF = math.inf
ACTS: dict[str, Act] = {
    "gelu": Act(_gelu, _gelu_slope, ((-INF, -BEND), (BEND, INF)), ((-BEND, BEND),)),
    "tanh": Act(np.tanh, lambda z: 1.0 - np.tanh(z) ** 2, ((0.0, INF),), ((-INF, 0.0),)),
    "sigmoid": Act(expit, lambda z: expit(z) * expit(-z), ((0.0, INF),), ((-INF, 0.0),)),
    "relu": Act(lambda z: np.maximum(z, 0.0), lambda z: (z > 0) * 1.0, (), ((-INF, INF),)),
    "identity": Act(lambda z: z, np.ones_like, (), ()),
    "softplus": Act(lambda z: np.logaddexp(0.0, z), expit, (), ((-INF, INF),)),  # of softmax sums, not trained with
}


def lines_above(
    name: str, sign: int, low: Array, high: Array, points: int = 3
) -> tuple[Float[np.ndarray, "units lines"], Float[np.ndarray, "units lines"]]:
    """Slopes and intercepts of lines above sign * act on [low, high], per unit: the chord's slope first, then touching
    lines at `points` points of every concave region that the interval meets."""
    act = ACTS[name]
    width = high - low
    rise = sign * (act.value(high) - act.value(low))
    chord = np.where(width > 1e-9, rise / np.maximum(width, 1e-9), sign * act.slope(low))
    slopes, intercepts = [chord], [intercept(name, sign, chord, low, high)]
    if name == "relu" and sign < 0:  # the kink's slopes: any between -1 and 0 touch at 0
        slopes.append(np.where(low + high > 0, -1.0, 0.0))
        intercepts.append(intercept(name, sign, slopes[-1], low, high))
    for region in () if name == "relu" else act.regions(sign):
        inside, left, right = _meet(low, high, *region)
        for i in range(points if inside.any() else 0):
            p = left + (right - left) * (i / (points - 1))
            slopes.append(np.where(inside, sign * act.slope(p), chord))
            touching = intercept(name, sign, slopes[-1], low, high, {region: p})
            intercepts.append(np.where(inside, touching, intercepts[0]))
    return np.stack(slopes, -1), np.stack(intercepts, -1)


def intercept(
    name: str,
    sign: int,
    slope: Array,
    low: Array,
    high: Array,
    guesses: dict[tuple[float, float], Array] | None = None,
) -> Array:
    """The least t we can prove with sign * act(z) <= slope z + t on [low, high].

    Guesses of the touching points, by region, may be any points of it; without guesses they are searched for.
    """
    act = ACTS[name]

    def h(z: Array) -> Array:
        return sign * act.value(z) - slope * z

    def rise(z: Array) -> Array:
        return sign * act.slope(z) - slope

    best = np.maximum(h(low), h(high))
    if name == "relu" and sign < 0:
        return np.where((low < 0) & (high > 0), np.maximum(best, 0.0), best)
    for region in act.regions(sign):
        inside, left, right = _meet(low, high, *region)
        if not inside.any():
            continue
        if guesses is None:
            p = _touching(rise, left, right)
        else:
            p = guesses[region] if region in guesses else np.where(rise(left) < 0, left, right)
        tilt = rise(p)
        over = h(p) + np.maximum(np.maximum(tilt * (left - p), tilt * (right - p)), 0.0)
        best = np.where(inside, np.maximum(best, over), best)
    return best


def _meet(low: Array, high: Array, a: float, b: float) -> tuple[np.ndarray, Array, Array]:
    """[low, high] cut with [a, b]: whether they meet, and the ends (those of [low, high] where they do not)."""
    left, right = np.maximum(low, a), np.minimum(high, b)
    inside = left <= right
    return inside, np.where(inside, left, low), np.where(inside, right, low)


def _touching(rise: Callable[[Array], Array], left: Array, right: Array) -> Array:
    """Where a falling function is about zero: secant steps that keep the bracket, the end where there is none."""
    a, b = left, right
    fa, fb = rise(a), rise(b)
    for _ in range(STEPS):
        p = 0.5 * (a + b)
        fp = rise(p)
        up = fp > 0
        a, fa = np.where(up, p, a), np.where(up, fp, fa)
        b, fb = np.where(up, b, p), np.where(up, fb, fp)
    gap = fa - fb
    t = np.where(gap > 0, fa / np.where(gap > 0, gap, 1.0), 0.5)
    return np.clip(a + np.clip(t, 0.0, 1.0) * (b - a), left, right)
