"""Worker processes: the same results as threads, and one sentence for whatever goes wrong in another process."""

import sys
from pathlib import Path

import pytest

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError, JobError
from infoflow.targets import pairwise_max
from infoflow.train.fit import Recipe, Run, fit_many
from infoflow.train.tasks import DrawnTask, named_task, tokens

SHORT = Recipe(samples=16, validation=8, batch=4, epochs=2, dtype="float64")
RUNS = [
    *(
        Run(pairwise_max(D=1, d=2, seed=0), Architecture((1, 1), (2, 2), (w, w)), 3, s, SHORT)
        for w in (3, 4)
        for s in (0, 1)
    ),
    Run(named_task("task:parity,length=4"), Architecture((1,), (2,)), None, 0, SHORT),
]

# A module that worker processes find, too: they are given the caller's sys.path.
MODULE = """
import os
from infoflow.train.tasks import DrawnTask, tokens

class Deadly(DrawnTask):
    def __init__(self):
        super().__init__("deadly", 4, tokens(2, 2), None)

    def draw(self, T, recipe, device):
        os._exit(9)
"""


def test_processes_end_where_threads_do(tmp_path: Path) -> None:
    """Targets and tasks, with a store: nothing when the time is up at once, then all of it, with its networks."""
    alone = fit_many(RUNS)
    assert fit_many(RUNS, tmp_path / "store", seconds=1e-9, workers=2) == [None] * len(RUNS)
    found = fit_many(RUNS, tmp_path / "store", keep_weights=True, workers=2)
    for one, other, run in zip(alone, found, RUNS, strict=True):
        assert one is not None
        assert other is not None
        assert other.curve == pytest.approx(one.curve, rel=1e-12)
        assert other.choice["workers"] <= 2
        ours, theirs = one.network().state_dict(), other.network().state_dict()
        assert all(float((ours[name] - theirs[name]).abs().max()) <= 1e-12 for name in ours)
        assert other.network().header == {**run.task.header(run.T), "run": run.identity(), one.measure: one.best}


def test_a_worker_that_dies_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deadly_task.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    import deadly_task  # type: ignore[import-not-found]

    with pytest.raises(JobError, match="one ended with code 9"):
        fit_many([Run(deadly_task.Deadly(), Architecture((1,), (2,)), recipe=SHORT)], workers=1)
    sys.modules.pop("deadly_task")


def test_what_cannot_be_given_to_a_worker_is_one_sentence() -> None:
    task = DrawnTask("mine", 4, tokens(2, 2), lambda generator, count, held: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(InfoFlowError, match="expected a task that a worker can be given, mine cannot"):
        fit_many([Run(task, Architecture((1,), (2,)), recipe=SHORT)], workers=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"workers": 0}, "workers"), ({"workers": 2.5}, "workers"), ({"workers": 2, "engine": "ray"}, "no workers")],
)
def test_wrong_calls(options: dict[str, object], words: str) -> None:
    with pytest.raises(InfoFlowError, match=words):
        fit_many(RUNS, **options)  # type: ignore[arg-type]
