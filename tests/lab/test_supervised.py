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
from infoflow.lab.item import Context
from infoflow.lab.papers.softmax_attention.tasks import Sequences, Truncated
from infoflow.lab.supervised import Adam, Cell, Samples, Schedule, spread, throughput, train_grid, train_stack
from infoflow.nn.transformer import Linear

CPU = torch.device("cpu")
SMALL = Truncated(n=3, p=4, H=2, a=-1.0, b=1.0, d=2, hidden=4, count=20)
SHORT = Schedule(epochs=2, batch=6, lr=1e-2)


def quiet(epoch: int) -> None:
    pass


@pytest.mark.parametrize("task", [SMALL, Sequences(n=3, p=4, H=2, hidden=4, d=2, m=3, count=20)])
def test_stacked_equals_alone(task: Any) -> None:
    together = train_stack(task, SHORT, [3, 1, 4], CPU, quiet)
    alone = [train_stack(task, SHORT, [seed], CPU, quiet)[0] for seed in (3, 1, 4)]
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
    good, bad, other = train_stack(Exploding(), SHORT, [0, 1, 2], CPU, quiet)
    assert bad["failed"]
    assert bad["final"] == {"mse": None}
    assert not good["failed"]
    assert not other["failed"]
    assert good["final"] == train_stack(Exploding(), SHORT, [0], CPU, quiet)[0]["final"]
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


def test_time_up_says_how_to_go_on(tmp_path: Path) -> None:
    late = Context("quick", tmp_path, seconds=-1.0)
    with pytest.raises(JobError, match="goes on from"):
        train_grid(late, grid(0), "test")
    assert not late.store.exists()


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
    rates = throughput(SMALL, 4, 1e-3, models=3, steps=1, device=CPU)
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
