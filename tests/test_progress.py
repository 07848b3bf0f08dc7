"""The bar: what an earlier call has done is done, and says nothing about how long the rest takes."""

import io
from pathlib import Path

import torch

from infoflow.architecture import Architecture
from infoflow.progress import Progress
from infoflow.targets import pairwise_max
from infoflow.train import checkpoint
from infoflow.train.loop import start, train
from infoflow.train.part import Board
from infoflow.train.plan import plan
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run


def drawn(done: int, before: int, seconds: float) -> str:
    stream = io.StringIO()
    bar = Progress("training", 100, stream, before)
    bar.start -= seconds
    bar.last -= 20
    bar.update(done)
    return stream.getvalue().strip()


def test_the_time_left_is_that_of_the_steps_left_at_the_rate_of_this_call() -> None:
    assert drawn(done=95, before=90, seconds=10) == "training 95%  10 s, 10 s left"
    assert drawn(done=50, before=0, seconds=10) == "training 50%  10 s, 10 s left"
    assert drawn(done=90, before=90, seconds=10) == "training 90%  10 s"
    assert drawn(done=0, before=0, seconds=10) == "training 0%  10 s"


def test_a_stack_that_waits_with_its_checkpoint_counts_as_far_as_it_is(tmp_path: Path) -> None:
    recipe = Recipe(
        samples=16, validation=8, batch=4, epochs=None, steps=40, evaluate_every=1, starts=2, start_epochs=1
    )
    runs = [Run(pairwise_max(D=1, d=2, seed=0), Architecture((1, 1), (2, 2), width), 3, 0, recipe) for width in (3, 4)]
    for run in runs:
        state = start([run], torch.device("cpu"), None)
        train(state, stop=lambda state=state: state.step >= 30)  # type: ignore[misc]
        checkpoint.save(tmp_path, state)
    parts = plan(runs, {run.key for run in runs}, torch.device("cpu"), tmp_path)
    assert [part.before for part in parts] == [8 + 30, 8 + 30]  # two starts of four steps
    bar = Progress("training", sum(part.steps for part in parts), io.StringIO(), 2 * 38)
    board = Board(parts, bar)
    board.tell([runs[0].key], 39, [])
    assert (bar.done, bar.total) == (39 + 38, 2 * 48)
