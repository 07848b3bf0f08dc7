"""Cells of a table: each cell a list of runs, all trained by one call of the engine, summarised cell by cell."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch

from infoflow.errors import InfoFlowError, JobError
from infoflow.lab.item import LAST, TEST, VALIDATION, Context
from infoflow.train.fit import fit_many
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.store import Result, Store, Summary, summary


@dataclass(frozen=True)
class TrainedCells:
    """The results of every cell, and where they are kept."""

    by_cell: dict[Any, list[Result]]
    store: Store

    def runs(self) -> list[Result]:
        """The results of all cells, one list."""
        return [result for results in self.by_cell.values() for result in results]


def train_cells(
    context: Context, grid: Mapping[Any, list[Run]], title: str, keep_weights: bool = False
) -> TrainedCells:
    """Train every cell; a sweep that ran out of its time is an error that says how to go on."""
    store = Store(context.store)
    runs = [run for cell in grid.values() for run in cell]
    if not runs:
        asked = ", ".join(context.parts)
        raise InfoFlowError(f"expected a part that preset {context.preset} trains, got {asked}; take --preset paper.")
    found = fit_many(runs, store, context.device, context.engine, keep_weights, context.seconds)
    done = [result for result in found if result is not None]
    if len(done) < len(found):
        raise JobError(
            f"expected to finish {len(found)} runs of {title}, finished {len(done)} in {context.seconds:g} s; "
            f"the same call goes on from {context.store}."
        )
    results = iter(done)
    return TrainedCells({cell: [next(results) for _ in members] for cell, members in grid.items()}, store)


def schedule(epochs: int, batch: int, lr: float, evaluate_every: int = 1) -> Recipe:
    """Adam with a constant rate and no decay, looked at before the first step, too: what three of the papers use."""
    return Recipe(epochs=epochs, batch=batch, lr=lr, decay=0.0, schedule="constant", evaluate_every=evaluate_every,
                  evaluate_first=True)  # fmt: skip


def spread(results: Sequence[Result], name: str) -> tuple[float | None, float | None]:
    """Mean and standard deviation of a metric after the last step over the models where it is finite."""
    values = [last for result in results if (last := result.curve_of(name)[-1]) is not None]
    if not values:
        return None, None
    found = torch.tensor(values, dtype=torch.float64)
    return float(found.mean()), float(found.std()) if len(found) > 1 else 0.0


def failed(results: Sequence[Result]) -> int:
    """Models that diverged, or whose last error is no number."""
    return sum(result.status != "ok" or result.final is None for result in results)


def chose(result: Result) -> bool:
    """Whether validation samples took part in training: several starts, or returns to the best weights."""
    recipe = result.identity["recipe"]
    return recipe.get("starts", 1) > 1 or recipe.get("rollback") is not None


def reported(result: Result) -> float | None:
    """The error on test samples; without them the last step's, for which nothing was chosen on the validation samples;
    the least one only where they took part in training as well."""
    return result.score if result.test is not None or chose(result) else result.final


def measured_on(results: Sequence[Result]) -> str:
    """What `reported` was measured on, in words, for all of these runs."""
    said = {
        TEST if result.test is not None else VALIDATION + ", and in training" if chose(result) else LAST: None
        for result in results
    }
    return "; ".join(sorted(said))


def cells(trained: TrainedCells) -> dict[Any, Summary]:
    """Every cell's summary over its seeds."""
    return {cell: summary(results, reported) for cell, results in trained.by_cell.items()}


def best_of(trained: TrainedCells, cell: Hashable) -> Result:
    """The model of a cell with the least validation error."""
    return min(trained.by_cell[cell], key=lambda result: inf if result.best is None else result.best)
