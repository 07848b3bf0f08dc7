"""`refute`: two inputs a model's read-out cannot tell apart, with a proof where it can be had."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow import arguments
from infoflow.refutations.collision import Collision, NoCollision
from infoflow.refutations.continuation import Runs, climb, rank, smallest_singular_value
from infoflow.refutations.problem import STARTS, TwinProblem, problem_of
from infoflow.refutations.proof import prove
from infoflow.targets.named import target_of

FINALISTS, FIRST_SHARE = 4, 0.35  # after this share of the time the best starts go on alone
SEARCH_SHARE = 0.75  # the proof takes the rest, and what a search that stands still leaves
SMALLEST_GAP = 1e-6  # below this the two targets differ by little more than rounding


@dataclass(frozen=True)
class Seen:
    """A search on its way: the share of its time that is over, the largest gap so far, and the pair that has it."""

    share: float
    gap: float
    problem: TwinProblem
    theta: Tensor

    def pair(self) -> tuple[np.ndarray, np.ndarray]:
        """The two sequences (T, d)."""
        Y, Z = self.problem.inputs(torch.stack(self.theta.chunk(2))).numpy()
        return Y, Z

    def states(self) -> tuple[np.ndarray, np.ndarray]:
        """What the read-out sees of each."""
        Y, Z = self.problem.states(torch.stack(self.theta.chunk(2))).numpy()
        return Y, Z


def refute(
    model: Any,
    target: Any,
    T: int,
    *,
    seed: int = 0,
    seconds: float = 60.0,
    domain: tuple[float, float] | None = None,
    watch: Callable[[Seen], None] | None = None,
) -> Collision | NoCollision:
    """Search two inputs with one read-out state and different targets, in about `seconds`.

    `model` is a Transformer of this project or an `Adapter` around any differentiable PyTorch model; `target` a Target,
    its spelling or a function (None: the adapter's own). All pairs run as one batch, the best go on; the best pair is
    handed to the proof (this project's Transformer and targets), which may fail or find no time: the pair is numerical
    then. `watch` is told of the search at every step.
    """
    began = time.monotonic()
    seconds, seed = arguments.seconds(seconds), arguments.seed(seed)
    target = target_of(target) if isinstance(target, str) else target  # else a function, or the adapter's own
    problem = problem_of(model, target, T, domain, seed)
    generator = torch.Generator().manual_seed(seed)
    theta = _starts(problem, generator)
    size, found = T * problem.dim, rank(problem, theta)
    if size <= found:
        return NoCollision(
            f"the state has rank {found} and the input {size} numbers: no direction leaves the state alone, "
            "so level-set continuation cannot move"
        )

    def told(runs: Runs) -> None:
        if watch is not None:
            first = runs.theta[runs.value.argmax()]
            watch(Seen((time.monotonic() - began) / seconds, float(runs.value.max()), problem, first))

    pair, theta = problem.pairs(theta), theta.repeat(1, 2)  # every pair starts at Y = Z
    for kept, share in ((FINALISTS, FIRST_SHARE), (1, SEARCH_SHARE)):
        ends = climb(pair, theta, began + share * seconds, generator, told)
        theta = ends.theta[ends.value.argsort(descending=True)[:kept]]
    gap = float(ends.value.max())
    if gap < SMALLEST_GAP:
        return NoCollision(
            f"{STARTS} starts moved the target by at most {gap:.2g} at constant state"
            + (" before the time was up" if time.monotonic() >= began + SEARCH_SHARE * seconds else "")
        )
    Y, Z = theta[0].chunk(2)
    return _collision(problem, model, target, Y, Z, began, began + seconds)


def _starts(problem: TwinProblem, generator: torch.Generator) -> Tensor:
    """Uniform in the box, and clustered (all tokens near a common point), where extrema tie."""
    half, shape = STARTS // 2, (STARTS // 2, problem.T, problem.dim)
    free = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
    centre = torch.rand((half, 1, problem.dim), generator=generator, dtype=torch.float64) * 1.2 - 0.6
    spread = torch.rand(shape, generator=generator, dtype=torch.float64) * 0.6 - 0.3
    return torch.asin(torch.cat([free, centre + spread]).flatten(1) * 0.98)


def _collision(
    problem: TwinProblem, model: Any, target: Any, Y: Tensor, Z: Tensor, began: float, deadline: float
) -> Collision:
    pair = problem.inputs(torch.stack([Y, Z]))
    R = problem.state(pair).detach()
    F = problem.surrogate.value(pair).detach()
    theta = torch.cat([Y, Z])[None]
    slopes = problem.pairs(torch.stack([Y, Z])).jacobian(theta)[1][0].numpy()
    proof = prove(model, target, pair.numpy(), (problem.low, problem.high), slopes, deadline)
    return Collision(
        Y=pair[0].numpy(),
        Z=pair[1].numpy(),
        gap=float(F[0] - F[1]),
        state_distance=proof.distance if proof.distance is not None else float((R[0] - R[1]).norm()),
        sigma_min=smallest_singular_value(problem, Z),
        certified_error=proof.error,
        state_Y=R[0].numpy(),
        state_Z=R[1].numpy(),
        target_Y=float(F[0]),
        target_Z=float(F[1]),
        arithmetic="balls" if proof.distance is not None else "float64",
        proof=proof.reason,
        seconds=time.monotonic() - began,
    )
