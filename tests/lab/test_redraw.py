"""`reproduce --redraw`: figures and remarks from recorded rows, nothing trained."""

import json
from pathlib import Path
from typing import Any

import pytest

from infoflow.errors import InfoFlowError
from infoflow.lab.reproduce import redraw

ROOT = Path(__file__).parents[2]


def copied(tmp_path: Path, item: str) -> Path:
    source = ROOT / "results" / item / "result.json"
    (tmp_path / "result.json").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def test_rows_and_runs_stay_and_what_they_say_is_made_again(tmp_path: Path) -> None:
    folder = copied(tmp_path, "head_count/retrieval/paper/squad")
    before = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    (folder / "result.json").write_text(json.dumps(before | {"remarks": ["kept"], "figures": []}), encoding="utf-8")
    after = redraw("head_count/retrieval", folder)
    assert all(after[name] == before[name] for name in ("rows", "runs", "trained", "provenance", "parts"))
    assert after["remarks"][0] == "kept"
    assert any("the leading term as a line" in remark for remark in after["remarks"])
    assert after["figures"] == ["retrieval.svg"]
    assert (folder / "retrieval.svg").is_file()
    assert redraw("head_count/retrieval", folder)["remarks"] == after["remarks"]


def test_a_figure_of_recovery_needs_no_weights(tmp_path: Path) -> None:
    folder = copied(tmp_path, "infoflow/recovery/paper")
    before = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    after = redraw("infoflow/recovery", folder)
    assert all(after[name] == before[name] for name in ("rows", "runs", "heads", "remarks"))
    assert (folder / "recovery.svg").is_file()


def test_one_kind_may_have_lengths_that_another_lacks(tmp_path: Path) -> None:
    """Pieces of words and of frozen vectors are run on their own."""
    folder = copied(tmp_path, "head_count/retrieval/paper/squad")
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    result["rows"] = [row for row in result["rows"] if row["features"] == "words" or row["T"] == 4]
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    assert redraw("head_count/retrieval", folder)["figures"] == ["retrieval.svg"]


def test_another_items_result_is_refused(tmp_path: Path) -> None:
    folder = copied(tmp_path, "head_count/retrieval/paper/squad")
    with pytest.raises(InfoFlowError, match="got one of 'head_count/retrieval'"):
        redraw("head_count/synthetic", folder)
    with pytest.raises(InfoFlowError, match="its result alone makes"):
        redraw("infoflow/table11", folder)


ITEM = {"item": "head_count/synthetic", "remarks": [], "columns": [], "preset": "quick"}


@pytest.mark.parametrize(
    "result",
    [[1], None, "x", {**ITEM, "rows": []}, {**ITEM, "rows": [5]}, {**ITEM, "rows": [{}]}, {**ITEM, "rows": 5}],
)
def test_a_result_of_anybodys_is_redrawn_or_refused(tmp_path: Path, result: Any) -> None:
    (tmp_path / "result.json").write_text(json.dumps(result))
    with pytest.raises(InfoFlowError, match=r"expected (a result|rows)"):
        redraw("head_count/synthetic", tmp_path)


@pytest.mark.parametrize("change", [{"remarks": 5}, {"columns": 5}, {"T": None}, {"h": 10**400}, {"mean": "x"}])
def test_rows_of_other_values_are_one_sentence(tmp_path: Path, change: dict[str, Any]) -> None:
    (source,) = (ROOT / "results" / "head_count" / "synthetic").rglob("result.json")
    result = json.loads(source.read_text(encoding="utf-8"))
    result["rows"][0] |= change
    (tmp_path / "result.json").write_text(json.dumps(result | change))
    with pytest.raises(InfoFlowError, match="expected rows as head_count/synthetic writes them"):
        redraw("head_count/synthetic", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
