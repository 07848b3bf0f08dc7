"""A sweep: stores, checkpoints, resumption after kill -9, wrong calls."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError, JobError
from infoflow.files import TEMPORARY, atomic_path
from infoflow.nn import files
from infoflow.nn.files import load
from infoflow.provenance import noted
from infoflow.targets import pairwise_max
from infoflow.train import checkpoint, loop, part, plan
from infoflow.train.fit import Recipe, Result, Run, Store, fit, fit_many, summary
from infoflow.train.store import PARTS, checksum, tensor_checksum

CPU = torch.device("cpu")
SMALL = Recipe(samples=16, validation=8, batch=4, epochs=4, dtype="float64")
TARGET = pairwise_max(D=1, d=2, seed=0)


def runs_of(count: int = 3, recipe: Recipe = SMALL) -> list[Run]:
    """Two groups: (1,1) and (2,1) heads, `count` seeds each."""
    arches = (Architecture((1, 1), (2, 2), 3), Architecture((2, 1), (2, 2), 3))
    return [Run(TARGET, arch, 3, seed, recipe) for arch in arches for seed in range(count)]


def numbers(results: list[Result | None]) -> list[tuple[float | None, list[float | None]]]:
    return [(result.best, result.curve) for result in results if result is not None]


def test_results_come_in_order_and_are_those_of_training_alone() -> None:
    runs = runs_of()
    mixed = [runs[4], runs[0], runs[5], runs[1], runs[4]]
    results = fit_many(mixed)
    assert [result.key for result in results] == [run.key for run in mixed]
    for run, result in zip(mixed, results, strict=True):
        state = loop.train(loop.start([run], CPU, None))
        assert result.best == pytest.approx(float(state.best), rel=1e-11)
        assert result.curve_steps == [4, 8, 12, 16]
        assert result.status == "ok"
        assert result.network()(torch.zeros(1, 3, 2, dtype=torch.float64)).shape == (1,)


def test_a_finished_run_is_never_trained_again(tmp_path: Path) -> None:
    store, runs = tmp_path / "store", runs_of()
    first = fit_many(runs[:4], store)
    stamps = {path: path.stat().st_mtime_ns for path in (store / "runs").iterdir()}
    second = fit_many(runs, store)
    assert numbers(second[:4]) == numbers(first)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert len(Store(store).results()) == 6
    assert not list((store / "checkpoints").glob("*")) or not (store / "checkpoints").exists()


def test_weights_are_kept_on_demand(tmp_path: Path) -> None:
    runs = runs_of(1)
    (bare, _) = fit_many(runs, tmp_path)
    with pytest.raises(InfoFlowError, match="keep_weights"):
        bare.network()
    (kept, _) = fit_many(runs, tmp_path, keep_weights=True)
    assert kept.best == bare.best
    X = torch.randn(4, 3, 2, dtype=torch.float64)
    saved = load(tmp_path / "weights" / f"{runs[0].key}.safetensors")
    assert torch.equal(saved(X), Store(tmp_path).network(runs[0].key)(X))
    assert saved.header["run"]["seed"] == 0
    assert saved.header["target"] == TARGET.spelling


def test_a_stopped_sweep_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    runs = runs_of(2, SMALL.with_(epochs=15))
    whole = fit_many(runs)
    calls = 0
    results: list[Result | None] = [None]
    while None in results:
        results = fit_many(runs, tmp_path, seconds=0.1)
        calls += 1
        assert calls < 400
    assert calls > 1
    assert numbers(results) == numbers(whole)
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_checkpoint_may_be_taken_up_by_a_part_of_its_runs(tmp_path: Path) -> None:
    runs = runs_of(3)[:3]
    whole = [float(loop.train(loop.start([run], CPU, None)).best) for run in runs]
    state = loop.start(runs, CPU, None)
    loop.train(state, save=lambda s: checkpoint.save(tmp_path, s) and None, stop=lambda: state.step == 7)
    assert state.step == 7
    best = {}
    for planned in plan.plan(runs, {runs[2].key, runs[0].key}, CPU, tmp_path):
        assert planned.checkpoint is not None
        resumed = loop.start(planned.runs, CPU, None)
        assert planned.checkpoint.restore(resumed)
        assert resumed.step == 7
        best |= dict(zip([run.seed for run in planned.runs], loop.train(resumed).best.tolist(), strict=True))
    assert best == pytest.approx({0: whole[0], 2: whole[2]}, rel=1e-11)


def test_a_stack_larger_than_is_chosen_here_is_taken_up_in_pieces(tmp_path: Path) -> None:
    """Five rows, as a GPU stacks them, on cores that take fewer at a time: nothing is trained again."""
    runs = runs_of(5)[:5]
    whole = fit_many(runs)
    Store(tmp_path).prepare()
    state = loop.start(runs, CPU, None)
    loop.train(state, stop=lambda: state.step == 7)
    checkpoint.save(tmp_path / "checkpoints", state)
    planned = plan.plan(runs, {run.key for run in runs}, CPU, tmp_path / "checkpoints")
    assert [run.seed for piece in planned for run in piece.runs] == list(range(5))
    size = plan.choose(runs, CPU).stack
    assert all(len(piece.runs) <= size and piece.before == 7 for piece in planned)
    for result, expected in zip(fit_many(runs, tmp_path), whole, strict=True):
        assert result.curve == pytest.approx(expected.curve, rel=1e-11)
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_damaged_checkpoint_only_costs_time(tmp_path: Path) -> None:
    runs = runs_of(1)
    whole = fit_many(runs)
    Store(tmp_path).prepare()
    state = loop.start(runs[:1], CPU, None)
    loop.train(state, save=lambda s: checkpoint.save(tmp_path / "checkpoints", s) and None, stop=lambda: True)
    (path,) = (tmp_path / "checkpoints").iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    assert numbers(fit_many(runs, tmp_path)) == numbers(whole)


def test_memory_that_runs_out_splits_the_part() -> None:
    """A part of four that fails until it is of one: the same results, in pieces."""
    runs = tuple(runs_of(4)[:4])
    sizes: list[int] = []

    def follow(piece: plan.Part) -> None:
        sizes.append(len(piece.runs))
        if len(piece.runs) > 1:
            raise torch.OutOfMemoryError("no")

    planned = plan.Part(runs, plan.choose(runs, CPU))
    provide = part.provider(CPU)
    pieces = part.train_or_split(planned, CPU, provide, None, lambda: False, follow)
    assert sizes == [4, 2, 1, 1, 2, 1, 1]
    assert [result.seed for piece in pieces for result, _ in piece] == [0, 1, 2, 3]

    def never(piece: plan.Part) -> None:
        raise RuntimeError("capture failed") from torch.OutOfMemoryError("no")

    with pytest.raises(JobError, match="fit in the memory"):
        part.train_or_split(planned, CPU, provide, None, lambda: False, never)


def test_a_checkpoint_is_taken_up_only_by_runs_it_holds_all_of(tmp_path: Path) -> None:
    """The furthest of those that do."""
    runs = runs_of(4)
    for members, steps in ((runs[:2], 3), (runs[:3], 2)):
        state = loop.start(members, CPU, None)
        loop.train(state, stop=lambda state=state, steps=steps: state.step == steps)  # type: ignore[misc]
        checkpoint.save(tmp_path, state)
    steps = {}
    for name, members in {"0 1": runs[:2], "2 1": [runs[2], runs[1]], "2 3": runs[2:4], "0": runs[:1]}.items():
        found = checkpoint.holding(tmp_path, members)
        steps[name] = None if found is None else found.step
    assert steps == {"0 1": 3, "2 1": 2, "2 3": None, "0": 3}


def test_what_the_starts_reached_is_checked_when_a_checkpoint_is_read(tmp_path: Path) -> None:
    state = loop.start(runs_of(2)[:2], CPU, None)
    loop.train(state, stop=lambda: state.step == 3)
    state.tried = [[0.5, float("inf")], [0.25, 0.125]]
    _, tensors, header = files.read(checkpoint.save(tmp_path, state))
    assert header["tried"] == [[0.5, None], [0.25, 0.125]]
    again = loop.start(runs_of(2)[:2][::-1], CPU, None)  # taken up in another order
    assert checkpoint.from_saved(tensors, header).restore(again)
    assert again.tried == [[0.25, 0.125], [0.5, float("inf")]]
    for bad in (None, "x", [[0.5]], [[0.5], 1], [[0.5], ["1"]], [[True], [0.5]]):
        changed = {name: header[name] for name in header if name != "checksum"} | {"tried": bad}
        with pytest.raises(InfoFlowError, match="starts"):
            checkpoint.from_saved(tensors, {**changed, "checksum": tensor_checksum(tensors, changed)})


def test_what_a_killed_writer_left_is_removed_when_nobody_can_be_writing_it(tmp_path: Path) -> None:
    """And nothing else: a link there, and a hidden file of somebody's own, stay."""
    store = Store(tmp_path)
    store.prepare()
    old, kept = [], []
    for folder in PARTS:
        (tmp_path / folder).mkdir()
        for name, days in ((".abandone.json", 1), (".a_write0.json", 0), (".bashrc", 1), (".profile", 1)):
            path = tmp_path / folder / name
            path.touch()
            os.utime(path, (0, time.time() - 86400 * days))
            (old if name == ".abandone.json" else kept).append(path)
    store.tidy()
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in kept)
    with atomic_path(tmp_path / "a.json") as temporary:
        assert TEMPORARY.fullmatch(temporary.name)


