"""Make `src/infoflow/forecasts/calibration.json` from the trained cells and their floors, and say how good it is.

    python benchmarks/forecast_calibrate.py        reads results/forecast/, writes benchmarks/results/forecast.json too

Scores are those of models that never saw the target (or the whole family) of the cell they forecast.
"""

import json
import math
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from forecast_floors import drawn
from infoflow.files import write_json
from infoflow.forecasts.model import Calibration
from infoflow.forecasts.quantities import NAMES, quantities
from infoflow.forecasts.reads import Floors
from infoflow.provenance import provenance

ROOT = Path(__file__).parents[1]
CELLS, FLOORS = ROOT / "results/forecast/calibration.jsonl", ROOT / "results/forecast/floors.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def scores(forecast: np.ndarray, errors: np.ndarray) -> dict[str, float]:
    """Rank correlation; the factor max(forecast/trained, trained/forecast) in the middle and at nine in ten."""
    off = np.abs(forecast - errors)
    return {
        "spearman": round(float(spearmanr(forecast, errors)[0]), 3),
        "median_factor": round(10 ** float(np.median(off)), 2),
        "factor_at_90": round(10 ** float(np.quantile(off, 0.9)), 1),
        "within_5": round(float(np.mean(off < math.log10(5))), 3),
    }


def left_out(calibration: Calibration, groups: np.ndarray) -> np.ndarray:
    found = np.empty(len(groups))
    for group in sorted(set(groups)):
        out = groups == group
        found[out] = calibration.model(~out)(calibration.quantities[out])
    return found


def pilot_line(pilots: np.ndarray, errors: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The baseline: a line through log pilot and log error, fitted without the group it speaks of."""
    found = np.empty(len(groups))
    for group in sorted(set(groups)):
        out = groups == group
        found[out] = np.polyval(np.polyfit(pilots[~out], errors[~out], 1), pilots[out])
    return found


def main() -> None:
    cells = {cell.name: cell for cell in drawn(48)}
    found = {row["name"]: Floors(row["floors"], row["ways"]) for row in lines(FLOORS)}
    rows = lines(CELLS)
    records = []
    for row in rows:
        cell = cells[row["name"]]
        error = math.log10(median(run["test"] for run in row["full"]))
        values = quantities(found[row["name"]], cell.target, cell.arch, cell.T, cell.recipe)
        records.append({"name": row["name"], "target": row["target"], "arch": row["arch"], "T": row["T"],
                        "epochs": row["epochs"], "quantities": [round(v, 4) for v in values],
                        "log10_nmse": round(error, 4)})  # fmt: skip
    made = provenance()
    payload = {"provenance": made, "quantities": list(NAMES), "cells": records}
    write_json(ROOT / "src/infoflow/forecasts/calibration.json", payload)
    errors = np.array([record["log10_nmse"] for record in records])
    targets = np.array([row["target"] for row in rows])
    families = np.array([row["family"] for row in rows])
    calibration = Calibration(np.array([r["quantities"] for r in records]), errors, tuple(targets))
    epochs = np.array([row["epochs"] for row in rows])
    pilots = {share: np.array([math.log10(median(run["test"] for run in row[f"pilot_{share}"])) for row in rows])
              for share in ("0.05", "0.017")}  # fmt: skip
    table = {}
    for lengths, kept in {"": epochs > 0, " (60 and 240 epochs)": epochs >= 60}.items():
        for left, groups in {"target": targets, "family": families}.items():
            guesses = {"theory": left_out(calibration, groups)[kept]}
            for share, pilot in pilots.items():
                guesses[f"pilot of {share}"] = pilot_line(pilot[kept], errors[kept], groups[kept])
            for name, guess in guesses.items():
                table[f"{name}{lengths}, {left} left out"] = scores(guess, errors[kept])
    sizes = {"cells": len(rows), "targets": len(set(targets)), "families": len(set(families))}
    write_json(Path(__file__).parent / "results" / "forecast.json", {"provenance": made, **sizes, "scores": table})
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
