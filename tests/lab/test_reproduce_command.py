"""`infoflow reproduce`: the list, one item, all of them on one page, and one that fails stops no other."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from infoflow.commands.reproduce import command
from infoflow.errors import InfoFlowError, JobError
from infoflow.lab import recorded
from infoflow.lab.registry import ITEMS, find

VERDICTS = (
    "holds",
    "holds with a better recipe",
    "holds with our recipe; paper is not run",
    "holds on another target",
    "does not hold",
    "not run",
)
PAPERS = {
    "infoflow": ["Appendix E", "Figure 1a", "Figure 1b", "Figure 2", "Figure 3", "Figure 4", "Figure 5", "Table 11",
                 "Table 12", "Tables 1 to 3", "Tables 4 to 10"],
    "head_count": ["slides, figure (a)", "slides, figure (b)", "slides, text retrieval (a)",
                   "slides, text retrieval (b)"],
    "softmax_attention": ["Figure 2", "Figure 2, rates", "Figure 3", "Figure 4", "Figure 4, rates"],
    "rank_one": ["Figure 1", "Figure 1, depth"],
}  # fmt: skip


def call(*words: str) -> Result:
    return CliRunner().invoke(command, list(words))


def choose(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr("infoflow.lab.reproduce.ITEMS", names)


def test_the_list_names_every_item_and_its_parts() -> None:
    said = call("--list").stdout
    assert all(f"{name}\n" in said for name in ITEMS)
    assert "--part: embeddings, words (or a piece: 'words:T=31'), minilm (or a piece: 'minilm:T=31')" in said
    listed = json.loads(call("--list", "--json").stdout)["items"]
    assert [entry["name"] for entry in listed] == list(ITEMS)
    for entry in listed:
        assert entry["quick"]
        assert entry["paper"]
        assert [verdict["what"] for verdict in entry["verdicts"]] == list(find(entry["name"]).concludes)
        for verdict in entry["verdicts"]:
            assert verdict["verdict"] in VERDICTS
            assert (verdict["verdict"] == "not run") == (not verdict["numbers"])
        for verdict in recorded.together(entry["verdicts"]):
            assert f"    {verdict['what']}: {verdict['verdict']}\n" in said
            assert all(f"{preset}: {n}\n" in said for preset, found in verdict["numbers"].items() for n in found)


def test_an_item_that_was_just_added_is_listed_before_anything_of_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorded, "ITEMS", (*ITEMS, "mine/heads"))
    assert recorded.recorded()["mine/heads"] == {"run": {}, "verdicts": []}


def test_every_table_and_figure_is_listed() -> None:
    """Of the four papers, but for their notation table and the sketch of a proof."""
    listed = json.loads(call("--list", "--json").stdout)["items"]
    named = {name: [v["what"] for e in listed if e["name"].startswith(name) for v in e["verdicts"]] for name in PAPERS}
    assert {name: sorted(found) for name, found in named.items()} == PAPERS


def test_wrong_calls() -> None:
    assert isinstance(call().exception, InfoFlowError)
    done = call("all", "--part", "D=2")
    assert isinstance(done.exception, InfoFlowError)
    assert "no --part with all" in str(done.exception)


def test_all_of_them_on_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item whose data is not here is named with the reason, and that is no failure."""
    choose(monkeypatch, "infoflow/figures", "rank_one/figure1")
    done = call("all", "--preset", "best", "--out", str(tmp_path))
    assert done.exit_code == 0, done.exception
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "1 of 2 items" in page
    assert page.count("<svg") == 3
    assert "rank_one/figure1: not run: expected the file train.txt.gz" in page
    assert (tmp_path / "infoflow/figures/result.json").is_file()


def test_an_item_that_fails_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, "softmax_attention/figure4", "infoflow/figures")
    done = call("all", "--seconds", "1e-9", "--out", str(tmp_path), "--json")
    assert isinstance(done.exception, JobError)
    assert "softmax_attention/figure4 did not" in str(done.exception)
    results = json.loads(done.stdout)["results"]
    assert "goes on from" in results[0]["skipped"]
    assert (results[1]["item"], results[1]["preset"]) == ("infoflow/figures", "quick")
    assert "runs" not in results[1]
    assert "Appendix E" in (tmp_path / "index.html").read_text(encoding="utf-8")
