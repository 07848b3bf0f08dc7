"""One stack of models on a task that is not a `Target`: regression on tokens, tagging, ranking.

Models of one shape are stacked along a leading axis and trained in one pass with Adam. A model draws its weights, its
data where these are its own, and the order in which it sees them from its own seed, and every operation carries the
model axis, so a model ends as if it had been trained alone (up to rounding).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow.lab import resume
from infoflow.train.loop import WARM_UP
from infoflow.train.stack import BETAS, EPS

EVALUATED = 256  # test samples in one pass
SAVE_EVERY = 60.0  # seconds between checkpoints of a stack


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
