"""An item of the lab: one table or figure of a paper, with a quick and a full preset, and what a run of it leaves.

An item is a folder `lab/papers/<paper>/<item>/` with `item.py` (defines `ITEM`), the paper's printed numbers as
`printed.json`, and a README that says what the paper leaves unsaid and what was chosen.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from infoflow.errors import InfoFlowError
from infoflow.files import write_json, write_text
from infoflow.provenance import noted, provenance
from infoflow.train.store import Result

Preset = Literal["quick", "full"]


@dataclass(frozen=True)
class Context:
    """How an item is asked to run. `store` keeps finished runs, so a stopped item goes on where it stopped."""

    preset: Preset
    out: Path
    device: str = "cpu"
    engine: str = "local"
    data: Path | None = None  # folder of licensed or large data that the project never ships
    parts: tuple[str, ...] = ()  # some items run in pieces: "D=2"; empty: all of it
    seconds: float | None = None  # stop training cleanly after this long; the same call goes on later

    @property
    def store(self) -> Path:
        return self.out / "store"

    def file(self, item: str, *names: str) -> Path:
        """A data file the item needs, or one sentence about which and where."""
        for name in names:
            if self.data is not None and (self.data / name).is_file():
                return self.data / name
        came = f"--data {self.data}" if self.data else "no --data"
        raise InfoFlowError(
            f"expected the file {' or '.join(names)} for {item}, got {came}; pass --data FOLDER that holds it."
        )


@dataclass
class Outcome:
    """Rows of the table (paper and ours side by side), every run behind them, figures by name, remarks."""

    columns: list[str]
    rows: list[dict[str, Any]]
    runs: list[Result] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)  # name -> matplotlib Figure
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    name: str  # "infoflow/table11"
    title: str
    quick: str  # what the quick preset makes smaller
    full: str  # the protocol of the full preset
    run: Callable[[Context], Outcome]
    data: str = ""  # which files `--data` must hold; empty: none
    parts: tuple[str, ...] = ()
    preparations: tuple[str, ...] = ()  # parts that train nothing: they make a file that the others read


def printed(package: str) -> dict[str, Any]:
    """The paper's own numbers, data beside the item's code."""
    payload: dict[str, Any] = json.loads(files(package).joinpath("printed.json").read_text(encoding="utf-8"))
    return payload


def markdown(outcome: Outcome) -> str:
    """The table as Markdown, then the remarks."""
    lines = ["| " + " | ".join(outcome.columns) + " |", "|" + "---|" * len(outcome.columns)]
    lines += ["| " + " | ".join(cell(row.get(column)) for column in outcome.columns) + " |" for row in outcome.rows]
    return "\n".join([*lines, "", *[f"- {remark}" for remark in outcome.remarks], ""])


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}" if value == 0 or 1e-2 <= abs(value) < 1e4 else f"{value:.2e}"
    return str(value)


def _device(run: Result) -> str:
    """Where a run was trained, which a call that only reads the store would not know."""
    return str(run.choice["device"]).partition(":")[0]


def write(item: Item, context: Context, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """result.json, table.md and the figures (SVG, PDF, PNG), each written whole or not at all."""
    from infoflow.lab.finish import finish
    from infoflow.report import style

    figures = []
    for name, figure in outcome.figures.items():
        finish(figure)
        style.save(figure, context.out / name, formats=("svg", "pdf", "png"))
        figures.append(f"{name}.svg")
    result = {
        "version": 1,
        "item": item.name,
        "title": item.title,
        "preset": context.preset,
        "parts": list(context.parts),
        "protocol": item.full if context.preset == "full" else item.quick,
        "device": ", ".join(sorted({_device(run) for run in outcome.runs})) or context.device,
        "seconds": round(seconds, 1),
        "columns": outcome.columns,
        "rows": outcome.rows,
        "remarks": outcome.remarks,
        "figures": figures,
        **outcome.extra,
        "models": len(outcome.runs),
        "training_seconds": sum(run.seconds / run.stacked for run in outcome.runs),  # a stack's are shared
        "runs": [run.key for run in outcome.runs],  # by which the store has them
        "trained": noted(context.store),
        "provenance": provenance(),
    }
    write_json(context.out / "result.json", result)
    write_text(context.out / "table.md", f"# {item.title} ({context.preset})\n\n{markdown(outcome)}")
    return result
