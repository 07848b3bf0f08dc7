"""Training one group: runs that can be stacked, from start or checkpoint to results."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from infoflow.train.data import Data, epoch_order, make_data
from infoflow.train.kernels.layer import Fused
from infoflow.train.recipe import Run
from infoflow.train.stack import Stack

WARM_UP = 3  # steps before a CUDA graph is captured; their effect is undone


@dataclass
class Trained:
    """What a group's training left: curves (evaluations, M) and, per model, the best weights."""

    stack: Stack
    data: Data
    curve: list[list[float]] = field(default_factory=list)  # NMSE of every model at each evaluation
    steps: list[int] = field(default_factory=list)  # the step of each evaluation
    best: Tensor | None = None  # (M,)
    best_weights: Tensor | None = None  # (M, P)
    diverged_at: Tensor | None = None  # (M,) first evaluation's step at which the model was found frozen, -1 if never
    epoch: int = 0
    seconds: float = 0.0

    def look(self, batch: int) -> None:
        """Evaluate every model; remember the best weights of each."""
        nmse = self.stack.nmse(self.data, batch)
        alive = self.stack.state.alive.squeeze(1)
        step = int(self.stack.state.step)
        if self.best is None or self.best_weights is None or self.diverged_at is None:
            self.best = torch.full_like(nmse, torch.inf)
            self.best_weights = self.stack.weights.clone()
            self.diverged_at = torch.full_like(nmse, -1.0)
        better = (nmse < self.best) & torch.isfinite(nmse)
        self.best = torch.where(better, nmse, self.best)
        self.best_weights.copy_(torch.where(better.unsqueeze(1), self.stack.weights, self.best_weights))
        self.diverged_at = torch.where(alive | (self.diverged_at >= 0), self.diverged_at, float(step))
        self.curve.append(nmse.tolist())
        self.steps.append(step)


Report = Callable[[int, Trained], None]  # (steps done of every model, state)
Save = Callable[[Trained], None]


def start(runs: Sequence[Run], device: torch.device, fused: Fused | None, data: Data | None = None) -> Trained:
    first = runs[0]
    data = data if data is not None else make_data(first.target, first.T, first.recipe, device)
    return Trained(Stack(runs, device, fused), data)


def train(state: Trained, report: Report | None = None, save: Save | None = None, save_every: float = 20.0) -> Trained:
    """Train from `state.epoch` to the end. `save` is called at epoch boundaries, at most every `save_every` seconds."""
    stack, recipe = state.stack, state.stack.runs[0].recipe
    device = stack.weights.device
    seeds = torch.tensor([run.seed for run in stack.runs], device=device)
    total, per_epoch = recipe.total_steps, recipe.steps_per_epoch
    epochs = -(-total // per_epoch)
    stepper = Stepper(stack, state.data, recipe.batch_size, per_epoch)
    last_save = began = time.monotonic()
    for epoch in range(state.epoch, epochs):
        stepper.load_order(epoch_order(seeds, epoch, recipe.samples))
        for _ in range(min(per_epoch, total - epoch * per_epoch)):
            stepper.step()
        state.epoch = epoch + 1
        if state.epoch % recipe.evaluate_every == 0 or state.epoch == epochs:
            state.look(recipe.batch_size)
        now = time.monotonic()
        if report is not None:
            report(min(state.epoch * per_epoch, total), state)
        if save is not None and now - last_save >= save_every and state.epoch < epochs and state.curve:
            state.seconds += now - began
            save(state)
            began = last_save = time.monotonic()
    state.seconds += time.monotonic() - began
    return state


class Stepper:
    """One step of the whole stack from the epoch's order: eager on a CPU, a captured graph on CUDA."""

    def __init__(self, stack: Stack, data: Data, batch: int, per_epoch: int) -> None:
        self.stack, self.data, self.batch, self.per_epoch = stack, data, batch, per_epoch
        device, M = stack.weights.device, len(stack.runs)
        self.order = torch.zeros(M, per_epoch, batch, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def load_order(self, order: Tensor) -> None:
        M = order.shape[0]
        self.order.copy_(order[:, : self.per_epoch * self.batch].view(M, self.per_epoch, self.batch))
        self.position.zero_()

    def step(self) -> None:
        if self.stack.weights.device.type != "cuda":
            self._eager()
            return
        if self.graph is None:
            self.graph = self._capture()
        self.graph.replay()

    def _eager(self) -> None:
        chosen = self.order.index_select(1, self.position).squeeze(1)
        self.stack.train_step(self.data, chosen)
        self.position.add_(1).remainder_(self.per_epoch)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Warm up on a side stream (kernels compile, libraries allocate), put the state back, capture one step."""
        tensors = [*self.stack.tensors().values(), self.position]
        kept = [tensor.clone() for tensor in tensors]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.stack.state.step.zero_()  # the table of a short run may have fewer rows than we warm up
                self._eager()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._eager()
        for tensor, old in zip(tensors, kept, strict=True):
            tensor.copy_(old)
        return graph