@pytest.mark.parametrize("folder", PARTS)
def test_a_store_reaches_nothing_outside_its_folder(tmp_path: Path, folder: str) -> None:
    """A stranger's store whose folder is a link: files there would be renamed as damaged, and removed."""
    home, store = tmp_path / "home", tmp_path / "store"
    home.mkdir()
    for name in (".abandone.json", "model.safetensors", "x.json"):
        (home / name).write_text("mine")
        os.utime(home / name, (0, 0))
    Store(store).prepare()
    (store / folder).symlink_to(home)
    with pytest.raises(InfoFlowError, match=f"folder {folder} inside the store"):
        fit_many(runs_of(1), store)
    assert sorted(path.read_text() for path in home.iterdir()) == ["mine"] * 3


def test_a_store_of_another_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"format": 99}')
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(InfoFlowError, match="format 99"):
        fit_many(runs_of(1), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "store.json").read_text() == '{"format": 99}'


@pytest.mark.parametrize("marker", ["", "[]", "{", '{"format": "1"}', "[" * 100_000])
def test_hostile_markers(tmp_path: Path, marker: str) -> None:
    (tmp_path / "store.json").write_text(marker)
    with pytest.raises(InfoFlowError):
        Store(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"best": "x"}, {"curve": None}, {"key": "0" * 24}, {"extra": 1}, {"status": "fine"}, {"curve_steps": [1]}],
)
def test_hostile_results(tmp_path: Path, change: dict[str, object]) -> None:
    run = runs_of(1)[0]
    fit_many([run], tmp_path)
    path = tmp_path / "runs" / f"{run.key}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InfoFlowError, match="train it again"):
        fit_many([run], tmp_path)


