"""A rival of the forecast: the same cell at a quarter of its length, or of its width, trained and taken for the answer.

    python benchmarks/forecast_smaller.py registered --seconds 600 [--device cuda]

goes through the registered cells that are trained, in their order, and adds a line each to
results/forecast/NAME_smaller.jsonl; the same call goes on. `infoflow reproduce forecast/test` scores what is there.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from forecast_cells import TEST_SAMPLES, TEST_SEED, labels, summary
from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.forecasts.cells import Cell
from infoflow.forecasts.registered import SMALLER, read, smaller
from infoflow.provenance import provenance
from infoflow.train.fit import fit_many
from infoflow.train.run import Run

FOLDER = Path(__file__).parents[1] / "results/forecast"
SEEDS = 2


def trained(cell: Cell, arch: Architecture, T: int, device: str) -> list[float]:
    """The errors of the seeds on a fresh test set of their own length."""
    X = torch.from_numpy(cell.target.sample(TEST_SAMPLES, T, seed=TEST_SEED)).float().to(device)
    runs = [Run(cell.target, arch, T, seed, cell.recipe) for seed in range(SEEDS)]
    y = labels(cell.target, X)
    return [summary(found, X, y)["test"] for found in fit_many(runs, device=device) if found is not None]


def record(cell: Cell, device: str) -> dict[str, Any]:
    began = time.monotonic()
    asked = {kind: smaller(cell, kind) for kind in SMALLER}
    errors = {kind: trained(cell, arch, T, device) for kind, (arch, T) in asked.items() if exists(cell, T)}
    return {"name": cell.name, **errors, "seconds": round(time.monotonic() - began, 1)}


def exists(cell: Cell, T: int) -> bool:
    """A target that asks for its third token, or for tokens two places apart, has no value on two."""
    try:
        cell.target.check_length(T)
        cell.target(cell.target.sample(2, T, seed=0))
    except InfoFlowError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", default="registered")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    began, made = time.monotonic(), provenance()
    path = FOLDER / f"{options.name}_smaller.jsonl"
    done = {json.loads(line)["name"] for line in path.read_text().splitlines()} if path.exists() else set()
    with open(path, "a", encoding="utf-8") as file:
        for each in read(FOLDER, options.name)[1]:
            if each.cell.name not in done and time.monotonic() - began < options.seconds:
                file.write(json.dumps(record(each.cell, options.device) | {"made": made}) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
