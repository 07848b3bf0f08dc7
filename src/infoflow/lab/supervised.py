"""A small stacked trainer for tasks that are not a `Target`: regression on tokens, tagging, ranking.

Models of one shape are stacked along a leading axis and trained in one pass with Adam. A model draws its weights, its
data where these are its own, and the order in which it sees them from its own seed, and every operation carries the
model axis, so a model ends as if it had been trained alone (up to rounding). Each finished model is one JSON file in
the item's store, so a stopped item goes on with the models that are missing, and a stopped stack from its last state.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow.errors import InfoFlowError, JobError
from infoflow.files import write_json
from infoflow.lab import resume
from infoflow.lab.item import Context, note_training
from infoflow.progress import Progress
from infoflow.train.device import check_device
from infoflow.train.loop import WARM_UP
from infoflow.train.stack import BETAS, EPS

EVALUATED = 256  # test samples in one pass
STACK = {"cpu": 16, "cuda": 256}  # models trained together; on a CPU larger stacks are slower
SAVE_EVERY = 60.0  # seconds between checkpoints of a stack
FORMAT = 1  # changes when the same cell would give other numbers


@dataclass(frozen=True)
class Schedule:
    """How long and how fast; Adam with constant rate, every epoch a fresh permutation, the last batch may be short."""

    epochs: int
    batch: int
    lr: float
    evaluate_every: int = 1  # epochs


@dataclass(frozen=True)
class Samples:
    """Training and test data with a leading model axis of M, or of 1 where all models share them: (M or 1, N, ...)."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor


class Task(Protocol):
    """What a cell is. `identity` holds every setting that decides the result, as plain JSON values."""

    @property
    def identity(self) -> dict[str, Any]: ...

    def network(self, stack: tuple[int, ...]) -> nn.Module:
        """An uninitialised network, with `initialise(generator)` when `stack` is empty."""

    def samples(self, seeds: Sequence[int]) -> Samples: ...

    def loss(self, output: Tensor, y: Tensor) -> Float[Tensor, " M"]: ...

    def errors(self, output: Tensor, y: Tensor) -> dict[str, Float[Tensor, "M B"]]:
        """Measures of every test sample; their mean over the test set is reported."""

    def keep(self, network: nn.Module, samples: Samples) -> list[dict[str, Any]]:
        """What else a trained model leaves: one dictionary of plain values per model."""


@runtime_checkable
class Padded(Protocol):
    """A task whose samples differ in length: columns of a batch that hold padding alone are not computed."""

    def columns(self, x: Tensor) -> Int[Tensor, "M N"]:
        """How many leading columns of every sample a batch that holds it must keep."""


Measured = tuple[int, dict[str, list[float | None]]]  # an epoch, and every measure of every model after it


@dataclass(frozen=True)
class Cell:
    """One model: a task, a schedule, a seed."""

    task: Task
    schedule: Schedule
    seed: int

    def identity(self) -> dict[str, Any]:
        settings = {"task": self.task.identity, "schedule": asdict(self.schedule), "seed": self.seed}
        return {"format": FORMAT, **settings}

    @property
    def key(self) -> str:
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def stacked(make: Callable[[tuple[int, ...]], Any], seeds: Sequence[int]) -> nn.Module:
    """One network with a model axis, each model initialised from its own seed alone."""
    rows = []
    for seed in seeds:
        single = make(())
        single.initialise(torch.Generator().manual_seed(seed))
        rows.append([parameter.data for parameter in single.parameters()])
    network: nn.Module = make((len(seeds),))
    with torch.no_grad():
        for parameter, values in zip(network.parameters(), zip(*rows, strict=True), strict=True):
            parameter.copy_(torch.stack(values))
    return network


