"""The data of the explorer's Lab and Heads views, from the repository's results: `src/infoflow/web/recorded/*.json`.

An installed package has no `results/`, so `python docs/tables.py` writes what the page shows; a test compares.
"""

import json
from pathlib import Path
from typing import Any

from tables import ROOT, probed
from tables import recorded as measured

from infoflow.lab.item import Item
from infoflow.lab.recorded import recorded, results_of, together
from infoflow.lab.registry import ITEMS, find
from infoflow.probes.modes import LABELS, MEANING

FOLDER = ROOT / "src/infoflow/web/recorded"
DIGITS = 5
MODELS = ("stories", "minilm", "rxnmapper")


def texts() -> dict[Path, str]:
    """The file and its text, for both views."""
    return {FOLDER / "lab.json": _json(lab()), FOLDER / "heads.json": _json(heads())}


def _json(payload: Any) -> str:
    return json.dumps(_short(payload), separators=(",", ":")) + "\n"


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list) else value


def lab() -> dict[str, Any]:
    known = recorded()
    return {"items": [_item(find(name), together(known[name]["verdicts"])) for name in ITEMS]}


def _item(item: Item, verdicts: list[dict[str, str]]) -> dict[str, Any]:
    found = results_of(item, ROOT / "results")
    runs = [_run(item, preset, folder, result) for preset, results in found.items() for folder, result in results]
    protocols = {preset: item.protocol(item.preset(preset)) for preset in ("quick", "paper", "best")}
    return {"name": item.name, "title": item.title, "verdicts": verdicts, "protocols": protocols, "runs": runs,
            "unsaid": list(item.unsaid), "data": item.data or None}  # fmt: skip


def _run(item: Item, preset: str, folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    compared = item.compared
    kept = {name: result[name] for name in ("columns", "rows", "remarks", "models", "device", "scored")}
    return {
        "preset": preset,
        "source": result.get("source"),
        **kept,
        "keys": list(compared.keys),
        "value": compared.value,
        "printed": compared.printed,
        "spread": compared.spread,
        "seeds": _seeds(result, folder, compared.value),
        "commit": result["provenance"]["commit"],
        "command": f"infoflow reproduce {item.name} --preset {preset}",
    }


def _seeds(result: dict[str, Any], folder: Path, value: str) -> list[list[float]] | None:
    """The error of every seed behind a row, where the store has them and their means are the table's numbers."""
    rows, keys = result["rows"], result["runs"]
    if not keys or len(keys) % len(rows):
        return None
    each = len(keys) // len(rows)
    files = [folder / "store/runs" / f"{key}.json" for key in keys]
    if each < 2 or not all(path.is_file() for path in files):
        return None
    stored = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    for name in ("test", "best"):  # what the table was scored on
        best = [run[name] for run in stored]
        if not all(isinstance(number, float) for number in best):
            continue
        groups = [best[number * each : (number + 1) * each] for number in range(len(rows))]
        means = [sum(group) / each for group in groups]
        if all(isinstance(row[value], float) and abs(row[value] - mean) <= 1e-9 * abs(mean)
               for row, mean in zip(rows, means, strict=True)):  # fmt: skip
            return groups
    return None


def heads() -> dict[str, Any]:
    labelled, patterns = probed("heads"), measured("benchmarks/results/head_patterns.json")
    models = {name: _model(labelled[name], probed(name), patterns.get(name)) for name in MODELS}
    return {"meaning": {label: MEANING[label] for label in LABELS}, "models": models}


def _model(labelled: dict[str, Any], forced: dict[str, Any], patterns: dict[str, Any] | None) -> dict[str, Any]:
    costs = [{key: cost[key] for key in ("scope", "layer", "head", "mode", "cost", "interval")}
             for cost in forced["interventions"]["costs"] if cost["scope"] in ("all", "head")]  # fmt: skip
    rows = [{key: head[key] for key in ("layer", "head", "label", "scores", "stability")} for head in labelled["heads"]]
    return {
        "model": labelled["model"],
        "heads": rows,
        "costs": costs,
        "unit": forced["interventions"]["unit"],
        "loss": forced["interventions"]["base"]["loss"],
        "setting": forced["setting"]["text"],
        "patterns": patterns,
    }