@pytest.mark.parametrize("steps", [[], [7], [4, 8, 12], [0, 5, 10, 12], [3, 3, 3], [6, 4, 2]])
def test_the_steps_of_a_curve_are_read_as_they_were_written(tmp_path: Path, steps: list[int]) -> None:
    (trained,) = fit_many(runs_of(1)[:1], tmp_path)
    curve = [0.5] * len(steps)
    result = replace(trained, curve=curve, curve_steps=steps, metrics={})
    stored = result.to_json()
    assert Result.from_json(json.loads(json.dumps(stored))).curve_steps == steps
    assert isinstance(stored["curve_steps"], dict) == (steps == [4, 8, 12])
    if isinstance(stored["curve_steps"], dict):
        for wrong in ({"first": 4}, {"first": 4, "every": 0.5}, {"first": "4", "every": 4}):
            payload = {name: value for name, value in stored.items() if name != "checksum"} | {"curve_steps": wrong}
            with pytest.raises(InfoFlowError, match="steps of a curve"):
                Result.from_json({**payload, "checksum": checksum(payload)})


def test_a_store_names_the_calls_that_trained_there(tmp_path: Path) -> None:
    runs = runs_of(1)
    fit_many(runs[:1], tmp_path)
    (record,) = noted(tmp_path)
    assert set(record) == {"command", "commit", "versions", "machine"}
    for path in (tmp_path / "trained").iterdir():
        path.unlink()
    fit_many(runs[:1], tmp_path)  # reads only
    assert noted(tmp_path) == []
    fit_many(runs, tmp_path)
    assert noted(tmp_path) == [record]
    (tmp_path / "trained" / "0.json").write_text("{")
    with pytest.raises(InfoFlowError, match=r"0\.json, could not read it; remove it"):
        noted(tmp_path)


