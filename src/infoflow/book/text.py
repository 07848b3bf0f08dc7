"""The book in words: the list, an entry explained, a run of checks."""

import inspect
import textwrap
from collections.abc import Sequence
from itertools import groupby

from infoflow.book import recorded
from infoflow.book.contents import ENTRIES
from infoflow.book.entry import PAPERS, STATUSES, Entry, Erratum
from infoflow.book.registry import counterexample
from infoflow.book.run import Checked

WIDTH = 100


def listing(entries: Sequence[Entry]) -> str:
    """One line per entry, by paper; then what the words mean."""
    name, status = (max(map(len, words)) for words in ([e.id for e in entries], [e.status for e in entries]))
    lines = []
    for paper, group in groupby(entries, key=lambda entry: entry.paper):
        lines += ["", f"{PAPERS[paper].title} ({PAPERS[paper].version})"]
        lines += [f"  {entry.id:<{name}}  {entry.status:<{status}}  {entry.title}" for entry in group]
    used = [f"{status}: {meaning}" for status, meaning in STATUSES.items() if any(e.status == status for e in entries)]
    lines += ["", *textwrap.wrap(f"{len(entries)} statements. " + "; ".join(used) + ".", WIDTH)]
    lines += ["infoflow book ID explains one, infoflow book --check [ID...] runs the checks."]
    return "\n".join(lines[1:])


def explained(entry: Entry) -> str:
    """Everything the book knows about one statement, with the numbers of the recorded run."""
    lines = [f"{entry.id}: {entry.title}", f"{PAPERS[entry.paper].title}, {entry.where}", f"Status: {entry.status}", ""]
    lines += textwrap.wrap(entry.statement, WIDTH)
    if entry.hypotheses:
        lines += ["", "Needs:", *(f"  - {need}" for need in entry.hypotheses)]
    if entry.remark:
        lines += ["", *textwrap.wrap(entry.remark, WIDTH)]
    for number, erratum in enumerate(entry.errata, 1):
        lines += ["", *_erratum(entry, number, erratum)]
    found = recorded.findings(entry.id)
    if found:
        size = recorded.recorded()["size"]
        lines += ["", f"Check ({size}, as recorded; run it: infoflow book --check {entry.id}):"]
        lines += [f"  {'ok  ' if finding.passed else 'FAIL'}  {finding}" for finding in found]
    lines += ["", f"Runs as: {entry.runs}"]
    if entry.related:
        lines += [f"Related: {', '.join(entry.related)}"]
    return "\n".join(lines)


def _erratum(entry: Entry, number: int, erratum: Erratum) -> list[str]:
    lines = textwrap.wrap(f"In print {number}. {erratum.where}: {erratum.printed}. Repair: {erratum.repair}.", WIDTH)
    if not erratum.shown:
        return lines
    found = recorded.shown(entry.id, erratum.shown)
    shown = [] if found is None else [f"  Shown by: {found.number}"]
    return [*lines, *shown, textwrap.indent(source_of(entry.paper, erratum.shown), "    ").rstrip()]


def source_of(paper: str, name: str) -> str:
    """The counterexample as code."""
    return inspect.getsource(counterexample(paper, name))


def run_table(checked: Sequence[Checked]) -> str:
    """A row per entry: passed or not, its first finding; failures in full at the end."""
    name = max(len(found.id) for found in checked)
    lines = []
    for found in checked:
        first = str(found.findings[0]) if found.findings else f"{ENTRIES[found.id].status}; nothing to measure"
        word = "ok  " if found.passed else "FAIL"
        lines.append(f"{word}  {found.id:<{name}}  {found.seconds:5.1f} s  {found.error or first}")
    failed = [found for found in checked if not found.passed]
    for found in failed:
        lines += ["", f"{found.id} failed:", *(f"  {words}" for words in found.failures)]
    shown = sum(len(found.errata) for found in checked)
    lines += ["", f"{len(checked) - len(failed)} of {len(checked)} statements passed, {shown} counterexamples ran."]
    return "\n".join(lines)
