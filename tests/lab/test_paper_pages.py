"""The pages of the papers: what was run in each preset, what is missing named with its command, tables turned."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infoflow.lab.recorded import together, verdicts
from infoflow.lab.registry import ITEMS, find

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def unjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infoflow.lab.recorded._findings", lambda item, results: {})


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
    """A result as `infoflow reproduce` leaves it, in `folder`; what it says of the conclusions is not asked here."""
    result = {
        "item": name,
        "preset": "paper",
        "scored": "test samples",
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
    for name in ITEMS:
        item = find(name)
        assert f"## {item.title}\n" in said
        for preset in ("paper", "best") if item.best else ("paper",):
            assert f"    infoflow reproduce {name} --preset {preset}" in said
        for verdict in together(verdicts(item, {})):
            assert f"- {verdict['what']}. The paper: {verdict['conclusion']}. **Not run.**" in said
    assert said.count("**Not run**") == sum(1 + bool(find(name).best) for name in ITEMS)


@pytest.mark.usefixtures("unjudged")
def test_a_result_is_shown_and_a_quick_one_is_not(lab_tables: Any, tmp_path: Path) -> None:
    name = "softmax_attention/figure3"
    put(tmp_path / name / "quick", name, ["a"], [{"a": 0.5}], preset="quick")
    assert "so it is" not in lab_tables.paper("softmax_attention", tmp_path)
    put(tmp_path / name / "paper", name, ["a"], [{"a": 0.5, "b-a": 1}], figures=["map.svg", "gone.svg"])
    (tmp_path / name / "paper" / "map.svg").write_text("<svg/>")
    said = lab_tables.paper("softmax_attention", tmp_path)
    assert "| a |\n|---|\n| 0.5 |\n" in said
    assert "2 models trained, 8 s summed over stacks (x86_64; commit abc). Measured on test samples." in said
    assert f"![map](../../results/{name}/paper/map.svg)" in said
    assert "gone.svg" not in said
    assert said.count("**Not run**") == 5  # best of this item, and the other two


@pytest.mark.usefixtures("unjudged")
def test_three_columns_and_the_spread(lab_tables: Any, tmp_path: Path) -> None:
    """The paper's number, ours of `paper` and of `best`; rows that one of them lacks stay empty there."""
    name, columns = "infoflow/table11", ["D", "heads", "paper mean", "mean", "std"]
    row = {"D": 2, "heads": "(2,2)", "paper mean": 5.9e-05, "mean": 0.01, "std": 0.002}
    put(tmp_path / name / "paper", name, columns, [row])
    put(tmp_path / name / "best", name, columns, [row | {"mean": 6e-05, "std": None}, row | {"D": 3}], preset="best")
    said = lab_tables.paper("infoflow", tmp_path)
    assert "| D | heads | printed | `paper` | `best` |\n" in said
    assert "| 2 | (2,2) | 5.90e-05 | 0.01 ± 0.002 | 6.00e-05 |\n" in said
    assert "| 3 | (2,2) | 5.90e-05 |  | 0.01 ± 0.002 |\n" in said


@pytest.mark.usefixtures("unjudged")
def test_missing_parts_are_named(lab_tables: Any, tmp_path: Path) -> None:
    name = "infoflow/table11"
    put(tmp_path / name / "paper", name, ["D"], [{"D": 2}], parts=["D=2", "D=4"])
    assert "**Not run**: `paper`: D=3, D=5, D=6. The" in lab_tables.paper("infoflow", tmp_path)
    put(tmp_path / name / "paper", name, ["D"], [{"D": 2}], parts=list(find(name).parts))
    assert "D=3, D=5" not in lab_tables.paper("infoflow", tmp_path)


@pytest.mark.usefixtures("unjudged")
def test_pieces_of_a_part(lab_tables: Any, tmp_path: Path) -> None:
    """`control:T=3` is a piece of `control`: all pieces are the part, and the part is all pieces."""
    name, parts = "infoflow/table12", find("infoflow/table12").parts
    pieces = [part for part in parts if part.startswith("control:")]
    others = [part for part in parts if ":" not in part and part != "control"]
    for run, words in (
        (others, "**Not run**: `paper`: control."),
        ([*others, *pieces], None),
        ([*others, *pieces[1:]], f"**Not run**: `paper`: {pieces[0]}."),
    ):
        put(tmp_path / name / "paper", name, ["D"], [], parts=run)
        said = lab_tables.paper("infoflow", tmp_path).split("\n## ")[1]
        assert words in said if words else "**Not run**: `paper`" not in said


@pytest.mark.usefixtures("unjudged")
def test_who_trained_is_named(lab_tables: Any, tmp_path: Path) -> None:
    """The table may be written by a call that only reads the store."""
    name = "softmax_attention/figure3"
    call = {"command": "infoflow reproduce there", "commit": "def", "machine": "a GPU"}
    put(tmp_path / name / "paper", name, ["a"], [], trained=[call, call | {"commit": None}])
    said = lab_tables.paper("softmax_attention", tmp_path)
    assert "(a GPU; commit def, not recorded)." in said
    assert f"`infoflow reproduce there`, `infoflow reproduce {name}`" in said
    put(tmp_path / name / "paper", name, ["a"], [], models=0, runs=[])
    assert "Drawn in 3 s (x86_64; commit abc)." in lab_tables.paper("softmax_attention", tmp_path)


