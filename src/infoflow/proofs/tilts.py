"""The gap of a winner over a softmax average, tilted: near a side of the box there is less room for it.

G of `gaps.py` is the largest gap anywhere. But m near a side of the box leaves its tokens no room to differ in that
coordinate. For any tilt lambda, with the winner x* = argmax r' x and m the average of a head,

    r' x* <= (r + lambda)' m + kappa,      kappa = sup over sequences of  r' x* - (r + lambda)' m.

Proof of what kappa is: as in `gaps.py` the worst losers coincide, so with delta = x* - y, n = T - 1 and
s = sigma(log n - q' delta) the supremum is that of -lambda' x* + s (r + lambda)' delta. For a given delta the winner
may stand wherever both tokens are in the box, x*_j in centre_j + delta_j / 2 +- (width_j - |delta_j|) / 2, so

    kappa = -lambda' centre + sum_j |lambda_j| width_j / 2
            + sup over |delta_j| <= width_j of sum_j (s (r + lambda)_j - lambda_j / 2) delta_j - |lambda_j delta_j| / 2.

Where v = q' delta lies in [v_1, v_2], s lies between its values at the ends, and for every mu the last supremum is at
most the larger, over both s, of

    sum_j width_j max(0, |s (r + lambda)_j - lambda_j / 2 - mu q_j| - |lambda_j| / 2)   +   max(mu v_1, mu v_2),

a function of mu whose least value is at one of its corners. Intervals of v with the largest bound are halved.
"""

import math
from itertools import product

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from infoflow.proofs.gaps import SLACK, query_slack

Vector = Float[np.ndarray, " d"]
ROUNDS, SPLIT, FIRST = 12, 40, 96  # halvings, intervals halved each time, intervals at first


def tilts(r: Vector) -> list[Vector]:
    """Towards every side of the box and, in few dimensions, every corner of it; none in one dimension, where a tilt is
    a mixture of the gap and the box."""
    d, size = len(r), float(np.abs(r).max(initial=0.0))
    if d < 2 or size == 0.0:
        return []
    signs = [s * np.eye(d)[j] for j in range(d) for s in (1.0, -1.0)]
    if d <= 3:
        signs += [np.array(s) for s in product((1.0, -1.0), repeat=d)]
    return [factor * size * sign for sign in signs for factor in (0.5, 2.0)]


def tilted_gap(
    r: Vector, tilt: Vector, q: Vector, ratio: float, low: Vector, high: Vector, query_error: Vector | float = 0.0
) -> float:
    """kappa, rounded upwards."""
    widths, centre = high - low, 0.5 * (low + high)
    still = float(-tilt @ centre + 0.5 * np.abs(tilt) @ widths)
    size = float((np.abs(r) + 2.0 * np.abs(tilt)) @ (widths + np.abs(centre)))
    if ratio <= 0.0:  # one token: m is the winner, and the room above is what kappa is
        return still + SLACK * (1.0 + size)
    slack = query_slack(q, widths, query_error)
    reach = float(np.abs(q) @ widths) * (1.0 + SLACK) + slack + 1e-12  # v may be known: a head that weighs all alike
    ends = np.unique(np.concatenate([np.linspace(-reach, reach, FIRST), _knees(ratio, reach)]))
    first, last = ends[:-1], ends[1:]
    bounds = _on_intervals(r, tilt, q, math.log(ratio), widths, slack, (first, last))
    for _ in range(ROUNDS):
        worst = np.argsort(bounds)[-SPLIT:]
        middle = 0.5 * (first[worst] + last[worst])
        halves = np.concatenate([first[worst], middle]), np.concatenate([middle, last[worst]])
        fresh = _on_intervals(r, tilt, q, math.log(ratio), widths, slack, halves)
        fresh = np.minimum(fresh, np.tile(bounds[worst], 2))
        keep = np.setdiff1d(np.arange(len(bounds)), worst)
        first, last = np.concatenate([first[keep], halves[0]]), np.concatenate([last[keep], halves[1]])
        bounds = np.concatenate([bounds[keep], fresh])
    return still + float(bounds.max()) + SLACK * (1.0 + size)


def _knees(ratio: float, reach: float) -> np.ndarray:
    """v where s takes evenly spaced values."""
    s = np.linspace(0.0, 1.0, FIRST)[1:-1]
    return np.clip(math.log(ratio) - np.log(s / (1.0 - s)), -reach, reach)


def _on_intervals(
    r: Vector, tilt: Vector, q: Vector, log_n: float, widths: Vector, slack: float, ends: tuple[Vector, Vector]
) -> np.ndarray:
    """The bound for every interval [first, last] of v, by the best corner mu."""
    first, last = ends
    s = np.stack(
        [expit(log_n - first + slack) * (1.0 + SLACK), expit(log_n - last - slack) * (1.0 - SLACK)], -1
    )  # (N, 2)
    slope = s[..., None] * (r + tilt) - 0.5 * tilt  # (N, 2, d)
    safe = np.where(q == 0.0, 1.0, q)
    corners = np.concatenate([(slope + sign * 0.5 * np.abs(tilt)) / safe for sign in (1.0, -1.0)], -1)
    mu = np.concatenate([np.zeros((len(first), 1)), corners.reshape(len(first), -1)], -1)  # (N, candidates)
    off = np.abs(slope[:, None] - mu[:, :, None, None] * q) - 0.5 * np.abs(tilt)  # (N, candidates, 2, d)
    room = (np.maximum(off, 0.0) @ widths).max(-1)
    shift = np.maximum(mu * (first[:, None] - slack), mu * (last[:, None] + slack))
    size = SLACK * (np.abs(mu) * (np.abs(first) + np.abs(last) + float(np.abs(q) @ widths))[:, None])
    found: np.ndarray = np.fmin.reduce(room + shift + size, 1)  # a corner that is no number is left out
    return found
