"""Room on the sphere for Theorem 4: H + 1 separated caps, none of whose points nearly oppose each other."""

from collections.abc import Callable
from math import cos, pi, sin

MARGIN = 1 - 1e-9  # closed caps must not touch


def cap_angle(heads: int, d: int) -> float:
    """The largest angular radius rho we know for H + 1 caps on the unit sphere of R^d (d >= 2) such that

    * the caps are disjoint: centres at least 2 rho apart;
    * any two points of the caps are at most pi - rho apart, so that |w + w'|^2 >= (2 sin(rho/2))^2 = L^2.

    Centres at most pi - 3 rho apart are enough for the second. Three arrangements: H + 1 <= d centres pairwise 2 rho
    apart (rho = pi/5); a row on a great circle (rho = pi / (2 H + 3)); a ring of angular radius (pi - 3 rho) / 2 on a
    two-dimensional sphere, sin(rho) = cos(3 rho / 2) sin(pi / (H + 1)). The paper takes C / H.
    """
    candidates = [pi / (2 * heads + 3)]
    if heads + 1 <= d:
        candidates.append(pi / 5)
    if d >= 3:
        candidates.append(ring_angle(heads + 1))
    return max(candidates) * MARGIN


def ring_angle(caps: int) -> float:
    """sin(rho) = cos(3 rho / 2) sin(pi / caps), at most pi / 5."""
    return _root(lambda rho: sin(rho) - cos(1.5 * rho) * sin(pi / caps), 0.0, pi / 5)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Bisection from below: the returned point has function <= 0."""
    if function(high) <= 0:
        return high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) <= 0 else (low, middle)
    return low


def chord(angle: float) -> float:
    """|x - y| for unit vectors at this angle."""
    return 2 * sin(angle / 2)
