"""Heads of probed models: those recorded with the package, and every `probe.json` of the chosen folder."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infoflow.errors import InfoFlowError, unknown
from infoflow.reading import json_of
from infoflow.web import questions
from infoflow.web.answers.lab import recorded

MOST_SEEN = 20_000  # names of files and folders looked at in the chosen folder
MOST_FILES, DEEPEST = 100, 6


def heads(question: questions.Heads, folder: Path) -> dict[str, Any]:
    """The list of models, and the heads of one: the asked one, or the first."""
    known: dict[str, Any] = recorded("heads")["models"]
    meaning: dict[str, str] = recorded("heads")["meaning"]  # of every label
    own = {str(path.relative_to(folder)): path for path in _probes(folder)}
    models = [{"id": key, "name": model["model"]} for key, model in known.items()]
    models += [{"id": name, "name": name} for name in own]
    asked = question.model or models[0]["id"]
    if asked in known:
        chosen = known[asked]
    elif asked in own:
        chosen = _read(own[asked], asked, meaning)
    else:
        raise unknown("model", asked, [model["id"] for model in models])
    return {"models": models, "id": asked, "meaning": meaning, **chosen}


def _probes(folder: Path) -> Iterator[Path]:
    """`probe.json` below the folder; links are not followed, hidden folders not entered."""
    seen = found = 0
    for place, inside, names in os.walk(folder, followlinks=False):
        seen += len(inside) + len(names)
        here = Path(place)
        if seen > MOST_SEEN or found >= MOST_FILES:
            return
        deep = len(here.relative_to(folder).parts) >= DEEPEST
        inside[:] = [] if deep else sorted(name for name in inside if not name.startswith("."))
        path = here / "probe.json"
        if "probe.json" in names and path.is_file() and not path.is_symlink():
            found += 1
            yield path


def _read(path: Path, name: str, meaning: dict[str, str]) -> dict[str, Any]:
    """What `infoflow probe` wrote, checked: only what is shown is taken, in its own type."""
    payload = json_of(path, "a probe")
    try:
        rows = [
            {
                "layer": int(head["layer"]),
                "head": int(head["head"]),
                "label": str(head["label"]),
                "scores": {key: float(head["scores"][key]) for key in meaning if key in head["scores"]},
                "stability": float(head["stability"]),
            }
            for head in payload["heads"][:10_000]
        ]
        forced = payload.get("interventions") or {}
        costs = [
            {
                **{key: str(cost[key]) for key in ("scope", "mode")},
                **{key: None if cost[key] is None else int(cost[key]) for key in ("layer", "head")},
                "cost": float(cost["cost"]),
                "interval": [float(end) for end in cost["interval"]],
            }
            for cost in forced.get("costs", [])[:10_000]
        ]
        unit, loss = str(forced.get("unit", "")), (forced.get("base") or {}).get("loss")
        loss = None if loss is None else float(loss)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InfoFlowError(f"expected what infoflow probe writes in {name}, got another file ({error!r}).") from None
    if not rows:
        raise InfoFlowError(f"expected heads in {name}, got none.")
    return {"model": str(payload.get("model", name)), "heads": rows, "costs": costs, "unit": unit,
            "loss": loss, "patterns": None, "setting": None}  # fmt: skip
