"""Is there an exact twin? A Krawczyk step in ball arithmetic on the stored weights.

All but N coordinates of Z are fixed; g(z) = R(z) - R(Y) is a square system (R is the state, or what determines it).
With C near the inverse of g' and a box B = z0 +- rho,

    K(B) = z0 - C g(z0) + (I - C g'(B)) (B - z0)   inside the interior of B

proves that g has exactly one zero in B (Krawczyk 1969; Neumaier, Interval Methods for Systems of Equations, 5.1.8), so
the target's values there and at Y bound the error of every read-out of R from below.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from infoflow.nn import Transformer
from infoflow.refutations.ball_model import ball_core, ball_state, ball_target
from infoflow.refutations.balls import Balls, Matrix, constant, exact

PRECISION = 256  # bits
RADIUS = 1e-25  # rho of the box the twin is enclosed in
MARGIN = 1e-4  # share of the box's side that free coordinates keep from its faces
NEWTON_STEPS = 12
LARGEST_MOVE = 1e-3  # Newton that walks further from Z has found something else


@dataclass(frozen=True)
class Proof:
    """`error`: half the certified gap, None without a proof; `distance`: |R(Y) - R(Z)| bounded in balls, or None."""

    error: float | None
    distance: float | None
    reason: str


def prove(model: Any, target: Any, pair: Float[np.ndarray, "2 T d"], box: tuple[float, float]) -> Proof:
    if not isinstance(model, Transformer):
        return Proof(None, None, "the ball model covers this project's Transformer only")
    try:
        import flint
    except ImportError:
        return Proof(None, None, "python-flint is not installed (pip install 'infoflow[certify]')")
    with flint.ctx.workprec(PRECISION):
        return _prove(model, target, pair, box)


def _prove(model: Transformer, target: Any, pair: Float[np.ndarray, "2 T d"], box: tuple[float, float]) -> Proof:
    Y, Z = pair
    states = [ball_state(model, constant(exact(X), 0)).value.entries() for X in (Y, Z)]
    distance = _up(sum(((a - b) ** 2 for a, b in zip(*states, strict=True)), 0).sqrt())
    if not _varying(lambda X: ball_state(model, X), Z.shape, box):
        return _certified(target, Y, exact(Z), box, distance, "the state is the same for every input")
    varying = _varying(lambda X: ball_core(model, X), Z.shape, box)

    def core(X: Balls) -> Balls:
        return ball_core(model, X).pick(varying)

    goal = core(constant(exact(Y), 0)).value
    free = _free_coordinates(core, Z, box)
    if isinstance(free, str):
        return Proof(None, distance, free)

    def system(z: Matrix) -> Balls:
        R = core(_tokens(Z, free, z))
        return Balls(R.value - goal, R.slopes)

    z0 = newton(system, exact(Z.ravel()[free]).transpose())
    if z0 is None:
        return Proof(None, distance, "Newton's method from Z did not converge in ball arithmetic")
    moved = max(float(abs(a - b).upper()) for a, b in zip(z0.entries(), map(float, Z.ravel()[free]), strict=True))
    if moved > LARGEST_MOVE * (box[1] - box[0]):
        return Proof(None, distance, f"Newton's method left Z by {moved:.2g}")
    twin = krawczyk(system, z0, RADIUS)
    if twin is None:
        return Proof(None, distance, f"the Krawczyk step does not map the box of radius {RADIUS:g} into itself")
    reason = (
        f"an exact twin of Y lies within {moved + RADIUS:.2g} of Z in every coordinate (Krawczyk, {PRECISION} bits)"
    )
    return _certified(target, Y, _tokens(Z, free, twin).value, box, distance, reason)


def _certified(
    target: Any, Y: Float[np.ndarray, "T d"], twin: Matrix, box: tuple[float, float], distance: float, reason: str
) -> Proof:
    """Half the gap between the target at Y and its largest value on the balls that hold the exact twin."""
    if not _inside(twin, box) or not _inside(exact(Y), box):
        return Proof(None, distance, "the twin is not inside the domain")
    high, low = (ball_target(target, table.tolist()) for table in (exact(Y), twin))
    if high is None or low is None:
        return Proof(None, distance, "an exact twin exists, but the target has no enclosure in balls")
    error = _down((high - low) / 2)
    return Proof(error if error > 0 else None, distance, reason)


def newton(system: Callable[[Matrix], Balls], z: Matrix) -> Matrix | None:
    """A point near a zero of the square system, to about half the working precision; None when it does not settle."""
    for _ in range(NEWTON_STEPS):
        inverse = _inverse(jacobian(system(z)))
        if inverse is None:
            return None
        move = (inverse * system(z).value.transpose()).mid()
        z = (z - move).mid()
        size = max(float(abs(x).upper()) for x in move.entries())
        if size < 1e-4 * RADIUS:
            return z
        if not math.isfinite(size) or size > 1e6:
            return None
    return None


def krawczyk(system: Callable[[Matrix], Balls], z0: Matrix, radius: float) -> Matrix | None:
    """The box of that radius around z0 when K(box) lies in its interior, that is: when it holds exactly one zero."""
    from flint import arb, arb_mat

    N = z0.nrows()
    C = _inverse(jacobian(system(z0)))
    if C is None:
        return None
    C = C.mid()
    box = z0 + arb_mat(N, 1, [arb(0, radius)] * N)
    spread = box - z0  # the box's own radius: the sum above may have rounded it up
    identity = arb_mat(N, N, [arb(int(i == j)) for i in range(N) for j in range(N)])
    image = z0 - C * system(z0).value.transpose() + (identity - C * jacobian(system(box))) * spread
    inside = all(b.contains_interior(k) for b, k in zip(box.entries(), image.entries(), strict=True))
    return box if inside else None


def jacobian(R: Balls) -> Matrix:
    """dR_i / dz_j from the slopes, a square matrix."""
    from flint import arb_mat

    return arb_mat([a.entries() for a in R.slopes]).transpose()


def _inverse(J: Matrix) -> Matrix | None:
    try:
        return J.mid().inv()
    except ZeroDivisionError:
        return None


def _tokens(Z: Float[np.ndarray, "T d"], free: list[int], z: Matrix) -> Balls:
    """Z with the free coordinates replaced by the balls z, and unit slopes there."""
    from flint import arb_mat

    T, d = Z.shape
    value = exact(Z)
    slopes = []
    for row, place in enumerate(free):
        value[place // d, place % d] = z[row, 0]
        unit = arb_mat(T, d)
        unit[place // d, place % d] = 1
        slopes.append(unit)
    return Balls(value, tuple(slopes))


def _varying(function: Callable[[Balls], Balls], shape: tuple[int, ...], box: tuple[float, float]) -> list[int]:
    """Coordinates of a row that move at all: the others have derivative exactly 0 over the whole domain."""
    from flint import arb, arb_mat

    low, high = map(arb, box)
    size = int(np.prod(shape))
    everywhere = arb_mat(size, 1, [low.union(high)] * size)
    slopes = function(_tokens(np.zeros(shape), list(range(size)), everywhere)).slopes
    return [i for i in range(slopes[0].ncols()) if not all(slope[0, i].is_zero() for slope in slopes)]


def _free_coordinates(
    core: Callable[[Balls], Balls], Z: Float[np.ndarray, "T d"], box: tuple[float, float]
) -> list[int] | str:
    """N coordinates of Z away from the faces of the box whose columns of dR/dx are as independent as can be had."""
    from scipy.linalg import qr

    low, high = box
    margin = np.minimum(Z - low, high - Z).ravel() / (high - low)
    inner = np.flatnonzero(margin > MARGIN)
    slopes = core(_tokens(Z, list(range(Z.size)), exact(Z.ravel()).transpose())).slopes
    J = np.array([[float(x.mid()) for x in a.entries()] for a in slopes]).T
    N = J.shape[0]
    if inner.size < N:
        return f"only {inner.size} coordinates of Z lie inside the domain, the state has {N}"
    _, triangle, order = qr(J[:, inner], mode="economic", pivoting=True)
    if abs(triangle[N - 1, N - 1]) <= 1e-14 * abs(triangle[0, 0]):
        return "the Jacobian of the state is singular at Z, so no square subsystem is regular"
    return [int(i) for i in inner[order[:N]]]


def _inside(value: Matrix, box: tuple[float, float]) -> bool:
    return all(x >= box[0] and x <= box[1] for x in value.entries())


def _up(x: Any) -> float:
    return math.nextafter(float(x.upper()), math.inf)


def _down(x: Any) -> float:
    return math.nextafter(float(x.lower()), -math.inf)
