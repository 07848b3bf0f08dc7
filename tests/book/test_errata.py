"""The errata agree with the list of corrections, with the recorded run, and with what the counterexamples find now."""

import json
import math
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from infoflow.book import ENTRIES, PAPERS, errata
from infoflow.book.errata import markdown
from infoflow.book.recorded import recorded, shown
from infoflow.book.registry import counterexample
from infoflow.cli import cli
from infoflow.errors import InfoFlowError

SHOWN = [(e, x.shown) for e in ENTRIES.values() for x in e.errata if x.shown]

# Every place that the list of corrections names, by paper.
PLACES = {
    "infoflow": "Theorem 1|(40)|item 3|item 5|item 6|K_i|(20)|Theorems 2 and 5|Theorem 3|Theorem 6, part 2|eps/1|p > 1|"
    "(5)|(47)|(45)|Proposition 1|B.2|Section 6.2|D.1|(60)|argmin|Section 5.1|Table 11|Table 12|C.1|Appendix E|"
    "Sections 4.2, 5.2, 6|Section 3",
    "heads": "Corollary 1|n >= 2|C_{d,D,T}|additive|eps^-(1+gamma)|bounded weights",
    "softmax": "(G.13)|beta stands in both|ln(n-1)|p = 2|any map G|(3.1)|(G.5)|Figures 2 and 4|sentinel|Lemma G.7|"
    "Remark G.11|Lemma G.14|(G.43)|[N-1, N)|B^N(1|(G.50)|(G.57)|(G.45)|(G.51)|(G.55)|(G.48)|Minkowski|Remark E.1|"
    "(G.64)|n^(5/2)|(G.61)|(G.62)|M_2|Theorem 4.2|(G.66)|B_R B_1^2|lasso|L_{h,r}|Example H.1|footnote to Lemma I.1|"
    "layer 3|layer 2|layer 1|no bias|H = O(N)",
    "rank1": "Lemma 1|(114)|Lemma 6|(120)|Theorem 1|(41)|(42)|(47)|footnote 2|footnote 3|(8), (16)|Corollary 1|(48)|"
    "(19)|(52)|(54)|(58)|(59)|(60)|A.5 (3)|(65)|(67), (68)|after (68)|after (69)|(71)|(132)|Appendix C",
}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_known_place_is_listed(paper: str) -> None:
    text = "\n".join(f"{row.where}: {row.printed}: {row.repair}" for row in errata(paper))
    missing = [place for place in PLACES[paper].split("|") if place not in text]
    assert not missing


def test_the_record_is_of_these_entries_at_full_size() -> None:
    run = recorded()
    assert run["size"] == "full"
    assert list(run["entries"]) == list(ENTRIES)
    assert re.fullmatch(r"[0-9a-f]{12}", run["provenance"]["commit"])
    for id, row in run["entries"].items():
        assert row["passed"], id
        assert row["status"] == ENTRIES[id].status
        assert list(row["errata"]) == [x.shown for x in ENTRIES[id].errata if x.shown]


@pytest.mark.parametrize(("entry", "name"), SHOWN, ids=[f"{e.id}-{name}" for e, name in SHOWN])
def test_a_counterexample_still_finds_what_is_recorded(entry, name: str) -> None:
    found, kept = counterexample(entry.paper, name)(), shown(entry.id, name)
    assert found.passed
    assert kept is not None
    assert (kept.what, kept.relation) == (found.what, found.relation)
    assert math.isclose(kept.seen, found.seen, rel_tol=1e-6, abs_tol=1e-9)
    assert math.isclose(kept.bound, found.bound, rel_tol=1e-6, abs_tol=1e-9)


def run(*words: str):
    return CliRunner().invoke(cli, ["errata", *words])


@pytest.mark.parametrize("paper", PAPERS)
def test_the_command_in_three_forms(paper: str, tmp_path: Path) -> None:
    rows = errata(paper)
    plain = " ".join(run(paper).output.split())
    for row in rows:
        assert " ".join(f"{row.where}. In print: {row.printed}.".split()) in plain
        assert row.found is None or " ".join(row.found.number.split()) in plain
    assert PAPERS[paper].version in plain
    payload = json.loads(run(paper, "--json").output)
    assert [e["where"] for e in payload["errata"]] == [row.where for row in rows]
    out = tmp_path / "page.md"
    assert run(paper, "--out", str(out)).exit_code == 0
    assert out.read_text() == markdown(rows) == run(paper, "--markdown").output.removesuffix("\n")
    table = [line for line in out.read_text().splitlines() if line.startswith("| ")]
    assert len(table) == len(rows) + 1
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {6}


def test_all_papers_and_an_unknown_one() -> None:
    assert {row.paper for row in errata()} == set(PAPERS)
    assert all(paper.title in " ".join(run().output.split()) for paper in PAPERS.values())
    done = run("softmaks")
    assert isinstance(done.exception, InfoFlowError)
    assert str(done.exception) == "unknown paper 'softmaks'; did you mean 'softmax'?"
