"""The tables of docs/book.md and docs/errata.md, from the entries of the book and their recorded run."""

from functools import partial
from typing import Any

from tables import Table, markdown, source

from infoflow.book import ENTRIES, PAPERS, errata
from infoflow.book import recorded as runs
from infoflow.book.entry import Entry
from infoflow.book.errata import markdown as errata_page


def statements(paper: str) -> str:
    """One row per statement: status, what it says, what its check measured, how many places are wrong in print."""
    rows: list[list[Any]] = []
    for entry in ENTRIES.values():
        if entry.paper != paper:
            continue
        found = runs.findings(entry.id)
        first = str(found[0]).replace("|", "\\|") if found else ""
        rows.append([f"`{entry.id}`", entry.status, entry.title, first, len(entry.errata) or ""])
    return markdown(["name", "status", "what it says", "first number of its check", "wrong in print"], rows)


def checked() -> str:
    """How many statements of each paper have which status, and where the numbers come from."""
    statuses = list(dict.fromkeys(entry.status for entry in ENTRIES.values()))
    rows = []
    for key, paper in PAPERS.items():
        mine = [entry for entry in ENTRIES.values() if entry.paper == key]
        counts = [sum(entry.status == status for entry in mine) for status in statuses]
        shown = sum(bool(erratum.shown) for entry in mine for erratum in entry.errata)
        rows.append([paper.title, len(mine), *counts, sum(len(entry.errata) for entry in mine), shown])
    head = ["paper", "statements", *statuses, "places wrong in print", "shown by a program"]
    made = {**runs.recorded()["provenance"], "command": "infoflow book --check --size full"}
    return markdown(head, rows) + source({"provenance": {**made, "commit": runs.commits()}})


def entries(paper: str) -> str:
    """Every statement of a paper in full: words, formula, what it needs, what its check found, how to run it."""
    return "\n".join(_entry(entry) for entry in ENTRIES.values() if entry.paper == paper)


def _entry(entry: Entry) -> str:
    lines = [f"## {entry.title}", "", f"`{entry.id}`, {entry.where}. **{entry.status.capitalize()}**.", ""]
    lines += [_plain(entry.statement), "", f"$${entry.formula}$$", ""]
    lines += [f"- Needs: {_plain(need)}." for need in entry.hypotheses]
    lines += [f"- Checked: {_plain(str(found))}." for found in runs.findings(entry.id)]
    if entry.errata:
        places = f"{len(entry.errata)} place{'s' * (len(entry.errata) > 1)}"
        lines += [f"- In print: {places} to repair ([errata](../errata.md))."]
    lines += [f"- Run it: `{entry.runs}`."]
    if entry.related:
        lines += [f"- Related: {', '.join(_linked(name) for name in entry.related)}."]
    return "\n".join([*lines, *(["", _plain(entry.remark)] if entry.remark else []), ""])


def _linked(name: str) -> str:
    return f"[`{name}`]({ENTRIES[name].paper}.md)"


def _plain(text: str) -> str:
    """Words that Markdown leaves alone."""
    for sign in ("\\", "*", "_", "$", "`", "[", "]"):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("<", "&lt;")


def page(paper: str) -> str:
    return errata_page(errata(paper), level=2)


TABLES: dict[str, Table] = {"book": checked}
TABLES |= {f"book_{paper}": partial(statements, paper) for paper in PAPERS}
TABLES |= {f"entries_{paper}": partial(entries, paper) for paper in PAPERS}
TABLES |= {f"errata_{paper}": partial(page, paper) for paper in PAPERS}
