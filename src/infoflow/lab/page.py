"""One self-contained page with the tables and figures of all items that were run."""

from pathlib import Path
from typing import Any

from infoflow.files import write_text
from infoflow.lab.item import cell
from infoflow.report.html import Section, page


def write_page(results: list[dict[str, Any]], out: Path, preset: str) -> Path:
    """Write index.html with every item that was run, and the reason where one was not."""
    done = [result for result in results if "skipped" not in result]
    minutes = sum(result["seconds"] for result in done) / 60
    lead = (
        f"Preset {preset}: {len(done)} of {len(results)} items, {minutes:.1f} minutes. "
        "Every number comes from the result.json in the item's folder."
    )
    sections = [_section(result) for result in results]
    return write_text(out / "index.html", page("The papers' tables and figures, again", lead, sections))


def _section(result: dict[str, Any]) -> Section:
    section = Section(result["title"])
    if "skipped" in result:
        return section.text(f"{result['item']}: not run: {result['skipped']}")
    section.text(f"{result['item']}: {result['protocol']} ({result['seconds']} s on {result['device']}).")
    columns = result["columns"]
    section.table(columns, [[cell(row.get(column)) for column in columns] for row in result["rows"]])
    for remark in result["remarks"]:
        section.text(remark)
    for name in result["figures"]:
        drawing = (Path(result["folder"]) / name).read_text(encoding="utf-8")
        words = name.removesuffix(".svg")
        section.drawing(f"{result['item']}-{words}", drawing[drawing.index("<svg") :], words.replace("_", " "))
    return section
