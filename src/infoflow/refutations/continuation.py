"""Level-set continuation: raise the gap of a pair while its two states stay equal.

    (Y, Z) on the set R(Y) = R(Z):  G = F(Y) - F(Z),  S = R(Y) - R(Z),  g = dG/dtheta,  J = dS/dtheta
    p = g - (projection of g on the row space of J)
    theta' = theta + h p/|p|,   then Newton: theta' -= J^+ S(theta')   until |S| < 1e-13

Both ends are free, so the common state moves along: a run that holds R at the state of its start reaches far less.
A Jacobian costs N passes, a state one, so the correction starts with the J of the step's foot and renews it only where
that does not arrive.

A pair starts at Y = Z, where J = (R', -R') and the null space holds (v, -v) for R' v = 0: T d > rank R' is enough for a
direction to exist. All pairs run as one batch; each has its own step h and sharpness.
"""

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.refutations.problem import TwinProblem

TOLERANCE = 1e-13  # of S, which `pairs` divides by the size of the states
RANK = 1e-12  # singular values below RANK * largest count as zero
SHARPNESS = (20.0, 1e4)  # the surrogate is sharpened from the first to the last, by factors of SHARPEN
SHARPEN = 3.0  # six stages from the first to the last: log_3 of their ratio
FIRST_STEP, LAST_STEP = 0.3, 1e-5
CORRECTIONS, RENEWALS = 10, (4, 7)  # steps back to the level set, and those before which J is renewed
PERTURBATIONS = 8  # gradients averaged for targets with kinks
PATIENCE, PROGRESS = 100, 0.005  # stop when this many steps moved no run by this share of the largest gap


@dataclass(frozen=True)
class Runs:
    """Where the runs ended: `theta` has the largest true value seen on each run."""

    theta: Float[Tensor, "B k"]
    value: Float[Tensor, " B"]


def climb(
    problem: TwinProblem,
    start: Float[Tensor, "B k"],
    deadline: float,
    generator: torch.Generator,
    watch: Callable[["Runs"], None] = lambda runs: None,
) -> Runs:
    """From each start (on the set where the problem's state is 0) raise its value along that set, until no run gets on
    or time is up. `watch` is called once a step, with the best so far.
    """
    theta = start.clone()
    step = theta.new_full((len(theta),), FIRST_STEP)
    sharpness = torch.full_like(step, SHARPNESS[0])
    best_theta, best = theta.clone(), problem.surrogate.value(problem.inputs(theta)).detach()
    active = torch.ones_like(step, dtype=torch.bool)
    frame, moved_on = row_space(problem.jacobian(theta)[1]), torch.zeros_like(active)
    seen = best.clone()
    for count in itertools.count(1):
        if not bool(active.any()) or time.monotonic() >= deadline:
            break
        if count % PATIENCE == 0:
            if bool((best - seen).max() < PROGRESS * best.max()):
                break
            seen = best.clone()
        watch(Runs(best_theta, best))
        rows = active.nonzero()[:, 0]
        now, beta = theta[rows], sharpness[rows]
        renewed = (active & moved_on).nonzero()[:, 0]
        if renewed.numel():  # a rejected step leaves its foot, and the J there, where they were
            frame.put(renewed, row_space(problem.jacobian(theta[renewed])[1]))
            moved_on[renewed] = False
        here = frame.of(rows)
        direction = tangent(here, gradient(problem, now, beta, generator))
        moved, close = correct(problem, now + step[rows, None] * direction, here, deadline)
        with torch.no_grad():
            before = problem.surrogate.smooth(problem.inputs(now), beta)
            after = problem.surrogate.smooth(problem.inputs(moved), beta)
            value = problem.surrogate.value(problem.inputs(moved))
        accepted = close & (after > before + 1e-12)
        theta[rows[accepted]] = moved[accepted]
        moved_on[rows[accepted]] = True
        better = accepted & (value > best[rows])
        best_theta[rows[better]], best[rows[better]] = moved[better], value[better]
        step[rows] = torch.where(accepted, (step[rows] * 1.5).clamp(max=1.0), step[rows] * 0.5)
        stalled = step[rows] < LAST_STEP
        active[rows[stalled & (beta >= SHARPNESS[1])]] = False
        sharpness[rows] = torch.where(stalled, (beta * SHARPEN).clamp(max=SHARPNESS[1]), beta)
        step[rows] = torch.where(stalled, 0.05, step[rows])
    return Runs(best_theta, best)


