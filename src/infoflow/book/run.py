"""Run the checks: each entry's own, and the counterexamples of its errata, in several processes."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from infoflow import arguments
from infoflow.apart import processes
from infoflow.book.contents import selected
from infoflow.book.entry import Entry, Finding, Size
from infoflow.book.registry import check_of, counterexample
from infoflow.cost import cores
from infoflow.progress import Progress


@dataclass(frozen=True)
class Checked:
    """What a run found for one entry: its findings, those of its errata by function name, or why there are none."""

    id: str
    paper: str
    status: str
    findings: tuple[Finding, ...] = ()
    errata: dict[str, Finding] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""

    @property
    def passed(self) -> bool:
        """Every finding is as it should be; an entry that cannot be executed passes with its errata alone."""
        return not self.error and all(f.passed for f in (*self.findings, *self.errata.values()))

    @property
    def failures(self) -> list[str]:
        """Every finding that did not pass, in words."""
        broken = [str(f) for f in (*self.findings, *self.errata.values()) if not f.passed]
        return [*([self.error] if self.error else []), *broken]

    def to_json(self) -> dict[str, Any]:
        """As the record keeps it."""
        first = self.findings[0].to_json() if self.findings else None
        return {
            "id": self.id,
            "paper": self.paper,
            "status": self.status,
            "passed": self.passed,
            "measured": None if first is None else {**first, "findings": [f.to_json() for f in self.findings]},
            "errata": {name: found.to_json() for name, found in self.errata.items()},
            "seconds": round(self.seconds, 2),
            "error": self.error or None,
        }


def check_entry(entry: Entry, size: Size = "quick") -> Checked:
    """One entry here and now. A check that raises has failed: its words are kept."""
    begin = time.perf_counter()
    findings: tuple[Finding, ...] = ()
    errata: dict[str, Finding] = {}
    error = ""
    try:
        if entry.executable:
            findings = tuple(check_of(entry.id)(size))
        errata = {e.shown: counterexample(entry.paper, e.shown)() for e in entry.errata if e.shown}
    except Exception as problem:  # a row of the table, not the end of it
        error = f"{type(problem).__name__}: {problem}"
    return Checked(entry.id, entry.paper, entry.status, findings, errata, time.perf_counter() - begin, error)


def check(ids: Sequence[str] | str = (), size: Size = "quick", jobs: int | None = None) -> list[Checked]:
    """Check these entries (all without ids; `softmax` means all of that paper) in `jobs` processes, in book order."""
    arguments.choice("size", size, ("quick", "full"))
    if jobs is not None:
        arguments.integer("jobs", jobs)
    entries = selected([ids] if isinstance(ids, str) else ids)
    workers = min(jobs or cores(), len(entries))
    done: dict[str, Checked] = {}
    with Progress("checking", len(entries)) as bar:
        for found in _here(entries, size) if workers == 1 else _apart(entries, size, workers):
            done[found.id] = found
            bar.update(len(done), found.id if found.passed else f"{found.id} FAILED")
    return [done[entry.id] for entry in entries]


def _here(entries: list[Entry], size: Size) -> Iterator[Checked]:
    return (check_entry(entry, size) for entry in entries)


def _apart(entries: list[Entry], size: Size, workers: int) -> Iterator[Checked]:
    """New processes, one thread each."""
    with processes() as spawn, ProcessPoolExecutor(workers, mp_context=spawn, initializer=_one_thread) as pool:
        for future in as_completed([pool.submit(check_entry, entry, size) for entry in entries]):
            yield future.result()


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
