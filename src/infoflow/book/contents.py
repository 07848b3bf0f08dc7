"""The table of contents: every entry in the order of the papers, and the choice of some by name."""

from collections.abc import Sequence

from infoflow.book.entries.heads import ENTRIES as HEADS
from infoflow.book.entries.infoflow import ENTRIES as INFOFLOW
from infoflow.book.entries.rank_one import ENTRIES as RANK_ONE
from infoflow.book.entries.softmax import ENTRIES as SOFTMAX
from infoflow.book.entry import Entry
from infoflow.errors import unknown

ENTRIES: dict[str, Entry] = {entry.id: entry for entry in (*INFOFLOW, *HEADS, *SOFTMAX, *RANK_ONE)}


def entry(id: str) -> Entry:
    """The entry of this very id."""
    if id not in ENTRIES:
        raise unknown("statement", id, list(ENTRIES))
    return ENTRIES[id]


def selected(ids: Sequence[str] = ()) -> list[Entry]:
    """Entries in book order. A name means its entry and all below it (`softmax`, `infoflow.appendixD`)."""
    for name in ids:
        if not any(_under(id, name) for id in ENTRIES):
            raise unknown("statement", name, list(ENTRIES))
    return [found for id, found in ENTRIES.items() if not ids or any(_under(id, name) for name in ids)]


def _under(id: str, name: str) -> bool:
    return id == name or id.startswith(f"{name}.")
