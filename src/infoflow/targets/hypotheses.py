"""The hypotheses of the head-count theorem, checked on a target.

The theorem speaks of F_0(min_{t in S_1} f_1(x(t)), ..., min_{t in S_D} f_D(x(t))) with f_i: [0,1]^d -> [0,1], |S_i| >=
T/4, unique and well-separated minimisers, distinct across i, with positive definite Hessian, and F_0 that depends on
every coordinate. What cannot be verified here counts as a reason against.
"""

import numpy as np

from infoflow.targets.comparison import quadratic_part
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.target import Target
from infoflow.targets.terms import Extremum

CORNERS = 16  # dimensions up to which the range of f_i is checked at every corner of the cube


def head_count_hypotheses(target: Target, T: int | None = None) -> tuple[bool, tuple[str, ...]]:
    reasons: list[str] = []
    if tuple(target.domain) != (0.0, 1.0):
        reasons.append(f"the tokens must lie in [0,1]^d, the domain is {target.domain}")
    points = []
    for number, term in enumerate(target.terms, start=1):
        found = _feature(term, number, T, reasons)
        if found is not None:
            points.append(found)
    reasons.extend(_close_pairs(points))
    if not isinstance(target.outer, Polynomial) or not _monotone_affine(target.outer):
        reasons.append("F_0 must have non-zero derivatives in every coordinate; only affine F_0 is verified here")
    return not reasons, tuple(reasons)


def _feature(term: object, number: int, T: int | None, reasons: list[str]) -> np.ndarray | None:
    """The minimiser of f_i when it satisfies the hypotheses; otherwise the reason is added."""
    if not isinstance(term, Extremum) or term.arity != 1:
        reasons.append(f"term {number} is not an extremum over single tokens")
        return None
    unary = getattr(term.score, "unary", (None,))[0]
    if unary is None or unary.degree > 2:
        reasons.append(f"f_{number} is not a polynomial of degree at most two; its minimiser is not verified")
        return None
    if T is not None and term.sets is not None and 4 * len(term.choices(T)[0]) < T:
        reasons.append(f"S_{number} has {len(term.choices(T)[0])} positions, fewer than T/4 = {T / 4:g}")
    hessian, slope = quadratic_part(unary)
    sign = 1 if term.kind == "min" else -1
    if not np.any(hessian):
        reasons.append(f"f_{number} is linear: its minimiser lies on the boundary and its Hessian is zero")
        return None
    if np.linalg.eigvalsh(sign * hessian).min() <= 0:
        reasons.append(f"f_{number} has no positive definite Hessian")
        return None
    point = np.linalg.solve(hessian, -slope)
    if not ((point > 0) & (point < 1)).all():
        reasons.append(f"the minimiser of f_{number} lies outside the open cube (0,1)^d")
    if not _within_unit(unary, point, sign):
        reasons.append(f"f_{number} is not seen to take values in [0,1]")
    return point


def _within_unit(unary: Polynomial, point: np.ndarray, sign: int) -> bool:
    """A convex f has its maximum over the cube at a corner and its minimum at the stationary point."""
    if unary.inputs > CORNERS:
        corners = np.where(point < 0.5, 1.0, 0.0)[None, :]  # the farthest corner, enough where H is a multiple of I
        hessian = quadratic_part(unary)[0]
        if not np.allclose(hessian, hessian[0, 0] * np.eye(unary.inputs)):
            return False
    else:
        corners = np.array(np.meshgrid(*[[0.0, 1.0]] * unary.inputs)).reshape(unary.inputs, -1).T
    values = np.append(unary(corners)[:, 0], unary(point)[0])
    room = 1e-9
    return bool(values.min() >= -room and values.max() <= 1 + room)


def _close_pairs(points: list[np.ndarray]) -> list[str]:
    for i, first in enumerate(points):
        for second in points[:i]:
            if np.linalg.norm(first - second) < 1e-6:
                return ["two features share their minimiser"]
    return []


def _monotone_affine(outer: Polynomial) -> bool:
    return outer.degree <= 1 and bool((np.abs(outer.affine()[0]) > 0).all())
