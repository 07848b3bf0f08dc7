"""What `fit` says before it starts: how long it will take, from measured steps."""

import pytest
import torch

from infoflow.architecture import Architecture
from infoflow.targets import pairwise_max
from infoflow.train import fit, speed
from infoflow.train.plan import Part, plan
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run

CPU = torch.device("cpu")


def parts_of(widths: tuple[int, ...], steps: int) -> list[Part]:
    recipe = Recipe(samples=2048, validation=64, batch=64, epochs=None, steps=steps, evaluate_every=10_000)
    target = pairwise_max(D=1, d=2, seed=0)
    runs = [Run(target, Architecture((1, 1), (2, 2), (w, w)), 8, 0, recipe) for w in widths]
    return plan(runs, {run.key for run in runs}, CPU, None)


def by_width(part: Part, device: torch.device) -> float:
    assert part.runs[0].arch is not None
    return part.runs[0].arch.widths[0] / 1000


def test_steps_times_seconds_over_those_side_by_side() -> None:
    parts = parts_of((2, 4, 6, 8), 50_000)
    measured = pytest.approx(50_000 * 0.020, rel=1e-3)  # 2 + 4 + 6 + 8 thousandths of a second a step
    assert speed.estimate(parts, CPU, 1, by_width) == measured
    assert speed.estimate(parts, CPU, 2, by_width) == pytest.approx(50_000 * 0.010, rel=1e-3)
    assert speed.estimate(parts, CPU, 16, by_width) == pytest.approx(50_000 * 0.008, rel=1e-3)  # the longest


def test_few_parts_are_measured_and_the_others_lie_between() -> None:
    seen: list[Part] = []

    def measure(part: Part, device: torch.device) -> float:
        seen.append(part)
        return by_width(part, device)

    widths = tuple(range(2, 42))
    found = speed.estimate(parts_of(widths, 50_000), CPU, 1, measure)
    assert len(seen) == speed.MEASURED
    assert found == pytest.approx(50_000 * sum(widths) / 1000, rel=1e-2)


def test_what_is_short_on_any_machine_is_not_measured() -> None:
    assert speed.estimate(parts_of((2, 4), 100), CPU, 1, lambda part, device: 1 / 0) is None


def test_it_is_measured_by_steps_of_the_part_itself() -> None:
    assert 0 < speed.seconds_per_step(parts_of((2,), 50_000)[0], CPU) < 60


@pytest.mark.parametrize(("seconds", "words"), [(59.0, ""), (61.0, "about 61 seconds"), (9000.0, "about 2.5 hours")])
def test_over_a_minute_it_is_said_on_stderr(
    seconds: float, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "seconds_per_step", lambda part, device: seconds / 10_000)
    monkeypatch.setattr(fit.local, "train_in_threads", lambda sweep: None)
    fit.fit_many([run for part in parts_of((2,), 10_000) for run in part.runs])
    said = capsys.readouterr()
    assert words in said.err
    assert (bool(said.err), said.out) == (bool(words), "")


def test_what_cannot_be_measured_is_left_to_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(part: Part, device: torch.device) -> float:
        raise MemoryError

    monkeypatch.setattr(speed, "seconds_per_step", fails)
    monkeypatch.setattr(fit.local, "train_in_threads", lambda sweep: None)
    assert fit.fit_many([run for part in parts_of((2,), 10_000) for run in part.runs]) == [None]
