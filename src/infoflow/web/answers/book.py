"""The book of theorems: its statements with the last recorded check, and one check run now."""

from typing import Any

from infoflow.book.contents import ENTRIES, entry
from infoflow.book.entry import PAPERS, STATUSES, Finding
from infoflow.book.recorded import recorded
from infoflow.book.run import check_entry
from infoflow.web import questions
from infoflow.web.answers.said import said, words


def book(question: questions.Book) -> dict[str, Any]:
    runs = recorded()
    return {
        "papers": {key: {"title": paper.title, "version": paper.version} for key, paper in PAPERS.items()},
        "statuses": STATUSES,
        "entries": [{**found.to_json(), "executable": found.executable, "recorded": _told(runs["entries"].get(id))}
                    for id, found in ENTRIES.items()],
        "commit": runs["provenance"]["commit"],
        "said": said("book", "for entry in iflow.book.ENTRIES.values():\n    print(entry.id, entry.status)"),
    }  # fmt: skip


def check(question: questions.Check) -> dict[str, Any]:
    found = entry(question.id)
    call = f"print(iflow.book.check({found.id!r}, jobs=1))"
    return {**_told(check_entry(found).to_json()), "said": said(words("book", "--check", found.id), call)}


def _told(run: dict[str, Any] | None) -> dict[str, Any]:
    """A run of an entry, its findings also as sentences."""
    if run is None:
        return {"passed": None, "findings": [], "errata": {}, "seconds": None, "error": None}
    rows = (run["measured"] or {}).get("findings", [])
    return {
        "passed": run["passed"],
        "findings": [{**row, "text": str(Finding.from_json(row))} for row in rows],
        "errata": {name: Finding.from_json(row).number for name, row in run["errata"].items()},
        "seconds": run["seconds"],
        "error": run["error"],
    }
