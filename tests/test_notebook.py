"""docs/tour.ipynb is the tour as a notebook: the same cells, and they run and print what is stored."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
nbformat = pytest.importorskip("nbformat", reason="notebooks need the extra docs")
pytest.importorskip("nbclient", reason="notebooks need the extra docs")
FACTOR = 10  # training and searches bounded by time differ between machines


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


notebook, reader = module(ROOT / "docs" / "notebook.py"), module(ROOT / "tests" / "pages.py")


def stored() -> Any:
    return nbformat.read(ROOT / "docs" / "tour.ipynb", as_version=4)


def printed(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def test_it_has_the_cells_of_the_tour() -> None:
    assert [cell.source for cell in stored().cells] == [cell.source for cell in notebook.made().cells]


def test_it_names_no_machine() -> None:
    text = (ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8")
    assert str(Path.home()) + "/" not in text
    assert "/tmp/" not in text


def test_it_runs_and_prints_what_is_stored(tmp_path: Path) -> None:
    before, after = stored(), notebook.execute(notebook.made(), str(tmp_path))
    for old, new in zip(before.cells, after.cells, strict=True):
        if old.cell_type == "code":
            wanted = "\n".join("..." if "built in" in line else line for line in printed(old).splitlines())
            assert reader.agrees(wanted, printed(new), FACTOR), printed(new)
            assert [output.output_type for output in old.outputs] == [output.output_type for output in new.outputs]
