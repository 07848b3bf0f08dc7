"""How fast a stack advances: model-steps per second, measured by steps of its own.

A model-step is one AdamW step of one model on one batch. `infoflow bench train` measures the engine beside one plain
module per seed in one run on one device; the floor is what counting says no version can beat: the operations and bytes
of a folded step over the device's measured ceilings.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from infoflow.architecture import Architecture
from infoflow.targets.named import pairwise_max
from infoflow.train.folded import Fused
from infoflow.train.loop import Stepper, data_of, epoch_order, start
from infoflow.train.plan import LARGEST_STACK, Part, Setup, choose, threads
from infoflow.train.plan import operations as step_operations
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.task import Data

STACKS = (1, 4, 16, 64, 256, 1024)
STRIDE = 4  # steps that a CPU worker makes at a time
TIMED = 3  # steps that are timed for an estimate, after one that makes the buffers
MEASURED = 4  # parts that are timed for an estimate: the smallest, the largest, and between them
UNKNOWN = 1e8  # operations of a step of a network that is not the one Transformer; it counts beside others alone
# No machine in use is slower (seconds to call all of a step's layers, operations a second of one core): what would not
# last a minute even there is not measured.
SLOWEST_CALL, SLOWEST_RATE = 0.02, 1e9
Step = Callable[[], Any]


def workload(D: int, models: int, batch: int = 256, T: int = 64, samples: int = 8192) -> list[Run]:
    """Eq. (6) as in C.4: d = 4, heads (D, D), E = 6 D, width 16 D."""
    recipe = Recipe(samples=samples, validation=256, batch=batch, epochs=None, steps=100_000, schedule="constant")
    arch = Architecture((D, D), (6 * D, 6 * D), (16 * D, 16 * D))
    return [Run(pairwise_max(D=D, d=4, seed=0), arch, T, seed, recipe) for seed in range(models)]


def describe(run: Run) -> dict[str, Any]:
    """What was measured, for the record."""
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


def model_steps(runs: list[Run], size: int, steps: int, device: torch.device) -> float:
    """Model-steps a second of these runs of one group, in stacks of at most `size`, one after the other."""
    seconds = 0.0
    for first in range(0, len(runs), size):
        part = runs[first : first + size]
        stepper = stepper_of(part, device, None, data_of(part, device))
        stepper.step()  # warm: buffers exist from here on
        seconds += timed(stepper.step, steps, device)
    return len(runs) * steps / seconds


def stepper_of(runs: list[Run], device: torch.device, fused: Fused | None, data: Data) -> Stepper:
    """A stack of these runs, ready to step."""
    state, recipe = start(runs, device, fused, data), runs[0].recipe
    stepper = Stepper(state.stack, data, recipe.batch_size, recipe.steps_per_epoch)
    seeds = torch.tensor([run.seed for run in runs], device=device)
    stepper.load_order(epoch_order(seeds, 0, recipe.samples))
    return stepper


def estimate(
    parts: Sequence[Part],
    device: torch.device,
    side_by_side: int,
    measure: Callable[[Part, torch.device], float] | None = None,
) -> float | None:
    """Seconds that parts will take, so many of them at once; None where that is below a minute on any machine.

    A few parts are measured (`measure`: seconds of one step), from the one with the fewest operations in a step to the
    one with the most; others lie between their neighbours. Nothing ends before the longest part does.
    """
    lanes, sizes = max(1, min(side_by_side, len(parts))), {_operations(part): part for part in parts}
    slowest = sum(_steps(part) * (SLOWEST_CALL + _operations(part) / SLOWEST_RATE) for part in parts)
    if slowest < 60.0 * lanes:
        return None
    chosen = np.array(sorted(sizes))[np.linspace(0, len(sizes) - 1, min(MEASURED, len(sizes))).round().astype(int)]
    seconds = [(measure or seconds_per_step)(sizes[size], device) for size in chosen]
    each = [_steps(part) * float(np.interp(_operations(part), chosen, seconds)) for part in parts]
    return max(sum(each) / lanes, max(each))


def _steps(part: Part) -> float:
    """Steps that are left to a part, and its looks as a third of a step for each batch."""
    recipe = part.runs[0].recipe
    looks = recipe.validation / recipe.batch_size / (recipe.steps_per_epoch * recipe.evaluate_every)
    return (recipe.all_steps - part.before) * (1 + looks / 3)


def _operations(part: Part) -> float:
    """Of one step of the part."""
    run = part.runs[0]
    config = run.task.config(run.arch, run.T, run.recipe)
    return len(part.runs) * (UNKNOWN if config is None else step_operations(run, config))


def seconds_per_step(part: Part, device: torch.device) -> float:
    """Of a stack like this part's, by a few steps on few samples."""
    few = part.runs[0].recipe.with_(samples=part.runs[0].recipe.batch_size)
    runs = [replace(run, recipe=few) for run in part.runs]
    stepper = stepper_of(runs, device, part.choice.fused, data_of(runs, device))
    with threads(1):
        stepper.step()
        return timed(stepper.step, TIMED, device) / TIMED


def ours(D: int, choice: Setup, models: int, device: torch.device, seconds: float) -> float:
    """The engine's own step as chosen, data order and gather included; on CUDA one stack, on a CPU its workers."""
    stack = choice.stack if device.type == "cuda" else min(choice.stack, models)
    data = data_of(workload(D, 1), device)
    steppers = [stepper_of(workload(D, stack), device, choice.fused, data) for _ in range(choice.workers)]
    if len(steppers) == 1:
        return rate(steppers[0].step, stack, device, seconds)
    with ThreadPoolExecutor(len(steppers)) as pool, threads(choice.threads):
        return rate(lambda: list(pool.map(_stride, steppers)), STRIDE * stack * len(steppers), device, seconds)


