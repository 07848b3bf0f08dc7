"""`infoflow bench train`: model-steps per second of the engine and of the ways people train small models today.

A model-step is one AdamW step of one model on one batch. All rates are measured in one run on one device; the floor is
what counting says no version can beat: the operations and bytes of a folded step over the device's measured ceilings.
"""

import math
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from infoflow.architecture import Architecture
from infoflow.targets import pairwise_max
from infoflow.train import baselines
from infoflow.train.kernels.layer import Fused
from infoflow.train.loop import Stepper, data_of, epoch_order, start, train
from infoflow.train.plan import LARGEST_STACK, Choice, choose, threads
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.task import Data

STACKS = (1, 4, 16, 64, 256, 1024)
STRIDE = 4  # steps that a CPU worker makes at a time


def workload(D: int, models: int, batch: int = 256, T: int = 64, samples: int = 8192) -> list[Run]:
    """Eq. (6) as in C.4: d = 4, heads (D, D), E = 6 D, width 16 D."""
    recipe = Recipe(samples=samples, validation=256, batch=batch, epochs=None, steps=100_000, schedule="constant")
    arch = Architecture((D, D), (6 * D, 6 * D), (16 * D, 16 * D))
    return [Run(pairwise_max(D=D, d=4, seed=0), arch, T, seed, recipe) for seed in range(models)]


def describe(run: Run) -> dict[str, Any]:
    return {"target": run.task.name, "arch": str(run.arch), "T": run.T, "batch": run.recipe.batch,
            "dtype": run.recipe.dtype, "optimiser": "AdamW"}  # fmt: skip


def rate(step: Callable[[], Any], models: int, device: torch.device, seconds: float) -> float:
    """Model-steps per second: warm up, then the median of five windows that together take about `seconds`."""
    for _ in range(3):
        step()
    once = timed(step, 1, device)
    count = max(1, int(seconds / 5 / max(once, 1e-6)))
    return statistics.median(models * count / timed(step, count, device) for _ in range(5))


def timed(step: Callable[[], Any], count: int, device: torch.device) -> float:
    """Seconds of so many steps."""
    _wait(device)
    began = time.perf_counter()
    for _ in range(count):
        step()
    _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def ours(D: int, choice: Choice, models: int, device: torch.device, seconds: float) -> float:
    """The engine's own step as chosen, data order and gather included; on CUDA one stack, on a CPU its workers."""
    stack = choice.stack if device.type == "cuda" else min(choice.stack, models)
    data = data_of(workload(D, 1), device)
    steppers = [_stepper(workload(D, stack), device, choice.fused, data) for _ in range(choice.workers)]
    if len(steppers) == 1:
        return rate(steppers[0].step, stack, device, seconds)
    with ThreadPoolExecutor(len(steppers)) as pool, threads(choice.threads):
        return rate(lambda: list(pool.map(_stride, steppers)), STRIDE * stack * len(steppers), device, seconds)


def _stride(stepper: Stepper) -> None:
    """Workers do not wait for each other after every step."""
    for _ in range(STRIDE):
        stepper.step()


def _stepper(runs: list[Run], device: torch.device, fused: Fused | None, data: Data) -> Stepper:
    state, recipe = start(runs, device, fused, data), runs[0].recipe
    stepper = Stepper(state.stack, data, recipe.batch_size, recipe.steps_per_epoch)
    seeds = torch.tensor([run.seed for run in runs], device=device)
    stepper.load_order(epoch_order(seeds, 0, recipe.samples))
    return stepper


def model_steps(runs: list[Run], size: int, steps: int, device: torch.device) -> float:
    """Model-steps a second of these runs of one group, in stacks of at most `size`, one after the other."""
    seconds = 0.0
    for first in range(0, len(runs), size):
        part = runs[first : first + size]
        stepper = _stepper(part, device, None, data_of(part, device))
        stepper.step()  # warm: buffers exist from here on
        seconds += timed(stepper.step, steps, device)
    return len(runs) * steps / seconds


def plain_rate(D: int, device: torch.device, seconds: float) -> tuple[float, int]:
    """Baseline (a) at its best thread setting; returns the rate and the threads."""
    run = workload(D, 1)[0]
    X, y = _batch(run, device)
    settings = [0] if device.type == "cuda" else sorted({1, torch.get_num_threads()})
    found = []
    for count in settings:
        with threads(count or torch.get_num_threads()):
            found.append((rate(*baselines.plain(run, X, y), device, seconds), count))
    return max(found)


