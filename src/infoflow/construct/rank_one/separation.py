"""Checkers for Definitions 1 and 2: how far tokens are apart, and whether ids tell contexts apart."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from infoflow.certificates.rules import UNIT
from infoflow.construct.rank_one.contexts import Contexts, unique_rows
from infoflow.errors import InfoFlowError

TREE_DIMENSION = 8  # up to here a k-d tree finds the closest pair in O(m log m); above, blocks of products do


@dataclass(frozen=True)
class Separation:
    """Tokenwise separation, Definition 1: every |x| in [smallest, largest], different tokens at least `distance` apart.

    The definition is strict: (r_min, r_max, eps) hold when r_min < smallest, largest < r_max, eps < distance.
    """

    smallest: float
    largest: float
    distance: float

    def satisfies(self, r_min: float, r_max: float, eps: float) -> bool:
        return self.smallest > r_min and self.largest < r_max and self.distance > eps


def separation(vocabulary: Float[ndarray, "m d"]) -> Separation:
    """The smallest and largest norm of the tokens and their smallest distance."""
    norms = np.linalg.norm(vocabulary, axis=1)
    return Separation(float(norms.min()), float(norms.max()), closest_distance(vocabulary))


def closest_distance(points: Float[ndarray, "m d"]) -> float:
    """The distance of the closest pair of distinct points; infinite for one point."""
    m, d = points.shape
    if m < 2:
        return float("inf")
    if d == 1:
        return float(np.diff(np.sort(points[:, 0])).min())
    if d <= TREE_DIMENSION:
        from scipy.spatial import cKDTree

        return float(cKDTree(points).query(points, k=2)[0][:, 1].min())
    return _closest_by_blocks(points)


def _closest_by_blocks(points: Float[ndarray, "m d"], block: int = 2048) -> float:
    """|x - y|^2 = |x|^2 + |y|^2 - 2 x.y to rounding, then every near-minimal pair again by subtraction."""
    squares = (points**2).sum(1)
    slack = max(1e-12, 8 * (points.shape[1] + 4) * UNIT) * float(squares.max())
    best = float("inf")
    for start in range(0, len(points), block):
        stop = min(start + block, len(points))
        rough = squares[start:stop, None] + squares[None, :stop] - 2 * points[start:stop] @ points[:stop].T
        rough[np.arange(stop - start)[:, None] + start <= np.arange(stop)[None, :]] = np.inf
        if rough.size == 0 or rough.min() > best**2 + slack:
            continue
        i, j = np.nonzero(rough <= rough.min() + 2 * slack)
        best = min(best, float(np.linalg.norm(points[i + start] - points[j], axis=1).min()))
    return best


@dataclass(frozen=True)
class ClosestClasses:
    """Two classes and how close their numbers are."""

    gap: float
    one: int
    other: int


def same_token_gap(query: Int[ndarray, " M"], s: Float[ndarray, " M"]) -> ClosestClasses | None:
    """The closest pair of values among classes of one token, O(M log M); None when no token has two classes."""
    order = np.lexsort((s, query))
    same = np.diff(query[order]) == 0
    if not same.any():
        return None
    at = int(np.where(same, np.diff(s[order]), np.inf).argmin())
    if not same[at]:  # all gaps are infinite: averages that overflow
        at = int(same.argmax())
    return ClosestClasses(float(s[order[at + 1]] - s[order[at]]), int(order[at]), int(order[at + 1]))


def check_contextual_mapping(
    contexts: Contexts, ids: Float[ndarray, "N n d"], r: float, delta: float, direction: Float[ndarray, " d"]
) -> str | None:
    """Definition 2 by visible multisets: None when |id| < r and ids of different classes are more than delta apart.

    A pair at distance <= delta has |direction.(id - id')| <= delta |direction|, so after sorting along `direction`
    only neighbours within that window are compared: O(M log M) when ids are spread. The answer names the two places.
    """
    flat, label = ids.reshape(-1, ids.shape[-1]), contexts.class_of.ravel()
    if flat.shape[0] != label.size:
        raise InfoFlowError(f"expected ids for {label.size} places, got {flat.shape[0]}.")
    places = np.flatnonzero(label >= 0)
    stamped = np.hstack([label[places, None].astype(np.float64), flat[places] + 0.0])
    places = places[unique_rows(stamped)[0]]  # equal ids of one class once
    norms = np.linalg.norm(flat[places], axis=1)
    if norms.max() >= r:
        return f"the id at {contexts.place(places[norms.argmax()])} has norm {norms.max():.6g}, not below {r:.6g}"
    t = flat[places] @ direction
    places = places[np.argsort(t, kind="stable")]
    t = np.sort(t)
    for offset in range(1, len(places)):
        near = np.flatnonzero(t[offset:] - t[:-offset] <= delta * np.linalg.norm(direction) * (1 + 1e-12))
        if not len(near):
            return None
        one, other = places[near], places[near + offset]
        distance = np.linalg.norm(flat[one] - flat[other], axis=1)
        bad = np.flatnonzero((label[one] != label[other]) & (distance <= delta))
        if len(bad):
            at = bad[0]
            return (
                f"{contexts.place(one[at])} and {contexts.place(other[at])} are different contexts with ids "
                f"{distance[at]:.6g} apart, not more than {delta:.6g}"
            )
    return None
