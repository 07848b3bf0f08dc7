"""The shape of a target, asked of samples of its own law: no network enters, and no part of the target need be known.

With tokens whose coordinates are standardised, g = dF/dX the slopes (d numbers a token and output), Z standard normal
and R(s) = E |F(X + s Z) - F(X)|^2,

    degree      E |g|^2 / Var F. For independent normal tokens this is the mean degree of F's Hermite expansion, each
                degree weighted by the variance it carries: 1 of a linear function, k of a product of k coordinates.
    growth      log R(0.3) / R(0.1): about 2 log 3 where F is smooth on this scale, log 3 where it jumps.
    tokens      the median of (sum_t |g_t|^2)^2 / sum_t |g_t|^4: 1 where one token decides, T where all count alike.
    directions  (tr G)^2 / tr G^2, G = E g g': in how many directions of a token F changes.
    order       E |F(X with its tokens in another order) - F(X)|^2 / 2 Var F: 0 where order does not matter, 1 where
                nothing is left of F.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from infoflow.targets import Target

NUMBERS, FEWEST, MOST, SEED = 200_000, 60, 1_500, 7  # of the sequences in all, and the sequences
STEPS = (0.3, 0.1)  # deviations
LEAST = 1e-12  # of a share of the variance: below, rounding is measured
MOST_ORDER = 1.5


@dataclass(frozen=True)
class Shape:
    """What is said of these above; `growth` is a decimal logarithm."""

    degree: float
    growth: float
    tokens: float
    directions: float
    order: float


@lru_cache(maxsize=256)
def shape(target: Target, T: int) -> Shape:
    """Of a target that does not vary: that of a linear function of one token."""
    count = int(np.clip(NUMBERS // (T * target.dim), FEWEST, MOST))
    X, rng = target.sample(count, T, seed=SEED), np.random.default_rng(0)
    deviation = X.std((0, 1))
    y = np.asarray(target(X)).reshape(count, -1)
    variance = float(y.var(0).sum())
    if not variance > 0:
        return Shape(1.0, float(2 * np.log10(STEPS[0] / STEPS[1])), 1.0, 1.0, 0.0)

    def change(other: np.ndarray) -> float:
        there = np.asarray(target(other)).reshape(count, -1)
        return max(float(np.square(there - y).sum(1).mean()) / variance, LEAST)

    grown, small = (change(X + step * deviation * rng.standard_normal(X.shape)) for step in STEPS)
    moved = np.argsort(rng.random((count, T)), 1)[..., None]
    slopes = np.asarray(target.gradient(X)).reshape(count, T, -1, target.dim) * deviation
    flat = slopes.reshape(-1, target.dim)
    return Shape(
        degree=float(np.square(slopes).sum((1, 2, 3)).mean()) / variance,
        growth=float(np.log10(grown / small)),
        tokens=float(np.median(_participating(np.square(slopes).sum((2, 3))))),
        directions=float(_participating(np.linalg.eigvalsh(flat.T @ flat).clip(0.0)[None])[0]),
        order=min(change(np.take_along_axis(X, moved, 1)) / 2, MOST_ORDER),
    )


def _participating(shares: np.ndarray) -> np.ndarray:
    """(N, k) -> (N,): how many of the k carry the sum, (sum)^2 / sum of squares; 1 where the sum is 0."""
    total, squares = shares.sum(1), np.square(shares).sum(1)
    return np.where(squares > 0, np.square(total) / np.where(squares > 0, squares, 1.0), 1.0)
