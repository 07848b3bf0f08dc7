"""Write down forecasts of test cells before any of them is trained.

    python benchmarks/forecast_floors.py results/forecast/NAME_floors.jsonl --part test --targets 27 --seed 1
    python benchmarks/forecast_register.py NAME --part test --targets 27 --seed 1 [--most-flops 4e11]

writes results/forecast/NAME.json: each cell with its forecast from theory alone, how many seeds it gets (16 where two
kinds of seeds are forecast), and the order in which cells are trained: least floating-point operations first, so that
what a small machine can train is a fixed beginning of the list and not a choice. NAME_calibration.json beside it is
what the forecasts were made with, unless an earlier registration has the same: then `calibrated_in` names that one.

    python benchmarks/forecast_register.py NAME --again OTHER

forecasts with today's model the cells of another registration that are not trained yet, from NAME_floors.jsonl; they
are trained as OTHER says, and their errors are read from its file.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from forecast_calibrate import lines
from forecast_floors import drawn, training_flops
from infoflow.files import write_json, write_text
from infoflow.forecasts import families, flops
from infoflow.forecasts.cells import Cell
from infoflow.forecasts.forecast import from_floors
from infoflow.forecasts.model import shipped
from infoflow.forecasts.reads import Floors
from infoflow.provenance import provenance

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "results/forecast"
SEEDS, MIXED_SEEDS = 4, 16


def entry(cell: Cell, row: dict[str, Any], seeds: int | None = None) -> dict[str, Any]:
    """`seeds`: as another registration has them."""
    floors = Floors(**{key: value for key, value in row.items() if key not in ("name", "seconds")})
    made = from_floors(floors, cell.target, cell.arch, cell.T, cell.recipe)
    mixed = 0 < made.parts.luck.share < 1 and cell.recipe.total_steps <= 10_000
    seeds = seeds or (MIXED_SEEDS if mixed else SEEDS)
    cost = training_flops(cell, seeds)
    parts = made.parts
    return cell.to_json() | {
        "nmse": float(f"{made.nmse:.4g}"), "low": float(f"{made.low:.4g}"), "high": float(f"{made.high:.4g}"),
        "floor": float(f"{parts.floor:.4g}"), "sharpness": float(f"{parts.sharpness:.4g}"),
        "readout": float(f"{parts.readout:.4g}"), "stuck_share": parts.luck.share, "stuck_end": parts.luck.ends,
        "seeds": seeds, "training_flops": float(f"{cost:.4g}"), "forecast_seconds": row["seconds"],
        "forecast_flops": float(f"{flops.theory(cell.arch, cell.target.dim, cell.T):.4g}"),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--part", choices=tuple(families.GROUPS)[1:], default="test")
    parser.add_argument("--targets", type=int, default=27)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most-flops", type=float, help="As the floors were found with.")
    parser.add_argument("--least-epochs", type=int, default=0, help="Likewise.")
    parser.add_argument("--again", metavar="OTHER", help="The registration whose untrained cells are forecast again.")
    options = parser.parse_args()
    draw = {"families": options.part, "targets": options.targets, "seed": options.seed}
    draw |= {"most_flops": options.most_flops} if options.most_flops else {}
    draw |= {"least_epochs": options.least_epochs} if options.least_epochs else {}
    others, seeds = {}, {}
    if options.again:
        other = json.loads((FOLDER / f"{options.again}.json").read_text())
        draw, others = other["draw"], {"trained_in": options.again}
        done = {row["name"] for row in lines(FOLDER / f"{options.again}.jsonl")}
        seeds = {cell["name"]: cell["seeds"] for cell in other["cells"] if cell["name"] not in done}
    asked = (draw[key] for key in ("families", "targets", "seed"))
    bounds = {key: draw[key] for key in ("most_flops", "least_epochs") if key in draw}
    cells = {cell.name: cell for cell in drawn(*asked, **bounds)}
    rows = lines(FOLDER / f"{options.name}_floors.jsonl")
    if {row["name"] for row in rows} != set(cells):
        raise SystemExit(
            f"expected floors of {len(cells)} cells, got {len(rows)}; forecast_floors.py goes on with them."
        )
    chosen = [row for row in rows if not options.again or row["name"] in seeds]
    entries = [entry(cells[row["name"]], row, seeds.get(row["name"])) for row in chosen]
    entries.sort(key=lambda found: (found["training_flops"], found["name"]))
    calibration = shipped()
    before = [path for path in sorted(FOLDER.glob("*_calibration.json")) if path.read_text() == calibration]
    if before:
        others["calibrated_in"] = before[0].name.removesuffix("_calibration.json")
    payload = {
        "provenance": provenance(),
        "what": "forecasts from theory alone; no cell of this list had been trained when this file was committed",
        "draw": draw,
        **others,
        "order": "ascending training_flops (all seeds together); a partial score is that of a beginning of this list",
        "seeds": f"{SEEDS}; {MIXED_SEEDS} where the reduced problem has two kinds of starts and the run is short",
        "calibration_sha256": hashlib.sha256(calibration.encode()).hexdigest(),
        "cells": entries,
    }
    if not before:
        write_text(FOLDER / f"{options.name}_calibration.json", calibration)
    write_json(FOLDER / f"{options.name}.json", payload)
    print(f"{len(entries)} cells registered")


if __name__ == "__main__":
    main()
