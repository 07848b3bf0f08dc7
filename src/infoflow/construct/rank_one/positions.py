"""Positional encodings for Corollary 2: every position its own tokens, so that duplicates and order are seen.

(48) as printed adds 2 k r_max to *every coordinate*: its columns have norm 2 k r_max sqrt(d), which breaks r_max for
every d > 1, and tokens of neighbouring positions may come closer than eps (d = 1: always). Repaired:

    E_k = (2 r_max + eps) k e,  |e| = 1

makes x + E_k tokenwise (r_max + eps, (2n+1) r_max + n eps, eps)-separated for every d:
    |x + E_k| >= (2 r_max + eps) - r_max, |x + E_k| <= r_max + n (2 r_max + eps), and across positions the distance
    is at least (2 r_max + eps) - 2 r_max.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from infoflow.errors import InfoFlowError

Encoding = Literal["corollary", "random"]


def printed_encoding(n: int, d: int, r_max: float) -> Float[ndarray, "n d"]:
    """(48) as printed, for the counterexamples."""
    return np.repeat(2 * r_max * np.arange(1, n + 1)[:, None], d, axis=1)


def corollary_encoding(n: int, d: int, r_max: float, eps: float) -> Float[ndarray, "n d"]:
    """The repaired encoding along e = ones / sqrt(d)."""
    return np.outer((2 * r_max + eps) * np.arange(1, n + 1), np.full(d, d**-0.5))


def random_encoding(n: int, vocabulary: Float[ndarray, "m d"], seed: int) -> Float[ndarray, "n d"]:
    """Small and random, 0.3 standard deviations of the tokens: enough in practice."""
    spread = vocabulary.std(0)
    unit = np.where(spread > 0, spread, np.abs(vocabulary).max(0))
    made: ndarray = 0.3 * unit * np.random.default_rng(seed).standard_normal((n, vocabulary.shape[1]))
    return made


def encoding(
    positions: Encoding | ndarray, n: int, vocabulary: Float[ndarray, "m d"], seed: int
) -> Float[ndarray, "n d"]:
    """The table for these tokens: a named encoding or the user's own (n, d)."""
    from infoflow.construct.rank_one.separation import separation

    d = vocabulary.shape[1]
    if isinstance(positions, ndarray):
        if positions.shape != (n, d) or not np.isfinite(positions).all():
            raise InfoFlowError(f"expected a finite position table of shape ({n}, {d}), got shape {positions.shape}.")
        return positions
    if positions == "random":
        return random_encoding(n, vocabulary, seed)
    if positions == "corollary":
        apart = separation(vocabulary)
        return corollary_encoding(n, d, apart.largest, min(apart.distance, 2 * apart.largest))
    raise InfoFlowError(f"expected positions corollary, random or a table, got {positions!r}.")
