"""What a large sweep costs before and beside its training: planning 100,000 runs, waiting for a Ray cluster.

    python benchmarks/planning.py [folder]        writes planning.json

Planning is all of `fit_many` up to the first step: checks, keys, groups, parts, the bar. Memory is what the process
holds more than after its imports. Waiting is the processor time of the calling process for tasks that do nothing, on a
cluster of two cores of this machine; its cost for one task must not grow with their number.
"""

import logging
import resource
import sys
import time
from pathlib import Path
from typing import Any

from infoflow.architecture import Architecture
from infoflow.files import write_json
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.targets import parse
from infoflow.train import fit
from infoflow.train import ray as engine
from infoflow.train.part import Board, Stop
from infoflow.train.plan import plan
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run

RUNS = 100_000
TASKS = (1_000, 4_000)


def resident() -> float:
    """MiB this process holds now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def planned(count: int) -> dict[str, Any]:
    """Ten widths, four rates, the rest seeds."""
    before, began, used = resident(), time.perf_counter(), time.process_time()
    target = parse("d_retrieval:D=4,d=4")
    arches = [Architecture.parse(f"heads=4,4 embed=24,24 width={64 + n}") for n in range(10)]
    recipes = [Recipe(lr=1e-3 * (1 + n)) for n in range(4)]
    runs = [Run(target, arches[n % 10], 16, n // 40, recipes[n // 10 % 4]) for n in range(count)]
    where = fit._check(runs, fit.Resources("cpu", "local", None, None), None, None, False)
    pending = {run.key for run in runs}
    parts = plan(runs, pending, where, None)
    Board(parts, Progress("training", 1))
    return {
        "runs": len(pending),
        "parts": len(parts),
        "cpu_seconds": time.process_time() - used,
        "seconds": time.perf_counter() - began,
        "mebibytes": resident() - before,
    }


def waited(ray: Any, count: int) -> dict[str, float]:
    task = ray.remote(num_cpus=1)(lambda: ([], None))
    ray.get([task.remote() for _ in range(50)])  # workers are up
    began, wall = time.process_time(), time.perf_counter()
    engine._collect(ray, (task.remote() for _ in range(count)), lambda _: None, Stop(), None)  # type: ignore[arg-type]
    return {"tasks": count, "cpu_seconds": time.process_time() - began, "seconds": time.perf_counter() - wall}


def main(folder: Path) -> None:
    found: dict[str, Any] = {"planning": planned(RUNS)}
    print(found["planning"])
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    found["waiting"] = [waited(ray, count) for count in TASKS]
    ray.shutdown()
    print(*found["waiting"], sep="\n")
    write_json(folder / "planning.json", {**found, "provenance": provenance(("torch", "ray"))})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
