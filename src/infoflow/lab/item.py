"""An item of the lab: some tables and figures of a paper, three presets, and what a run of it leaves.

The presets mean the same in every item. `quick`: minutes on two cores, the shape of the conclusion. `paper`: what is
printed, or published as code, and nothing else; what is left unsaid is listed with what stands in for it, and so is
what is done otherwise. `best`: our recipe, every difference from print listed; an item without one has nothing better
than the paper's.

An item is a folder `lab/papers/<paper>/<item>/` with `item.py` (defines `ITEM`), the paper's printed numbers as
`printed.json`, and a README.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from infoflow.errors import InfoFlowError
from infoflow.files import write_json, write_text
from infoflow.provenance import noted, provenance
from infoflow.train.store import Result

Preset = Literal["quick", "paper", "best"]
PRESETS: tuple[Preset, ...] = get_args(Preset)
VALIDATION = "validation samples, on which the best epoch was chosen as well"
TEST = "test samples drawn once, which chose nothing"
LAST = "validation samples after the last step, which chose nothing"


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
        """Where finished runs are kept."""
        return self.out / "store"

    @property
    def quick(self) -> bool:
        """Whether the quick preset runs."""
        return self.preset == "quick"

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
    scored: str = ""  # what the numbers of these runs were measured on; empty: as the item says


Told = tuple[list[str], dict[str, Any]]  # remarks, figures by name


@dataclass(frozen=True)
class Judgement:
    """Whether a result bears out what the paper concludes, and the number that says so."""

    holds: bool
    number: str
    elsewhere: bool = False  # it speaks of another target than the one the paper names


@dataclass(frozen=True)
class Compared:
    """Which columns of a table name a row, and which hold the paper's number, ours and our spread."""

    keys: tuple[str, ...]
    value: str
    printed: str | None = None
    spread: str | None = None


@dataclass(frozen=True)
class Item:
    """Some tables and figures of a paper: how they are made again, and who judges what the paper concludes."""

    name: str  # "infoflow/table11"
    title: str
    concludes: Mapping[str, str]  # each table and figure it covers -> what the paper concludes from it
    quick: str  # the protocol of each preset in a line
    paper: str
    run: Callable[[Context], Outcome]
    judge: Callable[[dict[str, Any]], dict[str, Judgement]]  # what a result says of the conclusions it can speak of
    compared: Compared
    best: str = ""  # empty: there is no recipe of ours, and `best` is `paper`
    unsaid: tuple[str, ...] = ()  # what the paper leaves unsaid, and what `paper` does otherwise
    differences: tuple[str, ...] = ()  # of `best` from what is printed
    scored: str = TEST  # what the numbers were measured on
    data: str = ""  # which files `--data` must hold; empty: none
    parts: tuple[str, ...] = ()
    told: Callable[[dict[str, Any]], Told] | None = None  # remarks and figures that a recorded result alone makes
    preparations: tuple[str, ...] = ()  # parts that train nothing: they make a file that the others read

    def preset(self, asked: str) -> Preset:
        """The preset that runs where `asked` is asked for."""
        if asked not in PRESETS:
            raise InfoFlowError(f"expected preset {', '.join(PRESETS)}, got {asked!r}.")
        return "paper" if asked == "best" and not self.best else asked

    def protocol(self, preset: Preset) -> str:
        """What a preset does, in a line."""
        return {"quick": self.quick, "paper": self.paper, "best": self.best or self.paper}[preset]


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
    """A value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, float):
        if 0.99 <= abs(value) < 1:  # a share near one is read by what it lacks
            return f"{value:.4f}"
        return f"{value:.3g}" if value == 0 or 1e-2 <= abs(value) < 1e4 else f"{value:.2e}"
    return str(value)


def _device(run: Result) -> str:
    """Where a run was trained, which a call that only reads the store would not know."""
    return str(run.choice["device"]).partition(":")[0]


def draw(figures: Mapping[str, Any], folder: Path) -> list[str]:
    """Every figure as SVG, PDF and PNG; the names of the first."""
    from infoflow.lab.finish import finish
    from infoflow.report import style

    for name, figure in figures.items():
        finish(figure)
        style.save(figure, folder / name, formats=("svg", "pdf", "png"))
    return [f"{name}.svg" for name in figures]


def write(item: Item, context: Context, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """result.json, table.md and the figures (SVG, PDF, PNG), each written whole or not at all."""
    runs = list({run.key: run for run in outcome.runs}.values())  # two cells may share a model
    result = {
        "version": 1,
        "item": item.name,
        "title": item.title,
        "preset": context.preset,
        "parts": list(context.parts),
        "protocol": item.protocol(context.preset),
        "scored": outcome.scored or item.scored,
        "device": ", ".join(sorted({_device(run) for run in runs})) or context.device,
        "seconds": round(seconds, 1),
        "columns": outcome.columns,
        "rows": outcome.rows,
        "remarks": outcome.remarks,
        "figures": draw(outcome.figures, context.out),
        **outcome.extra,
        "models": len(runs),
        "training_seconds": sum(run.seconds / run.stacked for run in runs),  # a stack's are shared
        "runs": [run.key for run in runs],  # by which the store has them
        "trained": noted(context.store),
        "provenance": provenance(),
    }
    write_json(context.out / "result.json", result)
    write_text(context.out / "table.md", f"# {item.title} ({context.preset})\n\n{markdown(outcome)}")
    return result
