"""Targets whose features are sums of functions of single coordinates: sum_i w_i ext_{t in S_i} sum_j g_ij(x_j(t)) + c.

This is what the single-head constructions of the head-count slides read: features by hats, extrema one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from infoflow.flow.normal_form import Refused, box
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import tree_form
from infoflow.targets.target import Extremum, Target

MOST_POSITIONS = 2**22  # they are listed one by one, 64 bytes each


@dataclass(frozen=True)
class Feature:
    """weight * min over `positions` of the feature, which is sum_j g_j(x_j) with g_j given by `parts[j]`.

    A maximum has been turned into a minimum: sign = -1 says that the parts are those of -score.
    """

    weight: float
    sign: float
    positions: Sequence[int]
    parts: tuple[Polynomial, ...]  # d polynomials of one variable

    def __call__(self, x: Float[np.ndarray, "... d"]) -> Float[np.ndarray, " ..."]:
        total: np.ndarray = sum(part(x[..., j, None])[..., 0] for j, part in enumerate(self.parts))
        return total

    def curvature(self, low: float, high: float) -> float:
        """sum_j sup |g_j''| over the box, from the triangle inequality on the monomials."""
        radius = max(abs(low), abs(high))
        return float(sum(part.derivative(0).derivative(0).bound(radius)[0] for part in self.parts))

    def size(self, low: float, high: float) -> float:
        """sup |feature| over the box and more: the sum over its monomials, which bounds what its evaluation rounds."""
        radius = max(abs(low), abs(high))
        return float(sum(part.bound(radius)[0] for part in self.parts))


def own_domain(target: Target, domain: Any) -> None:
    """Refuse another box than the target's own: the single heads are written for that one."""
    if domain is None:
        return
    low, high = box(domain, target.dim)
    if (low != target.domain[0]).any() or (high != target.domain[1]).any():
        raise Refused(["the single heads are built for the target's own domain, another one was asked for"])


def features(target: Target, T: int) -> tuple[list[Feature], float]:
    """The target as weighted minima of separable features plus a constant, or a refusal that says why not."""
    target.check_length(T)
    if not isinstance(target.outer, Polynomial) or target.outer.degree > 1 or target.outputs != 1:
        raise Refused(["expected a target with an affine outer map and one output; this construction sums extrema"])
    positions = T * len(target.terms)
    if positions > MOST_POSITIONS:
        raise Refused([f"expected at most {MOST_POSITIONS} positions in all terms, T={T} has {positions}"])
    weights, bias = target.outer.affine()
    found = []
    for term, weight in zip(target.terms, weights[0], strict=True):
        if not isinstance(term, Extremum) or term.arity != 1:
            raise Refused(["expected extrema over single tokens (D-retrieval), got another kind of term"])
        tree = tree_form(term.score)
        unary = tree.unary[0] if tree is not None else None
        if unary is None:
            raise Refused(["expected a polynomial feature of each token, got another score"])
        sign = 1.0 if term.kind == "min" else -1.0
        everywhere = term.sets is None or term.sets[0] is None
        where = range(T) if everywhere else term.choices(T)[0].tolist()  # T may be a million
        found.append(Feature(float(weight) * sign, sign, where, _parts(unary, sign)))
    return found, float(bias[0])


def _parts(unary: Polynomial, sign: float) -> tuple[Polynomial, ...]:
    exponents, coefficients = unary.exponents, sign * unary.coefficients[0]
    mixed = (exponents > 0).sum(1) > 1
    if (coefficients[mixed] != 0).any():
        raise Refused(["expected features without products of different coordinates, got mixed monomials"])
    parts = []
    for j in range(unary.inputs):
        mine = (exponents[:, j] > 0) | ((exponents.sum(1) == 0) & (j == 0))  # constants go to the first coordinate
        row = np.where(mine, coefficients, 0.0)
        parts.append(Polynomial(exponents[:, j : j + 1], row[None, :]))
    return tuple(parts)
