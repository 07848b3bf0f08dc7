"""`reproduce --redraw`: figures and remarks from recorded rows, nothing trained."""

import json
from pathlib import Path

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
    assert any("the theorem's line" in remark for remark in after["remarks"])
    assert after["figures"] == ["retrieval.svg"]
    assert (folder / "retrieval.svg").is_file()
    assert redraw("head_count/retrieval", folder)["remarks"] == after["remarks"]


def test_another_items_result_is_refused(tmp_path: Path) -> None:
    folder = copied(tmp_path, "head_count/retrieval/paper/squad")
    with pytest.raises(InfoFlowError, match="got one of 'head_count/retrieval'"):
        redraw("head_count/synthetic", folder)
    with pytest.raises(InfoFlowError, match="rows alone make"):
        redraw("infoflow/table11", folder)
