"""One part trained: starts tried, steps made, memory that runs out, and what its models leave.

Engines train the parts of a `Sweep`: they feed its `Board`, the one bar, and ask its `Stop` whether to end.
"""

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from infoflow.cost import out_of_memory
from infoflow.errors import JobError
from infoflow.progress import Progress
from infoflow.train import checkpoint
from infoflow.train.loop import CAPTURE, Report, Save, Training, data_of, start, train
from infoflow.train.plan import Part, choose
from infoflow.train.run import Run
from infoflow.train.stack import Stack, single_network
from infoflow.train.store import Result, finite
from infoflow.train.task import Data

Finished = list[tuple[Result, Any]]  # results with their networks
Provide = Callable[[Sequence[Run]], Data]
Keep = Callable[[Finished], None]


def train_part(
    part: Part,
    device: torch.device,
    provide: Provide,
    checkpoints: Path | None,
    stop: Callable[[], bool],
    report: Report | None,
) -> Finished | None:
    """Train a part from its checkpoint or from the start; None when it was stopped (and saved) on the way."""
    state, recipe = start(part.runs, device, part.choice.fused, provide(part.runs)), part.runs[0].recipe
    try:
        if part.checkpoint is not None and part.checkpoint.restore(state):
            state.before = recipe.trial_steps
        elif recipe.starts > 1:
            size = trial_stack(part.runs, device, part.choice.workers if device.type == "cuda" else None)
            if not choose_start(state, size, report, stop, checkpoints, part.save_every):
                return None
        train(state, report, _saver(checkpoints, part.runs), part.save_every, stop)
    except OSError as error:
        raise JobError(f"expected to write a checkpoint in {checkpoints}, could not ({error.strerror}).") from None
    return results(part, state) if state.finished else None


def _saver(folder: Path | None, runs: Sequence[Run]) -> Save | None:
    """What saves a part that is past its starts. With its second save what the starts left is removed: two checkpoints
    then hold what was chosen, so that one may be damaged, and a sweep that is stopped is small enough to carry."""
    if folder is None or runs[0].recipe.starts == 1:
        return checkpoint.saver(folder)
    starts, saves = {start.key for run in runs for start in run.trials()}, 0

    def save(state: Training) -> None:
        nonlocal saves
        checkpoint.save(folder, state)
        saves += 1
        if saves == 2:
            checkpoint.tidy(folder, starts)

    return save


def trial_stack(runs: Sequence[Run], device: torch.device, workers: int | None = None) -> int:
    """How many starts are trained together: as many as would be stacked if these were all there is to train."""
    return choose([start for run in runs for start in run.trials()], device, workers).stack


