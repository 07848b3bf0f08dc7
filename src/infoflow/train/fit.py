"""`fit` and `fit_many`: train many small Transformers at once, wherever; each ends as if it had been trained alone.

Runs that differ only in seed, learning rate, decay and initial scale are stacked and trained in one pass. Stacked and
alone are the same computation: equal to 1e-12 in float64 over 200 steps; in float32 rounding differs with the size of
the stack, and training lets such differences grow with the number of steps.
"""

import csv
import io
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from infoflow import arguments, cost
from infoflow.architecture import Architecture
from infoflow.cost import out_of_memory
from infoflow.errors import InfoFlowError, JobError, unknown
from infoflow.files import write_text
from infoflow.progress import Progress
from infoflow.report.html import Shown
from infoflow.targets.named import TargetLike, target_of
from infoflow.targets.target import Target
from infoflow.train import checkpoint, local, ray, speed
from infoflow.train.part import Board, Finished, Stop, Sweep
from infoflow.train.plan import Part, check_device, plan
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.store import Result, Store, Summary, summary
from infoflow.train.task import Task
from infoflow.train.tasks import named_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Recipe", "Result", "Results", "Run", "Store", "Summary", "Task", "fit", "fit_many", "summary"]

RUN_BYTES = 3000  # of a run, its key and its place in the plan
ENGINES = ("local", "ray")
MOST_WORKERS = 256  # processes
SAID_FROM = 60.0  # seconds: training that takes longer says so before it begins
COLUMNS = ("target", "arch", "T", "seed", "best", "final", "measure", "status", "steps", "rollbacks", "seconds", "key")
MOST_LINES = 12  # of the models that are printed


