"""Where a run begins: several initial weights are tried for a while, and it goes on from the best."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from infoflow.train import checkpoint
from infoflow.train.engines.choice import choose
from infoflow.train.loop import Report, Trained, train
from infoflow.train.recipe import Run
from infoflow.train.stack import Stack


def at_once(runs: Sequence[Run], device: torch.device) -> int:
    """Models in a stack of starts: as many as would be stacked if these were all there is to train."""
    return choose([start for run in runs for start in run.trials()], device).stack


def choose_start(
    state: Trained,
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

    def save(trial: Trained) -> None:
        assert folder is not None
        checkpoint.save(folder, trial)

    for numbers in torch.arange(recipe.starts).split(max(1, size // M)):
        runs = [run.start(int(number)) for number in numbers for run in stack.runs]
        trial = Trained(Stack(runs, stack.weights.device, stack.fused), state.data)
        trial.before, trial.together = state.before, len(numbers)
        if folder is not None:
            _take_up(trial, folder)
        left = not trial.finished
        train(trial, report, None if folder is None else save, save_every, stop)
        state.seconds += trial.seconds
        if not trial.finished:
            return False
        if left and folder is not None:
            save(trial)
        state.before = trial.done
        for nmse, weights in zip(trial.best.split(M), trial.best_weights.split(M), strict=True):
            better = nmse < best  # False for NaN
            best = torch.where(better, nmse, best)
            for values, value in zip(state.tried, nmse.tolist(), strict=True):
                values.append(value)
            stack.weights.copy_(torch.where(better.unsqueeze(1), weights, stack.weights))
    state.best_weights.copy_(stack.weights)
    return True


def _take_up(trial: Trained, folder: Path) -> None:
    """Go on from the furthest checkpoint that holds all of these starts, if there is one."""
    keys = {run.key for run in trial.stack.runs}
    for found in checkpoint.find(folder, keys):
        if keys <= set(found.keys) and found.restore(trial):
            return


def steps_behind(run: Run, saved: Sequence[checkpoint.Checkpoint]) -> int:
    """Steps of the trials of a run that these checkpoints hold."""
    return sum(max((found.step for found in saved if start.key in found.keys), default=0) for start in run.trials())
