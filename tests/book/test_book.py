"""The book is complete, its parts fit together, every check passes, and the commands say what they should."""

import importlib
import inspect
import json
import math
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

import infoflow as iflow
from infoflow.book import ENTRIES, PAPERS, Entry, Erratum, Finding
from infoflow.book.checks import heads as heads_checks
from infoflow.book.entry import STATUSES
from infoflow.book.latex import FORMULAS
from infoflow.book.recorded import joined
from infoflow.book.registry import MODULES, check_of, counterexample
from infoflow.book.run import Checked, check, check_entry
from infoflow.cli import cli
from infoflow.errors import InfoFlowError

STATEMENTS = {
    "infoflow": "theorem1 theorem2 theorem3 theorem3.lower lemma1 proposition1 proposition2 equation5 equation47 "
    "appendixD.retrieval appendixD.triples appendixE costlaw section6 triangle",
    "heads": "density corollary1 transition transition.lower single",
    "softmax": "F.1 3.4 G.6 3.9 3.10 G.14 3.11 3.12 3.13 3.14 3.15 E.1 F.2 D.1 D.4 H.1 H.2 H.3 I.1 I.2",
    "rank1": "theorem1 lemma1 lemma2 lemma3 lemma4 lemma5 lemma6 lemma7 theorem2 corollary1 corollary2 proposition1 "
    "appendixC",
}


def run(*words: str):
    return CliRunner().invoke(cli, ["book", *words])


def test_every_formula_belongs_to_an_entry() -> None:
    assert set(FORMULAS) == set(ENTRIES)


def test_every_statement_of_the_papers_has_its_entry() -> None:
    assert set(ENTRIES) == {f"{paper}.{name}" for paper, names in STATEMENTS.items() for name in names.split()}
    assert set(PAPERS) == set(STATEMENTS)


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
def test_an_entry_is_whole(entry: Entry) -> None:
    assert entry.id.split(".")[0] == entry.paper
    assert entry.status in STATUSES
    assert entry.title
    assert len(entry.statement) > 20
    assert entry.formula
    assert entry.where
    assert entry.runs
    assert set(entry.related) <= set(ENTRIES) - {entry.id}
    assert entry.status != "holds after repair" or entry.errata  # a repair says what was wrong
    if entry.executable:
        parameters = inspect.signature(check_of(entry.id)).parameters
        assert list(parameters)[:2] == ["size", "build"]
    for erratum in entry.errata:
        assert not erratum.printed.endswith(".")
        assert not erratum.repair.endswith(".")


@pytest.mark.parametrize("paper", PAPERS)
def test_every_counterexample_belongs_to_an_erratum(paper: str) -> None:
    module = importlib.import_module(f"infoflow.book.counterexamples.{MODULES[paper]}")
    returning = {
        name
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and inspect.signature(function).return_annotation is Finding
    }
    used = {e.shown for entry in ENTRIES.values() if entry.paper == paper for e in entry.errata if e.shown}
    assert returning <= used
    assert all(callable(counterexample(paper, name)) for name in used)


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
def test_what_runs_an_entry_exists(entry: Entry) -> None:
    """Dotted names resolve, verbs are exported, commands exist."""
    for dotted in re.findall(r"infoflow(?:\.\w+)+", entry.runs):
        parts = dotted.split(".")
        for cut in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:cut]))
            except ModuleNotFoundError:
                continue
            break
        for name in parts[cut:]:
            found = getattr(found, name)
    for verb in re.findall(r"iflow\.(\w+)", entry.runs):
        assert getattr(iflow, verb)
    for command in re.findall(r"infoflow (\w+)", entry.runs):
        assert cli.get_command(None, command) is not None


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
def test_the_check_passes(entry: Entry) -> None:
    found = check_entry(entry)
    assert found.passed, found.failures
    assert set(found.errata) == {e.shown for e in entry.errata if e.shown}
    assert bool(found.findings) == entry.executable


def test_a_finding_compares() -> None:
    assert Finding("x", 1.0, "at most", 1.0).passed
    assert not Finding("x", 1.0, "below", 1.0).passed
    assert Finding("x", 1.0, "at least", 1.0).passed
    assert not Finding("x", 1.0, "above", 1.0).passed
    assert Finding("x", 1.0, "is", 1.0).passed
    assert Finding("x", 2.0, "is not", 1.0).passed
    assert not Finding("x", math.nan, "at most", 1.0).passed
    assert not Finding("x", math.nan, "is not", 1.0).passed
    assert Finding("x", 3.0, "above", 0.0).ratio is None
    assert Finding("x", 3.0, "at most", 6.0).ratio == 0.5