def test_weights_cut_short_say_what_to_do_and_doing_it_helps(tmp_path: Path) -> None:
    run = runs_of(1)[0]
    fit_many([run], tmp_path, keep_weights=True)
    path = tmp_path / "weights" / f"{run.key}.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    (result,) = fit_many([run], tmp_path, keep_weights=True)
    with pytest.raises(InfoFlowError, match=rf"{path.name}.*; remove that file to train the run again\.$"):
        result.network()
    path.unlink()
    fit_many([run], tmp_path, keep_weights=True)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "tpu"}, "device"),
        ({"device": "cpu:x"}, "device"),
        ({"engine": "rays"}, "ray"),
        ({"address": "10.0.0.1:1"}, "engine"),
        ({"T": 0}, "T"),
        ({"T": 10**7}, "memory"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": [-1]}, "seed"),
        ({"arch": Architecture((1, 1), (2, 2), rotary=True)}, "rotary"),
    ],
)
def test_wrong_calls_leave_nothing_behind(tmp_path: Path, options: dict[str, object], says: str) -> None:
    given = {"target": TARGET, "arch": Architecture((1, 1), (2, 2)), "T": 3, "store": tmp_path / "s", **options}
    with pytest.raises(InfoFlowError, match=says):
        fit(**given)
    assert not (tmp_path / "s").exists()


def test_seconds_need_to_be_some_and_a_store(tmp_path: Path) -> None:
    with pytest.raises(InfoFlowError, match="above 0"):
        fit_many(runs_of(1), tmp_path / "s", seconds=0.0)
    with pytest.raises(InfoFlowError, match="store"):
        fit_many(runs_of(1), seconds=1.0)
    assert not (tmp_path / "s").exists()


def test_a_folder_of_other_files_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InfoFlowError, match="other files"):
        Store(tmp_path)
    with pytest.raises(InfoFlowError, match="is a file"):
        Store(tmp_path / "thesis.tex")


def test_summary_counts_the_failed() -> None:
    base = fit_many(runs_of(1)[:1])[0]
    made = [replace(base, best=best, status=status)
            for best, status in ((1.0, "ok"), (3.0, "ok"), (2.0, "diverged"), (None, "diverged"))]  # fmt: skip
    found = summary([*made, None])
    assert (found.models, found.failed, found.mean, found.median, found.quartiles) == (4, 2, 2.0, 2.0, (1.5, 2.5))
    assert summary([made[3]]).mean is None
    assert summary(made[:1]).quartiles == (1.0, 1.0)
