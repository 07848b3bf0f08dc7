"""What the checks measured when they were last recorded, by `infoflow book --check --size full --out FILE`."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from infoflow.book.entry import Finding

NAME = "recorded.json"


@cache
def recorded() -> dict[str, Any]:
    """The recorded run: `provenance`, `size`, and `entries` by id."""
    payload = json.loads(files("infoflow.book").joinpath(NAME).read_text(encoding="utf-8"))
    return {**payload, "entries": {row["id"]: row for row in payload["entries"]}}


def findings(id: str) -> list[Finding]:
    """Of an entry's check; none where the entry has no check."""
    measured = recorded()["entries"].get(id, {}).get("measured")
    return [] if measured is None else [Finding.from_json(row) for row in measured["findings"]]


def shown(id: str, name: str) -> Finding | None:
    """What a counterexample of this entry found."""
    found = recorded()["entries"].get(id, {}).get("errata", {}).get(name)
    return None if found is None else Finding.from_json(found)
