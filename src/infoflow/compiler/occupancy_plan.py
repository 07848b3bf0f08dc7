"""The plan of an occupancy network: the grid of cells that reaches eps, its beta and its error, in numpy alone.

With L_v the Lipschitz constants of the score in the Euclidean norm and h_1, h_2 a cell's radii in the two norms,
F <= F^ <= F + sum_v L_v (h_1 + h_2 + W((T-1)/e)/beta); see `infoflow.compiler.occupancy`.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from infoflow.certificates.rules import UNIT, softmax_gap
from infoflow.compiler.offer import Offer, Question, Refusal, one_layer_reasons, positive
from infoflow.errors import InfoFlowError
from infoflow.flow.normal_form import Refused, box
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import NormOfSum, lipschitz
from infoflow.targets.target import Target
from infoflow.targets.terms import Extremum

MOST_CELLS = 1024  # heads of the layer; its projections hold 4 cells^2 numbers
MOST_TUPLES = 20_000_000
GRID_SHARE, SOFTMAX_SHARE = 0.9, 0.08


@dataclass(frozen=True)
class Grid:
    """n cells per axis, tuples of cells of one term, and what they cost."""

    per_axis: int
    centres: np.ndarray  # (cells, d)
    radii: tuple[float, float]  # of a cell, in the sum norm and the Euclidean norm


@dataclass(frozen=True)
class OccupancyPlan:
    """What the network is written from. `middle[i]` is subtracted from term i: half of its one-sided error."""

    target: Target
    T: int
    eps: float
    low: np.ndarray
    high: np.ndarray
    grid: Grid
    beta: float
    middle: tuple[float, ...]
    parts: dict[str, float]

    @property
    def bound(self) -> float:
        """The error, summed over its parts."""
        return sum(self.parts.values())


def fits(asked: Question) -> Offer | Refusal:
    """One head a cell, whatever T is; its weights are Lipschitz constants, so no bound on them may stand."""
    try:
        plan = plan_occupancy(asked.target, asked.T, asked.eps, asked.domain)
    except Refused as refused:
        return Refusal.of("occupancy", refused)
    cells = len(plan.grid.centres)
    reasons = one_layer_reasons(asked.arch, cells, cells, None, own_heads=True)
    if reasons:
        return Refusal("occupancy", "architecture", tuple(reasons))
    if asked.weight_bound is not None:
        reason = "the weights of its read-out are Lipschitz constants of the scores; take weight_bound None"
        return Refusal("occupancy", "weights", (reason,))
    tuples = sum(count(term, cells) for term in asked.target.terms)
    readout = f"a minimum of {tuples} affine functions, evaluated directly"
    return Offer("occupancy", (cells,), (cells,), (tuples,), plan.bound, (plan.beta,), readout, plan)


def plan_occupancy(target: Target, T: int, eps: float, domain: Any = None) -> OccupancyPlan:
    """Grid from eps, heads from the grid; Refused with every reason and the size when it does not fit."""
    low, high = box(target.domain if domain is None else domain, target.dim)
    reasons = positive(T, eps) + _target_reasons(target)
    if reasons:
        raise Refused(reasons)
    try:
        slopes = [sum(slopes_of(term, (low.tolist(), high.tolist()))) for term in target.terms]
    except InfoFlowError:
        reason = "a score has neither a tree form nor a Lipschitz constant (CallableScore(lipschitz=...)): no grid is "
        raise Refused([reason + "known to reach eps"], "accuracy") from None
    reach = float(np.dot(_outer_slopes(target), slopes))
    grid = make_grid(low, high, GRID_SHARE * eps, reach, target)
    gap = softmax_gap(T)
    beta = max(reach * gap / 2 / (SOFTMAX_SHARE * eps), 1.0)
    one_sided = [slope * (sum(grid.radii) + gap / beta) for slope in slopes]
    diameter = float((high - low).sum())
    parts = {
        "grid": reach * sum(grid.radii) / 2,
        "softmax": reach * gap / beta / 2,
        "rounding": UNIT * (4 * T + 64 + 16 * target.dim) * reach * (diameter + 1.0),
    }
    if sum(parts.values()) > eps:
        raise Refused([f"float64 rounding leaves no grid within eps={eps:g} at T={T}; take a larger eps"], "accuracy")
    return OccupancyPlan(target, T, float(eps), low, high, grid, beta, tuple(side / 2 for side in one_sided), parts)


def _target_reasons(target: Target) -> list[str]:
    reasons = []
    for i, term in enumerate(target.terms, 1):
        if not isinstance(term, Extremum):
            reasons.append(f"term {i} is a {type(term).__name__}; the occupancy construction takes extrema")
        elif term.sets is not None or term.distinct:
            reasons.append(f"term {i} restricts positions, which cells do not see")
    if not isinstance(target.outer, Polynomial):
        reasons.append("the occupancy construction takes polynomial outer maps")
    elif target.outer.degree > 1:
        reasons.append("the occupancy construction takes affine outer maps")
    return reasons


def slopes_of(term: Any, domain: Any) -> tuple[float, ...]:
    """Lipschitz constants of a term's score in each of its tokens."""
    low, high = domain
    return lipschitz(term.score, (float(np.min(low)), float(np.max(high))))


def _outer_slopes(target: Target) -> np.ndarray:
    """sup |d outer / d value_i| (largest over outputs); exact for the affine outer maps of the grammar."""
    assert isinstance(target.outer, Polynomial)
    weight, _ = target.outer.affine()
    made: np.ndarray = np.abs(weight).max(axis=0)
    return made


def count(term: Any, cells: int) -> int:
    """k-tuples of cells; multisets where the score is symmetric."""
    return math.comb(cells + term.arity - 1, term.arity) if isinstance(term.score, NormOfSum) else cells**term.arity


def make_grid(low: np.ndarray, high: np.ndarray, share: float, reach: float, target: Target) -> Grid:
    """The coarsest grid with reach (h_1 + h_2)/2 <= share, h_1 = sum of half sides, h_2 = their Euclidean norm."""
    half = (high - low) / 2
    size = float(half.sum() + np.linalg.norm(half)) * (1 + 1e-12)
    per_axis = max(1, math.ceil(reach * size / 2 / share))
    cells = per_axis**target.dim
    number = sum(count(term, cells) for term in target.terms)
    if cells > MOST_CELLS or number > MOST_TUPLES:
        gigabytes = (8 * (4 * cells**2 + number) + 8 * target.arity * number) / 2**30
        raise Refused(
            [
                f"the occupancy grid for this eps has {per_axis}^{target.dim} = {cells} cells and {number} tuples, "
                f"{gigabytes:.3g} GiB (limits {MOST_CELLS} cells, {MOST_TUPLES} tuples); take a larger eps"
            ],
            "accuracy",
        )
    axes = [low[j] + (2 * np.arange(per_axis) + 1) * half[j] / per_axis for j in range(target.dim)]
    centres = np.array(list(product(*axes)))
    radii = (float((half / per_axis).sum()) * (1 + 1e-12), float(np.linalg.norm(half / per_axis)) * (1 + 1e-12))
    return Grid(per_axis, centres, radii)
