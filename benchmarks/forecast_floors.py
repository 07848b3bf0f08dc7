"""The floors of the calibration cells: what `forecasts/reads.py` finds for each, and how long it takes.

python benchmarks/forecast_floors.py OUT --cells results/forecast/calibration.jsonl [--workers 15] [--device cuda]
"""

import argparse
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoflow.forecasts import families
from infoflow.forecasts.cells import Cell, draw_cells
from infoflow.forecasts.reads import floors
from infoflow.forecasts.states import states

SAMPLES, SEED = 4_000, 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--cells", type=Path, required=True)
    parser.add_argument("--targets", type=int, default=48)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    named = {json.loads(line)["name"] for line in options.cells.read_text().splitlines()}
    cells = [cell.name for cell in drawn(options.targets) if cell.name in named][:: options.every]
    pool = multiprocessing.get_context("spawn").Pool(options.workers, _start, (options,))
    with pool, open(options.out, "w", encoding="utf-8") as file:
        for record in pool.imap_unordered(_floor, cells):
            file.write(json.dumps(record) + "\n")
            file.flush()


def drawn(targets: int) -> list[Cell]:
    return draw_cells("calibration", families.CALIBRATION, targets, 0)


_CELLS: dict[str, Cell] = {}
_DEVICE = "cpu"


def _start(options: argparse.Namespace) -> None:
    global _DEVICE
    torch.set_num_threads(1)
    _CELLS.update({cell.name: cell for cell in drawn(options.targets)})
    _DEVICE = options.device


def _floor(name: str) -> dict[str, Any]:
    cell, began = _CELLS[name], time.time()
    X = cell.target.sample(SAMPLES, cell.T, seed=SEED)
    y = torch.from_numpy(np.asarray(cell.target(X))).float().to(_DEVICE)
    found = floors(
        states(cell.target, X, cell.arch, cell.recipe.encoder == "mlp", _DEVICE),
        y.unsqueeze(-1) if y.ndim == 1 else y,
        cell.arch.embed[-1],
    )
    return {"name": name, "floors": found.ends, "ways": found.ways, "seconds": round(time.time() - began, 2)}


if __name__ == "__main__":
    main()
