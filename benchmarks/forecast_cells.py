"""Train the cells of the forecast with their pilots, scored on a fresh test set: those it is calibrated on, or those
that were registered (forecast before they are trained).

    python benchmarks/forecast_cells.py OUT --targets 48 --workers 12 --seconds 560 [--done FILE...] [--device cuda]
    python benchmarks/forecast_cells.py OUT --registered results/forecast/registered.json --device cpu

Each worker is a process (on a GPU start MPS first); it takes the next cell, trains its seeds and the seeds of its two
pilots, measures every network on a test set no seed has seen, and adds a line to OUT/cells-WORKER.jsonl. Cells that
OUT or a file of --done holds are left out, so the same call goes on where the ones before it stopped. Registered cells
are trained in the order and with the seeds that were registered. `cat OUT/cells-*.jsonl` makes
results/forecast/NAME.jsonl.
"""

import argparse
import json
import multiprocessing
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from infoflow.forecasts import families
from infoflow.forecasts.cells import Cell, draw_cells
from infoflow.provenance import provenance
from infoflow.targets import Target
from infoflow.train.fit import Result, fit_many

SEEDS = 4
PILOTS = (0.05, 0.017)
WITH_CURVES = ("full", "pilot_0.05")  # that rivals look at
TEST_SAMPLES, TEST_SEED = 20_000, 987_654_321
CHUNK = 2_000
Todo = list[tuple[str, int]]  # names of cells with their numbers of seeds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--registered", type=Path, help="File of registered forecasts; without it: calibration.")
    parser.add_argument("--targets", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=560.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--done", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.time()
    context = multiprocessing.get_context("spawn")
    taken = context.Value("i", 0)
    made = provenance()
    todo = remaining(options)  # named once: a worker that starts anew takes from the same list
    workers: dict[int, Any] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # no worker outlives this process
    try:
        while time.time() < began + options.seconds:
            for number in range(options.workers):
                if taken.value < len(todo) and (number not in workers or not workers[number].is_alive()):
                    workers[number] = context.Process(target=work, args=(number, todo, options, taken, began, made))
                    workers[number].start()
            if not any(worker.is_alive() for worker in workers.values()):
                break
            time.sleep(0.5)
    finally:
        for worker in workers.values():
            worker.terminate()
    print(f"{taken.value} cells begun in {time.time() - began:.0f} s")


def drawn(options: argparse.Namespace) -> tuple[dict[str, Cell], list[dict[str, Any]]]:
    """Every cell by its name (a worker draws them anew: functions do not travel between processes), and the entries of
    the registration."""
    part, targets, seed, entries = "calibration", options.targets, options.seed, []
    if options.registered is not None:
        listed = json.loads(options.registered.read_text(encoding="utf-8"))
        part, targets, seed = (listed["draw"][key] for key in ("families", "targets", "seed"))
        entries = listed["cells"]
    return {cell.name: cell for cell in draw_cells(part, families.GROUPS[part], targets, seed)}, entries


def remaining(options: argparse.Namespace) -> Todo:
    """Those that remain with their seeds: registered ones in their order, others the shortest first (when the time is
    up, few are lost on their way)."""
    files = [*options.done, *sorted(options.out.glob("cells-*.jsonl"))]
    done = {json.loads(line)["name"] for path in files for line in path.read_text().splitlines()}
    cells, entries = drawn(options)
    shortest = [(cell.name, SEEDS) for cell in sorted(cells.values(), key=work_of)]
    listed = shortest if options.registered is None else [(entry["name"], entry["seeds"]) for entry in entries]
    return [(name, seeds) for name, seeds in listed if name not in done]


def work_of(cell: Cell) -> float:
    return cell.recipe.total_steps * (1.0 + cell.T * sum(cell.arch.heads) / 256)


def work(
    number: int,
    todo: Todo,
    options: argparse.Namespace,
    taken: Any,
    began: float,
    made: dict[str, Any],
) -> None:
    torch.set_num_threads(1)
    cells, _ = drawn(options)
    with open(options.out / f"cells-{number}.jsonl", "a", encoding="utf-8") as file:
        while True:
            with taken.get_lock():
                mine, taken.value = taken.value, taken.value + 1
            if mine >= len(todo):
                return
            start = time.time()
            name, seeds = todo[mine]
            try:
                found = train(cells[name], seeds, options.device)
            except Exception:  # a cell that fails is named and left out; a broken GPU context needs a new process
                print(f"{time.time() - began:.1f} s: {cells[name].to_json()} failed", flush=True)
                traceback.print_exc()
                return
            record = found | {"seconds": round(time.time() - start, 2), "made": made}
            file.write(json.dumps(record, separators=(",", ":")) + "\n")
            file.flush()


def train(cell: Cell, seeds: int, device: str) -> dict[str, Any]:
    recipes = {"full": cell.recipe} | {f"pilot_{share}": cell.pilot(share) for share in PILOTS}
    results = {
        name: fit_many(cell.runs(seeds if name == "full" else SEEDS, recipe), device=device)
        for name, recipe in recipes.items()
    }
    X = torch.from_numpy(cell.target.sample(TEST_SAMPLES, cell.T, seed=TEST_SEED)).float().to(device)
    y = labels(cell.target, X)
    record: dict[str, Any] = cell.to_json()
    for name, found in results.items():
        record[name] = [summary(result, X, y, name in WITH_CURVES) for result in found if result is not None]
    return record


def labels(target: Target, X: torch.Tensor) -> torch.Tensor:
    y = target(X.double())
    return y.unsqueeze(-1) if y.ndim == 1 else y


def summary(result: Result, X: torch.Tensor, y: torch.Tensor, curve: bool = False) -> dict[str, Any]:
    """A run in short: its score on the test set, its best validation error, and the curve that led there."""
    network = result.network().to(X.device)
    with torch.no_grad():
        answers = torch.cat([network(part) for part in X.split(CHUNK)]).double()
    answers = answers.unsqueeze(-1) if answers.ndim == 1 else answers
    test = float((answers - y).square().mean() / (y - y.mean(0)).square().mean())
    record = {"seed": result.seed, "test": short(test, 6), "best": short(result.best, 6), "steps": result.steps}
    if result.status != "ok":
        record["status"] = result.status
    return record | ({"curve": [short(value, 4) for value in result.curve]} if curve else {})


def short(value: float | None, digits: int) -> float | None:
    """To so many digits: a record is read by people, too."""
    return None if value is None else float(f"{value:.{digits}g}")


if __name__ == "__main__":
    main()
