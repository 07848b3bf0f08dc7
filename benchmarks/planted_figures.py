"""Draw docs/figures/planted_*.svg from the recorded benchmarks/results/planted.json and planted_twins.json."""

import json
from pathlib import Path
from typing import Any

from infoflow.report import style

ROOT = Path(__file__).parent.parent
LEVELS = {"keeps the function": "kept", "NMSE 0.0001": "1e-4", "NMSE 0.001": "1e-3", "NMSE 0.01": "1e-2"}


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def by_strength(payload: dict[str, Any]) -> None:
    """Scores against what the disguise leaves of the function, a panel per question."""
    panels = (
        ("modes", "macro_f1", "Which mode has each head? (macro-F1)"),
        ("edges", "f1", "Which head feeds which? (F1)"),
    )
    made, axes = style.figure(9.6, 4.4, columns=2, sharey=True)
    for axis, (task, key, title) in zip(axes, panels, strict=True):
        answering = [(name, tasks) for name, tasks in payload["methods"].items() if task in tasks]
        for number, (name, tasks) in enumerate((n, t) for n, t in answering if key in next(iter(t[task].values()))):
            found = tasks.get(task, {})
            points = [(k, found[level][key]) for k, level in enumerate(LEVELS) if key in found.get(level, {})]
            points = [(k, value) for k, value in points if value["value"] is not None]
            if points:
                own = name.startswith("infoflow")
                colour = style.COLOURS[number % len(style.COLOURS)]
                x, y = [k for k, _ in points], [value["value"] for _, value in points]
                marker = style.MARKERS[number % len(style.MARKERS)]
                axis.plot(x, y, marker=marker, color=colour, label=name, lw=2.6 if own else 1.2)
                if own:
                    low = [
                        value["interval"][0] if value["interval"][0] is not None else value["value"]
                        for _, value in points
                    ]
                    high = [
                        value["interval"][1] if value["interval"][1] is not None else value["value"]
                        for _, value in points
                    ]
                    axis.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
        axis.set_title(title)
        axis.set_xticks(range(len(LEVELS)), list(LEVELS.values()))
        axis.set_xlabel("error the disguise adds to the function (NMSE)")
        axis.set_ylim(0, 1.04)
        axis.legend(loc="center right", bbox_to_anchor=(1.0, 0.72), fontsize=7)
    axes[0].set_ylabel("score (1 = the planted truth)")
    style.save(made, ROOT / "docs/figures/planted_methods", ("svg",))


def _span(found: dict[str, Any]) -> tuple[float, float]:
    """The interval, or the value alone where one family gives none."""
    low, high = found["interval"]
    return (found["value"], found["value"]) if low is None else (low, high)


def twins(payload: dict[str, Any]) -> None:
    """Agreement of every head of a construction with its trained match, beside untrained weights."""
    families = list(dict.fromkeys(twin["family"] for twin in payload["twins"]))
    made, axis = style.figure(8.0, 0.5 + 0.36 * len(families) + 0.9)
    for row, family in enumerate(families):
        jobs = [job for twin in payload["twins"] if twin["family"] == family for job in twin["jobs"]]
        for key, colour, lift in (("untrained", style.COLOURS[6], -0.14), ("trained", style.COLOURS[0], 0.14)):
            label = {"trained": "trained", "untrained": "untrained weights"}[key] if row == 0 else None
            axis.scatter(
                [job[key] for job in jobs], [row + lift] * len(jobs), s=26, color=colour, alpha=0.7, label=label
            )
    axis.axvline(payload["found_from"], color=style.MUTED, lw=1, ls="--")
    axis.text(
        payload["found_from"] - 0.005, len(families) - 0.4, "counts as found", ha="right", va="bottom", fontsize=8
    )
    axis.set_yticks(range(len(families)), families)
    axis.set_ylim(-0.6, len(families) + 0.1)
    axis.set_xlim(0, 1.02)
    axis.set_xlabel("share of inputs on which a head looks where the construction's head looks (a dot: one head)")
    axis.set_title("Does training find the construction?")
    axis.legend(loc="upper left", bbox_to_anchor=(0.0, -0.14), ncols=2, fontsize=8)
    style.save(made, ROOT / "docs/figures/planted_twins", ("svg",))


def main() -> None:
    by_strength(recorded("planted"))
    twins(recorded("planted_twins"))


if __name__ == "__main__":
    main()