class Training:
    """A stack on its way: all that decides how it goes on, as it is between two epochs.

    The loss of each model enters the sum once, so gradients and Adam's steps never mix models.
    """

    def __init__(self, task: Task, schedule: Schedule, seeds: Sequence[int], device: torch.device) -> None:
        self.task, self.schedule, self.models = task, schedule, len(seeds)
        self.network = stacked(task.network, seeds).to(device)
        self.optimiser = Adam(self.network, schedule.lr)
        self.streams = [torch.Generator().manual_seed(2**32 + seed) for seed in seeds]
        data = task.samples(seeds)
        # Known on the CPU: asking the GPU for the length of every batch would make it wait for each step.
        self.columns = task.columns(data.x) if isinstance(task, Padded) else None
        self.data = Samples(data.x.to(device), data.y.to(device), data.x_test.to(device), data.y_test.to(device))
        self.advance = Stepper(task, self.network, self.optimiser)
        self.epoch = 0
        self.seconds = 0.0
        self.curve: list[Measured] = []

    def look(self) -> None:
        self.curve.append((self.epoch, evaluate(self.task, self.network, self.data, self.models)))

    def one_epoch(self) -> None:
        """A fresh permutation for every model, all its batches, and a look where one is due."""
        data, schedule = self.data, self.schedule
        order = torch.stack([torch.randperm(data.x.shape[1], generator=stream) for stream in self.streams])
        there = order.to(data.x.device)
        for here, chosen in zip(order.split(schedule.batch, 1), there.split(schedule.batch, 1), strict=True):
            x, y = pick(data.x, chosen), pick(data.y, chosen)
            if self.columns is not None:
                longest = int(pick(self.columns, here).max())
                x, y = x[..., :longest], y[..., :longest]
            self.advance(x, y)
        self.epoch += 1
        if self.epoch % schedule.evaluate_every == 0 or self.epoch == schedule.epochs:
            self.look()

    def records(self) -> list[dict[str, Any]]:
        """One plain dictionary per model: curves of every measure and what is kept."""
        with torch.no_grad():
            kept = self.task.keep(self.network, self.data)
        return [self._record(i, kept[i]) for i in range(self.models)]

    def _record(self, index: int, kept: dict[str, Any]) -> dict[str, Any]:
        names = list(self.curve[0][1])
        final = {name: self.curve[-1][1][name][index] for name in names}
        return {
            "epochs": [epoch for epoch, _ in self.curve],
            "curves": {name: [values[name][index] for _, values in self.curve] for name in names},
            "final": final,
            "failed": any(value is None for value in final.values()),
            "kept": kept,
            "seconds": round(self.seconds, 3),
            "stacked": self.models,
        }


def train_stack(
    task: Task,
    schedule: Schedule,
    seeds: Sequence[int],
    device: torch.device,
    progress: Callable[[int], None] = lambda epoch: None,
    path: Path | None = None,
    until: float = inf,
) -> list[dict[str, Any]] | None:
    """Train the models of `seeds` together; None when `until` (monotonic seconds) came first.

    With a `path` the state is written there now and then, and at `until`; a later call goes on from it and ends with
    the numbers of an unbroken run.
    """
    training = Training(task, schedule, seeds, device)
    if path is None or not resume.restore(path, training):
        training.look()
    began = saved = time.monotonic()
    before = training.seconds
    while training.epoch < schedule.epochs:
        if time.monotonic() >= until:
            if path is not None:
                resume.save(path, training)
            return None
        training.one_epoch()
        training.seconds = before + time.monotonic() - began
        progress(training.epoch)
        if path is not None and training.epoch < schedule.epochs and time.monotonic() - saved > SAVE_EVERY:
            resume.save(path, training)
            saved = time.monotonic()
    return training.records()


