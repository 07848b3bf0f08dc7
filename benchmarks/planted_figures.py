"""Draw docs/figures/planted_*.svg from the recorded benchmarks/results/planted.json and planted_twins.json."""

import json
from pathlib import Path
from typing import Any

from infoflow.report import style

ROOT = Path(__file__).parent.parent
LEVELS = {"keeps the function": "none", "NMSE 0.0001": "1e-4", "NMSE 0.001": "1e-3", "NMSE 0.01": "1e-2"}


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def by_strength(payload: dict[str, Any]) -> None:
    """Scores against what the disguise leaves of the function, a panel per question, lines named at their end."""
    panels = (
        ("modes", "macro_f1", "Which mode has each head?", "macro-F1 (1 = all modes named right)"),
        ("edges", "f1", "Which head feeds which?", "F1 of the edges (1 = the whole wiring)"),
    )
    made, axes = style.figure(11.6, 4.9, columns=2)
    for axis, (task, key, title, label) in zip(axes, panels, strict=True):
        ends = []
        answering = [(name, tasks[task]) for name, tasks in payload["methods"].items() if task in tasks]
        for number, (name, found) in enumerate(answering):
            points = _points(found, key)
            if points:
                colour = style.COLOURS[number % len(style.COLOURS)]
                _line(axis, points, colour, style.MARKERS[number % len(style.MARKERS)], name.startswith("infoflow"))
                ends.append((points[-1][1]["value"], name, colour))
        _named(axis, ends)
        axis.set_title(title)
        axis.set_ylabel(label)
        axis.set_xticks(range(len(LEVELS)), list(LEVELS.values()))
        axis.set_xlim(-0.15, len(LEVELS) + 1.3)
        axis.set_xlabel("error that the disguise adds to the function (NMSE)")
        axis.set_ylim(0, 1.04)
    words = "thick: infoflow; bands: 95% intervals over 12 families of targets; number: at 1e-2"
    made.supxlabel(f"{payload['networks']} networks; {words}", fontsize=8)
    style.save(made, ROOT / "docs/figures/planted_methods", ("svg",))


def _points(found: dict[str, Any], key: str) -> list[tuple[int, dict[str, Any]]]:
    points = [(k, found[level][key]) for k, level in enumerate(LEVELS) if key in found.get(level, {})]
    return [(k, value) for k, value in points if value["value"] is not None]


def _line(axis: Any, points: list[tuple[int, dict[str, Any]]], colour: str, marker: str, own: bool) -> None:
    x, y = [k for k, _ in points], [value["value"] for _, value in points]
    axis.plot(x, y, marker=marker, color=colour, lw=2.8 if own else 1.2)
    low, high = zip(*(_span(value) for _, value in points), strict=True)
    axis.fill_between(x, low, high, color=colour, alpha=0.18 if own else 0.07, lw=0)


def _named(axis: Any, ends: list[tuple[float, str, str]], apart: float = 0.058) -> None:
    """Names right of the lines' ends, moved apart where they would overlap; from the top down."""
    place = 1.03 + apart
    for value, name, colour in sorted(ends, reverse=True):
        place = min(place - apart, value)
        axis.annotate(
            f"{name} {value:.2f}", (len(LEVELS) - 1, value), (len(LEVELS) - 0.75, place), color=colour, fontsize=7.5,
            va="center", arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5, "alpha": 0.6},
        )  # fmt: skip


def _span(found: dict[str, Any]) -> tuple[float, float]:
    """The interval, or the value alone where one family gives none."""
    low, high = found["interval"]
    return (found["value"], found["value"]) if low is None else (low, high)


def twins(payload: dict[str, Any]) -> None:
    """Agreement of every head of a construction with its trained match, beside untrained weights."""
    families = list(dict.fromkeys(twin["family"] for twin in payload["twins"]))
    bound = payload["found_from"]
    made, axis = style.figure(8.4, 0.9 + 0.5 * len(families) + 0.9)
    for row, family in enumerate(families):
        jobs = [job for twin in payload["twins"] if twin["family"] == family for job in twin["jobs"]]
        for key, colour, way in (("untrained", style.COLOURS[6], -1), ("trained", style.COLOURS[0], 1)):
            words = {"trained": "after training", "untrained": "untrained weights, by chance"}[key]
            values = [job[key] for job in jobs]
            heights = [row + way * (0.08 + lift) for lift in _piled(values)]
            axis.scatter(values, heights, s=12, color=colour, alpha=0.8, lw=0, label=None if row else words)
        found = sum(job["trained"] >= bound for job in jobs)
        axis.text(1.03, row, f"{found} of {len(jobs)}", va="center", fontsize=8)
    axis.axvline(bound, color=style.MUTED, lw=1, ls="--")
    axis.text(bound - 0.005, len(families) - 0.45, "counts as found from here", ha="right", va="bottom", fontsize=8)
    axis.text(1.03, len(families) - 0.45, "heads found", va="bottom", fontsize=8)
    axis.set_yticks(range(len(families)), families)
    axis.set_ylim(-0.6, len(families) - 0.1)
    axis.set_xlim(-0.01, 1.02)
    axis.set_xlabel("share of inputs on which a head looks where the construction's head looks (a dot: one head)")
    axis.set_title(f"Does training find the construction? {len(payload['twins'])} networks")
    axis.legend(loc="upper left", bbox_to_anchor=(0.0, -0.09), ncols=2, fontsize=8)
    style.save(made, ROOT / "docs/figures/planted_twins", ("svg",))


def _piled(values: list[float], wide: float = 0.015, step: float = 0.055, most: float = 0.34) -> list[float]:
    """How far up each dot goes so that dots of about one value do not cover each other."""
    seen: dict[int, int] = {}
    found = []
    for value in values:
        place = round(value / wide)
        found.append(min(step * seen.get(place, 0), most))
        seen[place] = seen.get(place, 0) + 1
    return found


def main() -> None:
    by_strength(recorded("planted"))
    twins(recorded("planted_twins"))


if __name__ == "__main__":
    main()
