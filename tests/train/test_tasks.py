"""Tasks with networks of their own in the one trainer: stacked equals alone, NaN stays in its row, stopped goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from infoflow.errors import InfoFlowError, JobError
from infoflow.lab.item import Context
from infoflow.lab.papers.rank_one.figure1.model import Tagging, synthetic_text
from infoflow.lab.papers.softmax_attention.tasks import Sequences, Truncated
from infoflow.lab.sweep import failed, schedule, spread, train_cells
from infoflow.nn.transformer import Linear
from infoflow.train import checkpoint, plan
from infoflow.train.fit import Recipe, Result, Run, fit_many
from infoflow.train.loop import start, train
from infoflow.train.speed import model_steps
from infoflow.train.task import Data, Task

CPU = torch.device("cpu")
SMALL = Truncated(n=3, p=4, H=2, a=-1.0, b=1.0, d=2, hidden=4, count=20)
SHORT = schedule(epochs=2, batch=6, lr=1e-2).with_(dtype="float64")


def trained(task: Task, seeds: Sequence[int], recipe: Recipe = SHORT, store: Path | None = None) -> list[Result]:
    results = fit_many([Run(task, seed=seed, recipe=recipe) for seed in seeds], store)
    return [result for result in results if result is not None]


@pytest.mark.parametrize("task", [SMALL, Sequences(n=3, p=4, H=2, hidden=4, d=2, m=3, count=20)])
def test_stacked_equals_alone(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "cores", lambda: 1)  # one worker, so one stack of three
    together = trained(task, [3, 1, 4])
    assert {result.stacked for result in together} == {3}
    for one in together:
        (other,) = trained(task, [one.seed])
        assert one.curve_steps == other.curve_steps == [0, 2, 4]
        for name in (one.measure, *one.metrics):
            assert one.curve_of(name) == pytest.approx(other.curve_of(name), rel=1e-11)
    assert together[0].final != together[1].final


class Affine(nn.Module):
    def __init__(self, stack: tuple[int, ...]) -> None:
        super().__init__()
        self.map = Linear(1, 1, stack)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.map(x)
        return out

    def initialise(self, generator: torch.Generator, scale: float) -> None:
        for parameter in self.parameters():
            parameter.data.uniform_(-1, 1, generator=generator)


class Exploding(Task):
    """y = x; the data of seed 1 are not finite."""

    name, seeded = "exploding", True

    def identity(self) -> dict[str, Any]:
        return {"task": {"name": self.name}}

    def counts(self) -> tuple[int, int]:
        return 4, 4

    def network(self, arch: Any, T: int | None, recipe: Recipe, stack: tuple[int, ...]) -> nn.Module:
        return Affine(stack)

    def data(self, T: int | None, recipe: Recipe, seeds: Sequence[int], device: torch.device) -> Data:
        x = torch.stack([torch.full((4, 1, 1), torch.inf if seed == 1 else 1.0) for seed in seeds]).double()
        return Data(x, x, x, x, {})

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return (output - y).square().flatten(1).mean(1)

    def metrics(self, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"mse": (output - y).square().flatten(2).mean(-1)}


def test_a_model_that_explodes_fails_alone() -> None:
    good, bad, other = trained(Exploding(), [0, 1, 2])
    assert (bad.status, bad.best, bad.final) == ("diverged", None, None)
    assert good.status == other.status == "ok"
    assert good.final == trained(Exploding(), [0])[0].final
    assert spread([good, bad], "mse") == (good.final, 0.0)
    assert spread([bad], "mse") == (None, None)
    assert failed([good, bad, other]) == 1
    assert good.network()(torch.ones(1, 1, dtype=torch.float64)).shape == (1, 1)


def test_wrong_calls_for_a_task() -> None:
    from infoflow.architecture import Architecture

    with pytest.raises(InfoFlowError, match="no architecture"):
        fit_many([Run(SMALL, Architecture((1,), (2,)), recipe=SHORT)])
    with pytest.raises(InfoFlowError, match="one start"):
        fit_many([Run(SMALL, recipe=SHORT.with_(starts=2, start_epochs=1))])
    with pytest.raises(InfoFlowError, match="run of a target"):
        Run(SMALL).regression()
    with pytest.raises(InfoFlowError, match="keep_weights"):
        fit_many([Run(SMALL, recipe=SHORT)], "unused", keep_weights=True)


@pytest.mark.parametrize("task", [SMALL, Tagging(synthetic_text(20, seed=0), "test", 1, size=4, width=5)])
@pytest.mark.parametrize("at", [1, 3, 6])
def test_a_stopped_stack_ends_as_an_unbroken_one(tmp_path: Path, task: Task, at: int) -> None:
    """Data of each seed's own, batches of several lengths, a look before the first step: bit for bit."""
    recipe = schedule(epochs=3, batch=6, lr=1e-2, evaluate_every=2).with_(dtype="float64")
    runs = [Run(task, seed=seed, recipe=recipe) for seed in (3, 1)]
    whole, state = train(start(runs, CPU, None)), start(runs, CPU, None)
    train(state, stop=lambda: state.step == at)
    checkpoint.save(tmp_path, state)
    found = checkpoint.holding(tmp_path, runs)
    again = start(runs, CPU, None)
    assert found is not None
    assert found.restore(again)
    assert again.step == at
    train(again)
    assert (again.curves, again.steps) == (whole.curves, whole.steps)
    assert torch.equal(again.stack.weights, whole.stack.weights)


def test_cells_go_on_where_time_ran_out(tmp_path: Path) -> None:
    grid = {"cell": [Run(SMALL, seed=0, recipe=SHORT)]}
    with pytest.raises(JobError, match="goes on from"):
        train_cells(Context("quick", tmp_path, seconds=1e-9), grid, "test")
    (result,) = train_cells(Context("quick", tmp_path), grid, "test").by_cell["cell"]
    assert result.curve == trained(SMALL, [0])[0].curve


def test_every_setting_is_in_the_key() -> None:
    runs = [Run(SMALL, recipe=SHORT), Run(SMALL, seed=1, recipe=SHORT), Run(SMALL, recipe=schedule(2, 6, 1e-3))]
    runs.append(Run(Truncated(n=3, p=5, H=2, a=-1.0, b=1.0, d=2, hidden=4, count=20), recipe=SHORT))
    assert len({run.key for run in runs}) == 4
    assert runs[0].data_name != runs[1].data_name  # every seed has a teacher of its own
    assert Run(SMALL, recipe=SHORT.with_(samples=7)).key == runs[0].key  # the task brings its samples


def test_throughput_is_measured_in_stacks_and_alone() -> None:
    runs = [Run(SMALL, seed=seed, recipe=schedule(1, 4, 1e-3)) for seed in range(3)]
    assert all(model_steps(runs, size, 1, CPU) > 0 for size in (2, 1))