def test_several_processes_give_the_same_rows() -> None:
    ids = ["infoflow.equation47", "infoflow.equation5", "heads.corollary1"]
    here, apart = (check(ids, jobs=jobs) for jobs in (1, 2))
    assert [found.id for found in here] == [id for id in ENTRIES if id in ids]
    assert [found.findings for found in here] == [found.findings for found in apart]


def test_list_and_explanation() -> None:
    listed = run()
    assert listed.exit_code == 0
    for id, entry in ENTRIES.items():
        assert re.search(rf"^  {re.escape(id)} +{entry.status} +{re.escape(entry.title)}$", listed.output, re.M)
    shown = run("rank1.theorem1").output
    for words in (
        "Status: holds after repair",
        "Needs:",
        "In print 1.",
        "def hardmax_two_tokens()",
        "Check (",
        "Related:",
    ):
        assert words in shown
    assert "rank1.lemma1" not in run("infoflow.appendixD").output
    assert {e["id"] for e in json.loads(run("heads", "--json").output)["entries"]} == {
        f"heads.{name}" for name in STATEMENTS["heads"].split()
    }


def test_check_as_json(tmp_path) -> None:
    out = tmp_path / "run.json"
    done = run("--check", "infoflow.equation47", "heads.corollary1", "--jobs", "1", "--json", "--out", str(out))
    assert done.exit_code == 0
    payload = json.loads(done.stdout)
    assert [entry["id"] for entry in payload["entries"]] == ["infoflow.equation47", "heads.corollary1"]
    for entry in payload["entries"]:
        assert {"id", "paper", "status", "passed", "measured"} <= entry.keys()
        assert entry["passed"] is True
        assert {"bound", "seen", "ratio", "findings"} <= entry["measured"].keys()
    written = json.loads(out.read_text())
    assert [row | {"commit": None} for row in written["entries"]] == [
        row | {"commit": None} for row in payload["entries"]
    ]
    assert written["provenance"]["command"]


@pytest.mark.parametrize("wrong", ["bound", "error"])
def test_a_failed_check_is_exit_code_1(monkeypatch, wrong: str) -> None:
    def fails(size: str, build: object = None) -> list[Finding]:
        if wrong == "error":
            raise InfoFlowError("expected something else.")
        return [Finding("seen", 2.0, "at most", 1.0)]

    made = Entry("heads.wrong", "heads", "A wrong one", "It says 2 <= 1.", "nowhere", "holds", "nothing")
    monkeypatch.setitem(ENTRIES, made.id, made)
    monkeypatch.setitem(heads_checks.CHECKS, made.id, fails)
    done = run("--check", "heads.wrong", "heads.corollary1", "--jobs", "1")
    assert done.exit_code == 1
    assert "FAIL  heads.wrong" in done.output
    assert ("expected something else" if wrong == "error" else "seen: 2, at most 1") in done.output
    assert "1 of 2 statements passed" in done.output


def test_a_wrong_counterexample_fails_its_entry() -> None:
    """A counterexample that no longer shows anything is a failure, too."""
    right, broken = Finding("x", 2.0, "above", 1.0), Finding("x", 1.0, "above", 1.0)
    assert Checked("heads.density", "heads", "holds", (), {"a": right}).passed
    assert not Checked("heads.density", "heads", "holds", (), {"a": broken}).passed
    assert Erratum("here", "a", "b").shown == ""


def test_a_run_of_some_statements_keeps_the_others() -> None:
    old = {"size": "full", "provenance": {"commit": "a"}, "entries": [{"id": "heads.density"}, {"id": "softmax.H.2"}]}
    new = {"size": "full", "provenance": {"commit": "b"}, "entries": [{"id": "softmax.H.2", "passed": True}]}
    both = joined(new, old)
    assert both["entries"] == [
        {"id": "heads.density", "commit": "a"},
        {"id": "softmax.H.2", "passed": True, "commit": "b"},
    ]
    assert joined({**new, "size": "quick"}, old)["entries"] == joined(new, None)["entries"] == both["entries"][1:]


def test_unknown_names_are_one_sentence() -> None:
    for words in (("softmax.3.41",), ("--check", "softmax.3.41")):
        done = run(*words)
        assert isinstance(done.exception, InfoFlowError)
        assert "unknown statement 'softmax.3.41'; did you mean 'softmax.3." in str(done.exception)
    with pytest.raises(InfoFlowError, match="jobs"):
        check("heads.density", jobs=0)
    with pytest.raises(InfoFlowError, match="quick, full"):
        check("heads.density", size="vast")  # type: ignore[arg-type]


def test_the_book_is_light_until_something_runs() -> None:
    code = (
        "import sys, infoflow as iflow\n"
        "from infoflow.book.text import listing\n"
        "listing(list(iflow.book.ENTRIES.values())), iflow.book.errata()\n"
        "print('torch' in sys.modules, 'scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    assert "book" in dir(iflow)
