"""Several results as one thing: a table, a picture, a file of columns."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infoflow.files import write_text
from infoflow.report.shown import Shown
from infoflow.train.store import Result, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("target", "arch", "T", "seed", "best", "final", "measure", "status", "steps", "rollbacks", "seconds", "key")
MOST_LINES = 12  # of the models that are printed


class Results(list[Result], Shown):
    """What `fit` returns: a list of results that can be printed, drawn and written."""

    __repr__ = Shown.__repr__

    def __str__(self) -> str:
        if not self:
            return "no results"
        total = summary(self)
        numbers = "no finite error" if total.median is None else f"median {total.median:.2e}"
        lines = [f"{len(self)} models, {self[0].measure.upper()}: {numbers}, {total.failed} failed"]
        lines += [f"  {result}" for result in self[:MOST_LINES]]
        return "\n".join([*lines, *([f"  and {len(self) - MOST_LINES} more"] if len(self) > MOST_LINES else [])])

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each model; a table library takes them as they are (polars.DataFrame(results.rows()))."""
        return [{name: _cell(result, name) for name in COLUMNS} for result in self]

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows as CSV; `.txt`, `.csv` or any other name."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        writer.writerows(self.rows())
        return write_text(path, text.getvalue())

    def figure(self) -> "Figure":
        """The error of every model against the steps."""
        from infoflow.report.style import COLOURS, figure

        made, axes = figure()
        for number, result in enumerate(self):
            points = [(step, error) for step, error in zip(result.curve_steps, result.curve, strict=True) if error]
            steps, errors = zip(*points, strict=True) if points else ((), ())
            axes.plot(steps, errors, color=COLOURS[number % len(COLOURS)], label=f"seed {result.seed}")
        axes.set(
            yscale="log", xlabel="steps", ylabel=f"{self[0].measure.upper()} on validation samples" if self else ""
        )
        if len(self) <= MOST_LINES:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        return made

    def plot(self, path: str | Path) -> list[Path]:
        """Write the figure as `path.svg` and `path.png`."""
        from infoflow.report.style import save

        return save(self.figure(), path)


def _cell(result: Result, name: str) -> Any:
    if name == "target":
        return result.identity.get("target") or result.identity.get("task", {}).get("name")
    return result.identity[name] if name in ("arch", "T") else getattr(result, name)