def tangent(frame: "Frame", g: Float[Tensor, "B Td"]) -> Float[Tensor, "B Td"]:
    """The unit vector nearest to g among those that leave the state alone; 0 where there is none."""
    p = g - ((g[:, None, :] @ frame.rows.mT) @ frame.rows)[:, 0]
    norm = p.norm(dim=-1, keepdim=True)
    return torch.where(norm > 1e-14, p / norm.clamp(min=1e-300), torch.zeros_like(p))


def gradient(
    problem: TwinProblem, theta: Float[Tensor, "B Td"], sharpness: Float[Tensor, " B"], generator: torch.Generator
) -> Float[Tensor, "B Td"]:
    """dF/dtheta of the surrogate; where kinks remain, averaged over perturbations of size 1/sharpness."""
    copies = PERTURBATIONS if problem.surrogate.noise else 1
    points = theta.repeat(copies, 1)
    if copies > 1:
        noise = torch.randn(points.shape, generator=generator, dtype=points.dtype)
        points = points + noise / sharpness.repeat(copies)[:, None]
    points = points.detach().requires_grad_(True)
    value = problem.surrogate.smooth(problem.inputs(points), sharpness.repeat(copies))
    (g,) = torch.autograd.grad(value.sum(), points)
    made: Tensor = g.unflatten(0, (copies, -1)).mean(0)
    return made


class Frame(NamedTuple):
    """J = U diag(s) rows, with singular values below RANK set to infinity (their inverse is 0) and their rows to 0."""

    U: Float[Tensor, "B N k"]
    s: Float[Tensor, "B k"]
    rows: Float[Tensor, "B k Td"]

    def of(self, rows: Int[Tensor, " b"]) -> "Frame":
        """A copy of these rows of the batch."""
        return Frame(*(part[rows] for part in self))

    def put(self, rows: Int[Tensor, " b"], new: "Frame") -> None:
        """Replace the frames of these rows."""
        for part, fresh in zip(self, new, strict=True):
            part[rows] = fresh

    def step(self, miss: Float[Tensor, "B N"]) -> Float[Tensor, "B Td"]:
        """J^+ miss, no longer than 1: further out Newton's method has nothing to say."""
        move = (self.rows.mT @ ((self.U.mT @ miss[..., None]) / self.s[..., None]))[..., 0]
        made: Tensor = move / move.norm(dim=-1, keepdim=True).clamp(min=1.0)
        return made


def row_space(J: Float[Tensor, "B N Td"]) -> Frame:
    """The singular value decomposition, without directions that are numerically zero."""
    U, s, Vh = torch.linalg.svd(J, full_matrices=False)
    kept = s > RANK * s[:, :1].clamp(min=1e-300)
    return Frame(U, torch.where(kept, s, math.inf), torch.where(kept[..., None], Vh, 0.0))


def correct(
    problem: TwinProblem, theta: Float[Tensor, "B k"], frame: Frame, deadline: float
) -> tuple[Float[Tensor, "B k"], Bool[Tensor, " B"]]:
    """Back to the set where the state is 0; true where |state| <= TOLERANCE was reached, in time."""
    theta, frame = theta.clone(), frame.of(torch.arange(len(theta)))
    for count in range(CORRECTIONS):
        miss = problem.states(theta)
        away = (~(miss.norm(dim=-1) <= TOLERANCE)).nonzero()[:, 0]
        if away.numel() == 0 or time.monotonic() >= deadline:
            break
        if count in RENEWALS:
            frame.put(away, row_space(problem.jacobian(theta[away])[1]))
        theta[away] -= frame.of(away).step(miss[away])
    return theta, problem.states(theta).norm(dim=-1) <= TOLERANCE


def rank(problem: TwinProblem, theta: Float[Tensor, "B Td"]) -> int:
    """Largest rank of dR/dtheta over the given points."""
    _, J = problem.jacobian(theta)
    s = torch.linalg.svdvals(J)
    return int((s > RANK * s[:, :1]).sum(-1).max())


def smallest_singular_value(problem: TwinProblem, theta: Float[Tensor, " Td"]) -> float:
    """The smallest singular value of dR/dtheta that counts as not zero: coordinates of R may be constant."""
    _, J = problem.jacobian(theta[None])
    s = torch.linalg.svdvals(J[0])
    kept = s[s > RANK * s[0]]
    return float(kept[-1]) if kept.numel() else 0.0
