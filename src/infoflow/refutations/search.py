"""`refute`: two inputs a model's read-out cannot tell apart, with a proof where it can be had."""

import time
from typing import Any

import torch
from torch import Tensor

from infoflow.errors import InfoFlowError
from infoflow.refutations.collision import Collision, NoCollision
from infoflow.refutations.continuation import climb, rank, smallest_singular_value
from infoflow.refutations.problem import Problem, problem_of
from infoflow.refutations.proof import prove

STARTS = 12
SMALLEST_GAP = 1e-6  # below this the two targets differ by little more than rounding


def refute(
    model: Any,
    target: Any,
    T: int,
    *,
    seed: int = 0,
    seconds: float = 60.0,
    domain: tuple[float, float] | None = None,
) -> Collision | NoCollision:
    """Search two inputs with one read-out state and different targets, in about `seconds`.

    `model` is a Transformer of this project or an `Adapter` around any differentiable PyTorch model; `target` a Target
    or a function (None: the adapter's own). All starts run upward and downward as one batch; the best pair is handed to
    the proof, for this project's Transformer and its targets. The proof may fail: then the pair is numerical.
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
    ends = climb(
        problem,
        theta.repeat(2, 1),
        torch.cat([torch.ones(STARTS), -torch.ones(STARTS)]).double(),
        time.monotonic() + 0.9 * seconds,  # the proof takes the rest
        generator,
    )
    gaps = ends.value[:STARTS] - ends.value[STARTS:]
    best = int(gaps.argmax())
    if float(gaps[best]) < SMALLEST_GAP:
        return NoCollision(f"{STARTS} starts moved the target by at most {float(gaps[best]):.2g} at constant state")
    return _collision(problem, model, target, ends.theta[best], ends.theta[STARTS + best], began)


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
