"""A part: runs of one group that are trained in one pass. Every engine trains parts, and only parts."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from infoflow.errors import JobError
from infoflow.nn import Transformer
from infoflow.train import checkpoint
from infoflow.train.checkpoint import Checkpoint
from infoflow.train.data import Data, make_data
from infoflow.train.engines.choice import Choice, choose
from infoflow.train.loop import Report, Trained, start, train
from infoflow.train.recipe import Run
from infoflow.train.results import Result, finite
from infoflow.train.starts import choose_start, trial_stack, tried_steps

SAVE_EVERY = 20.0  # seconds between checkpoints of a part, wherever it is trained

Finished = list[tuple[Result, Transformer]]


@dataclass(frozen=True)
class Part:
    runs: tuple[Run, ...]
    choice: Choice
    checkpoint: Checkpoint | None = None
    save_every: float = SAVE_EVERY
    tried_steps: int = 0  # of each model's starts, held by checkpoints while none is chosen yet

    @property
    def steps(self) -> int:
        """Model-steps of the whole part."""
        return len(self.runs) * self.runs[0].recipe.all_steps

    @property
    def before(self) -> int:
        """Steps of each model that checkpoints hold, with those of its starts."""
        return self.tried_steps if self.checkpoint is None else self.runs[0].recipe.trial_steps + self.checkpoint.step

    def halves(self) -> "tuple[Part, Part]":
        middle = len(self.runs) // 2
        return replace(self, runs=self.runs[:middle]), replace(self, runs=self.runs[middle:])


def plan(runs: Sequence[Run], pending: Collection[str], device: torch.device, checkpoints: Path | None) -> list[Part]:
    """Parts that cover the pending runs: those with a checkpoint as they were stacked, the rest at the chosen size.

    A stack that comes from another machine may be larger than is chosen here (a GPU's for a core): it is taken up in
    pieces. The sizes are chosen for all runs of a group, finished or not, so an interrupted sweep falls into the same
    parts.
    """
    starts = {start.key for run in runs if run.key in pending for start in run.trials()}
    saved = checkpoint.find(checkpoints, {*pending, *starts}) if checkpoints is not None else []
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    parts = []
    for members in groups.values():
        choice = choose(members, device)
        left = {run.key: run for run in members if run.key in pending}
        for found in saved:
            held = tuple(left.pop(key) for key in found.keys if key in left)
            for first in range(0, len(held), choice.stack):
                parts.append(Part(held[first : first + choice.stack], choice, found, SAVE_EVERY))
        for first in range(0, len(members), choice.stack):
            taken = tuple(run for run in members[first : first + choice.stack] if run.key in left)
            if taken:
                parts.append(Part(taken, choice, None, SAVE_EVERY, tried_steps(taken[0], saved)))
    return parts


def train_part(
    part: Part,
    device: torch.device,
    data: Data,
    checkpoints: Path | None,
    stop: Callable[[], bool],
    report: Report | None,
) -> Finished | None:
    """Train a part from its checkpoint or from the start; None when it was stopped (and saved) on the way."""
    state, recipe = start(part.runs, device, part.choice.fused, data), part.runs[0].recipe
    try:
        if part.checkpoint is not None and part.checkpoint.restore(state):
            state.before = recipe.trial_steps
        elif recipe.starts > 1:
            size = trial_stack(part.runs, device)
            if not choose_start(state, size, report, stop, checkpoints, part.save_every):
                return None
        train(state, report, checkpoint.saver(checkpoints), part.save_every, stop)
    except OSError as error:
        raise JobError(f"expected to write a checkpoint in {checkpoints}, could not ({error.strerror}).") from None
    return results(part, state) if state.finished else None


def results(part: Part, state: Trained) -> Finished:
    stacked = state.stack.networks(state.best_weights, state.data)
    best, diverged = state.best.tolist(), state.diverged_at.tolist()
    found = []
    for row, run in enumerate(part.runs):
        curve = [finite(values[row]) for values in state.curve]
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
        )
        network = stacked.select(row).cpu()
        network.header = {"target": run.target.spelling, "T": run.T}
        found.append((result, network))
    return found


def labelled(run: Run, device: torch.device) -> Data:
    """The data of a run on the device, or one sentence when they do not fit there."""
    try:
        return make_data(run.target, run.T, run.recipe, device)
    except Exception as error:
        if not out_of_memory(error):
            raise
    raise JobError(too_large(run, device))


def train_or_split(
    part: Part,
    device: torch.device,
    data: Data,
    checkpoints: Path | None,
    stop: Callable[[], bool],
    follow: Callable[[Part], Report | None],
) -> list[Finished]:
    """The results of a part: in one piece or, when memory runs out, in several; nothing of what was stopped."""
    try:
        finished = None if stop() else train_part(part, device, data, checkpoints, stop, follow(part))
        return [] if finished is None else [finished]
    except Exception as error:
        if not out_of_memory(error):
            raise
    if len(part.runs) == 1:
        raise JobError(too_large(part.runs[0], device))
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return [found for half in part.halves() for found in train_or_split(half, device, data, checkpoints, stop, follow)]


def too_large(run: Run, device: torch.device) -> str:
    return (
        f"expected one model and its data to fit in the memory of {device}, T={run.T} with batch "
        f"{run.recipe.batch_size} and {run.recipe.samples} samples did not; take less of one of them."
    )


def out_of_memory(error: BaseException | None) -> bool:
    """Whether memory is what failed, here or underneath (a failed capture of a CUDA graph hides it)."""
    while error is not None:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            return True
        if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
