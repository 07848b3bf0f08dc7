"""One self-contained page with the tables and figures of all items that were run."""

from pathlib import Path
from typing import Any

from infoflow.files import write_text
from infoflow.lab.item import cell
from infoflow.report.html import Section, page


def write_page(results: list[dict[str, Any]], out: Path, preset: str) -> Path:
    sections = [_section(result) for result in results]
    lead = f"Preset {preset}. Every number comes from the result.json beside its figure."
    return write_text(out / "index.html", page("The papers' tables and figures, again", lead, sections))


def _section(result: dict[str, Any]) -> Section:
    section = Section(result.get("title", result["item"]))
    if "skipped" in result:
        return section.text(f"Not run: {result['skipped']}.")
    section.text(f"{result['item']}: {result['protocol']} ({result['seconds']} s on {result['device']}).")
    columns = result["columns"]
    section.table(columns, [[cell(row.get(column)) for column in columns] for row in result["rows"]])
    for remark in result["remarks"]:
        section.text(remark)
    for name in result["figures"]:
        drawing = (Path(result["folder"]) / name).read_text(encoding="utf-8")
        section.drawing(name.removesuffix(".svg"), drawing[drawing.index("<svg") :], name)
    return section
