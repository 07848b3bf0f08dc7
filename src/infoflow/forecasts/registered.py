"""Score forecasts that were registered before their cells were trained, beside every rival, with what each costs.

`registered.json` holds the forecasts, `registered.jsonl` the cells trained since (`benchmarks/forecast_cells.py`).
Rivals that need a fit get it on the calibration cells, as the forecast did, or, where said, on the other test cells of
other targets ("left out").
"""

from dataclasses import asdict, dataclass
from math import log10
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from infoflow.architecture import Architecture
from infoflow.arguments import integer
from infoflow.errors import InfoFlowError
from infoflow.forecasts import families, flops
from infoflow.forecasts.cells import Cell, draw_cells
from infoflow.forecasts.forecast import from_floors
from infoflow.forecasts.model import calibrated
from infoflow.forecasts.pilots import SEEDS
from infoflow.forecasts.reads import Floors
from infoflow.forecasts.rivals import extrapolated, near
from infoflow.forecasts.scores import Scores, line, others_mean, score
from infoflow.reading import json_of, parsed, text
from infoflow.verdicts.predict import Prediction, predict

GOALS = {
    "theory": {"spearman": 0.90, "median_factor": 2.0, "factor_at_90": 5.0},
    "theory and pilot": {"spearman": 0.96, "median_factor": 1.5, "factor_at_90": 3.0},
}
COVERED = (0.72, 0.88)
VERDICTS = {"constructed": 0.0, "open": 1.0, "proved hard": 2.0}
MOST_TARGETS = 10_000  # that a registration may have drawn
FEWEST = 5  # trained cells before anything is scored
SMALLER = {"quarter_T": "the same cell at a quarter of T, trained", "quarter_width": "... at a quarter of the width"}


@dataclass(frozen=True)
class Trained:
    """One registered cell that was trained: its forecast and what came of it."""

    registration: str
    cell: Cell
    entry: dict[str, Any]
    row: dict[str, Any]

    @property
    def error(self) -> float:
        return log10(median(run["test"] for run in self.row["full"]))

    def pilot(self, share: str) -> list[float]:
        return [run["best"] for run in self.row[f"pilot_{share}"]]


def read(folder: Path, name: str) -> tuple[dict[str, Any], list[Trained]]:
    """The registration, and those of its cells that the folder holds trained, in the registered order."""
    listed = json_of(folder / f"{name}.json", "registered forecasts")
    trained = folder / f"{_other(listed, 'trained_in', folder, name)}.jsonl"
    lines = _lines(trained, "trained cells") if trained.exists() else []
    try:
        rows = {row["name"]: row for row in lines}
        part, count, seed = (listed["draw"][key] for key in ("families", "targets", "seed"))
        count, seed = integer("targets", count, 1, MOST_TARGETS), integer("seed", seed, 0)
        cells = {cell.name: cell for cell in draw_cells(part, families.GROUPS[part], count, seed)}
        found = [Trained(name, cells[entry["name"]], entry, rows[entry["name"]])
                 for entry in listed["cells"] if entry["name"] in rows]  # fmt: skip
    except (KeyError, TypeError) as error:
        raise InfoFlowError(
            f"expected registered forecasts in {folder}/{name}.json, got one without {error}."
        ) from None
    return listed, found


def _other(listed: Any, key: str, folder: Path, name: str) -> str:
    """The registration that holds what this one shares with it: itself, unless it names another."""
    source = listed.get(key, name) if isinstance(listed, dict) else name
    if not isinstance(source, str) or not source.isidentifier():
        raise InfoFlowError(f"expected the name of a registration as {key} in {folder}/{name}.json, got {source!r}.")
    return source


def _lines(path: Path, what: str) -> list[dict[str, Any]]:
    return [parsed(each, f"{what} in {path}") for each in text(path, what).splitlines()]


def judged(folder: Path, *names: str) -> dict[str, Any]:
    """All that `infoflow reproduce forecast/test` says: the table of all rivals, goals, coverage, the worst misses.

    Of several registrations together each cell has the forecast that it was given first.
    """
    several = [read(folder, name) for name in names or ("registered",)]
    listed = {entry["name"] for registration, _ in several for entry in registration["cells"]}
    found = list({each.entry["name"]: each for _, trained in reversed(several) for each in trained}.values())
    found.sort(key=lambda each: (each.entry["training_flops"], each.entry["name"]))
    done = {"registered": len(listed), "trained": len(found), "untrained": len(listed) - len(found)}
    if len(found) < FEWEST:
        return done | {"rows": [], "goals": {}, "coverage": None, "worst": [], "cells": []}
    errors = np.array([each.error for each in found])
    targets = np.array([each.cell.target.spelling for each in found])
    kinds = np.array([each.cell.family for each in found])
    guesses = _guesses(folder, found, errors, targets)
    table = {}
    for label, (guess, cost) in guesses.items():
        told = np.isfinite(guess)
        label += "" if told.all() else f" ({told.sum()} cells)"
        table[label] = score(guess[told], errors[told], targets[told], kinds[told]), cost
    inside = [log10(each.entry["low"]) <= each.error <= log10(each.entry["high"]) for each in found]
    return done | {
        "rows": [{"from": label, **asdict(scored), "gflop": cost} for label, (scored, cost) in table.items()],
        "goals": {label: _goals(table[label][0], goals) for label, goals in GOALS.items() if label in table},
        "coverage": round(float(np.mean(inside)), 3),
        "worst": _worst(found),
        "cells": [{"name": each.entry["name"], "family": each.cell.family, "target": each.cell.target.spelling,
                   "forecast": each.entry["nmse"], "low": each.entry["low"], "high": each.entry["high"],
                   "trained": 10**each.error}
                  for each in found],
    }  # fmt: skip


