"""What the checks measured when they were last recorded, by `infoflow book --check --size full --out FILE`."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from infoflow.book.contents import ENTRIES
from infoflow.book.entry import Finding

NAME = "recorded.json"


def joined(new: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
    """A run of some statements beside an earlier one of the same size: rows not run now stay, with their commit."""
    rows = {row["id"]: {**row, "commit": new["provenance"]["commit"]} for row in new["entries"]}
    if old is not None and old["size"] == new["size"]:
        kept = {row["id"]: {"commit": old["provenance"]["commit"], **row} for row in old["entries"]}
        rows = kept | rows
    return {**new, "entries": [rows[id] for id in ENTRIES if id in rows]}


def commits() -> str:
    """Where the recorded rows were measured."""
    found = recorded()
    known = (row.get("commit", found["provenance"]["commit"]) for row in found["entries"].values())
    return ", ".join(dict.fromkeys(known))


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
