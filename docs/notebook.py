"""Make docs/tour.ipynb from docs/tour.md: its text, its code and commands as cells, executed.

Run: python docs/notebook.py (half a minute on two cores). A test executes the notebook again.
"""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).parent
NOTEBOOK = HERE / "tour.ipynb"
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
SHOWN = """## In a notebook

Whatever a verb returns shows itself: predictions, plans, flows, certificates, results and probes."""
VIEWS = (
    'iflow.predict(F, "heads=2", T=8)',
    "iflow.plan(F, T=8)",
    'iflow.trace(F, "heads=2 embed=2", F.sample(1, 8, seed=0)[0])',
    "iflow.build(F, T=8, eps=0.01).certificate",
    "two",
)


def cells(page: str) -> list[Any]:
    """Text, python and commands in order; what a page says is printed is left out, for a notebook prints it."""
    made, last = [], 0
    for match in FENCE.finditer(page):
        language, code = match.groups()
        made += [text_cell(page[last : match.start()])]
        last = match.end()
        if language == "python":
            made.append(new_code_cell(code.strip()))
        elif language == "console":
            commands = [line[2:] for line in code.splitlines() if line.startswith("$ ")]
            made.append(new_code_cell("\n".join(["%%bash", *commands])))
    text = page[last:].replace("- The same tour [as a notebook](tour.ipynb).\n", "")
    views = [new_code_cell(code) for code in VIEWS]
    place = text.index("## Where to go")
    made += [text_cell(text[:place]), new_markdown_cell(SHOWN), *views, text_cell(text[place:])]
    return [cell for cell in made if cell.source]


def text_cell(text: str) -> Any:
    return new_markdown_cell(text.strip())


def made() -> Any:
    """The notebook without outputs; the ids of its cells count."""
    book = new_notebook(cells=cells((HERE / "tour.md").read_text(encoding="utf-8")))
    for number, cell in enumerate(book.cells):
        cell.id = f"cell-{number}"
    book.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    return book


def execute(book: Any, folder: str) -> Any:
    """Run the cells in `folder`, with this Python's commands; progress is not kept."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    client = NotebookClient(book, timeout=600, record_timing=False, resources={"metadata": {"path": folder}})
    client.execute()
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return book


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        book = execute(made(), folder)
    nbformat.write(book, NOTEBOOK)


if __name__ == "__main__":
    main()