def _goals(scored: Scores, goals: dict[str, float]) -> dict[str, Any]:
    reached = {}
    for name, goal in goals.items():
        value = getattr(scored, name)
        reached[name] = {"goal": goal, "value": value, "met": value >= goal if name == "spearman" else value <= goal}
    return reached


def _guesses(
    folder: Path, found: list[Trained], errors: np.ndarray, targets: np.ndarray
) -> dict[str, tuple[np.ndarray, float]]:
    """Forecast and rivals: log10 of the NMSE each expects, and its median cost in 1e9 operations."""
    pilots = {share: np.array([log10(median(each.pilot(share))) for each in found]) for share in ("0.05", "0.017")}
    costs = {share: _middle([_pilot_cost(each, float(share)) for each in found]) for share in pilots}
    theory = _middle([each.entry["forecast_flops"] / 1e9 for each in found])
    said = [predict(each.cell.target, each.cell.arch, each.cell.T) for each in found]
    sizes = np.array([log10(_parameters(each)) for each in found])
    steps = np.array([log10(each.cell.recipe.total_steps) for each in found])
    simple = np.column_stack([sizes, steps, [log10(each.cell.T) for each in found]])
    guesses = {"theory": (np.array([log10(each.entry["nmse"]) for each in found]), theory)}
    guesses["theory and pilot"] = (_with_pilot(folder, found), theory + costs["0.05"])
    for share, pilot in pilots.items():
        guesses[f"pilot of {float(share):.1%}, a line (target left out)"] = (line(pilot, errors, targets), costs[share])
    guesses["pilot of 5.0%, a power law through its curve"] = (np.array([_power_law(e) for e in found]), costs["0.05"])
    curves = np.array([extrapolated(_middle_curve(e, "pilot_0.05"), 0.05) for e in found])
    guesses["pilot of 5.0%, an ensemble of learning curves"] = (curves, costs["0.05"])
    quarter = np.array([extrapolated(_quarter(_middle_curve(e, "full")), 0.25) for e in found])
    whole = _middle([e.entry["training_flops"] / 1e9 for e in found])
    guesses["a quarter of the run itself, an ensemble of learning curves"] = (quarter, whole / 4)
    regressed = line(np.column_stack([pilots["0.05"], simple]), errors, targets)
    guesses["regression on pilot, parameters, steps, T (target left out)"] = (regressed, costs["0.05"])
    guesses["parameters (target left out)"] = (line(sizes, errors, targets), 0.0)
    guesses["parameters, steps, T (target left out)"] = (line(simple, errors, targets), 0.0)
    proxy = np.log10([near(each.cell.runs(1)[0]) for each in found])
    guesses["NEAR, a zero-cost proxy (target left out)"] = (line(proxy, errors, targets), 0.0)
    for label, known in _verdict_columns(said).items():
        guesses[f"{label} (target left out)"] = (line(known, errors, targets), 0.0)
    guesses["mean of the target's other cells, trained"] = (others_mean(errors, targets), _others_cost(found, targets))
    guesses["nearest calibration cell"] = (_nearest(folder, found), theory)
    return guesses | _smaller_guesses(folder, found)


def _verdict_columns(said: list[Prediction]) -> dict[str, np.ndarray]:
    columns = {
        "flow exponent": np.array([float(p.flow.exponent) for p in said]),
        "counting exponent": np.array([np.nan if (k := p.counting.exponent) is None else float(k) for p in said]),
        "verdict": np.array([VERDICTS[p.verdict] for p in said]),
    }
    return {label: np.nan_to_num(v, nan=float(np.nanmax(v)) if (v == v).any() else 0.0) for label, v in columns.items()}


def _floors(folder: Path, name: str) -> dict[str, Floors]:
    path = folder / f"{name}_floors.jsonl"
    found = {}
    for row in _lines(path, "floors"):
        found[row["name"]] = Floors(**{key: value for key, value in row.items() if key not in ("name", "seconds")})
    return found


def _calibration(folder: Path, name: str) -> str:
    """What the registered forecasts were made with, which stands beside them or beside those of an earlier one."""
    listed = json_of(folder / f"{name}.json", "registered forecasts")
    source = _other(listed, "calibrated_in", folder, name)
    return text(folder / f"{source}_calibration.json", "the calibration of a registration")


