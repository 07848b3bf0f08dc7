"""The stacked trainer: stacked equals alone, a store resumes, a damaged file is one sentence, NaN stays in its row."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from infoflow.errors import InfoFlowError, JobError
from infoflow.lab import resume
from infoflow.lab.grid import STACK, Cell, spread, train_grid
from infoflow.lab.item import Context
from infoflow.lab.papers.softmax_attention.tasks import Sequences, Truncated
from infoflow.lab.stack import Adam, Samples, Schedule, Training, train_stack
from infoflow.lab.throughput import throughput
from infoflow.nn import files
from infoflow.nn.transformer import Linear
from infoflow.progress import Progress

CPU = torch.device("cpu")
SMALL = Truncated(n=3, p=4, H=2, a=-1.0, b=1.0, d=2, hidden=4, count=20)
SHORT = Schedule(epochs=2, batch=6, lr=1e-2)


def trained(task: Any, seeds: list[int], schedule: Schedule = SHORT) -> list[dict[str, Any]]:
    records = train_stack(task, schedule, seeds, CPU)
    assert records is not None
    return records


@pytest.mark.parametrize("task", [SMALL, Sequences(n=3, p=4, H=2, hidden=4, d=2, m=3, count=20)])
def test_stacked_equals_alone(task: Any) -> None:
    together = trained(task, [3, 1, 4])
    alone = [trained(task, [seed])[0] for seed in (3, 1, 4)]
    for one, other in zip(together, alone, strict=True):
        for name, curve in one["curves"].items():
            assert curve == pytest.approx(other["curves"][name], rel=1e-4)
    assert together[0]["final"] != together[1]["final"]


@dataclass(frozen=True)
class Exploding:
    """y = x; the data of seed 1 are not finite."""

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "exploding"}

    def network(self, stack: tuple[int, ...]) -> nn.Module:
        return Affine(stack)

    def samples(self, seeds: Sequence[int]) -> Samples:
        x = torch.stack([torch.full((4, 1, 1), torch.inf if seed == 1 else 1.0) for seed in seeds])
        return Samples(x, x, x, x)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return (output - y).square().flatten(1).mean(1)

    def errors(self, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"mse": (output - y).square().flatten(2).mean(-1)}

    def keep(self, network: nn.Module, samples: Samples) -> list[dict[str, Any]]:
        return [{} for _ in range(samples.x.shape[0])]


class Affine(nn.Module):
    def __init__(self, stack: tuple[int, ...]) -> None:
        super().__init__()
        self.map = Linear(1, 1, stack)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.map(x)
        return out

    def initialise(self, generator: torch.Generator) -> None:
        for parameter in self.parameters():
            parameter.data.uniform_(-1, 1, generator=generator)


def test_a_model_that_explodes_fails_alone() -> None:
    good, bad, other = trained(Exploding(), [0, 1, 2])
    assert bad["failed"]
    assert bad["final"] == {"mse": None}
    assert not good["failed"]
    assert not other["failed"]
    assert good["final"] == trained(Exploding(), [0])[0]["final"]
    assert spread([good, bad], "mse") == (good["final"]["mse"], 0.0)
    assert spread([bad], "mse") == (None, None)


def grid(*seeds: int) -> dict[str, list[Cell]]:
    return {"cell": [Cell(SMALL, SHORT, seed) for seed in seeds]}


def test_a_store_resumes(tmp_path: Path) -> None:
    context = Context("quick", tmp_path)
    first = train_grid(context, grid(0), "test")["cell"]
    path = next(context.store.glob("*.json"))
    marked = json.loads(path.read_text()) | {"seconds": -1.0}
    path.write_text(json.dumps(marked))
    again = train_grid(context, grid(0, 1), "test")["cell"]
    assert again[0]["seconds"] == -1.0  # read, not trained again
    assert again[0]["final"] == first[0]["final"]
    assert len(list(context.store.glob("*.json"))) == 2


def stopped_after(epochs: int, path: Path, schedule: Schedule) -> None:
    """Train that many epochs, save, and end as a killed run would."""
    training = Training(SMALL, schedule, [3, 1], CPU)
    training.look()
    for _ in range(epochs):
        training.one_epoch()
    resume.save(path, training)


@pytest.mark.parametrize("epochs", [1, 3, 4])
def test_a_stopped_stack_ends_as_an_unbroken_one(tmp_path: Path, epochs: int) -> None:
    schedule, path = Schedule(epochs=5, batch=6, lr=1e-2, evaluate_every=2), tmp_path / "state.safetensors"
    stopped_after(epochs, path, schedule)
    seen: list[int] = []
    again = train_stack(SMALL, schedule, [3, 1], CPU, seen.append, path)
    assert seen == list(range(epochs + 1, 6))
    assert again is not None
    for one, other in zip(again, trained(SMALL, [3, 1], schedule), strict=True):
        assert one["curves"] == other["curves"]  # bit for bit
        assert one["epochs"] == other["epochs"] == [0, 2, 4, 5]


@pytest.mark.parametrize("damage", ["truncated", "other seeds", "other length", "curve", "stream"])
def test_a_state_that_does_not_fit_is_passed_over(tmp_path: Path, damage: str) -> None:
    schedule, path = Schedule(epochs=5, batch=6, lr=1e-2), tmp_path / "state.safetensors"
    stopped_after(3, path, schedule)
    _, tensors, header = files.read(path)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "curve":
        files.write(path, resume.KIND, tensors, header | {"curve": [[0, {"mse": ["x", 1.0]}]]})
    elif damage == "stream":
        files.write(path, resume.KIND, tensors | {"stream.0": torch.zeros_like(tensors["stream.0"])}, header)
    seeds = [3, 1, 4] if damage == "other seeds" else [3, 1]
    training = Training(SMALL, Schedule(3, 6, 1e-2) if damage == "other length" else schedule, seeds, CPU)
    before = [parameter.clone() for parameter in training.network.parameters()]
    assert not resume.restore(path, training)
    assert training.epoch == 0
    assert all(map(torch.equal, before, training.network.parameters()))


def test_time_up_saves_and_the_same_call_goes_on(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="goes on from"):
        train_grid(Context("quick", tmp_path, seconds=0.0), grid(0), "test")
    (state,) = (tmp_path / "store" / "checkpoints").iterdir()
    assert state.suffix == ".safetensors"
    record = train_grid(Context("quick", tmp_path), grid(0), "test")["cell"][0]
    assert record["final"] == trained(SMALL, [0])[0]["final"]
    assert not state.exists()


def test_the_bar_of_a_resumed_stack_tells_the_time_of_this_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of five epochs are an earlier call's: what is left is told by the two of this one."""
    schedule = Schedule(epochs=5, batch=6, lr=1e-2)
    with pytest.raises(JobError):
        train_grid(
            Context("quick", tmp_path, seconds=0.0), {"cell": [Cell(SMALL, schedule, s) for s in (3, 1)]}, "test"
        )
    (state,) = (tmp_path / "store" / "checkpoints").iterdir()
    stopped_after(3, state, schedule)
    bars: list[Progress] = []
    close = Progress.__exit__
    monkeypatch.setattr(Progress, "__exit__", lambda self, *error: (bars.append(self), close(self, *error))[1])
    train_grid(Context("quick", tmp_path), {"cell": [Cell(SMALL, schedule, s) for s in (3, 1)]}, "test")
    assert [(bar.before, bar.done, bar.total) for bar in bars] == [(3, 5, 5)]