def _batch(run: Run, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    data = data_of([replace(run, recipe=run.recipe.with_(samples=run.recipe.batch))], device)
    return data.x[0].transpose(-1, -2).contiguous(), data.y[0]


def operations(run: Run) -> dict[str, float]:
    """Floating-point operations and the fewest bytes of one folded model-step.

    Forward, per sequence: scores and averages 4 T^2 d h, queries 2 T (d+1) d h, feed-forward 2 T z w, read of the CLS
    4 T w k. Backward: the same twice, less what the data would get (half of the attention's share). Bytes: the batch
    once, and weights, both moments and the gradient once in and once out.
    """
    target, arch, T = run.regression()
    (h, k), w, d, B = arch.heads, arch.widths[0], target.dim, run.recipe.batch
    attention = 4 * T * T * d * h + 2 * T * (d + 1) * d * h
    tokens = 2 * T * d * (h + 1) * w + 4 * T * w * k
    parameters = arch.parameters(d, target.outputs)
    return {"flops": B * (2 * attention + 3 * tokens), "bytes": 4 * B * (d * T + 1) + 4 * 8 * parameters}


def ceilings(device: torch.device) -> dict[str, float]:
    """Measured: float32 matrix product (no tf32) in FLOP/s, copy in bytes/s."""
    n, size = (8192, 1 << 30) if device.type == "cuda" else (1024, 1 << 26)
    a, b = torch.randn(n, n, device=device), torch.randn(n, n, device=device)
    product = rate(lambda: torch.mm(a, b), 1, device, 0.5)
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    copy = rate(lambda: target.copy_(source), 1, device, 0.5)
    return {"flops": product * 2 * n**3, "bytes": copy * 2 * size}


def floor_fraction(D: int, achieved: float, peak: dict[str, float]) -> dict[str, float]:
    count = operations(workload(D, 1)[0])
    limits = {name: peak[name] / count[name] for name in ("flops", "bytes")}
    best = min(limits.values())
    return {**count, "floor_model_steps_per_second": best, "fraction": achieved / best}


def scaling(D: int, choice: Choice, device: torch.device, seconds: float) -> dict[int, float]:
    """Model-steps per second against the number of models in one stack, as far as memory reaches."""
    table = {}
    for models in STACKS if device.type == "cuda" else STACKS[:3]:
        try:
            table[models] = ours(D, replace(choice, stack=models, workers=1), models, device, seconds)
        except torch.OutOfMemoryError:
            break
    return table


def kernel_errors(D: int, device: torch.device, fused: Fused, T: int = 64) -> dict[str, float]:
    """Relative error of the kernel's output and gradients against float64 PyTorch, for fresh random inputs."""
    from infoflow.train.kernels.layer import token_layer

    target, arch, _ = workload(D, 1, T=T)[0].regression()
    (h, k), w, d = arch.heads, arch.widths[0], target.dim
    generator = torch.Generator(device=device).manual_seed(D)
    shapes = {"A": (2, h, d + 1, d), "G": (2, d * (h + 1), w), "g": (2, w), "U": (2, 16, k, w)}
    X = torch.randn(2, 16, d, T, generator=generator, device=device)
    inputs = {n: torch.randn(s, generator=generator, device=device) / math.sqrt(s[-2]) for n, s in shapes.items()}
    weight = torch.randn(shapes["U"], generator=generator, device=device)

    def gradients(dtype: torch.dtype, kernel: Fused | None) -> list[torch.Tensor]:
        leaves = [value.to(dtype).requires_grad_() for value in inputs.values()]
        A, G, g, U = leaves
        out = token_layer(X.to(dtype), A, G, g, U, arch.head_dims[1] ** -0.5, "gelu", kernel)
        return [out.detach(), *torch.autograd.grad((out * weight.to(dtype)).sum(), leaves)]

    exact, got = gradients(torch.float64, None), gradients(torch.float32, fused)
    return relative_errors(["pooled", *(f"d{name}" for name in inputs)], exact, got)


def relative_errors(names: list[str], exact: list[torch.Tensor], got: list[torch.Tensor]) -> dict[str, float]:
    """Over the norm of the exact value, or over 1e-3 where that is nearly zero (the gradient of a constant softmax)."""
    return {n: float((a - b).norm() / a.norm().clamp(min=1e-3)) for n, a, b in zip(names, exact, got, strict=True)}


def stacked_against_separate(D: int, device: torch.device, fused: Fused | None, steps: int = 50) -> float:
    """Largest relative difference of weights after `steps` steps: 4 models stacked, and the last of them alone."""
    recipe = Recipe(samples=4096, validation=256, epochs=None, steps=steps)
    runs = [replace(run, recipe=recipe) for run in workload(D, 4)]
    together = train(start(runs, device, fused)).stack.weights[-1]
    alone = train(start(runs[-1:], device, fused)).stack.weights[0]
    return float((together - alone).norm() / alone.norm())


def measure(
    D: int, models: int, device: torch.device, quick: bool, report: Callable[[int, str], None]
) -> dict[str, Any]:
    """The whole comparison as one JSON object."""
    seconds = 1.0 if device.type == "cuda" else 3.0
    runs = workload(D, models)
    choice = choose(workload(D, LARGEST_STACK) if device.type == "cuda" else runs, device)
    report(0, "plain")
    plain, threads = plain_rate(D, device, seconds)
    X, y = _batch(runs[0], device)
    vmap = jax = None
    if not quick:
        report(1, "vmap")
        vmap = rate(*baselines.vmapped(runs[0], X, y, models), device, seconds)
        report(2, "jax")
        found = baselines.jax_vmapped(runs[0], X, y, models)
        jax = rate(*found, device, seconds) if found else None
    report(3, "ours")
    achieved = ours(D, choice, models, device, seconds)
    report(4, "scaling")
    checks = None
    if choice.fused is not None:
        checks = {p: kernel_errors(D, device, Fused(p)) for p in ("tf32x3", "ieee", "tf32")}
    return {
        "workload": {**describe(runs[0]), "models": models},
        "device": device.type,
        "rates": {"plain": plain, "vmap": vmap, "jax": jax, "ours": achieved},
        "ratio": achieved / plain,
        "chosen": choice.to_json(),
        "chosen_text": str(choice),
        "plain_threads": threads or None,
        "floor": floor_fraction(D, achieved, ceilings(device)),
        "scaling": None if quick else scaling(D, choice, device, seconds),
        "kernel_errors": checks,
        "stacked_against_separate": stacked_against_separate(D, device, choice.fused) if choice.fused else None,
    }
