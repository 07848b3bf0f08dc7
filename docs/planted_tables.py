"""The tables of docs/planted.md, from benchmarks/results/planted.json, planted_formats.json and planted_twins.json."""

from statistics import median
from typing import Any

from tables import Recorded, Shown, number, registry

TABLES, table = registry()
FILE, TWINS = "benchmarks/results/planted.json", "benchmarks/results/planted_twins.json"
FORMATS = "benchmarks/results/planted_formats.json"
KEEPS, STRONGEST = "keeps the function", "NMSE 0.01"
LEVELS = (KEEPS, "float16", "NMSE 0.0001", "NMSE 0.001", STRONGEST)
MEASURE = {"modes": "macro_f1", "matter": "f1", "edges": "f1", "directions": "mean", "sets": "mean"}


def _cell(tasks: dict[str, Any], task: str, level: str, name: str, spanned: bool = False) -> str:
    found = tasks.get(task, {}).get(level, {}).get(name)
    if not found or found["value"] is None:
        return ""
    return _spanned(found) if spanned else f"{found['value']:.3f}"


def _spanned(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['value']:.3f}" + ("" if low is None else f" ({low:.3f} to {high:.3f})")


def _answering(payload: Recorded, task: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    """The methods that answer a question, best first."""
    found = [(method, tasks) for method, tasks in payload["methods"].items() if KEEPS in tasks.get(task, {})]
    return sorted(found, key=lambda item: -(item[1][task][KEEPS].get(name, {}).get("value") or 0.0))


@table(FILE)
def planted_modes(payload: Recorded) -> Shown:
    """Which mode has each head: macro-F1 with intervals over families."""
    rows = [
        [name, *(_cell(tasks, "modes", level, "macro_f1", spanned=True) for level in (KEEPS, STRONGEST))]
        for name, tasks in _answering(payload, "modes", "macro_f1")
    ]
    return ["method", "function kept", "strongest disguise, NMSE 0.01"], rows


@table(FILE)
def planted_wiring(payload: Recorded) -> Shown:
    """Which heads matter and which feeds which; an empty cell: the method does not say."""
    rows = []
    for name, tasks in _answering(payload, "matter", "f1"):
        curve = tasks.get("mib", {})
        cells = [_cell(tasks, task, KEEPS, key) for task in ("matter", "edges") for key in ("auroc", "f1")]
        strong = [_cell(tasks, task, STRONGEST, "f1") for task in ("matter", "edges")]
        rows.append([name, *cells, *strong, *(number(curve.get(key)) for key in ("cpr", "cmd"))])
    head = ["method", "heads: AUROC", "heads: F1", "edges: AUROC", "edges: F1"]
    return [*head, "heads: F1 at NMSE 0.01", "edges: F1 at NMSE 0.01", "CPR", "CMD"], rows


@table(FILE)
def planted_others(payload: Recorded) -> Shown:
    """Directions, sets, copying: function kept, with intervals over families."""
    rows: list[list[Any]] = []
    asked = {"directions": ("mean", "mean cosine"), "sets": ("mean", "F1"), "copies": ("f1", "F1")}
    for task, (name, words) in asked.items():
        for method, tasks in _answering(payload, task, name):
            found = tasks[task][KEEPS]
            rows.append([f"{task}, {words}", method, _cell(tasks, task, KEEPS, name, spanned=True), found["networks"]])
    return ["question", "method", "score", "networks"], rows


@table(FILE)
def planted_families(payload: Recorded) -> Shown:
    """Our labels and our wiring family by family, by what the disguise leaves; intervals over the family's networks."""
    parts = [payload["families"][task][level] for task in ("modes", "edges") for level in (KEEPS, STRONGEST)]
    rows = [
        [
            family,
            *(part.get(family, {}).get("networks", 0) for part in parts[:2]),
            *(_spanned(part[family]) if family in part else "" for part in parts),
        ]
        for family in parts[0]
    ]
    heads = [f"{task}, {level}" for task in ("modes", "edges") for level in ("kept", STRONGEST)]
    return ["family", "networks, kept", f"networks, {STRONGEST}", *heads], rows


@table(FILE)
def planted_making(payload: Recorded) -> Shown:
    """What making the networks took, and on how many of them the methods were run."""
    made = payload["making"]
    row = [made["networks"], made["workers"], f"{made['wall']:.0f} s", f"{made['processor']:.0f} s"]
    scored = [payload["networks"], payload["heads"], payload["tuned_on"]]
    head = ["networks made", "processes", "time", "processor time"]
    return [*head, "scored", "their heads", "thresholds chosen on, of seed 1"], [[*row, *scored]]


@table(FORMATS)
def planted_formats(payload: Recorded) -> Shown:
    names = {
        "onnx": "ONNX Runtime", "transformer_lens": "TransformerLens (one layer)", "float64": "PyTorch in float64",
    }  # fmt: skip
    keys = ("median_difference", "largest_difference")
    rows = [
        [words, payload[name]["version"], payload[name]["networks"], *(number(payload[name][key]) for key in keys)]
        for name, words in names.items()
    ]
    return ["runtime", "version", "networks run", "median difference", "largest difference"], rows


@table(FILE)
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


@table(FILE)
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


@table(FILE)
def planted_shares(payload: Recorded) -> Shown:
    shares = payload["mode_shares"]
    by_mode = payload["methods"]["infoflow: row labels"]["modes"][KEEPS]["by_mode"]
    rows = [
        [mode, f"{100 * share:.1f}%", f"{by_mode[mode]['f1']:.3f}" if mode in by_mode else ""]
        for mode, share in sorted(shares.items(), key=lambda item: -item[1])
    ]
    return ["mode, or what a mover says", "share of the heads", "F1 of row labels, function kept"], rows


@table(TWINS)
def planted_twins(payload: Recorded) -> Shown:
    """How many jobs of the constructions a trained head does, beside untrained weights of the same shape."""
    bound, rows = payload["found_from"], list[list[Any]]()
    for family in dict.fromkeys(twin["family"] for twin in payload["twins"]):
        own = [twin for twin in payload["twins"] if twin["family"] == family]
        jobs = [job for twin in own for job in twin["jobs"]]
        found = [sum(job[key] >= bound for job in jobs) for key in ("trained", "untrained")]
        errors = [twin["nmse"] for twin in own if twin["nmse"] is not None]
        rows.append([family, len(own), len(jobs), *found, number(median(errors)) if errors else ""])
    sums = [sum(row[column] for row in rows) for column in (2, 3, 4)]
    rows.append(["together", f"{payload['finished']} of {payload['asked']} asked", *sums, ""])
    return ["family", "twins", "heads of the construction", "found by training", "by chance", "median NMSE"], rows