def test_a_damaged_cell_is_one_sentence(tmp_path: Path) -> None:
    context = Context("quick", tmp_path)
    context.store.mkdir()
    (context.store / f"{Cell(SMALL, SHORT, 0).key}.json").write_text("{")
    with pytest.raises(InfoFlowError, match="remove the file"):
        train_grid(context, grid(0), "test")


def test_every_setting_is_in_the_key() -> None:
    cells = [Cell(SMALL, SHORT, 0), Cell(SMALL, SHORT, 1), Cell(SMALL, Schedule(2, 6, 1e-3), 0)]
    cells.append(Cell(Truncated(n=3, p=5, H=2, a=-1.0, b=1.0, d=2, hidden=4, count=20), SHORT, 0))
    assert len({cell.key for cell in cells}) == 4


def test_throughput_measures_both_ways() -> None:
    rates = throughput(SMALL, 4, 1e-3, models=STACK["cpu"] + 1, steps=1, device=CPU)
    assert set(rates) == {"stacked", "one by one"}
    assert all(rate > 0 for rate in rates.values())


def test_adam_is_adam() -> None:
    ours, theirs = Affine((2,)).double(), Affine((2,)).double()
    ours.initialise(torch.Generator().manual_seed(0))
    theirs.load_state_dict(ours.state_dict())
    steps, reference = Adam(ours, 1e-2), torch.optim.Adam(theirs.parameters(), lr=1e-2)
    x = torch.linspace(-1, 1, 6, dtype=torch.float64).view(2, 3, 1)
    for _ in range(5):
        steps.step(torch.autograd.grad((ours(x) - 1).square().sum(), steps.parameters))
        reference.zero_grad()
        (theirs(x) - 1).square().sum().backward()
        reference.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_the_result_names_what_trained_it(tmp_path: Path) -> None:
    context = Context("quick", tmp_path)
    grid = {"cell": [Cell(SMALL, Schedule(1, 4, 1e-3), 0)]}
    train_grid(context, grid, "small")
    kept = sorted((tmp_path / "store" / "trained").iterdir())
    assert len(kept) == 1
    assert json.loads(kept[0].read_text())["machine"]
    kept[0].unlink()
    train_grid(context, grid, "small")  # nothing is trained, so nothing is noted
    assert not list((tmp_path / "store" / "trained").iterdir())


@pytest.mark.parametrize("trains", [True, False])
def test_a_stopped_call_is_named_when_it_trained(tmp_path: Path, trains: bool) -> None:
    grid = {"cell": [Cell(SMALL, Schedule(10**6, 4, 1e-3), 0)]}
    for seconds in (0.2, 1.0, 5.0, 25.0) if trains else (0.0,):  # on a busy machine the first may pass unused
        with pytest.raises(JobError, match="the same call goes on"):
            train_grid(Context("quick", tmp_path, seconds=seconds), grid, "small")
        named = list((tmp_path / "store").glob("trained/*.json"))
        if named:
            break
    assert bool(named) == trains
