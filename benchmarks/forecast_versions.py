"""What another version of the forecast would have said of registered cells that are trained.

    python benchmarks/forecast_versions.py eighth tenth eleventh    writes benchmarks/results/forecast_versions.json

The first name is the registration whose calibration the other version was made with, beside it in results/forecast; the
others are those whose cells are asked about, by that version and by their own, from theory and with the 5% pilots. Only
the calibrated part differs: the floors are those that were registered.
"""

import argparse
import json
from dataclasses import asdict
from math import log10
from pathlib import Path
from typing import Any

import numpy as np

from infoflow.files import write_json
from infoflow.forecasts.forecast import Forecast, from_floors
from infoflow.forecasts.reads import Floors
from infoflow.forecasts.registered import Trained, read
from infoflow.forecasts.scores import score
from infoflow.provenance import provenance

FOLDER = Path(__file__).parents[1] / "results/forecast"


def floors_of(name: str) -> dict[str, Floors]:
    rows = map(json.loads, (FOLDER / f"{name}_floors.jsonl").read_text(encoding="utf-8").splitlines())
    return {row["name"]: Floors(**{k: v for k, v in row.items() if k not in ("name", "seconds")}) for row in rows}


def said(each: Trained, floors: Floors, calibration: str, pilot: bool) -> Forecast:
    errors = each.pilot("0.05") if pilot else None
    return from_floors(floors, each.cell.target, each.cell.arch, each.cell.T, each.cell.recipe, errors, calibration)


def scored(found: list[Trained], forecasts: list[Forecast]) -> dict[str, Any]:
    guesses = np.log10([made.nmse for made in forecasts])
    errors, targets, kinds = (np.array(each) for each in zip(
        *((each.error, each.cell.target.spelling, each.cell.family) for each in found), strict=True))  # fmt: skip
    inside = [log10(made.low) <= error <= log10(made.high) for made, error in zip(forecasts, errors, strict=True)]
    return asdict(score(guesses, errors, targets, kinds)) | {"coverage": round(float(np.mean(inside)), 3)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("other")
    parser.add_argument("asked", nargs="+")
    options = parser.parse_args()
    rows = []
    for name in options.asked:
        listed, found = read(FOLDER, name)
        floors = floors_of(name)
        for version in (options.other, listed.get("calibrated_in", name)):
            calibration = (FOLDER / f"{version}_calibration.json").read_text(encoding="utf-8")
            for pilot in (False, True):
                made = [said(each, floors[each.entry["name"]], calibration, pilot) for each in found]
                rows.append({"registration": name, "calibration of": version, "pilot": pilot, **scored(found, made)})
                print(rows[-1], flush=True)
    write_json(Path(__file__).parent / "results/forecast_versions.json", {"provenance": provenance(), "rows": rows})


if __name__ == "__main__":
    main()