class Results(list[Result], Shown):
    """What `fit` returns: a list of results that can be printed, drawn and written."""

    __repr__ = Shown.__repr__

    def __str__(self) -> str:
        if not self:
            return "no results"
        total = summary(self)
        numbers = "no finite error" if total.median is None else f"median {total.median:.2e}"
        lines = [f"{len(self)} models, {self[0].measure.upper()}: {numbers}, {total.failed} failed"]
        lines += [f"  {result}" for result in self[:MOST_LINES]]
        return "\n".join([*lines, *([f"  and {len(self) - MOST_LINES} more"] if len(self) > MOST_LINES else [])])

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each model; a table library takes them as they are (polars.DataFrame(results.rows()))."""
        return [{name: _cell(result, name) for name in COLUMNS} for result in self]

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows as CSV; `.txt`, `.csv` or any other name."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        writer.writerows(self.rows())
        return write_text(path, text.getvalue())

    def figure(self) -> "Figure":
        """The error of every model against the steps."""
        from infoflow.report.style import COLOURS, figure

        made, axes = figure()
        for number, result in enumerate(self):
            points = [(step, error) for step, error in zip(result.curve_steps, result.curve, strict=True) if error]
            steps, errors = zip(*points, strict=True) if points else ((), ())
            axes.plot(steps, errors, color=COLOURS[number % len(COLOURS)], label=f"seed {result.seed}")
        axes.set(
            yscale="log", xlabel="steps", ylabel=f"{self[0].measure.upper()} on validation samples" if self else ""
        )
        if len(self) <= MOST_LINES:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        return made

    def plot(self, path: str | Path) -> list[Path]:
        """Write the figure as `path.svg` and `path.png`."""
        from infoflow.report.style import save

        return save(self.figure(), path)


def _cell(result: Result, name: str) -> Any:
    if name == "target":
        return result.identity.get("target") or result.identity.get("task", {}).get("name")
    return result.identity[name] if name in ("arch", "T") else getattr(result, name)


@dataclass(frozen=True)
class Resources:
    """Where a sweep is trained, as it is asked for."""

    device: str
    engine: str
    address: str | None
    workers: int | None


def fit(
    target: Task | TargetLike,
    arch: Architecture | str | None = None,
    T: int | None = None,
    seeds: int | Iterable[int] = 16,
    recipe: Recipe | None = None,
    store: Store | str | Path | None = None,
    device: str = "cpu",
    engine: str = "local",
    keep_weights: bool = False,
    address: str | None = None,
    workers: int | None = None,
) -> Results:
    """Train one architecture on one target or task from several seeds (a count, or the seeds themselves).

    The results are a list that can be printed, drawn (`plot`) and written (`to_csv`).
    """
    asked = task_of(target)
    shape = None if arch is None else Architecture.of(arch)
    runs = [Run(asked, shape, T, seed, recipe) for seed in seeds_of(seeds, recipe)]
    found = fit_many(runs, store, device, engine, keep_weights, address=address, workers=workers)
    return Results(result for result in found if result is not None)


def seeds_of(seeds: int | Iterable[int], recipe: Recipe | None = None) -> Iterable[int]:
    """The seeds of a count, or the given ones; a count that no machine can list is refused before it is listed."""
    if isinstance(seeds, Iterable) and not isinstance(seeds, (str, bytes)):
        return [arguments.seed(seed) for seed in seeds]
    count = arguments.integer("seeds", seeds)
    starts = recipe.starts if isinstance(recipe, Recipe) else 1
    cost.memory(RUN_BYTES * count * starts, f"a list of {count} models", "seeds or starts")
    return range(count)


def task_of(asked: Task | TargetLike) -> Task | Target:
    """A task or target as it is, or the one that a spelling names (`task:mqar,pairs=8`, `pairwise_max:D=2`)."""
    if isinstance(asked, str) and asked.strip().startswith("task:"):
        return named_task(asked.strip())
    return asked if isinstance(asked, Task) else target_of(asked)


def fit_many(
    runs: Sequence[Run],
    store: Store | str | Path | None = None,
    device: str = "cpu",
    engine: str = "local",
    keep_weights: bool = False,
    seconds: float | None = None,
    address: str | None = None,
    workers: int | None = None,
) -> list[Result | None]:
    """Train every run that is not finished in `store`; results in the order of `runs`.

    With a store, a killed or interrupted call resumes from the last checkpoints when it is made again, and `seconds`
    stops cleanly when the time is up: runs that are then unfinished are None, and the same call goes on with them.
    `keep_weights` writes each best model into the store; a run finished without its weights is trained once more when
    they are asked for. Without a store the models are kept in memory: `result.network()` gives them.
    A call that trained, to the end or to a checkpoint, leaves its command, commit, versions and machine in the store.
    `address` is that of a Ray cluster, for engine="ray"; without it one is started on this machine. `workers` processes
    instead of threads train stacks side by side: for many different shapes, which leave a GPU idle one after the other.
    """
    resources = Resources(device, engine, address, workers)
    where = _check(runs, resources, seconds, store, keep_weights)
    kept = store if isinstance(store, Store) or store is None else Store(store)
    found: dict[str, Result] = {}
    for run in runs:
        result = None if kept is None else kept.get(run.key, keep_weights)
        if result is not None:
            found[run.key] = result
    unique = list({run.key: run for run in runs}.values())
    pending = {run.key for run in unique} - set(found)
    parts = plan(unique, pending, where, None if kept is None else kept.checkpoints, workers) if pending else []

    def keep(finished: Finished) -> None:
        for result, network in finished:
            if kept is None:
                found[result.key] = replace(result, model=network)
            else:
                kept.put(result, network if keep_weights else None)
                found[result.key] = replace(result, store=kept)

    before = _reached(kept, unique) if kept is not None and parts else {}
    with _terminable(kept):
        try:
            _train(parts, where, resources, keep, kept, Stop(seconds))
        finally:
            if kept is not None and parts:
                if pending & set(found) or _reached(kept, unique) != before:
                    kept.note_training()
                over = {start.key for run in unique if run.key in found for start in run.trials()}
                checkpoint.tidy(kept.checkpoints, {*kept.keys(), *over})
                kept.tidy()
    return [found.get(run.key) for run in runs]


@contextmanager
def _terminable(store: Store | None) -> Iterator[None]:
    """SIGTERM, which schedulers send, ends training as Ctrl-C does: every stack saves its state. Then the exit code is
    143, and one sentence says how to go on. A handler of the caller's own stays."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the second one must not cut short what saves the state
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except SystemExit:
        where = "it has no store, so nothing is kept" if store is None else f"the same call goes on from {store.folder}"
        print(f"infoflow: stopped by SIGTERM; {where}.", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _reached(store: Store, runs: list[Run]) -> dict[str, int]:
    """The step of every run, or start of one, that is on its way there."""
    saved = checkpoint.find(store.checkpoints, {each.key for run in runs for each in (run, *run.trials())})
    return {key: found.step for found in reversed(saved) for key in found.keys}


def _train(
    parts: list[Part],
    device: torch.device,
    resources: Resources,
    keep: Callable[[Finished], None],
    store: Store | None,
    stop: Stop,
) -> None:
    if not parts:
        return
    # Before anything is written: a cluster that cannot be reached leaves the store alone.
    cluster = ray.connect(resources.address) if resources.engine == "ray" else None
    if store is not None:
        store.prepare()
    if cluster is None:
        _say_how_long(parts, device, resources.workers)
    before = sum(len(part.runs) * part.before for part in parts)
    with Progress("training", sum(part.steps for part in parts), before=before) as bar:
        checkpoints = None if store is None else store.checkpoints
        sweep = Sweep(parts, device, keep, checkpoints, stop, Board(parts, bar))
        if cluster is not None:
            ray.train_parts(cluster, sweep)
        elif resources.workers is not None:
            local.train_in_processes(sweep, resources.workers)
        else:
            local.train_in_threads(sweep)


def _say_how_long(parts: list[Part], device: torch.device, count: int | None) -> None:
    """On stderr, where it is long: what a few steps of the largest parts say."""
    try:
        seconds = speed.estimate(parts, device, count or local.side_by_side(device))
    except Exception as error:
        if isinstance(error, (InfoFlowError, JobError)) or out_of_memory(error):
            return  # training meets it again, and says it or takes smaller stacks
        raise
    if seconds is not None and seconds > SAID_FROM:
        print(f"infoflow: training will take about {duration(seconds)} (measured on a few steps).", file=sys.stderr)


def duration(seconds: float) -> str:
    """As a person says it."""
    for name, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.2g} {name}"
    return f"{seconds:.2g} seconds"