class Adam:
    """Adam with constant rate over a stack; the numbers of torch.optim.Adam without loading its compiler. The count of
    steps is a tensor, so that a captured CUDA graph goes on counting."""

    def __init__(self, network: nn.Module, lr: float) -> None:
        self.parameters: list[Tensor] = list(network.parameters())
        self.first = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.second = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.lr = lr
        self.steps = torch.zeros((), dtype=torch.float64, device=self.parameters[0].device)

    @torch.no_grad()
    def step(self, gradients: tuple[Tensor, ...]) -> None:
        self.steps += 1
        rate = (self.lr / (1 - BETAS[0] ** self.steps)).to(self.parameters[0].dtype)
        root = (1 - BETAS[1] ** self.steps).sqrt().to(self.parameters[0].dtype)
        torch._foreach_lerp_(self.first, gradients, 1 - BETAS[0])
        torch._foreach_mul_(self.second, BETAS[1])
        torch._foreach_addcmul_(self.second, gradients, gradients, 1 - BETAS[1])
        size = torch._foreach_sqrt(self.second)
        torch._foreach_div_(size, root)
        torch._foreach_add_(size, EPS)
        torch._foreach_div_(size, rate)
        torch._foreach_addcdiv_(self.parameters, self.first, size, -1.0)

    def tensors(self) -> list[Tensor]:
        return [*self.parameters, *self.first, *self.second, self.steps]


def step(task: Task, network: nn.Module, optimiser: Adam, x: Tensor, y: Tensor) -> None:
    optimiser.step(torch.autograd.grad(task.loss(network(x), y).sum(), optimiser.parameters))


