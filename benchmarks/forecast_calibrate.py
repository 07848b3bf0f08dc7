"""Make `src/infoflow/forecasts/calibration.json` from the trained cells and their floors, and say how good it is.

    python benchmarks/forecast_calibrate.py        reads results/forecast/, writes benchmarks/results/forecast.json too

Scores are those of models that never saw the target (or the whole family) of the cell they forecast. The cells are
those of the calibration families and those of the first registration that were trained: once scored, they may teach.
"""

import json
import math
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from forecast_floors import drawn
from infoflow.files import write_json
from infoflow.forecasts.model import Calibration
from infoflow.forecasts.pilots import pilot_quantities
from infoflow.forecasts.quantities import NAMES, PILOT_NAMES, quantities
from infoflow.forecasts.reads import Floors
from infoflow.forecasts.registered_report import scatter
from infoflow.forecasts.scores import line, score
from infoflow.provenance import provenance
from infoflow.report.style import save

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "results/forecast"
CELLS, SCORED, FLOORS = (FOLDER / f"{name}.jsonl" for name in ("calibration", "registered", "floors"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def trained() -> list[dict[str, Any]]:
    return lines(CELLS) + lines(SCORED)


def records() -> list[dict[str, Any]]:
    """The calibration cells: what a forecast may know of each, and what it ended at."""
    cells = {cell.name: cell for cell in (*drawn("calibration", 48, 0), *drawn("test", 9, 1))}
    found = {row["name"]: row for row in lines(FLOORS)}
    made = []
    for row in trained():
        cell, floors = cells[row["name"]], found[row["name"]]
        known = Floors(**{key: value for key, value in floors.items() if key not in ("name", "seconds")})
        values = quantities(known, cell.target, cell.arch, cell.T, cell.recipe)
        pilot = pilot_quantities([run["best"] for run in row["pilot_0.05"]])
        made.append({"name": row["name"], "family": row["family"], "target": row["target"], "arch": row["arch"],
                     "T": row["T"], "epochs": row["epochs"], "quantities": [round(v, 4) for v in values],
                     "pilot": [round(v, 4) for v in pilot],
                     "log10_nmse": round(math.log10(median(run["test"] for run in row["full"])), 4)})  # fmt: skip
    return made


def main() -> None:
    cells, rows = records(), trained()
    errors, families, targets, epochs = (np.array([cell[name] for cell in cells])
                                         for name in ("log10_nmse", "family", "target", "epochs"))  # fmt: skip
    theory = np.array([cell["quantities"] for cell in cells])
    both = np.array([cell["quantities"] + cell["pilot"] for cell in cells])
    models = {
        name: Calibration(known, errors, families, NAMES) for name, known in (("theory", theory), ("pilot", both))
    }
    made = provenance()
    widening = {name: round(model.widening(), 4) for name, model in models.items()}
    shipped = {"provenance": made, "quantities": list(NAMES), "pilot_quantities": list(PILOT_NAMES),
               "widening": widening, "cells": cells}  # fmt: skip
    write_json(ROOT / "src/infoflow/forecasts/calibration.json", shipped)
    pilots = {share: np.array([math.log10(median(run["test"] for run in row[f"pilot_{share}"])) for row in rows])
              for share in ("0.05", "0.017")}  # fmt: skip
    table = {}
    for lengths, kept in {"": epochs > 0, " (60 and 240 epochs)": epochs >= 60}.items():
        for left, groups in {"target": targets, "family": families}.items():
            guesses = {"theory": models["theory"].left_out(groups)[kept],
                       "theory and pilot of 0.05": models["pilot"].left_out(groups)[kept]}  # fmt: skip
            for share, pilot in pilots.items():
                guesses[f"pilot of {share}"] = line(pilot[kept], errors[kept], groups[kept])
            for name, guess in guesses.items():
                scored = score(guess, errors[kept], targets[kept], families[kept])
                table[f"{name}{lengths}, {left} left out"] = asdict(scored)
    coverage = {name: round(model.coverage(), 3) for name, model in models.items()}
    sizes = {"cells": len(cells), "targets": len(set(targets)), "families": len(set(families))}
    left = {cell["name"]: round(float(guess), 4) for cell, guess in
            zip(cells, models["theory"].left_out(families), strict=True)}  # fmt: skip
    payload = {"provenance": made, **sizes, "coverage": coverage, "scores": table, "family_left_out": left}
    write_json(Path(__file__).parent / "results" / "forecast.json", payload)
    drawn_cells = [{"family": cell["family"], "forecast": 10 ** left[cell["name"]], "trained": 10 ** cell["log10_nmse"]}
                   for cell in cells]  # fmt: skip
    save(scatter(drawn_cells), ROOT / "docs/figures/forecast_left_out", formats=("svg",))
    print(json.dumps({"coverage": coverage, "widening": widening, "scores": table}, indent=1))


if __name__ == "__main__":
    main()
