"""Training one stack of models step by step: eager on a CPU, a captured graph on CUDA."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from infoflow.train.data import Data, epoch_order, make_data
from infoflow.train.kernels.layer import Fused
from infoflow.train.recipe import Run
from infoflow.train.stack import Stack

CAPTURE = threading.Lock()  # groups may train side by side, each on its stream; graphs are captured one at a time
WARM_UP = 3  # steps before a CUDA graph is captured; their effect is undone


@dataclass
class Trained:
    """A stack on its way: curves (evaluations, M) and, per model, the best weights so far."""

    stack: Stack
    data: Data
    curve: list[list[float]] = field(default_factory=list)  # NMSE of every model at each evaluation
    steps: list[int] = field(default_factory=list)  # the step of each evaluation
    best: Tensor = field(init=False)  # (M,)
    best_weights: Tensor = field(init=False)  # (M, P)
    best_second: Tensor = field(init=False)  # (M, P), the second moments that went with them
    rollbacks: Tensor = field(init=False)  # (M,) times a model went back to its best
    diverged_at: Tensor = field(init=False)  # (M,) step of the evaluation that found the model frozen, -1 if none did
    step: int = 0  # steps done
    before: int = 0  # steps of each model that were spent on choosing where to start
    together: int = 1  # rows a model has in the stack: several while its starts are tried
    seconds: float = 0.0
    tried: list[list[float]] = field(init=False)  # for each model, the best NMSE of its starts where there were several

    def __post_init__(self) -> None:
        M, device = len(self.stack.runs), self.stack.weights.device
        self.tried = [[] for _ in range(M)]
        self.best = torch.full((M,), torch.inf, dtype=torch.float64, device=device)
        self.best_weights = self.stack.weights.clone()
        self.best_second = self.stack.state.second.clone()
        self.rollbacks = torch.zeros(M, dtype=torch.int64, device=device)
        self.diverged_at = torch.full((M,), -1, dtype=torch.int64, device=device)

    @property
    def finished(self) -> bool:
        return self.step >= self.stack.runs[0].recipe.total_steps

    @property
    def done(self) -> int:
        """Steps of each model so far, with those of its starts."""
        return self.before + self.together * self.step

    def look(self, batch: int) -> None:
        """Evaluate every model; remember the best weights of each, and return to them where the recipe says so."""
        stack, multiple = self.stack, self.stack.runs[0].recipe.rollback
        nmse = stack.nmse(self.data, batch)
        better = nmse < self.best  # False for NaN
        self.best = torch.where(better, nmse, self.best)
        self.best_weights.copy_(torch.where(better.unsqueeze(1), stack.weights, self.best_weights))
        if multiple is not None:
            self.best_second.copy_(torch.where(better.unsqueeze(1), stack.state.second, self.best_second))
            worse = ~(nmse <= multiple * self.best)  # True for NaN
            stack.go_back(worse, self.best_weights, self.best_second)
            self.rollbacks += worse
        alive = stack.state.alive.squeeze(1)
        self.diverged_at = torch.where(alive | (self.diverged_at >= 0), self.diverged_at, self.step)
        self.curve.append(nmse.tolist())
        self.steps.append(self.step)


Report = Callable[[Trained], None]
Save = Callable[[Trained], object]


def start(runs: Sequence[Run], device: torch.device, fused: Fused | None, data: Data | None = None) -> Trained:
    first = runs[0]
    data = data if data is not None else make_data(first.target, first.T, first.recipe, device)
    return Trained(Stack(runs, device, fused), data)


def train(
    state: Trained,
    report: Report | None = None,
    save: Save | None = None,
    save_every: float = 20.0,
    stop: Callable[[], bool] | None = None,
) -> Trained:
    """Train from `state.step` to the end, or until `stop()`; `save` is called every `save_every` seconds and then."""
    stack, recipe = state.stack, state.stack.runs[0].recipe
    seeds = torch.tensor([run.seed for run in stack.runs], device=stack.weights.device)
    total, per_epoch = recipe.total_steps, recipe.steps_per_epoch
    stepper = Stepper(stack, state.data, recipe.batch_size, per_epoch)
    last_save = began = time.monotonic()
    loaded = -1
    while state.step < total:
        epoch, place = divmod(state.step, per_epoch)
        if epoch != loaded:
            stepper.load_order(epoch_order(seeds, epoch, recipe.samples), place)
            loaded = epoch
        stepper.step()
        state.step += 1
        if state.step % (per_epoch * recipe.evaluate_every) == 0 or state.step == total:
            state.look(recipe.batch_size)
        now = time.monotonic()
        stopping = stop is not None and stop()
        if save is not None and (stopping or now - last_save >= save_every) and state.step < total:
            state.seconds, began = state.seconds + now - began, now
            save(state)
            last_save = time.monotonic()
        if report is not None:
            report(state)
        if stopping:
            break
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

    def load_order(self, order: Tensor, place: int = 0) -> None:
        """The order of an epoch, to be read from batch `place` on."""
        M = order.shape[0]
        self.order.copy_(order[:, : self.per_epoch * self.batch].view(M, self.per_epoch, self.batch))
        self.position.fill_(place)

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
        with CAPTURE, torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._eager()
        for tensor, old in zip(tensors, kept, strict=True):
            tensor.copy_(old)
        return graph
