"""Several starts: each is tried alone, the best goes on, and nothing else about a run changes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.targets import pairwise_max
from infoflow.train.checkpoint import find
from infoflow.train.fit import Recipe, Run, Store, fit_many
from infoflow.train.loop import Training, start, train
from infoflow.train.part import choose_start, provider, train_part, trial_stack
from infoflow.train.plan import Part, choose, plan

CPU = torch.device("cpu")
RECIPE = Recipe(samples=16, validation=8, batch=4, epochs=3, dtype="float64", starts=4, start_epochs=2)


def runs_of(count: int = 3, recipe: Recipe = RECIPE) -> list[Run]:
    arch = Architecture((2, 1), (2, 2), 3)
    return [Run(pairwise_max(D=1, d=2, seed=0), arch, 3, seed, recipe) for seed in range(count)]


def curves(runs: list[Run], store: Path | None = None) -> list[list[float | None]]:
    return [result.curve for result in fit_many(runs, store) if result is not None]


class Watch:
    """Reports and a stop: steps of each model as they are reported, True once `at` of them are done."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, [0]

    def report(self, state: Training) -> None:
        self.seen.append(state.done)

    def stop(self) -> bool:
        return self.seen[-1] >= self.at


def part_of(runs: list[Run]) -> Part:
    return Part(tuple(runs), choose(runs, CPU))


