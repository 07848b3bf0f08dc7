"""The pages of the papers: full results and no others, what is missing named with its command, tables turned."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infoflow.lab.registry import ITEMS, find

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def lab_tables() -> Any:
    """docs/lab_tables.py, which is a script's helper and no module of the package."""
    sys.path.insert(0, str(DOCS))
    try:
        spec = importlib.util.spec_from_file_location("lab_tables", DOCS / "lab_tables.py")
        assert spec is not None
        assert spec.loader is not None
        module: ModuleType = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(DOCS))
        sys.modules.pop("tables", None)


def put(folder: Path, name: str, columns: list[str], rows: list[dict[str, Any]], **changed: Any) -> Path:
    """A result as `infoflow reproduce` leaves it, in `folder`."""
    result = {
        "item": name,
        "preset": "full",
        "parts": [],
        "device": "cuda",
        "seconds": 3.0,
        "columns": columns,
        "rows": rows,
        "remarks": ["so it is"],
        "figures": [],
        "models": 2,
        "training_seconds": 8.0,
        "runs": ["a", "b"],
        "provenance": {"command": f"infoflow reproduce {name}", "commit": "abc", "machine": "x86_64"},
        **changed,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "result.json"
    path.write_text(json.dumps(result))
    return path


def test_every_paper_has_its_page(lab_tables: Any) -> None:
    pages = {path.stem for path in (DOCS / "papers").glob("*.md")}
    assert pages == set(lab_tables.PAPERS)
    for name in pages:
        assert f"<!-- table paper_{name} -->" in (DOCS / "papers" / f"{name}.md").read_text()


def test_without_results_every_item_says_how(lab_tables: Any, tmp_path: Path) -> None:
    said = "\n".join(lab_tables.paper(name, tmp_path) for name in lab_tables.PAPERS)
    notes = json.loads((DOCS / "lab_notes.json").read_text())
    assert set(notes) <= set(ITEMS)
    for name in ITEMS:
        assert f"## {find(name).title}\n" in said
        assert f"    infoflow reproduce {name} --preset full" in said
    assert said.count("**Not run in full**") == len(ITEMS)


def test_a_full_result_is_shown_and_a_quick_one_is_not(lab_tables: Any, tmp_path: Path) -> None:
    name = "softmax_attention/figure3"
    put(tmp_path / name, name, ["a"], [{"a": 0.5}], preset="quick")
    assert "so it is" not in lab_tables.paper("softmax_attention", tmp_path)
    put(tmp_path / name, name, ["a"], [{"a": 0.5}], figures=["map.svg", "gone.svg"])
    (tmp_path / name / "map.svg").write_text("<svg/>")
    said = lab_tables.paper("softmax_attention", tmp_path)
    assert "| a |\n|---|\n| 0.5 |\n" in said
    assert "2 models trained on cuda, 8 s summed over stacks (x86_64; commit abc)." in said
    assert f"![map](../../results/{name}/map.svg)" in said
    assert "gone.svg" not in said
    assert said.count("**Not run in full**") == 2  # the other two items


def test_missing_parts_are_named(lab_tables: Any, tmp_path: Path) -> None:
    name = "infoflow/table11"
    put(tmp_path / name, name, ["D"], [{"D": 2}], parts=["D=2", "D=4"])
    assert "**Not run in full**: D=3, D=5, D=6: " in lab_tables.paper("infoflow", tmp_path)
    put(tmp_path / name, name, ["D"], [{"D": 2}], parts=list(find(name).parts))
    assert "D=3, D=5" not in lab_tables.paper("infoflow", tmp_path)


def test_pieces_of_a_part(lab_tables: Any, tmp_path: Path) -> None:
    """`control:T=3` is a piece of `control`: all pieces are the part, and the part is all pieces."""
    name, parts = "infoflow/table12", find("infoflow/table12").parts
    pieces = [part for part in parts if part.startswith("control:")]
    lengths = [part for part in parts if ":" not in part and part not in ("control", "longer")]
    for run, words in (
        ([*lengths, "control"], "**Not run in full**: longer: "),
        ([*lengths, *pieces, "longer"], None),
        ([*lengths, *pieces[1:], "longer"], f"**Not run in full**: {pieces[0]}: "),
    ):
        put(tmp_path / name, name, ["D"], [], parts=run)
        said = lab_tables.paper("infoflow", tmp_path).split("## ")[2]
        assert words in said if words else "Not run" not in said


def test_who_trained_is_named(lab_tables: Any, tmp_path: Path) -> None:
    """The table may be written by a call that only reads the store."""
    name = "softmax_attention/figure3"
    call = {"command": "infoflow reproduce there", "commit": "def", "machine": "a GPU"}
    put(tmp_path / name, name, ["a"], [], trained=[call, call | {"commit": None}])
    said = lab_tables.paper("softmax_attention", tmp_path)
    assert "(a GPU; commit def, not recorded)." in said
    assert f"`infoflow reproduce there`, `infoflow reproduce {name}`" in said
    put(tmp_path / name, name, ["a"], [], models=0, runs=[])
    assert "Drawn in 3 s (x86_64; commit abc)." in lab_tables.paper("softmax_attention", tmp_path)


def test_one_folder_per_data_set(lab_tables: Any, tmp_path: Path) -> None:
    name = "head_count/retrieval"
    row = {"features": "words", "T": 4, "h": 1, "accuracy": 0.5, "untrained cosine": 0.4, "untrained model": 0.35}
    row["chance"] = 0.25
    native = {"native accuracy": 0.3, "native lists": 9, "native cosine": 0.2}
    put(tmp_path / name / "one", name, list(row), [row, row | {"h": 2, "accuracy": 0.6}], source="lists of one")
    put(tmp_path / name / "two", name, [*row, *native], [row | native], source="lists of two")
    put(tmp_path / name / "made", name, ["file"], [{"file": "x"}], parts=["embeddings"])
    said = lab_tables.paper("head_count", tmp_path)
    assert "### lists of one\n" in said
    assert "### lists of two\n" in said
    assert "| features | T | h = 1 | h = 2 | chance | untrained cosine |\n" in said
    assert "| words | 4 | 0.5 | 0.6 | 0.25 | 0.4 |\n" in said
    assert "| words | 4 | 0.35 | 0.35 |\n" in said
    assert "| words | 4 | 0.3 | 9 | 0.25 | 0.2 |\n" in said
    assert "| file |" not in said  # a run that only prepared a file is no result


def test_table_12_is_turned_and_other_targets_follow(lab_tables: Any, tmp_path: Path) -> None:
    name, zero = "infoflow/table12", {"exponent (lower)": "0", "exponent (ordered)": "1"}
    columns = ["target", "T", "size", "label std", "paper", "mean", "seeds", *zero]
    common = {"label std": 1.0, "seeds": 2, **zero}
    rows = [
        {"target": "triangle", "T": T, "size": size, "paper": 0.5, "mean": T / 100, **common}
        for T in (3, 4)
        for size in ("a", "b")
    ]
    rows.append({"target": "pair", "T": 7, "size": "a", "paper": None, "mean": 0.9, **common})
    put(tmp_path / name, name, columns, rows)
    said = lab_tables.paper("infoflow", tmp_path)
    assert "| T | a paper | a ours | b paper | b ours | exponent (lower) | exponent (ordered) |\n" in said
    assert "| 4 | 0.5 | 0.04 | 0.5 | 0.04 | 0 | 1 |\n" in said
    assert "| pair | 7 | a | 1 | 0.9 | 2 | 0 | 1 |\n" in said
    put(tmp_path / name, name, ["T"], [{"T": 3}])  # other columns: the rows as they are
    assert "| T |\n|---|\n| 3 |\n" in lab_tables.paper("infoflow", tmp_path)


def test_the_synthetic_table_by_heads(lab_tables: Any, tmp_path: Path) -> None:
    name = "head_count/synthetic"
    cells = [(8, 1, 16), (8, 2, 16), (32, 1, 16), (32, 2, 16), (32, 1, 4), (32, 2, 4)]
    rows = [{"T": T, "h": h, "N": N, "mean": float(T * h + N), "predicted": f"p{h}"} for T, h, N in cells]
    put(tmp_path / name, name, ["T", "h", "N", "mean", "predicted"], rows)
    said = lab_tables.paper("head_count", tmp_path)
    assert "| T | h = 1 | h = 2 |\n|---|---|---|\n| 8 | 24 | 32 |\n| 32 | 48 | 80 |\n| predicted | p1 | p2 |\n" in said
    assert "| N | h = 1 | h = 2 |\n|---|---|---|\n| 4 | 36 | 68 |\n| 16 | 48 | 80 |\n" in said


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"item": "infoflow/table12", "parts": [], "preset": "full"}'])
def test_a_broken_result_stops_with_its_name(lab_tables: Any, tmp_path: Path, text: str) -> None:
    folder = tmp_path / "infoflow/table11"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(text)
    with pytest.raises(SystemExit, match=r"result\.json is no result of infoflow/table11"):
        lab_tables.paper("infoflow", tmp_path)
