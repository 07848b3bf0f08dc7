"""What is wrong in print, as a page an author could be sent: place, what stands there, what should, the number."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infoflow.book import recorded
from infoflow.book.contents import ENTRIES
from infoflow.book.entry import PAPERS, STATUSES, Finding
from infoflow.errors import unknown

WIDTH = 100
WORDS = {
    "holds": "hold as printed",
    "holds after repair": "hold after small repairs",
    "refuted": "have counterexamples",
    "vacuous": "say nothing because nothing meets their hypothesis",
    "stated, not executable": "cannot be executed",
}


@dataclass(frozen=True)
class ErrataRow:
    """One erratum with the entry it belongs to and the recorded finding that shows it."""

    paper: str
    id: str
    where: str
    printed: str
    repair: str
    found: Finding | None

    def to_json(self) -> dict[str, Any]:
        """As `infoflow errata --json` prints it."""
        return {
            "paper": self.paper,
            "id": self.id,
            "where": self.where,
            "printed": self.printed,
            "repair": self.repair,
            "shown": None if self.found is None else self.found.to_json(),
        }


def errata(paper: str | None = None) -> list[ErrataRow]:
    """All errata of a paper (`infoflow`, `heads`, `softmax`, `rank1`), or of all four, in book order."""
    if paper is not None and paper not in PAPERS:
        raise unknown("paper", paper, list(PAPERS))
    return [
        ErrataRow(e.paper, e.id, x.where, x.printed, x.repair, recorded.shown(e.id, x.shown) if x.shown else None)
        for e in ENTRIES.values()
        if paper in (None, e.paper)
        for x in e.errata
    ]


def papers_of(rows: Sequence[ErrataRow]) -> list[str]:
    """In the order of the rows."""
    return list(dict.fromkeys(row.paper for row in rows))


def introduction(paper: str, rows: Sequence[ErrataRow]) -> str:
    """Two sentences before the list."""
    statements = [entry for entry in ENTRIES.values() if entry.paper == paper]
    counts = {status: sum(entry.status == status for entry in statements) for status in STATUSES}
    verdicts = ", ".join(f"{count} {WORDS[status]}" for status, count in counts.items() if count)
    shown = sum(row.found is not None for row in rows)
    return (
        f"We turned {len(statements)} statements of this paper into programs and ran them: {verdicts}. Of the "
        f"{len(rows)} places listed here, {shown} come with a number that a short program prints (infoflow book NAME "
        "shows the program). If we misread something, we would be glad to hear it."
    )


def plain(rows: Sequence[ErrataRow]) -> str:
    """The table in plain text, paper by paper."""
    lines: list[str] = []
    for paper in papers_of(rows):
        mine = [row for row in rows if row.paper == paper]
        lines += [f"{PAPERS[paper].title}", f"({PAPERS[paper].version})", ""]
        lines += [*textwrap.wrap(introduction(paper, mine), WIDTH), ""]
        for number, row in enumerate(mine, 1):
            lines += textwrap.wrap(
                f"{number}. {row.where}. In print: {row.printed}. Repair: {row.repair}.", WIDTH, subsequent_indent="   "
            )
            shown = "" if row.found is None else f"Shown by: {row.found.number}. "
            lines += textwrap.wrap(f"{shown}[{row.id}]", WIDTH, initial_indent="   ", subsequent_indent="   ")
        lines.append("")
    return "\n".join(lines).rstrip()


def markdown(rows: Sequence[ErrataRow], level: int = 1) -> str:
    """One table per paper; `infoflow book` shows the program behind a number under the statement's name."""
    parts: list[str] = []
    for paper in papers_of(rows):
        mine = [row for row in rows if row.paper == paper]
        parts.append(f"{'#' * level} {PAPERS[paper].title}\n\n{PAPERS[paper].version}\n")
        parts.append("\n".join(textwrap.wrap(introduction(paper, mine), 116)) + "\n")
        table = ["| where | in print | repair | what shows it | statement |", "|---|---|---|---|---|"]
        table += ["| " + " | ".join(_cell(text) for text in _columns(row)) + " |" for row in mine]
        parts.append("\n".join(table) + "\n")
    return "\n".join(parts)


def _columns(row: ErrataRow) -> tuple[str, ...]:
    return row.where, row.printed, row.repair, "" if row.found is None else row.found.number, f"`{row.id}`"


def _cell(text: str) -> str:
    """Bars and stars have a meaning in a table."""
    return text.replace("|", "\\|").replace("*", "\\*") if not text.startswith("`") else text
