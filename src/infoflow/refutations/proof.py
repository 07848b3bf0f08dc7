"""Is there an exact twin? A Krawczyk step in ball arithmetic on the stored weights.

All but N coordinates of the pair (Y, Z) are fixed; g(z) = R(Z) - R(Y) is a square system in these N (R is the state, or
what determines it). With C near the inverse of g' and a box B = z0 +- rho,

    K(B) = z0 - C g(z0) + (I - C g'(B)) (B - z0)   inside the interior of B

proves that g has exactly one zero in B (Krawczyk 1969; Neumaier, Interval Methods for Systems of Equations, 5.1.8): two
inputs of one state, whose targets bound the error of every read-out of R from below.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from infoflow.errors import InfoFlowError
from infoflow.installation import extra
from infoflow.nn import Transformer
from infoflow.refutations.ball_model import Watch, ball_core, ball_state, ball_target, has_smaller_core
from infoflow.refutations.balls import Balls, Matrix, constant, exact

PRECISION = 256  # bits
RADIUS = 1e-25  # rho of the box the twins are enclosed in
MARGIN = 1e-8  # share of the box's side that free coordinates keep from its faces
NEWTON_STEPS = 20  # it converges quadratically: six from a good start, the rest for a poor one
CONTRACTION = 1e-3  # Newton's method keeps its Jacobian while every step is shorter than the last by this factor
LARGEST_MOVE = 1e-3  # Newton that walks further from the pair has found something else
LATE = "the time was up before the proof ended; more seconds may give one"


@dataclass(frozen=True)
class Proof:
    """`error`: half the certified gap, None without a proof; `distance`: |R(Y) - R(Z)| bounded in balls, or None."""

    error: float | None
    distance: float | None
    reason: str


class System(Protocol):
    """g at balls z: its value, and its derivatives in every z_j unless they are not asked for."""

    def __call__(self, z: Matrix, slopes: bool = True) -> Balls: ...


class _OutOfTime(Exception):
    pass


def prove(
    model: Any,
    target: Any,
    pair: Float[np.ndarray, "2 T d"],
    box: tuple[float, float],
    jacobian: Float[np.ndarray, "N 2Td"],
    deadline: float,
) -> Proof:
    """`jacobian`: derivatives of R(Y) - R(Z) in the coordinates of the pair, in any units; it only guides the choice of
    the free ones. `deadline` is a time of time.monotonic(); a proof that does not end before it is none."""
    if not isinstance(model, Transformer):
        return Proof(None, None, "the ball model covers this project's Transformer only")
    try:
        flint = extra("flint", "certify", "a proof in ball arithmetic")
    except InfoFlowError as missing:
        return Proof(None, None, str(missing))

    def watch() -> None:
        if time.monotonic() >= deadline:
            raise _OutOfTime

    distance = None
    with flint.ctx.workprec(PRECISION):
        try:
            states = [ball_state(model, constant(exact(X), 0), watch).value.entries() for X in pair]
            distance = _up(sum(((a - b) * (a - b) for a, b in zip(*states, strict=True)), 0).sqrt())
            twins, reason = _twins(model, pair, box, jacobian, watch)
            error = None
            if twins is not None:
                error, late = _certified(target, twins, box, watch)
                reason = late or reason
            return Proof(error, distance, reason)
        except _OutOfTime:
            return Proof(None, distance, LATE)


def _twins(
    model: Transformer,
    pair: Float[np.ndarray, "2 T d"],
    box: tuple[float, float],
    slopes: Float[np.ndarray, "N 2Td"],
    watch: Watch,
) -> tuple[list[Matrix] | None, str]:
    """Balls around Y and Z that hold two inputs of exactly one state, and how that is known; or None and why not."""
    core = ball_core if has_smaller_core(model) else ball_state
    varying = _varying(lambda X: ball_state(model, X, watch), pair[0].shape, box)
    if not varying:
        return [exact(X) for X in pair], "the state is the same for every input"
    if core is not ball_state:
        varying = _varying(lambda X: core(model, X, watch), pair[0].shape, box)
    free = _free_coordinates(slopes, len(varying), pair, box)
    if isinstance(free, str):
        return None, free

    def system(z: Matrix, slopes: bool = True) -> Balls:
        Y, Z = (core(model, X, watch).pick(varying) for X in _tokens(pair, free, z, slopes))
        return Balls(Z.value - Y.value, tuple(b - a for a, b in zip(Y.slopes, Z.slopes, strict=True)))

    z0 = newton(system, exact(pair.ravel()[free]).transpose())
    if z0 is None:
        return None, "Newton's method from the pair did not converge in ball arithmetic"
    moved = max(float(abs(a - b).upper()) for a, b in zip(z0.entries(), map(float, pair.ravel()[free]), strict=True))
    if moved > LARGEST_MOVE * (box[1] - box[0]):
        return None, f"Newton's method left the pair by {moved:.2g}"
    twins = krawczyk(system, z0, RADIUS)
    if twins is None:
        return None, f"the Krawczyk step does not map the box of radius {RADIUS:g} into itself"
    reason = (
        f"two inputs of exactly one state lie within {moved + RADIUS:.2g} of Y and Z in every coordinate "
        f"(Krawczyk, {PRECISION} bits)"
    )
    return [X.value for X in _tokens(pair, free, twins, False)], reason


def _certified(
    target: Any, twins: list[Matrix], box: tuple[float, float], watch: Watch
) -> tuple[float | None, str | None]:
    """Half the gap between the targets on the balls that hold the twins, from below; or None and why."""
    if not all(_inside(twin, box) for twin in twins):
        return None, "the twins are not inside the domain"
    high, low = (ball_target(target, twin.tolist(), watch) for twin in twins)
    if high is None or low is None:
        return None, "exact twins exist, but the target has no enclosure in balls"
    error = _down((high - low) / 2)
    return (error if error > 0 else None), None


def newton(system: System, z: Matrix) -> Matrix | None:
    """A point near a zero of the square system, to about half the working precision; None when it does not settle."""
    inverse, last = None, math.inf
    for _ in range(NEWTON_STEPS):
        R = system(z, inverse is None)
        if inverse is None:
            inverse = _inverse(jacobian(R))
            if inverse is None:
                return None
        move = (inverse * R.value.transpose()).mid()
        z = (z - move).mid()
        size = max(float(abs(x).upper()) for x in move.entries())
        if size < 1e-4 * RADIUS:
            return z
        if not math.isfinite(size) or size > 1e6:
            return None
        if size > CONTRACTION * last:
            inverse = None
        last = size
    return None


def krawczyk(system: System, z0: Matrix, radius: float) -> Matrix | None:
    """The box of that radius around z0 when K(box) lies in its interior, that is: when it holds exactly one zero."""
    from flint import arb, arb_mat

    N = z0.nrows()
    box = z0 + arb_mat(N, 1, [arb(0, radius)] * N)
    slopes = jacobian(system(box))
    C = _inverse(slopes)
    if C is None:
        return None
    spread = box - z0  # the box's own radius: the sum above may have rounded it up
    identity = arb_mat(N, N, [arb(int(i == j)) for i in range(N) for j in range(N)])
    image = z0 - C * system(z0, False).value.transpose() + (identity - C * slopes) * spread
    inside = all(b.contains_interior(k) for b, k in zip(box.entries(), image.entries(), strict=True))
    return box if inside else None


def jacobian(R: Balls) -> Matrix:
    """dR_i / dz_j from the slopes, a square matrix."""
    from flint import arb_mat

    return arb_mat([a.entries() for a in R.slopes]).transpose()


def _inverse(J: Matrix) -> Matrix | None:
    """A matrix of exact numbers near the inverse."""
    try:
        return J.mid().inv().mid()
    except ZeroDivisionError:
        return None


def _tokens(pair: Float[np.ndarray, "2 T d"], free: list[int], z: Matrix, slopes: bool) -> list[Balls]:
    """Y and Z with the free coordinates replaced by the balls z, and unit slopes there when asked for."""
    from flint import arb_mat

    _, T, d = pair.shape
    values = [exact(X) for X in pair]
    units: list[list[Matrix]] = [[], []]
    for row, place in enumerate(free):
        side, (t, i) = place // (T * d), divmod(place % (T * d), d)
        values[side][t, i] = z[row, 0]
        if slopes:
            for k in (0, 1):
                units[k].append(arb_mat(T, d))
            units[side][-1][t, i] = 1
    return [Balls(value, tuple(unit)) for value, unit in zip(values, units, strict=True)]


def _varying(function: Callable[[Balls], Balls], shape: tuple[int, ...], box: tuple[float, float]) -> list[int]:
    """Coordinates of a row that move at all. Along every direction in [-1, 1]^(T d), at every point of the domain, the
    others have derivative exactly 0: one slope whose entries are the balls [-1, 1] encloses all of these."""
    from flint import arb, arb_mat

    low, high = map(arb, box)
    T, d = shape
    everywhere = arb_mat(T, d, [low.union(high)] * (T * d))
    (slope,) = function(Balls(everywhere, (arb_mat(T, d, [arb(0, 1)] * (T * d)),))).slopes
    return [i for i, x in enumerate(slope.entries()) if not x.is_zero()]


def _free_coordinates(
    slopes: Float[np.ndarray, "N 2Td"], count: int, pair: Float[np.ndarray, "2 T d"], box: tuple[float, float]
) -> list[int] | str:
    """`count` coordinates of the pair away from the faces of the box with columns as independent as can be had."""
    from scipy.linalg import qr

    low, high = box
    margin = np.minimum(pair - low, high - pair).ravel() / (high - low)
    inner = np.flatnonzero(margin > MARGIN)
    if inner.size < count:
        return f"only {inner.size} coordinates of the pair lie inside the domain, the state has {count}"
    _, triangle, order = qr(slopes[:, inner], mode="economic", pivoting=True)
    if len(triangle) < count or abs(triangle[count - 1, count - 1]) <= 1e-14 * abs(triangle[0, 0]):
        return "the Jacobian of the state is singular at the pair, so no square subsystem is regular"
    return [int(i) for i in inner[order[:count]]]


def _inside(value: Matrix, box: tuple[float, float]) -> bool:
    return all(x >= box[0] and x <= box[1] for x in value.entries())


def _up(x: Any) -> float:
    return math.nextafter(float(x.upper()), math.inf)


def _down(x: Any) -> float:
    return math.nextafter(float(x.lower()), -math.inf)
