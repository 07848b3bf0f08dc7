"""The tables of docs/planted.md, from benchmarks/results/planted.json and planted_twins.json."""

from statistics import median
from typing import Any

from tables import Recorded, Shown, measured, number, registry

TABLES, table = registry()
FILE, TWINS = "benchmarks/results/planted.json", "benchmarks/results/planted_twins.json"
KEEPS, STRONGEST = "keeps the function", "NMSE 0.01"
LEVELS = (KEEPS, "float16", "NMSE 0.0001", "NMSE 0.001", STRONGEST)
MEASURE = {"modes": "macro_f1", "matter": "f1", "edges": "f1", "directions": "mean", "sets": "mean"}


def _value(tasks: dict[str, Any], task: str, level: str, name: str) -> str:
    found = tasks.get(task, {}).get(level, {}).get(name)
    return "" if not found or found["value"] is None else f"{found['value']:.3f}"


@table
@measured(FILE)
def planted_methods(payload: Recorded) -> Shown:
    """Every method in one table; an empty cell: the method does not answer that question."""
    rows = []
    for name, tasks in payload["methods"].items():
        curve = tasks.get("mib", {})
        rows.append(
            [
                name,
                _value(tasks, "modes", KEEPS, "macro_f1"),
                _value(tasks, "modes", STRONGEST, "macro_f1"),
                *(_value(tasks, task, KEEPS, key) for task in ("matter", "edges") for key in ("auroc", "f1")),
                _value(tasks, "edges", STRONGEST, "f1"),
                *(number(curve.get(key)) for key in ("cpr", "cmd")),
                _value(tasks, "directions", KEEPS, "mean"),
                _value(tasks, "sets", KEEPS, "mean"),
            ]
        )
    head = ["method", "modes", "at NMSE 0.01", "heads: AUROC", "F1", "edges: AUROC", "F1", "F1 at NMSE 0.01"]
    return [*head, "CPR", "CMD", "directions", "sets"], rows


@table
@measured(FILE)
def planted_levels(payload: Recorded) -> Shown:
    """Our own methods by what the disguise leaves, with intervals over families of targets."""
    ours = {"modes": "infoflow: row labels", "matter": "infoflow: interchange", "edges": "infoflow: interchange"}
    rows = []
    for level in LEVELS:
        cells: list[Any] = [level]
        for task, method in ours.items():
            found = payload["methods"].get(method, {}).get(task, {}).get(level)
            cells += [found["networks"] if found else 0] if task == "modes" else []
            cells.append(_spanned(found[MEASURE[task]]) if found and MEASURE[task] in found else "")
        rows.append(cells)
    return ["the disguise", "networks", "modes, macro-F1", "heads that matter, F1", "edges, F1"], rows


def _spanned(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['value']:.3f}" + ("" if low is None else f" ({low:.3f} to {high:.3f})")


@table
@measured(FILE)
def planted_disguises(payload: Recorded) -> Shown:
    """Macro-F1 of the two labellings of ours and of the pattern rules, disguise by disguise."""
    names = ("infoflow: row labels", "infoflow: head modes", "pattern heuristics")
    tables = [payload["methods"].get(name, {}).get("modes", {}) for name in names]
    levels = [level for level in tables[0] if level.startswith("disguise: ")]
    rows = []
    for level in levels:
        cells = [f"{found[level]['macro_f1']['value']:.3f}" if level in found else "" for found in tables]
        rows.append([level.removeprefix("disguise: "), tables[0][level]["networks"], *cells])
    return ["disguise", "networks", *names], rows


@table
@measured(FILE)
def planted_shares(payload: Recorded) -> Shown:
    shares = payload["mode_shares"]
    by_mode = payload["methods"]["infoflow: row labels"]["modes"][KEEPS]["by_mode"]
    rows = [
        [mode, f"{100 * share:.1f}%", f"{by_mode[mode]['f1']:.3f}" if mode in by_mode else ""]
        for mode, share in sorted(shares.items(), key=lambda item: -item[1])
    ]
    return ["mode", "share of the heads", "F1 of row labels, function kept"], rows


@table
@measured(TWINS)
def planted_twins(payload: Recorded) -> Shown:
    """How many jobs of the constructions a trained head does, beside untrained weights of the same shape."""
    bound, rows = payload["found_from"], []
    for family in dict.fromkeys(twin["family"] for twin in payload["twins"]):
        own = [twin for twin in payload["twins"] if twin["family"] == family]
        jobs = [job for twin in own for job in twin["jobs"]]
        found = [sum(job[key] >= bound for job in jobs) for key in ("trained", "untrained")]
        errors = [twin["nmse"] for twin in own if twin["nmse"] is not None]
        rows.append([family, len(own), len(jobs), *found, number(median(errors)) if errors else ""])
    return ["family", "twins", "heads of the construction", "found by training", "by chance", "median NMSE"], rows
