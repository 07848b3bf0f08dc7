"""`refute`: two inputs a model's read-out cannot tell apart, with a proof where it can be had."""

import time
from typing import Any

import torch
from torch import Tensor

from infoflow.errors import InfoFlowError
from infoflow.progress import Progress
from infoflow.refutations.collision import Collision, NoCollision
from infoflow.refutations.continuation import climb, rank, smallest_singular_value
from infoflow.refutations.problem import Problem, problem_of
from infoflow.refutations.proof import prove

STARTS = 12
FINALISTS, FIRST_SHARE = 4, 0.4  # after this share of the time the best starts go on alone
SMALLEST_GAP = 1e-6  # below this the two targets differ by little more than rounding


def refute(
    model: Any,
    target: Any,
    T: int,
    *,
    seed: int = 0,
    seconds: float = 60.0,
    domain: tuple[float, float] | None = None,
    progress: Progress | None = None,
) -> Collision | NoCollision:
    """Search two inputs with one read-out state and different targets, in about `seconds`.

    `model` is a Transformer of this project or an `Adapter` around any differentiable PyTorch model; `target` a Target
    or a function (None: the adapter's own). All starts run upward and downward as one batch, the best go on; the best
    pair is handed to the proof (this project's Transformer and targets), which may fail: the pair is numerical then.
    """
    began = time.monotonic()
    if not seconds > 0:
        raise InfoFlowError(f"expected seconds > 0, got {seconds!r}.")
    problem = problem_of(model, target, T, domain, seed)
    generator = torch.Generator().manual_seed(seed)
    theta = _starts(problem, generator)
    size, found = T * problem.dim, rank(problem, theta)
    if size <= found:
        return NoCollision(
            f"the state has rank {found} and the input {size} numbers: no direction leaves the state alone, "
            "so level-set continuation cannot move"
        )

    def watch() -> None:
        if progress is not None:
            progress.update(min(int(100 * (time.monotonic() - began) / seconds), 99))

    theta, R0 = theta.repeat(2, 1), problem.states(theta).repeat(2, 1)
    for kept, share in ((FINALISTS, FIRST_SHARE), (1, 0.9 - FIRST_SHARE)):  # the proof takes the rest
        sign = torch.ones(len(theta), dtype=torch.float64)
        sign[len(theta) // 2 :] = -1.0  # the second half runs down
        ends = climb(problem, theta, R0, sign, time.monotonic() + share * seconds, generator, watch)
        up, down = ends.value.chunk(2)
        best = (up - down).argsort(descending=True)[:kept]
        rows = torch.cat([best, best + len(up)])
        theta, R0 = ends.theta[rows], R0[rows]
    gap = float((up - down).max())
    if gap < SMALLEST_GAP:
        return NoCollision(f"{STARTS} starts moved the target by at most {gap:.2g} at constant state")
    return _collision(problem, model, target, theta[0], theta[1], began)


def _starts(problem: Problem, generator: torch.Generator) -> Tensor:
    """Uniform in the box, and clustered (all tokens near a common point), where extrema tie."""
    half, shape = STARTS // 2, (STARTS // 2, problem.T, problem.dim)
    free = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
    centre = torch.rand((half, 1, problem.dim), generator=generator, dtype=torch.float64) * 1.2 - 0.6
    spread = torch.rand(shape, generator=generator, dtype=torch.float64) * 0.6 - 0.3
    return torch.asin(torch.cat([free, centre + spread]).flatten(1) * 0.98)


def _collision(problem: Problem, model: Any, target: Any, up: Tensor, down: Tensor, began: float) -> Collision:
    pair = problem.inputs(torch.stack([up, down]))
    R = problem.state(pair).detach()
    F = problem.surrogate.value(pair).detach()
    proof = prove(model, target, pair.numpy(), (problem.low, problem.high))
    return Collision(
        Y=pair[0].numpy(),
        Z=pair[1].numpy(),
        gap=float(F[0] - F[1]),
        state_distance=proof.distance if proof.distance is not None else float((R[0] - R[1]).norm()),
        sigma_min=smallest_singular_value(problem, down),
        certified_error=proof.error,
        state_Y=R[0].numpy(),
        state_Z=R[1].numpy(),
        target_Y=float(F[0]),
        target_Z=float(F[1]),
        arithmetic="balls" if proof.distance is not None else "float64",
        proof=proof.reason,
        seconds=time.monotonic() - began,
    )
