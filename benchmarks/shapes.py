"""A sweep of many different shapes on this machine: one stack after the other, and several in worker processes.

    python benchmarks/shapes.py [FOLDER] [--device cuda] [--workers 15] [--cells 73] [--steps 400]

The cells are drawn by a seed from the law of those that forecasts are calibrated on, four seeds each: targets, lengths,
one to four layers, heads and widths all differ, so no two of them share a stack. Both ways train the same runs in one
call each, data, compilation and captured graphs included; before them a call of two steps fills Triton's cache. Under
NVIDIA's MPS (start it first) the workers' kernels run at the same time. Writes shapes_<device>.json.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from infoflow.cost import cores
from infoflow.files import write_json
from infoflow.forecasts import families
from infoflow.forecasts.cells import ARCHITECTURES, draw_cells
from infoflow.provenance import provenance
from infoflow.train import local
from infoflow.train.fit import Run, fit_many

SEEDS = 4


def drawn(cells: int, steps: int) -> list[Run]:
    """The runs of so many cells, of so many steps each; what else the recipe says stays."""
    found = draw_cells("calibration", families.CALIBRATION, -(-cells // ARCHITECTURES), 0)[:cells]
    short = {"epochs": None, "steps": steps, "warm_up": min(50, steps), "samples": 8192, "validation": 1024}
    return [run for cell in found for run in cell.runs(SEEDS, cell.recipe.with_(**short))]


def timed(runs: list[Run], device: str, workers: int | None) -> dict[str, Any]:
    began = time.perf_counter()
    results = [result for result in fit_many(runs, device=device, workers=workers) if result is not None]
    seconds = time.perf_counter() - began
    steps = sum(run.recipe.total_steps for run in runs)
    return {
        "seconds": seconds,
        "model_steps_per_second": steps / seconds,
        "training_seconds": sum(result.seconds / result.stacked for result in results),  # of all stacks together
        "learned": sum(not result.unlearned for result in results),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent / "results")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, nargs="*", default=[max(2, cores() - 1)])
    parser.add_argument("--cells", type=int, default=73)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    runs = drawn(options.cells, options.steps)
    groups = len({run.group for run in runs})
    timed(drawn(options.cells, 2), options.device, options.workers[0])
    rows = []
    for workers in [*options.workers, None]:
        local.SIDE_BY_SIDE = 1  # without workers: one after the other
        rows.append({"workers": workers, **timed(runs, options.device, workers)})
        print(rows[-1], flush=True)
    one = rows[-1]["seconds"]
    found = {
        "cells": options.cells,
        "groups": groups,
        "models": len(runs),
        "steps": options.steps,
        "rows": [row | {"ratio": one / row["seconds"]} for row in rows],
        "provenance": provenance(("torch", "triton")),
    }
    write_json(options.folder / f"shapes_{options.device.partition(':')[0]}.json", found)


if __name__ == "__main__":
    main()