def _known(folder: Path, found: list[Trained]) -> list[tuple[Trained, Floors, str]]:
    """Each cell with its registered floors and the calibration of its registration."""
    names = {each.registration for each in found}
    floors = {name: _floors(folder, name) for name in names}
    used = {name: _calibration(folder, name) for name in names}
    return [(each, floors[each.registration][each.entry["name"]], used[each.registration]) for each in found]


def _with_pilot(folder: Path, found: list[Trained]) -> np.ndarray:
    """The forecast of the pilot mode: registered floors and the 5% pilots that were trained with the cells."""
    made = [from_floors(floors, each.cell.target, each.cell.arch, each.cell.T, each.cell.recipe,
                        each.pilot("0.05"), used) for each, floors, used in _known(folder, found)]  # fmt: skip
    return np.array([log10(forecast.nmse) for forecast in made])


def _nearest(folder: Path, found: list[Trained]) -> np.ndarray:
    from infoflow.forecasts.quantities import quantities

    guesses = []
    for each, known, used in _known(folder, found):
        cell, model = each.cell, calibrated(text=used)
        row = quantities(known, cell.target, cell.arch, cell.T, cell.recipe, model.names)
        guesses.append(model.calibration.errors[model.model.nearest(np.array(row))[0]])
    return np.array(guesses)


def _power_law(each: Trained) -> float:
    """log error = a - b log step through the last looks of the pilot's median curve, read at the full steps."""
    points = _middle_curve(each, "pilot_0.05")
    steps = each.row["pilot_0.05"][0]["steps"]
    if len(points) < 2:
        return log10(median(each.pilot("0.05")))
    at = np.log10(np.linspace(steps / len(points), steps, len(points)))
    slope, offset = np.polyfit(at, np.log10(np.maximum(points, 1e-9)), 1)
    return float(min(slope, 0.0) * log10(each.cell.recipe.total_steps) + offset)


def _middle_curve(each: Trained, kind: str) -> list[float]:
    """The median over seeds at each look at which all of them were finite."""
    curves = [run["curve"] for run in each.row[kind]]
    points = [median(values) for values in zip(*curves, strict=True) if None not in values]
    return points or [median(run["test"] for run in each.row[kind])]


def _quarter(points: list[float]) -> list[float]:
    return points[: max(1, len(points) // 4)]


def smaller(cell: Cell, kind: str) -> tuple[Architecture, int]:
    """The architecture and length of the cell at a quarter of one of them."""
    if kind == "quarter_T":
        return cell.arch, max(2, cell.T // 4)
    return cell.arch.with_(width=tuple(max(2, w // 4) for w in cell.arch.widths)), cell.T


def _smaller_guesses(folder: Path, found: list[Trained]) -> dict[str, tuple[np.ndarray, float]]:
    """Of the cells whose smaller ones are trained, nan for the others; nothing where none is."""
    paths = [folder / f"{name}_smaller.jsonl" for name in {each.registration for each in found}]
    rows = {row["name"]: row for path in paths if path.exists() for row in _lines(path, "smaller cells")}
    guesses = {}
    for kind, label in SMALLER.items():
        errors = [rows.get(each.entry["name"], {}).get(kind) for each in found]
        known = [log10(median(each)) if each else np.nan for each in errors]
        costs = []
        for each in found:
            arch, T = smaller(each.cell, kind)
            target = each.cell.target
            costs.append(SEEDS * flops.training(arch, target.dim, T, each.cell.recipe, target.outputs) / 1e9)
        if np.isfinite(known).sum() >= FEWEST:
            guesses[label] = (np.array(known), _middle(costs))
    return guesses


def _parameters(each: Trained) -> int:
    arch: Architecture = each.cell.arch
    return arch.parameters(each.cell.target.dim, each.cell.target.outputs, each.cell.T)


def _pilot_cost(each: Trained, share: float) -> float:
    cell = each.cell
    return SEEDS * flops.training(cell.arch, cell.target.dim, cell.T, cell.pilot(share), cell.target.outputs) / 1e9


def _others_cost(found: list[Trained], targets: np.ndarray) -> float:
    costs = np.array([each.entry["training_flops"] / 1e9 for each in found])
    return _middle([float(costs[targets == target].sum()) for target in targets])


def _middle(values: list[float]) -> float:
    return float(f"{median(values):.3g}")


def _worst(found: list[Trained], count: int = 10) -> list[dict[str, Any]]:
    ranked = sorted(found, key=lambda each: -abs(log10(each.entry["nmse"]) - each.error))
    kept = ("target", "arch", "T", "epochs", "encoder", "floor")
    return [{**{key: each.entry[key] for key in kept},
             "forecast": each.entry["nmse"], "trained": float(f"{10 ** each.error:.3g}"),
             "seeds": [float(f"{run['test']:.2g}") for run in each.row["full"]]}
            for each in ranked[:count]]  # fmt: skip
