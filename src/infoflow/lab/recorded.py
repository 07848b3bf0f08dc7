"""What of the lab has been run and what it says of the papers' conclusions, from `results/<item>/<preset>/result.json`.

A conclusion holds when the result of `paper` bears it out, holds with a better recipe when only that of `best` does (on
another target, where `best` has one), and does not hold when neither does. `recorded.json` is the answer for the
results in the repository, so that an installed package knows it; `python docs/tables.py` writes it and a test compares.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from infoflow.errors import InfoFlowError
from infoflow.lab.item import Item, Judgement
from infoflow.lab.registry import ITEMS, find

NAMED = 3  # pieces of a part that are named one by one; more are counted
Results = dict[str, list[tuple[Path, dict[str, Any]]]]  # preset -> folders with their results


def results_of(item: Item, folder: Path) -> Results:
    """The results of `paper` and `best`, one or, where there are several data sets, one for each; a run that only
    prepared files is none."""
    found: Results = {}
    for preset in ("paper", "best"):
        place = folder / item.name / preset
        for path in sorted([*place.glob("result.json"), *place.glob("*/result.json")]):
            result = _read(path, item.name, preset)
            if not (result["parts"] and set(result["parts"]) <= set(item.preparations)):
                found.setdefault(preset, []).append((path.parent, result))
    return found


def _read(path: Path, name: str, preset: str) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if (result["item"], result["preset"]) != (name, preset) or not isinstance(result["parts"], list):
            raise ValueError(f"it is of {result['item']}, {result['preset']}")
    except (ValueError, KeyError, TypeError) as error:
        raise InfoFlowError(
            f"expected a result of {name}, {preset}, in {path}, got another file ({error!r})."
        ) from None
    return result


def missing(item: Item, found: list[tuple[Path, dict[str, Any]]]) -> tuple[str, ...]:
    """Parts that no result holds; a result without named parts holds all of them. `a:b` is a piece of part `a`."""
    if not found or any(not result["parts"] for _, result in found):
        return ()
    run = {part for _, result in found for part in result["parts"]}
    left: list[str] = []
    for part in item.parts:
        pieces = [piece for piece in item.parts if piece.startswith(f"{part}:")]
        rest = [piece for piece in pieces if piece not in run]
        if ":" in part or part in run or (pieces and not rest):
            continue
        if len(rest) == len(pieces):
            left.append(part)
        else:
            left += rest if len(rest) <= NAMED else [f"{len(rest)} of {len(pieces)} pieces of {part}"]
    return tuple(left)


def verdicts(item: Item, results: Results) -> Iterator[dict[str, Any]]:
    """For every table and figure: what the paper concludes, whether it holds, and the numbers of each preset."""
    said = _findings(item, results)
    for what, conclusion in item.concludes.items():
        spoken = {preset: [f[what] for f in found if what in f] for preset, found in said.items()}
        yield {"what": what, "conclusion": conclusion, **_verdict({p: f for p, f in spoken.items() if f})}


def together(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Verdicts for a reader: tables and figures of which the same is said are named in one."""
    joined: list[dict[str, Any]] = []
    for verdict in found:
        said = {name: value for name, value in verdict.items() if name != "what"}
        if joined and {name: value for name, value in joined[-1].items() if name != "what"} == said:
            joined[-1]["what"] += f", {verdict['what']}"
        else:
            joined.append(dict(verdict))
    return joined


def _findings(item: Item, results: Results) -> dict[str, list[dict[str, Judgement]]]:
    """What each result says; where a preset has several, one for each data set, the number names it."""
    said: dict[str, list[dict[str, Judgement]]] = {}
    for preset, found in results.items():
        said[preset] = [item.judge(result) for _, result in found]
        if len(found) > 1:
            for judged, (folder, result) in zip(said[preset], found, strict=True):
                name = result.get("source", folder.name)
                judged |= {what: replace(f, number=f"{name}, {f.number}") for what, f in judged.items()}
    return said


def _verdict(found: dict[str, list[Judgement]]) -> dict[str, Any]:
    numbers = {preset: list(dict.fromkeys(f.number for f in findings)) for preset, findings in found.items()}
    if not found:
        return {"verdict": "not run", "numbers": numbers}
    holds = {preset: all(finding.holds for finding in findings) for preset, findings in found.items()}
    if holds.get("paper"):
        return {"verdict": "holds", "numbers": numbers}
    if holds.get("best"):
        word = "holds with a better recipe" if "paper" in holds else "holds with our recipe; paper is not run"
        if any(finding.elsewhere for finding in found["best"]):
            word = "holds on another target"
        return {"verdict": word, "numbers": numbers}
    return {"verdict": "does not hold", "numbers": numbers}


def survey(folder: Path) -> dict[str, Any]:
    """Everything `recorded.json` holds: for each item what was run in which preset, and the verdicts."""
    items = {}
    for name in ITEMS:
        item = find(name)
        results = results_of(item, folder)
        items[name] = {"run": {p: [_run(item, r) for _, r in found] for p, found in results.items()},
                       "verdicts": list(verdicts(item, results))}  # fmt: skip
    return items


def _run(item: Item, result: dict[str, Any]) -> dict[str, Any]:
    kept = {name: result[name] for name in ("models", "device", "scored")}
    lacking = missing(item, [(Path(), result)])
    return {**kept, "source": result.get("source"), "missing": list(lacking)}


def recorded() -> dict[str, Any]:
    """What has been run, as the package ships it; of an item that was just added, nothing."""
    payload: dict[str, Any] = json.loads(files(__package__).joinpath("recorded.json").read_text(encoding="utf-8"))
    return {name: payload.get(name, {"run": {}, "verdicts": []}) for name in ITEMS}
