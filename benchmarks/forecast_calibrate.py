"""Make `src/infoflow/forecasts/calibration.json` from the trained cells and their floors, and say how good it is.

    python benchmarks/forecast_calibrate.py        reads results/forecast/, writes benchmarks/results/forecast.json too

Scores are those of models that never saw the target (or the whole family) of the cell they forecast. The cells are
those of the calibration families, those of the registrations that were trained when this was made, and the candidates
of the three tests of `plan --forecast`: once scored, they may teach. The last have no pilots.
"""

import json
import math
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from forecast_floors import FOLDER, TRAINED, drawn
from forecast_plan import TEACHING, trained_cells
from infoflow.files import write_json
from infoflow.forecasts.cells import Cell
from infoflow.forecasts.model import PILOT, Calibration
from infoflow.forecasts.pilots import pilot_quantities
from infoflow.forecasts.quantities import NAMES, PILOT_NAMES, quantities
from infoflow.forecasts.reads import Floors
from infoflow.forecasts.registered_report import scatter
from infoflow.forecasts.scores import line, score
from infoflow.provenance import provenance
from infoflow.report.style import save

ROOT = Path(__file__).parents[1]
FLOORS = FOLDER / "floors.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def trained() -> list[tuple[Cell, dict[str, Any]]]:
    """Cells with what they ended at: `full` and, but for those of the plan, pilots."""
    cells = {cell.name: cell for cell in drawn("trained", 0, 0)}
    rows = [row for path in TRAINED for row in lines(path)]
    plan = [(cells[name], {"full": [{"test": error} for error in errors]})
            for test in TEACHING for name, errors in trained_cells(test).items()]  # fmt: skip
    return [(cells[row["name"]], row) for row in rows] + plan


def records() -> list[dict[str, Any]]:
    """The calibration cells: what a forecast may know of each, and what it ended at."""
    found = {row["name"]: row for row in lines(FLOORS)}
    made = []
    for cell, row in trained():
        known = Floors(**{key: value for key, value in found[cell.name].items() if key not in ("name", "seconds")})
        values = quantities(known, cell.target, cell.arch, cell.T, cell.recipe)
        pilot = pilot_quantities([run["best"] for run in row["pilot_0.05"]]) if "pilot_0.05" in row else []
        about = {name: value for name, value in cell.to_json().items() if name != "encoder"}
        made.append({**about, "quantities": [round(v, 4) for v in values],
                     "pilot": [round(v, 4) for v in pilot],
                     "log10_nmse": round(math.log10(median(run["test"] for run in row["full"])), 4)})  # fmt: skip
    return made


def main() -> None:
    cells = records()
    errors, families, targets, epochs = (np.array([cell[name] for cell in cells])
                                         for name in ("log10_nmse", "family", "target", "epochs"))  # fmt: skip
    piloted = np.array([bool(cell["pilot"]) for cell in cells])
    theory = np.array([cell["quantities"] for cell in cells])
    both = np.array([cell["quantities"] + cell["pilot"] for cell in cells if cell["pilot"]])
    models = {"theory": Calibration(theory, errors, families, NAMES),
              "pilot": Calibration(both, errors[piloted], families[piloted], NAMES, pilot_weight=PILOT)}  # fmt: skip
    made = provenance()
    missed = dict(zip(np.flatnonzero(piloted).tolist(), models["pilot"].misses.tolist(), strict=True))
    for number, miss in enumerate(models["theory"].misses.tolist()):
        found = [miss, missed[number]] if number in missed else [miss]
        cells[number]["misses"] = [round(value, 4) for value in found]
    widening = {name: round(model.widening(), 4) for name, model in models.items()}
    shipped = {"provenance": made, "quantities": list(NAMES), "pilot_quantities": list(PILOT_NAMES),
               "widening": widening, "pilot_weight": PILOT, "cells": cells}  # fmt: skip
    write_json(ROOT / "src/infoflow/forecasts/calibration.json", shipped)
    rows = [row for _, row in trained() if "pilot_0.05" in row]
    pilots = {share: np.array([math.log10(median(run["test"] for run in row[f"pilot_{share}"])) for row in rows])
              for share in ("0.05", "0.017")}  # fmt: skip
    table = {}
    for left, groups in {"target": targets, "family": families}.items():
        everything = models["theory"].left_out(groups)
        table[f"theory (all cells), {left} left out"] = asdict(score(everything, errors, targets, families))
        for lengths, kept in {"": epochs[piloted] > 0, " (60 and 240 epochs)": epochs[piloted] >= 60}.items():
            guesses = {"theory": everything[piloted][kept],
                       "theory and pilot of 0.05": models["pilot"].left_out(groups[piloted])[kept]}  # fmt: skip
            known = [values[piloted][kept] for values in (errors, groups, targets, families)]
            for share, pilot in pilots.items():
                guesses[f"pilot of {share}"] = line(pilot[kept], known[0], known[1])
            for name, guess in guesses.items():
                scored = score(guess, known[0], known[2], known[3])
                table[f"{name}{lengths}, {left} left out"] = asdict(scored)
    coverage = {name: round(model.coverage(), 3) for name, model in models.items()}
    sizes = {"cells": len(cells), "targets": len(set(targets)), "families": len(set(families)),
             "cells_with_pilots": int(piloted.sum())}  # fmt: skip
    left = {cell["name"]: round(float(guess), 4) for cell, guess in
            zip(cells, models["theory"].left_out(families), strict=True)}  # fmt: skip
    payload = {"provenance": made, **sizes, "coverage": coverage, "scores": table, "family_left_out": left}
    write_json(Path(__file__).parent / "results" / "forecast.json", payload)
    drawn_cells = [
        {"family": cell["family"], "target": cell["target"], "forecast": 10 ** left[cell["name"]],
         "trained": 10 ** cell["log10_nmse"]}
        for cell in cells
    ]  # fmt: skip
    save(scatter(drawn_cells), ROOT / "docs/figures/forecast_left_out", formats=("svg",))
    print(json.dumps({"coverage": coverage, "widening": widening, "scores": table}, indent=1))


if __name__ == "__main__":
    main()
