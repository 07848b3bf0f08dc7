"""Where a run begins: several initial weights are tried for a while, and it goes on from the best."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from infoflow.train import checkpoint
from infoflow.train.engines.choice import choose
from infoflow.train.loop import Report, Trained, train
from infoflow.train.recipe import Run
from infoflow.train.stack import Stack


def trial_stack(runs: Sequence[Run], device: torch.device) -> int:
    """How many starts are trained together: as many as would be stacked if these were all there is to train."""
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
    save = checkpoint.saver(folder)
    for numbers in torch.arange(recipe.starts).split(max(1, size // M)):
        runs = [run.start(int(number)) for number in numbers for run in stack.runs]
        trial = Trained(Stack(runs, stack.weights.device, stack.fused), state.data)
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
        for nmse, weights in zip(trial.best.split(M), trial.best_weights.split(M), strict=True):
            better = nmse < best  # False for NaN
            best = torch.where(better, nmse, best)
            for values, value in zip(state.tried, nmse.tolist(), strict=True):
                values.append(value)
            stack.weights.copy_(torch.where(better.unsqueeze(1), weights, stack.weights))
    state.best_weights.copy_(stack.weights)
    return True


def tried_steps(run: Run, saved: Sequence[checkpoint.Checkpoint]) -> int:
    """Steps of the starts of a run that these checkpoints hold."""
    return sum(max((found.step for found in saved if start.key in found.keys), default=0) for start in run.trials())
