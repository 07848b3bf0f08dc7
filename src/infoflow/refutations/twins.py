"""Borsuk-Ulam, executed: two opposite points of the cube that a continuous encoder sends to one latent.

g(V) = encode(V) - encode(1 - V) is odd. On the boundary of [0,1]^{n+1}, a sphere of dimension n (the other m - n - 1
coordinates stay at 1/2), it has a zero, and there |V - (1 - V)|_inf = 1: every decoder errs by at least 1/2 on V or on
1 - V. So for m > n no continuous codec of any size has sup error below 1/2, and part 2 of Theorem 6 of the InfoFlow
paper (arXiv:2605.17930v1) speaks about an empty class.

n = 1: bisection along half of the boundary of the square. n = 2: bisection of a hemisphere by winding numbers: the
winding number of an odd map along the equator is odd, and halves of a cell share what their sum has.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from infoflow.errors import InfoFlowError, JobError

Encoder = Callable[[np.ndarray], np.ndarray]
SAMPLES = (65, 513, 4097)  # first points on an edge; more are added until the angle between neighbours is small
SMALLEST_CELL = 1e-15  # a few units in the last place of 1: halving ends there
FINEST = 1e-16  # an edge is not divided below this
CONTINUOUS = 1e-6  # a latent that still differs by this across the last cell jumps, at float64 resolution


@dataclass(frozen=True)
class Twins:
    """V and 1 - V, the distance of their latents, and the size of the cell the zero was enclosed in."""

    V: Float[np.ndarray, " m"]
    W: Float[np.ndarray, " m"]
    latent_difference: float
    cell: float

    def decoder_errors(self, decode: Encoder, latent: Float[np.ndarray, " n"]) -> tuple[float, float]:
        """Sup errors of a decoder on V and W, given the latent they share; their sum is at least 1."""
        y = decode(latent[None])[0]
        return float(np.abs(y - self.V).max()), float(np.abs(y - self.W).max())


def codec_twins(encode: Encoder, m: int, n: int) -> Twins:
    """Twins of any continuous `encode`: (batch, m) in [0,1] -> (batch, n), for n = 1 or 2 and m > n."""
    if n not in (1, 2) or m <= n:
        raise InfoFlowError(f"expected n = 1 or 2 and m > n, got m={m}, n={n}.")
    probe = np.asarray(encode(np.full((2, m), 0.5)))
    if probe.shape != (2, n) or not np.isfinite(probe).all():
        raise InfoFlowError(f"expected encode to map (batch, {m}) to finite (batch, {n}), got {probe.shape}.")
    place = _half_square if n == 1 else _hemisphere

    def difference(w: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        V = _padded(place(w), m)
        return np.asarray(encode(V), dtype=np.float64) - np.asarray(encode(1 - V), dtype=np.float64)

    low, high = _bisect_line(difference) if n == 1 else _bisect_square(difference)
    corners = np.array([low, high, (low + high) / 2])
    sizes = np.linalg.norm(difference(corners), axis=-1)
    best = corners[int(sizes.argmin())]
    if sizes.min() > CONTINUOUS:
        across = np.abs(high - low).max()
        raise JobError(f"expected a continuous encoder, its latent jumps by {sizes.min():.2g} across {across:.1g}.")
    V = _padded(place(best[None]), m)[0]
    return Twins(V, 1 - V, float(sizes.min()), float(np.abs(high - low).max()))


def _padded(V: Float[np.ndarray, "batch k"], m: int) -> Float[np.ndarray, "batch m"]:
    """The coordinates that are not used stay at 1/2, their own opposite."""
    return np.concatenate([V, np.full((V.shape[0], m - V.shape[1]), 0.5)], axis=1)


def _half_square(w: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 2"]:
    """[0, 2] -> half of the boundary of the square, from (0, 0) along the bottom and up to (1, 1)."""
    return np.stack([np.clip(w[:, 0], 0, 1), np.clip(w[:, 0] - 1, 0, 1)], axis=1)


def _hemisphere(w: Float[np.ndarray, "batch 2"]) -> Float[np.ndarray, "batch 3"]:
    """[-1,1]^2 -> the upper half of the surface of the cube; the edge of the square goes to the equator x_3 = 1/2,
    opposite points to opposite points."""
    r = np.abs(w).max(axis=1)
    flat = np.where((r <= 0.5)[:, None], w, w / (2 * np.maximum(r, 0.5))[:, None])
    height = np.where(r <= 0.5, 1.0, 1.5 - r)
    made: np.ndarray = np.clip(np.concatenate([0.5 + flat, height[:, None]], axis=1), 0, 1)
    return made


class ZeroOnEdge(Exception):
    """Two points as close as float64 allows between which g passes 0, or jumps."""

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        self.low, self.high = low, high


def _bisect_line(g: Encoder) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.array([0.0]), np.array([2.0])
    at_low = float(g(low[None])[0, 0])  # g(2) = -g(0): the ends have opposite signs, or are zeros
    while True:
        middle = (low + high) / 2
        if at_low == 0 or not low[0] < middle[0] < high[0]:
            return low, high
        value = float(g(middle[None])[0, 0])
        if value == 0:
            return middle, middle
        low, high = (middle, high) if (value > 0) == (at_low > 0) else (low, middle)


def _bisect_square(g: Encoder) -> tuple[np.ndarray, np.ndarray]:
    """More samples an edge until the winding numbers agree: odd outside, sums of their halves inside."""
    for samples in SAMPLES:
        try:
            found = _nested_cells(g, samples)
        except ZeroOnEdge as edge:
            return edge.low, edge.high
        if found is not None:
            return found
    raise JobError("expected winding numbers that add up, they do not at any sampling; the encoder is not continuous.")


def _nested_cells(g: Encoder, samples: int) -> tuple[np.ndarray, np.ndarray] | None:
    low, high = np.array([-1.0, -1.0]), np.array([1.0, 1.0])
    turns = winding(g, low, high, samples)
    if turns % 2 == 0:
        return None
    while (high - low).max() > SMALLEST_CELL:
        axis = int((high - low).argmax())
        middle = (low[axis] + high[axis]) / 2
        if not low[axis] < middle < high[axis]:
            break
        left_high, right_low = high.copy(), low.copy()
        left_high[axis] = right_low[axis] = middle
        left, right = winding(g, low, left_high, samples), winding(g, right_low, high, samples)
        if left + right != turns:  # the samples missed a turn
            return None
        if left != 0:
            high, turns = left_high, left
        else:
            low, turns = right_low, right
    return low, high


def winding(g: Encoder, low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"], samples: int) -> int:
    """Turns of g around 0 along the boundary of a rectangle, counted over points close enough to follow the angle."""
    corners = np.array([low, [high[0], low[1]], high, [low[0], high[1]], low])
    total = 0.0
    for start, end in pairwise(corners):
        values = _edge(g, start, end, samples)
        z = values[:, 0] + 1j * values[:, 1]
        total += float(np.angle(z[1:] * np.conj(z[:-1])).sum())
    return round(total / (2 * math.pi))


def _edge(g: Encoder, start: np.ndarray, end: np.ndarray, samples: int) -> Float[np.ndarray, "points 2"]:
    """g along an edge, divided until neighbours differ by less than the larger of them (an angle below 90 degrees)."""
    length = float(np.abs(end - start).max())
    t = np.linspace(0, 1, samples)
    values = g(start + t[:, None] * (end - start))
    while True:
        norm = np.linalg.norm(values, axis=1)
        jump = np.linalg.norm(np.diff(values, axis=0), axis=1)
        wide = (jump > 0.7 * np.maximum(norm[1:], norm[:-1])) & (np.diff(t) * length > FINEST)
        middle = (t[1:] + t[:-1])[wide] / 2
        middle = middle[(middle > t[:-1][wide]) & (middle < t[1:][wide])]
        if middle.size == 0:
            _refuse_zero(start + t[:, None] * (end - start), norm, jump)
            return values
        order = np.argsort(np.concatenate([t, middle]), kind="stable")
        new = g(start + middle[:, None] * (end - start))
        t, values = np.concatenate([t, middle])[order], np.concatenate([values, new])[order]


def _refuse_zero(points: np.ndarray, norm: np.ndarray, jump: np.ndarray) -> None:
    """Neighbours that stay further apart than they are from 0, however close: the zero is here, or g jumps."""
    unresolved = np.flatnonzero(jump > 0.7 * np.maximum(norm[1:], norm[:-1]))
    if unresolved.size or (norm == 0).any():
        at = int(unresolved[0]) if unresolved.size else 0  # a 0 beside another value is unresolved: all are 0
        raise ZeroOnEdge(points[at], points[min(at + 1, len(points) - 1)])
