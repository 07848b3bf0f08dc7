"""How a result looks: one line in a console, text and picture in a notebook, sections in a page of its own.

A page is self-contained: sections of text, tables, inline figures. All that is not a figure is escaped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from infoflow.files import write_text
from infoflow.report.style import svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Figures are drawn in ink on paper, so in the dark they keep a light card; what is too wide for a phone scrolls alone.
STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --paper: #fff; --muted: #6b7280; --line: #e5e7eb; --plate: #f6f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ec; --paper: #15181e; --muted: #a0a7b4; --line: #343a46; --plate: #1f242d; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 56rem;
  margin: 3rem auto; padding: 0 1.25rem; overflow-wrap: break-word; }
h1 { font-size: 1.9rem; line-height: 1.2; margin-bottom: .25rem; }
h2 { font-size: 1.25rem; margin-top: 2.75rem; border-top: 1px solid var(--line); padding-top: 1.25rem; }
.lead { color: var(--muted); margin-top: 0; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: left; padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td:last-child { min-width: 10rem; }
td.whole { min-width: 0; white-space: nowrap; }
th { color: var(--muted); font-weight: 600; }
pre { background: var(--plate); padding: .9rem 1rem; overflow-x: auto; border-radius: 6px; font-size: .85rem;
  line-height: 1.45; }
figure { margin: 1.5rem 0; }
figure .drawing { overflow-x: auto; background: #fff; border-radius: 6px; padding: .5rem; }
figure svg { max-width: 100%; min-width: 30rem; height: auto; }
figcaption { color: var(--muted); font-size: .9rem; }
@media (max-width: 30rem) { body { margin: 1.25rem auto; padding: 0 .9rem; } }
@media print { figure svg { min-width: 0; } }
"""


@dataclass
class Section:
    """One part of a report. The pieces appear in the order they were added."""

    title: str
    pieces: list[str] = field(default_factory=list)
    figures: list[tuple[str, "Figure"]] = field(default_factory=list)  # (file name without suffix, figure)
    summary: list[str] = field(default_factory=list)  # what a terminal prints of this part

    def text(self, words: str) -> "Section":
        """Add a paragraph."""
        self.pieces.append(f"<p>{escape(words)}</p>")
        return self

    def code(self, words: str) -> "Section":
        """Add text as it is."""
        self.pieces.append(f"<pre>{escape(words)}</pre>")
        return self

    def table(self, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> "Section":
        """Add a table."""
        cells = "".join(f"<th>{escape(str(name))}</th>" for name in head)
        body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
        whole = f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
        self.pieces.append(f'<div class="table">{whole}</div>')
        return self

    def figure(self, name: str, made: "Figure", caption: str) -> "Section":
        """Put the figure inline; `name` is also the file it is saved under beside the report."""
        self.figures.append((name, made))
        return self.drawing(name, svg(made), caption)

    def drawing(self, name: str, element: str, caption: str) -> "Section":
        """Put an `<svg>` element of our own making inline."""
        self.pieces.append(
            f'<figure role="img" aria-label="{escape(caption, quote=True)}"><div class="drawing">'
            f"{_unique_ids(element, name)}</div><figcaption>{escape(caption)}</figcaption></figure>"
        )
        return self


def card(text: str, made: "Figure | None" = None) -> str:
    """A text, and a figure under it, as a notebook shows them: in the notebook's own colours, the figure on white."""
    words = f'<pre style="line-height: 1.35">{escape(text)}</pre>'
    if made is None:
        return words
    drawing = svg(made)
    name = f"f{crc32(drawing.encode()):08x}"  # two figures of a notebook have ids of their own
    return f'{words}<div style="background: #fff; overflow-x: auto">{_unique_ids(drawing, name)}</div>'


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole page: no script, no link, nothing fetched from anywhere."""
    body = "".join(f"<section><h2>{escape(part.title)}</h2>{''.join(part.pieces)}</section>" for part in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f'<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>{body}</body></html>\n'
    )


def write(path: str | Path, title: str, lead: str, sections: Sequence[Section]) -> Path:
    """Write a whole page, or nothing."""
    return write_text(path, page(title, lead, sections))


def _cell(item: Any) -> str:
    """A short number such as 8.1e-03 is never broken at its hyphen."""
    text = str(item)
    whole = ' class="whole"' if len(text) < 12 and " " not in text else ""
    return f"<td{whole}>{escape(text)}</td>"


def _unique_ids(drawing: str, name: str) -> str:
    """Prefix the ids of one drawing, so that clip paths of several drawings on a page do not mix."""
    from re import sub

    prefix = "".join(letter if letter.isalnum() else "-" for letter in name)
    drawing = sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', drawing)
    drawing = sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', drawing)
    return sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", drawing)


class Shown:
    """Gives a class whose `str()` is a readable text a short `repr()` and a view for notebooks.

    The first line of the text is its headline. Where the class has a `figure()`, the notebook shows it, too.
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {str(self).partition(chr(10))[0]}>"

    def _repr_html_(self) -> str:
        drawn: Any = getattr(self, "figure", None)
        made: Figure | None = drawn() if callable(drawn) else None
        return card(str(self), made)


def columns(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Left-aligned columns, two spaces apart."""
    cells = [[str(item) for item in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(item.ljust(width) for item, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)