@pytest.mark.parametrize("size", [1, 6, 9, 256])
def test_the_best_start_goes_on(size: int) -> None:
    """Against brute force: every start trained alone, as an ordinary run; one, two, three or all starts to a stack."""
    runs = runs_of()
    state = start(runs, CPU, None)
    seen: list[int] = []
    assert choose_start(state, size, lambda trial: seen.append(trial.done))
    numbers = set()
    assert [len(values) for values in state.tried] == [4, 4, 4]
    for row, run in enumerate(runs):
        alone = [train(start([run.start(number)], CPU, None)) for number in range(4)]
        best = min(range(4), key=lambda number: float(alone[number].best))
        assert state.tried[row] == pytest.approx([float(trial.best) for trial in alone], rel=1e-11)
        numbers.add(best)
        torch.testing.assert_close(state.stack.weights[row], alone[best].best_weights[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(state.best_weights[row], alone[best].best_weights[0], rtol=1e-12, atol=1e-12)
    assert numbers != {0}  # not merely the first
    assert state.before == state.done == seen[-1] == 4 * 2 * 4
    assert seen == sorted(set(seen))


def test_a_start_is_an_ordinary_run_of_its_own_length() -> None:
    first = runs_of()[0].start(2)
    assert (first.recipe.starts, first.recipe.epochs, first.recipe.total_steps) == (1, 2, 8)
    phased = runs_of(1, RECIPE.with_(schedule="two_phase", second_epochs=2))[0].start(0)
    assert (phased.recipe.schedule, phased.recipe.total_steps) == ("cosine", 8)
    counted = runs_of(1, RECIPE.with_(epochs=None, steps=5))[0]
    assert counted.start(1).recipe.total_steps == 8
    assert counted.recipe.all_steps == 5 + 4 * 8
    assert RECIPE.with_(starts=1, start_epochs=0).all_steps == 12


def test_no_two_seeds_share_a_start() -> None:
    runs = runs_of(16)
    assert len({run.start(number).key for run in runs for number in range(4)}) == 64


def test_starts_that_all_diverge_leave_the_runs_own_weights() -> None:
    """At this rate no start is ever a number: none is better than another, and the run keeps what its seed drew."""
    state = start(runs_of(2, RECIPE.with_(lr=1e200)), CPU, None)
    drawn = state.stack.weights.clone()
    assert choose_start(state, 2)
    assert torch.equal(state.stack.weights, drawn)
    (result, *_) = fit_many(runs_of(1, RECIPE.with_(lr=1e200)))
    assert result is not None
    assert result.tried == [None] * 4


def test_stacked_equals_separate() -> None:
    runs = runs_of()
    together = fit_many(runs)
    for run, result in zip(runs, together, strict=True):
        (alone,) = fit_many([run])
        assert result is not None
        assert alone is not None
        assert result.curve == pytest.approx(alone.curve, rel=1e-11)
        assert (result.steps, result.curve_steps) == (12, [4, 8, 12])


@pytest.mark.parametrize("size", [1, 6, 9, 256])
@pytest.mark.parametrize("at", [1, 8, 9, 24, 31, 32])
def test_stopped_while_choosing_it_goes_on_from_there(tmp_path: Path, size: int, at: int) -> None:
    """Within a start, at the end of one, at the end of all; one, two, three or all starts to a stack."""
    runs = runs_of()
    whole, state = start(runs, CPU, None), start(runs, CPU, None)
    assert choose_start(whole, size)
    watch, again = Watch(at), Watch(at=1000)
    assert not choose_start(state, size, watch.report, watch.stop, tmp_path) or watch.seen[-1] == 32
    state = start(runs, CPU, None)
    assert choose_start(state, size, again.report, again.stop, tmp_path)
    assert again.seen[1:] == sorted(set(again.seen[1:]) - set(watch.seen))  # no step is made twice
    assert (state.before, state.tried) == (32, whole.tried)  # bit for bit
    assert torch.equal(state.stack.weights, whole.stack.weights)


def test_a_choice_that_was_cut_short_is_told_and_tidied(tmp_path: Path) -> None:
    """The plan of the next call knows the steps of the starts; when the runs are finished nothing of them is left."""
    runs = runs_of()
    whole, store = curves(runs), Store(tmp_path)
    store.prepare()
    folder = store.checkpoints
    part, watch = part_of(runs), Watch(at=11)
    assert train_part(part, CPU, provider(CPU), folder, watch.stop, watch.report) is None
    planned = plan(runs, {run.key for run in runs}, CPU, folder)
    assert {(part.checkpoint, part.before) for part in planned} == {(None, watch.seen[-1])}
    for found, wanted in zip(curves(runs, tmp_path), whole, strict=True):
        assert found == pytest.approx(wanted, rel=1e-11)
    assert not list(folder.iterdir())


def test_a_finished_start_is_the_result_of_the_run_it_is(tmp_path: Path) -> None:
    """Asked for as an ordinary run, its checkpoint at the last step is all there is to do."""
    runs = runs_of(1)
    store = Store(tmp_path)
    store.prepare()
    assert choose_start(start(runs, CPU, None), 1, folder=store.checkpoints)
    (taken,) = plan([runs[0].start(2)], {runs[0].start(2).key}, CPU, store.checkpoints)
    assert taken.before == taken.steps == 8
    (found,), (wanted,) = fit_many([runs[0].start(2)], store), fit_many([runs[0].start(2)])
    assert found is not None
    assert wanted is not None
    assert found.curve == wanted.curve


def test_a_damaged_start_is_tried_again(tmp_path: Path) -> None:
    runs = runs_of()
    whole = start(runs, CPU, None)
    assert choose_start(whole, 3, folder=tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-50])
    state, watch = start(runs, CPU, None), Watch(at=1000)
    assert choose_start(state, 3, watch.report, watch.stop, tmp_path)
    assert watch.seen == list(range(33))
    assert state.tried == whole.tried


def test_stopped_afterwards_it_goes_on_from_there(tmp_path: Path) -> None:
    """The 4 x 8 steps of the trials are not repeated: the checkpoint holds what they chose."""
    runs = runs_of()
    whole = curves(runs)
    watch = Watch(at=32 + 5)
    assert train_part(part_of(runs), CPU, provider(CPU), tmp_path, watch.stop, watch.report) is None
    finished = []
    for part in plan(runs, {run.key for run in runs}, CPU, tmp_path):
        assert part.checkpoint is not None
        assert part.checkpoint.step == 6
        again = Watch(at=1000)
        finished += train_part(part, CPU, provider(CPU), tmp_path, again.stop, again.report) or []
        assert again.seen == [0, *range(32 + 7, 32 + 13)]
    for (result, _), wanted, expected in zip(finished, whole, fit_many(runs), strict=True):
        assert result.curve == pytest.approx(wanted, rel=1e-11)
        assert expected is not None
        assert len(result.tried) == 4
        assert result.tried == pytest.approx(expected.tried, rel=1e-11)


@pytest.mark.parametrize("saves", [1, 2, 3])
def test_what_starts_leave_goes_when_two_checkpoints_hold_what_they_chose(tmp_path: Path, saves: int) -> None:
    """One may be damaged: the other is enough to end as if nothing had been stopped, and no start is tried again."""
    runs, starts = runs_of(), {start.key for run in runs_of() for start in run.trials()}
    part, watch = replace(part_of(runs), save_every=1e-9), Watch(at=32 + saves - 1)  # it saves after every step
    assert train_part(part, CPU, provider(CPU), tmp_path, watch.stop, watch.report) is None
    assert bool(find(tmp_path, starts)) == (saves == 1)
    last = find(tmp_path, {run.key for run in runs})[0]
    assert last.path is not None
    last.path.write_bytes(last.path.read_bytes()[:-1])
    again = Watch(at=1000)
    for left in plan(runs, {run.key for run in runs}, CPU, tmp_path):
        assert train_part(left, CPU, provider(CPU), tmp_path, again.stop, again.report)
    assert min(again.seen[1:]) > 32 or saves == 1


def test_progress_counts_every_step_once() -> None:
    runs = runs_of(2)
    part, watch = part_of(runs), Watch(at=1000)
    train_part(part, CPU, provider(CPU), None, watch.stop, watch.report)
    assert watch.seen == sorted(set(watch.seen))
    assert part.steps == 2 * watch.seen[-1]


def test_as_many_starts_at_once_as_would_be_stacked() -> None:
    """float32 models of this size: the CPU takes all of them in its passes, one per core."""
    runs = runs_of(3, RECIPE.with_(dtype="float32"))
    workers = choose(runs * 4, CPU).workers
    assert trial_stack(runs, CPU) == -(-12 // workers)


def test_seeds_stay_small_enough_for_their_starts() -> None:
    run = runs_of(1)[0]
    largest = (2**63 - 1) // 4
    with pytest.raises(InfoFlowError, match="expected a seed"):
        fit_many([replace(run, seed=largest + 1)])
    (result,) = fit_many([replace(run, seed=largest)])
    assert result is not None
    assert result.status == "ok"