def _check(
    runs: Sequence[Run], resources: Resources, seconds: float | None, store: object, keep_weights: bool
) -> torch.device:
    """Everything that can be wrong with a call, before anything is made."""
    if not isinstance(runs, Sequence) or not all(isinstance(run, Run) for run in runs):
        raise InfoFlowError(f"expected a list of Run(target, arch, T, seed, recipe), got {arguments.shown(runs)}.")
    if not runs:
        raise InfoFlowError("expected at least one run, got none; give seeds of at least 1.")
    arguments.device(resources.device)
    if resources.engine not in ENGINES:
        raise unknown("engine", resources.engine, list(ENGINES))
    if resources.address is not None and resources.engine != "ray":
        raise InfoFlowError("expected --engine ray with an address, got engine local.")
    if resources.workers is not None:
        arguments.integer("workers", resources.workers, 1, MOST_WORKERS)
        if resources.engine == "ray":
            raise InfoFlowError("expected no workers with engine ray, which has its own; got both.")
    if seconds is not None:
        arguments.seconds(seconds)
    if store is not None and not isinstance(store, Store):
        arguments.path("store", store)
    if seconds is not None and store is None:
        raise InfoFlowError("expected a store with seconds (what is unfinished goes on from it), got none.")
    checked: set[str] = set()
    for run in runs:
        run.check_numbers()
        if run.group in checked:  # what is left to check is the same for all of a group
            continue
        run.check()
        checked.add(run.group)
        if keep_weights and run.task.config(run.arch, run.T, run.recipe) is None:
            raise InfoFlowError(
                f"expected no keep_weights for {run.task.name}: its network is of a kind without files."
            )
    return check_device(resources.device, elsewhere=resources.engine == "ray")
