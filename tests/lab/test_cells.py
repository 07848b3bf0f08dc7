"""Cells of a table: which calls are named as those that trained it."""

from dataclasses import replace
from pathlib import Path

import pytest

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError, JobError
from infoflow.lab.item import Context
from infoflow.lab.sweep import train_cells
from infoflow.targets import pairwise_max
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run

RECIPE = Recipe(samples=16, validation=8, batch=4, epochs=None, steps=20, evaluate_every=1)
RUN = Run(pairwise_max(D=1, d=2, seed=0), Architecture((1, 1), (2, 2), 3), 3, 0, RECIPE)
GRID = {"cell": [RUN]}


def noted(context: Context) -> int:
    """How many calls are named; they are then forgotten."""
    paths = list((context.store / "trained").glob("*.json"))
    for path in paths:
        path.unlink()
    return len(paths)


@pytest.mark.parametrize("recipe", [RECIPE.with_(steps=10**5), RECIPE.with_(starts=2, start_epochs=10**5)])
def test_a_call_that_was_stopped_on_the_way_is_named(tmp_path: Path, recipe: Recipe) -> None:
    """In the training, or while starts are tried."""
    context = Context("paper", tmp_path)
    endless = {"cell": [replace(RUN, recipe=recipe)]}
    for seconds in (0.2, 1.0, 5.0, 25.0):  # on a busy machine the first may pass before the first step
        with pytest.raises(JobError, match="the same call goes on"):
            train_cells(replace(context, seconds=seconds), endless, "cells")
        stepped = bool(list((context.store / "checkpoints").glob("*.safetensors")))
        assert noted(context) == stepped
        if stepped:
            break
    assert stepped


def test_a_call_whose_time_was_up_before_its_first_step_is_not_named(tmp_path: Path) -> None:
    context = Context("paper", tmp_path, seconds=1e-9)
    with pytest.raises(JobError, match="the same call goes on"):
        train_cells(context, {"cell": [replace(RUN, recipe=RECIPE.with_(steps=10**5))]}, "cells")
    assert not list((context.store / "checkpoints").glob("*.safetensors"))
    assert noted(context) == 0


def test_a_call_that_only_reads_is_not_named(tmp_path: Path) -> None:
    context = Context("paper", tmp_path)
    assert len(train_cells(context, GRID, "cells").runs()) == 1
    assert noted(context) == 1
    train_cells(context, GRID, "cells")
    assert noted(context) == 0


def test_a_call_that_cannot_train_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InfoFlowError):
        train_cells(Context("paper", tmp_path, engine="nowhere"), GRID, "cells")
    assert not list(tmp_path.iterdir())