@pytest.mark.usefixtures("unjudged")
def test_one_folder_per_data_set(lab_tables: Any, tmp_path: Path) -> None:
    name = "head_count/retrieval"
    row = {"E": "E = 8h", "features": "words", "T": 4, "h": 1, "accuracy": 0.5, "untrained cosine": 0.4}
    row |= {"untrained model": 0.35, "chance": 0.25}
    native = {"native accuracy": 0.3, "native lists": 9, "native cosine": 0.2}
    place = tmp_path / name / "paper"
    put(place / "one", name, list(row), [row, row | {"h": 2, "accuracy": 0.6}], source="lists of one")
    put(place / "two", name, [*row, *native], [row | native], source="lists of two")
    put(place / "made", name, ["file"], [{"file": "x"}], parts=["embeddings"])
    said = lab_tables.paper("head_count", tmp_path)
    assert "### `paper`: lists of one\n" in said
    assert "### `paper`: lists of two\n" in said
    assert "| features | E | T | h = 1 | h = 2 | chance | untrained cosine |\n" in said
    assert "| words | E = 8h | 4 | 0.5 | 0.6 | 0.25 | 0.4 |\n" in said
    assert "| words | E = 8h | 4 | 0.35 | 0.35 |\n" in said
    assert "| words | E = 8h | 4 | 0.3 | 9 | 0.25 | 0.2 |\n" in said
    assert "| file |" not in said  # a run that only prepared a file is no result


@pytest.mark.usefixtures("unjudged")
def test_table_12_is_turned_and_the_control_follows(lab_tables: Any, tmp_path: Path) -> None:
    name, zero = "infoflow/table12", {"exponent (lower)": "0", "exponent (ordered)": "1"}
    columns = ["target", "T", "size", "encoder", "label std", "paper", "mean", "std", *zero]
    common = {"label std": 1.0, "std": None, **zero}
    rows = [
        {"target": "triangle", "T": T, "size": size, "encoder": e, "paper": 0.5, "mean": T / 100 * len(e), **common}
        for T in (3, 4)
        for size in ("a", "b")
        for e in ("one", "three")
    ]
    rows.append({"target": "pair", "T": 7, "size": "a", "encoder": "one", "paper": None, "mean": 0.9, **common})
    rows[-1]["std"] = 0.1
    put(tmp_path / name / "paper", name, columns, rows)
    said = lab_tables.paper("infoflow", tmp_path)
    assert "| T | a printed | a one | a three | b printed | b one | b three | exponent (lower) |" in said
    assert "| 4 | 0.5 | 0.12 | 0.2 | 0.5 | 0.12 | 0.2 | 0 | 1 |\n" in said
    assert "| 7 | a | 1 | 0.9 ± 0.1 |  | 0 | 1 |\n" in said
    put(tmp_path / name / "paper", name, ["T"], [{"T": 3}])  # other columns: the rows as they are
    assert "| T |\n|---|\n| 3 |\n" in lab_tables.paper("infoflow", tmp_path)


@pytest.mark.usefixtures("unjudged")
def test_the_synthetic_table_by_heads(lab_tables: Any, tmp_path: Path) -> None:
    name = "head_count/synthetic"
    cells = [(8, 1, 16), (8, 2, 16), (32, 1, 16), (32, 2, 16), (32, 1, 4), (32, 2, 4)]
    rows = [{"T": T, "h": h, "N": N, "mean": float(T * h + N), "predicted": f"p{h}"} for T, h, N in cells]
    put(tmp_path / name / "paper", name, ["T", "h", "N", "mean", "predicted"], rows)
    said = lab_tables.paper("head_count", tmp_path)
    assert "| T | h = 1 | h = 2 |\n|---|---|---|\n| 8 | 24 | 32 |\n| 32 | 48 | 80 |\n| predicted | p1 | p2 |\n" in said
    assert "| N | h = 1 | h = 2 |\n|---|---|---|\n| 4 | 36 | 68 |\n| 16 | 48 | 80 |\n" in said


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"item": "infoflow/table12", "parts": [], "preset": "paper"}'])
def test_a_broken_result_stops_with_its_name(lab_tables: Any, tmp_path: Path, text: str) -> None:
    folder = tmp_path / "infoflow/table11/paper"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(text)
    with pytest.raises(SystemExit, match="expected a result of infoflow/table11, paper"):
        lab_tables.paper("infoflow", tmp_path)


def result_of(rows: list[dict[str, Any]], preset: str) -> dict[str, Any]:
    return {"rows": rows, "preset": preset}


@pytest.mark.parametrize(
    ("paper", "best", "verdict"),
    [
        (None, None, "not run"),
        (1e-5, None, "holds"),
        (1e-5, 1.0, "holds"),
        (1.0, 1e-5, "holds with a better recipe"),
        (None, 1e-5, "holds with our recipe; paper is not run"),
        (1.0, 1.0, "does not hold"),
    ],
)
def test_verdicts(paper: float | None, best: float | None, verdict: str) -> None:
    """(2,2) at the given error, the two others at 0.01: what Table 11 concludes of it."""
    results = {}
    for preset, mean in (("paper", paper), ("best", best)):
        if mean is not None:
            cells = (("(2,2)", mean), ("(1,2)", 0.01), ("(2,1)", 0.01))
            results[preset] = [(Path(), result_of([{"D": 2, "heads": h, "mean": m} for h, m in cells], preset))]
    said = list(verdicts(find("infoflow/table11"), results))
    assert {entry["verdict"] for entry in said} == {verdict}
    assert [entry["what"] for entry in said] == ["Table 11", "Figure 1a"]