def _stride(stepper: Stepper) -> None:
    """Workers do not wait for each other after every step."""
    for _ in range(STRIDE):
        stepper.step()


class PlainTransformer(nn.Module):
    """The two-layer model of Section 3 as one writes it with torch.nn: linear encoder, CLS, residual, GELU blocks."""

    def __init__(self, run: Run, fused_attention: bool) -> None:
        super().__init__()
        target, arch, _ = run.regression()
        (E, _), (w, _) = arch.embeds, arch.widths
        self.heads, self.fused_attention = arch.heads, fused_attention
        self.encoder = nn.Linear(target.dim, E)
        self.cls = nn.Parameter(0.02 * torch.randn(E))
        self.query = nn.ModuleList(nn.Linear(E, E, bias=False) for _ in range(2))
        self.key = nn.ModuleList(nn.Linear(E, E, bias=False) for _ in range(2))
        self.value = nn.ModuleList(nn.Linear(E, E, bias=False) for _ in range(2))
        self.output = nn.ModuleList(nn.Linear(E, E, bias=False) for _ in range(2))
        self.ffn = nn.Sequential(nn.Linear(E, w), nn.GELU(), nn.Linear(w, E))
        self.readout = nn.Sequential(nn.Linear(E, w), nn.GELU(), nn.Linear(w, target.outputs))

    def attend(self, layer: int, x: Tensor, tokens: Tensor) -> Tensor:
        """One attention layer over the tokens, with its residual."""

        def split(y: Tensor) -> Tensor:
            made: Tensor = y.unflatten(-1, (self.heads[layer], -1)).transpose(-2, -3)
            return made

        q, k, v = split(self.query[layer](x)), split(self.key[layer](tokens)), split(self.value[layer](tokens))
        if self.fused_attention:
            out = F.scaled_dot_product_attention(q, k, v)
        else:
            out = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v
        made: Tensor = x + self.output[layer](out.transpose(-2, -3).flatten(-2))
        return made

    def forward(self, X: Tensor) -> Tensor:
        """X (B, T, d) to the value at the CLS."""
        tokens = self.encoder(X)
        x = torch.cat([tokens, self.cls.expand(*X.shape[:-2], 1, -1)], -2)
        x = self.ffn(self.attend(0, x, tokens))
        y: Tensor = self.readout(self.attend(1, x[..., -1:, :], x[..., :-1, :]))
        return y.squeeze(-2)


def plain_step(run: Run, X: Tensor, y: Tensor) -> tuple[Step, int]:
    """One AdamW step of a module on its own, and the one model it covers; X (B, T, d), y (B, o) on the device."""
    torch.manual_seed(run.seed)
    model = PlainTransformer(run, fused_attention=True).to(X.device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=run.recipe.lr, weight_decay=run.recipe.decay)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        F.mse_loss(model(X), y).backward()
        optimiser.step()

    return step, 1


def plain_rate(D: int, device: torch.device, seconds: float) -> tuple[float, int]:
    """One module per seed at its best thread setting; returns the rate and the threads."""
    run = workload(D, 1)[0]
    X, y = batch_of(run, device)
    settings = [0] if device.type == "cuda" else sorted({1, torch.get_num_threads()})
    found = []
    for count in settings:
        with threads(count or torch.get_num_threads()):
            found.append((rate(*plain_step(run, X, y), device, seconds), count))
    return max(found)


def batch_of(run: Run, device: torch.device) -> tuple[Tensor, Tensor]:
    """One batch as a module of PyTorch takes it: X (B, T, d), y (B, o)."""
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
    """What share of the machine's peak rate a measured one is, by operations and by bytes."""
    count = operations(workload(D, 1)[0])
    limits = {name: peak[name] / count[name] for name in ("flops", "bytes")}
    best = min(limits.values())
    return {**count, "floor_model_steps_per_second": best, "fraction": achieved / best}


def scaling(D: int, choice: Setup, device: torch.device, seconds: float) -> dict[int, float]:
    """Model-steps per second against the number of models in one stack, as far as memory reaches."""
    table = {}
    for models in STACKS if device.type == "cuda" else STACKS[:3]:
        try:
            table[models] = ours(D, replace(choice, stack=models, workers=1), models, device, seconds)
        except torch.OutOfMemoryError:
            break
    return table


def measure(
    D: int, models: int, device: torch.device, quick: bool, report: Callable[[int, str], None]
) -> dict[str, Any]:
    """The whole comparison as one JSON object; quick: without the table over the number of models in a stack."""
    seconds = 1.0 if device.type == "cuda" else 3.0
    runs = workload(D, models)
    choice = choose(workload(D, LARGEST_STACK) if device.type == "cuda" else runs, device)
    report(0, "plain")
    plain, used = plain_rate(D, device, seconds)
    report(1, "ours")
    achieved = ours(D, choice, models, device, seconds)
    report(2, "scaling")
    return {
        "workload": {**describe(runs[0]), "models": models},
        "device": device.type,
        "rates": {"plain": plain, "ours": achieved},
        "ratio": achieved / plain,
        "chosen": choice.to_json(),
        "chosen_text": str(choice),
        "plain_threads": used or None,
        "floor": floor_fraction(D, achieved, ceilings(device)),
        "scaling": None if quick else scaling(D, choice, device, seconds),
    }