def choose_start(
    state: Training,
    size: int,
    report: Report | None = None,
    stop: Callable[[], bool] | None = None,
    folder: Path | None = None,
    save_every: float = 20.0,
) -> bool:
    """Train every start of every model, and put the weights of the best in place; False when `stop()` came first.

    A network with exactly the heads it needs may end in a minimum where one of them is wasted, and which of its initial
    weights lead there is seen early. Stacks of about `size` models hold as many starts of each. What the trials
    reached is no result: a model is judged by what it reaches afterwards.

    A start is an ordinary run, so with a `folder` its checkpoints are ordinary ones. They stay when a start is
    finished: the choice needs all of them.
    """
    stack, recipe, M = state.stack, state.stack.runs[0].recipe, len(state.stack.runs)
    best = torch.full_like(state.best, torch.inf)
    save = checkpoint.saver(folder)
    for numbers in torch.arange(recipe.starts).split(max(1, size // M)):
        runs = [run.start(int(number)) for number in numbers for run in stack.runs]
        trial = Training(Stack(runs, stack.weights.device, stack.fused), state.data)
        trial.before, trial.together = state.before, len(numbers)
        found = None if folder is None else checkpoint.holding(folder, runs)
        if found is not None:
            found.restore(trial)
        train(trial, report, save, save_every, stop)
        state.seconds += trial.seconds
        if not trial.finished:
            return False
        if save is not None:
            save(trial)  # of a finished stack, too: the next one may be stopped
        state.before = trial.done
        for error, weights in zip(trial.best.split(M), trial.best_weights.split(M), strict=True):
            better = error < best  # False for NaN
            best = torch.where(better, error, best)
            for values, value in zip(state.tried, error.tolist(), strict=True):
                values.append(value)
            stack.weights.copy_(torch.where(better.unsqueeze(1), weights, stack.weights))
    state.best_weights.copy_(stack.weights)
    return True


def results(part: Part, state: Training) -> Finished:
    """What every model of a finished part leaves, with its network at its best evaluation."""
    stack, data = state.stack, state.data
    stacked = stack.networks(state.best_weights, data)
    with torch.no_grad():
        kept = stack.task.keep(stack.network, data)
    tested = scored(state)
    best, diverged = state.best.tolist(), state.diverged_at.tolist()
    found = []
    for row, run in enumerate(part.runs):
        curves = {name: [finite(values[row]) for values in curve] for name, curve in state.curves.items()}
        measure = next(iter(curves))
        curve = curves.pop(measure)
        result = Result(
            key=run.key,
            identity=run.identity(),
            status="ok" if diverged[row] < 0 else "diverged",
            best=finite(best[row]),
            final=curve[-1],
            curve=curve,
            curve_steps=list(state.steps),
            steps=run.recipe.total_steps,
            diverged_at=None if diverged[row] < 0 else diverged[row],
            seconds=state.seconds,
            stacked=len(part.runs),
            choice=part.choice.to_json(),
            rollbacks=int(state.rollbacks[row]),
            tried=[finite(value) for value in state.tried[row]],
            measure=measure,
            baseline=data.baseline,
            metrics=curves,
            kept=kept[row],
            test=tested[row],
        )
        network = single_network(run, stacked, row)
        network.header = run.task.header(run.T)  # type: ignore[assignment]
        found.append((result, network))
    return found


def scored(state: Training) -> list[float | None]:
    """The error of every model at its best validation error on samples that chose nothing; the stack ends there."""
    stack, test = state.stack, state.data.test
    if test is None:
        return [None] * len(stack.runs)
    stack.weights.copy_(state.best_weights)
    with CAPTURE:
        measured = stack.measure(test, stack.runs[0].recipe.batch_size)
    return [finite(value) for value in next(iter(measured.values())).tolist()]


def provider(device: torch.device) -> Provide:
    """Data made anew at every call; one sentence when they do not fit the device."""

    def provide(runs: Sequence[Run]) -> Data:
        try:
            return data_of(runs, device)
        except Exception as error:
            if not out_of_memory(error):
                raise
        raise JobError(too_large(runs[0], device))

    return provide


def remembered(provide: Provide) -> Provide:
    """Data that all pieces of a part share are made once; those of each seed's own belong to one piece."""
    held: dict[str, Data] = {}

    def found(runs: Sequence[Run]) -> Data:
        if runs[0].task.seeded:
            return provide(runs)
        if runs[0].data_name not in held:
            held[runs[0].data_name] = provide(runs)
        return held[runs[0].data_name]

    return found


def train_or_split(
    part: Part,
    device: torch.device,
    provide: Provide,
    checkpoints: Path | None,
    stop: Callable[[], bool],
    follow: Callable[[Part], Report | None],
) -> list[Finished]:
    """The results of a part: in one piece or, when memory runs out, in several; nothing of what was stopped."""
    try:
        finished = None if stop() else train_part(part, device, provide, checkpoints, stop, follow(part))
        return [] if finished is None else [finished]
    except Exception as error:
        if not out_of_memory(error):
            raise
    if len(part.runs) == 1:
        raise JobError(too_large(part.runs[0], device))
    if device.type == "cuda":
        torch.cuda.empty_cache()
    halves = (train_or_split(half, device, provide, checkpoints, stop, follow) for half in part.halves())
    return [finished for half in halves for finished in half]


def too_large(run: Run, device: torch.device) -> str:
    """One sentence for a model that does not fit in memory alone."""
    return (
        f"expected one model and its data to fit in the memory of {device}, T={run.T} with batch "
        f"{run.recipe.batch_size} and {run.recipe.samples} samples did not; take less of one of them."
    )


def taken_up(part: Part, checkpoints: Path | None) -> Part:
    """With the checkpoint that holds all of it, if there is one: the latest, also when a part is begun again."""
    return part if checkpoints is None else replace(part, checkpoint=checkpoint.holding(checkpoints, part.runs))


class Stop:
    """True once the time is up or somebody said so."""

    def __init__(self, seconds: float | None = None) -> None:
        self.end = None if seconds is None else time.monotonic() + seconds
        self.told = threading.Event()

    def __call__(self) -> bool:
        return self.told.is_set() or (self.end is not None and time.monotonic() >= self.end)

    def now(self) -> None:
        """Stop as soon as every stack has saved its state."""
        self.told.set()


class Board:
    """Progress in model-steps; beside it models per second, and best and median of each model's least error so far.

    What is told costs as much as it tells; the line beside the bar looks at every model, and is made for the bar
    alone, which asks for it when it draws.
    """

    def __init__(self, parts: Sequence[Part], bar: Progress) -> None:
        self.bar = bar
        self.total = {run.key: run.recipe.all_steps for part in parts for run in part.runs}
        self.done = {run.key: part.before for part in parts for run in part.runs}  # by run: steps
        self.best: dict[str, float] = {}
        self.steps = sum(self.done.values())
        self.models = 0.0  # trained by this call, in parts of a model
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.last = 0.0

    def follow(self, part: Part) -> Report:
        """A function that reports a part's progress, ten times a second at most."""
        keys = [run.key for run in part.runs]

        def report(state: Training) -> None:
            now = time.monotonic()
            if now - self.last >= 0.1 or state.finished:  # a look at the device's numbers now and then
                self.last = now
                best = state.best.tolist() if state.steps and state.together == 1 else []
                self.tell(keys, state.done, best)

        return report

    def tell(self, keys: Sequence[str], step: int, best: Sequence[float]) -> None:
        """These runs have come to this step."""
        with self.lock:
            for key in keys:
                self.steps += step - self.done[key]
                self.models += (step - self.done[key]) / self.total[key]
                self.done[key] = step
            self.best.update(zip(keys, best, strict=False))
            self.bar.update(self.steps, self._note)

    def finish(self, results: Sequence[Result]) -> None:
        """These runs are done."""
        for result in results:
            self.tell([result.key], self.total[result.key], [] if result.best is None else [result.best])

    def _note(self) -> str:
        seconds = time.monotonic() - self.began
        note = f"{self.models / seconds:.3g} models/s" if seconds > 0 else ""
        if self.best:
            note += f"  best {min(self.best.values()):.2e}  median {statistics.median(self.best.values()):.2e}"
        return note


@dataclass(frozen=True)
class Sweep:
    """What an engine is given: parts to train on a device, and what becomes of their results."""

    parts: Sequence[Part]
    device: torch.device
    keep: Keep  # called in the engine's own thread with the results of each part
    checkpoints: Path | None
    stop: Stop
    board: Board