class Stepper:
    """Steps of one stack: eager on a CPU, on CUDA a captured graph for every shape of batch that comes."""

    def __init__(self, task: Task, network: nn.Module, optimiser: Adam) -> None:
        self.task, self.network, self.optimiser = task, network, optimiser
        self.graphs: dict[tuple[torch.Size, torch.Size], tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def __call__(self, x: Tensor, y: Tensor) -> None:
        if x.device.type != "cuda":
            step(self.task, self.network, self.optimiser, x, y)
            return
        shapes = (x.shape, y.shape)
        if shapes not in self.graphs:
            self.graphs[shapes] = self._capture(x, y)
        graph, held_x, held_y = self.graphs[shapes]
        held_x.copy_(x)
        held_y.copy_(y)
        graph.replay()

    def _capture(self, x: Tensor, y: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        """Warm up on a side stream, put the state back, capture one step that reads its batch from held tensors."""
        held_x, held_y = x.clone(), y.clone()
        tensors = self.optimiser.tensors()
        with torch.no_grad():
            kept = [tensor.clone() for tensor in tensors]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                step(self.task, self.network, self.optimiser, held_x, held_y)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(self.task, self.network, self.optimiser, held_x, held_y)
        with torch.no_grad():
            for tensor, old in zip(tensors, kept, strict=True):
                tensor.copy_(old)
        return graph, held_x, held_y


def pick(values: Tensor, chosen: Int[Tensor, "M B"]) -> Tensor:
    """values (M or 1, N, ...) at each model's own rows: (M, B, ...)."""
    if values.shape[0] == 1:
        return values[0][chosen]
    return values[torch.arange(len(chosen), device=values.device).unsqueeze(1), chosen]


@torch.no_grad()
def evaluate(task: Task, network: nn.Module, data: Samples, models: int) -> dict[str, list[float | None]]:
    """The mean of every measure over the test samples, in float64, for every model; None where it is not finite."""
    totals: dict[str, Tensor] = {}
    count = data.x_test.shape[1]
    for rows in torch.arange(count, device=data.x_test.device).split(EVALUATED):
        chosen = rows.expand(models, -1)
        for name, values in task.errors(network(pick(data.x_test, chosen)), pick(data.y_test, chosen)).items():
            totals[name] = totals.get(name, 0) + values.double().sum(1)
    return {name: [_finite(value) for value in (total / count).tolist()] for name, total in totals.items()}


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None  # False for NaN as well


def train_grid(
    context: Context, grid: Mapping[Any, Sequence[Cell]], title: str, stack: int | None = None
) -> dict[Any, list[dict[str, Any]]]:
    """Every cell of the grid, finished ones from the store; cells that differ in their seed alone are stacked."""
    device = check_device(context.device)
    cells = {cell.key: cell for members in grid.values() for cell in members}
    groups: dict[str, list[Cell]] = {}
    for key, cell in cells.items():
        if not _path(context, key).exists():
            same = json.dumps({**cell.identity(), "seed": 0}, sort_keys=True)
            groups.setdefault(same, []).append(cell)
    size = min(stack or STACK[device.type], STACK[device.type])
    parts = [group[at : at + size] for group in groups.values() for at in range(0, len(group), size)]
    until = inf if context.seconds is None else time.monotonic() + context.seconds
    with Progress(title, sum(part[0].schedule.epochs for part in parts)) as bar:
        done = 0
        for number, part in enumerate(parts):
            if not _train_part(context, part, device, _report(bar, done), until):
                raise JobError(
                    f"expected to finish {len(parts)} stacks of {title}, finished {number} in {context.seconds:g} s; "
                    f"the same call goes on from {context.store}."
                )
            done += part[0].schedule.epochs
    return {name: [_read(_path(context, cell.key), cell) for cell in members] for name, members in grid.items()}


def _report(bar: Progress, before: int) -> Callable[[int], None]:
    """Tells the bar of one stack's epochs; those ahead of the first to be reported are an earlier call's."""
    first = True

    def report(epoch: int) -> None:
        nonlocal first
        if first:
            bar.skip(epoch - 1)
        first = False
        bar.update(before + epoch)

    return report


def _train_part(
    context: Context, part: list[Cell], device: torch.device, progress: Callable[[int], None], until: float
) -> bool:
    """Whether the part was finished in time; its results are in the store then."""
    name = hashlib.sha256(" ".join(cell.key for cell in part).encode()).hexdigest()[:24]
    state = context.store / "checkpoints" / f"{name}.safetensors"
    seeds = [cell.seed for cell in part]
    epochs: list[int] = []

    def report(epoch: int) -> None:
        epochs.append(epoch)
        progress(epoch)

    try:
        records = train_stack(part[0].task, part[0].schedule, seeds, device, report, state, until)
    finally:  # a call that was stopped has trained, too
        if epochs:
            note_training(context)
    if records is None:
        return False
    for cell, record in zip(part, records, strict=True):
        payload = {"key": cell.key, "identity": cell.identity(), "device": str(device), **record}
        write_json(_path(context, cell.key), payload)
    state.unlink(missing_ok=True)
    return True


def _path(context: Context, key: str) -> Path:
    return context.store / f"{key}.json"


def _read(path: Path, cell: Cell) -> dict[str, Any]:
    try:
        payload: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict) or payload.get("key") != cell.key or not isinstance(payload.get("final"), dict):
        raise InfoFlowError(f"expected a finished cell in {path}, could not read one; remove the file to train again.")
    return payload


def spread(records: Sequence[dict[str, Any]], name: str) -> tuple[float | None, float | None]:
    """Mean and standard deviation of a final measure over the models where it is finite."""
    values = torch.tensor([r["final"][name] for r in records if r["final"][name] is not None], dtype=torch.float64)
    if not len(values):
        return None, None
    return float(values.mean()), float(values.std()) if len(values) > 1 else 0.0


def throughput(task: Task, batch: int, lr: float, models: int, steps: int, device: torch.device) -> dict[str, float]:
    """Model-steps a second, `models` stacked as a grid is against the same models one after the other, in one run."""
    rates = {}
    for name, size in (("stacked", STACK[device.type]), ("one by one", 1)):
        seconds = 0.0
        for seeds in (range(at, min(at + size, models)) for at in range(0, models, size)):
            network = stacked(task.network, seeds).to(device)
            data = task.samples(seeds)
            x, y = (values[:, :batch].expand(len(seeds), *values[:, :batch].shape[1:]) for values in (data.x, data.y))
            x, y = x.to(device), y.to(device)
            advance = Stepper(task, network, Adam(network, lr))
            advance(x, y)  # warm: buffers exist from here on
            seconds += _timed(advance, x, y, steps)
        rates[name] = models * steps / seconds
    return rates


def _timed(advance: Stepper, x: Tensor, y: Tensor, steps: int) -> float:
    wait = torch.cuda.synchronize if x.device.type == "cuda" else (lambda: None)
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        advance(x, y)
    wait()
    return time.perf_counter() - start
