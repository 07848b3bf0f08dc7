"""Training one stack of models step by step: eager on a CPU, captured graphs on CUDA."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from infoflow.train.folded import Fused
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.stack import Stack, pick
from infoflow.train.task import Data

# Groups may train side by side, each on its stream. While one captures a graph no other may replay, evaluate or warm
# up: they share PyTorch's random state and allocator, and an H200 answered with illegal addresses (`cuda_check.py`).
CAPTURE = threading.RLock()
WARM_UP = 3  # steps before a CUDA graph is captured; their effect is undone


@dataclass
class Training:
    """A stack on its way: curves and, per model, the best weights so far; the first metric is the error that judges."""

    stack: Stack
    data: Data
    curves: dict[str, list[list[float]]] = field(default_factory=dict)  # by metric: every model at each evaluation
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
    tried: list[list[float]] = field(init=False)  # for each model, the least error of its starts, if several

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
        """Whether every step has been made."""
        return self.step >= self.stack.runs[0].recipe.total_steps

    @property
    def done(self) -> int:
        """Steps of each model so far, with those of its starts."""
        return self.before + self.together * self.step

    def evaluate(self, batch: int) -> None:
        """Evaluate every model; remember the best weights of each, and return to them where the recipe says so."""
        stack, multiple = self.stack, self.stack.runs[0].recipe.rollback
        measured = stack.measure(self.data, batch)
        error = next(iter(measured.values()))
        better = error < self.best  # False for NaN
        self.best = torch.where(better, error, self.best)
        self.best_weights.copy_(torch.where(better.unsqueeze(1), stack.weights, self.best_weights))
        if multiple is not None:
            self.best_second.copy_(torch.where(better.unsqueeze(1), stack.state.second, self.best_second))
            worse = ~(error <= multiple * self.best)  # True for NaN
            stack.go_back(worse, self.best_weights, self.best_second)
            self.rollbacks += worse
        alive = stack.state.alive.squeeze(1)
        self.diverged_at = torch.where(alive | (self.diverged_at >= 0), self.diverged_at, self.step)
        for name, values in measured.items():
            self.curves.setdefault(name, []).append(values.tolist())
        self.steps.append(self.step)


def evaluated_at(recipe: Recipe, step: int) -> list[int]:
    """The steps after which a run that has made `step` of them was looked at."""
    every = recipe.steps_per_epoch * recipe.evaluate_every
    due = [0] * recipe.evaluate_first + list(range(every, step + 1, every))
    return due if step < recipe.total_steps or step in due else [*due, step]


Report = Callable[[Training], None]
Save = Callable[[Training], object]


def start(runs: Sequence[Run], device: torch.device, fused: Fused | None, data: Data | None = None) -> Training:
    """A stack before its first step, with its data drawn."""
    return Training(Stack(runs, device, fused), data_of(runs, device) if data is None else data)


def data_of(runs: Sequence[Run], device: torch.device) -> Data:
    """What these runs of one group train on."""
    return runs[0].task.data(runs[0].T, runs[0].recipe, [run.seed for run in runs], device)


def train(
    state: Training,
    report: Report | None = None,
    save: Save | None = None,
    save_every: float = 20.0,
    stop: Callable[[], bool] | None = None,
) -> Training:
    """Train from `state.step` to the end, or until `stop()`; `save` is called every `save_every` seconds and then."""
    stack, recipe = state.stack, state.stack.runs[0].recipe
    seeds = torch.tensor([run.seed for run in stack.runs], device=stack.weights.device)
    total, per_epoch = recipe.total_steps, recipe.steps_per_epoch
    stepper = Stepper(stack, state.data, recipe.batch_size, per_epoch)
    last_save = began = time.monotonic()
    loaded = -1
    if recipe.evaluate_first and not state.steps:
        with CAPTURE:
            state.evaluate(recipe.batch_size)
    while state.step < total:
        epoch, place = divmod(state.step, per_epoch)
        if epoch != loaded:
            stepper.load_order(epoch_order(seeds, epoch, recipe.samples), place)
            loaded = epoch
        stepper.step()
        state.step += 1
        if state.step % (per_epoch * recipe.evaluate_every) == 0 or state.step == total:
            with CAPTURE:
                state.evaluate(recipe.batch_size)
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
    """One step of the whole stack from the epoch's order: eager on a CPU, a captured graph on CUDA.

    Where samples differ in length a batch is cut to its longest, and every length has a graph of its own.
    """

    def __init__(self, stack: Stack, data: Data, batch: int, per_epoch: int) -> None:
        self.stack, self.data, self.batch, self.per_epoch = stack, data, batch, per_epoch
        device, M = stack.weights.device, len(stack.runs)
        self.order = torch.zeros(M, per_epoch, batch, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.columns: list[int | None] = [None] * per_epoch
        self.place = 0
        self.graphs: dict[int | None, torch.cuda.CUDAGraph] = {}

    def load_order(self, order: Int[Tensor, "M samples"], place: int = 0) -> None:
        """The order of an epoch, to be read from batch `place` on."""
        M = order.shape[0]
        self.order.copy_(order[:, : self.per_epoch * self.batch].view(M, self.per_epoch, self.batch))
        self.position.fill_(place)
        self.place = place
        if self.data.lengths is not None:  # of the whole epoch at once: a GPU would wait for every batch that asks
            lengths = pick(self.data.lengths, self.order.flatten(1).cpu()).view(self.order.shape)
            self.columns = lengths.amax((0, 2)).tolist()

    def step(self) -> None:
        """One batch: gradients, clipping, AdamW; on CUDA a captured graph is replayed."""
        columns = self.columns[self.place]
        self.place = (self.place + 1) % self.per_epoch
        if self.stack.weights.device.type != "cuda":
            self._eager(columns)
            return
        with CAPTURE:
            if columns not in self.graphs:
                torch.cuda.synchronize()
                self.graphs[columns] = self._capture(columns)
            self.graphs[columns].replay()

    def _eager(self, columns: int | None) -> None:
        chosen = self.order.index_select(1, self.position).squeeze(1)
        self.stack.train_step(self.data, chosen, columns)
        self.position.add_(1).remainder_(self.per_epoch)

    def _capture(self, columns: int | None) -> torch.cuda.CUDAGraph:
        """Warm up on a side stream (kernels compile, libraries allocate), put the state back, capture one step."""
        tensors = [*self.stack.tensors().values(), self.position]
        kept = [tensor.clone() for tensor in tensors]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.stack.state.step.zero_()  # the table of a short run may have fewer rows than we warm up
                self._eager(columns)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._eager(columns)
        for tensor, old in zip(tensors, kept, strict=True):
            tensor.copy_(old)
        return graph


def epoch_order(seeds: Int[Tensor, " M"], epoch: int, samples: int) -> Int[Tensor, "M samples"]:
    """A permutation for each (seed, epoch), the same on every device: the argsort of a 64-bit hash of the triple."""
    counter = torch.arange(samples, device=seeds.device)
    return torch.argsort(_mix(_mix(_mix(seeds) + epoch).unsqueeze(1) + counter), dim=1, stable=True)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 on wrapping int64 arithmetic."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x
