"""How a result looks: one line in a console, text and picture in a notebook, everything under `print`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Shown:
    """Gives a class whose `str()` is a readable text a short `repr()` and a view for notebooks.

    The first line of the text is its headline. Where the class has a `figure()`, the notebook shows it, too.
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {str(self).partition(chr(10))[0]}>"

    def _repr_html_(self) -> str:
        from infoflow.report.html import card

        drawn: Any = getattr(self, "figure", None)
        made: Figure | None = drawn() if callable(drawn) else None
        return card(str(self), made)


def columns(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Left-aligned columns, two spaces apart."""
    cells = [[str(item) for item in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(item.ljust(width) for item, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)
