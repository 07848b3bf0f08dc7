"""What is wrong in print, as a page an author could be sent: place, what stands there, what should, the number."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infoflow.book import recorded
from infoflow.book.contents import ENTRIES
from infoflow.book.entry import PAPERS, Finding
from infoflow.errors import unknown

WIDTH = 100


@dataclass(frozen=True)
class Row:
    """One erratum with the entry it belongs to and the recorded finding that shows it."""

    paper: str
    id: str
    where: str
    printed: str
    repair: str
    found: Finding | None

    def to_json(self) -> dict[str, Any]:
        return {
            "paper": self.paper,
            "id": self.id,
            "where": self.where,
            "printed": self.printed,
            "repair": self.repair,
            "shown": None if self.found is None else self.found.to_json(),
        }


def errata(paper: str | None = None) -> list[Row]:
    """All errata of a paper (`infoflow`, `heads`, `softmax`, `rank1`), or of all four, in book order."""
    if paper is not None and paper not in PAPERS:
        raise unknown("paper", paper, list(PAPERS))
    return [
        Row(e.paper, e.id, x.where, x.printed, x.repair, recorded.shown(e.id, x.shown) if x.shown else None)
        for e in ENTRIES.values()
        if paper in (None, e.paper)
        for x in e.errata
    ]


def papers_of(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.paper for row in rows))


def introduction(paper: str, rows: Sequence[Row]) -> str:
    """Two sentences before the list."""
    statements = [entry for entry in ENTRIES.values() if entry.paper == paper]
    kept = sum(entry.status in ("holds", "holds after repair") for entry in statements)
    shown = sum(row.found is not None for row in rows)
    return (
        f"We turned {len(statements)} statements of this paper into programs and ran them; {kept} of them hold, some "
        f"after the changes below. Of the {len(rows)} places listed, {shown} come with a number that a short program "
        "prints; if we misread something, we would be glad to hear it."
    )


def plain(rows: Sequence[Row]) -> str:
    lines: list[str] = []
    for paper in papers_of(rows):
        mine = [row for row in rows if row.paper == paper]
        lines += [f"{PAPERS[paper].title}", f"({PAPERS[paper].version})", ""]
        lines += [*textwrap.wrap(introduction(paper, mine), WIDTH), ""]
        for number, row in enumerate(mine, 1):
            lines += textwrap.wrap(
                f"{number}. {row.where}. In print: {row.printed}. Repair: {row.repair}.", WIDTH, subsequent_indent="   "
            )
            shown = f"; {row.found}" if row.found is not None else ""
            lines += textwrap.wrap(f"[{row.id}{shown}]", WIDTH, initial_indent="   ", subsequent_indent="   ")
        lines.append("")
    return "\n".join(lines).rstrip()


def markdown(rows: Sequence[Row], level: int = 1) -> str:
    """One table per paper; the code that prints a number is named in the last column's entry."""
    parts: list[str] = []
    for paper in papers_of(rows):
        mine = [row for row in rows if row.paper == paper]
        parts.append(f"{'#' * level} {PAPERS[paper].title}\n\n{PAPERS[paper].version}\n")
        parts.append("\n".join(textwrap.wrap(introduction(paper, mine), 116)) + "\n")
        table = ["| where | in print | repair | what shows it | statement |", "|---|---|---|---|---|"]
        table += ["| " + " | ".join(_cell(text) for text in _columns(row)) + " |" for row in mine]
        parts.append("\n".join(table) + "\n")
    return "\n".join(parts)


def _columns(row: Row) -> tuple[str, ...]:
    return row.where, row.printed, row.repair, "" if row.found is None else str(row.found), f"`{row.id}`"


def _cell(text: str) -> str:
    """Bars and stars have a meaning in a table."""
    return text.replace("|", "\\|").replace("*", "\\*") if not text.startswith("`") else text
