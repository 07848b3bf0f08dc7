"""Figures of a probe: the layer-by-head map, the costs of the modes, the joint path, recovery by rank."""

from typing import TYPE_CHECKING, Any

from infoflow.probes.intervene import Interventions, JointPath
from infoflow.probes.modes import LABELS, HeadMode
from infoflow.probes.recovery import Recovered
from infoflow.report.style import COLOURS, FAINT, INK, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The three mechanisms in strong colours; named cases of position share its family.
COLOUR = {
    "max": COLOURS[1],
    "top": COLOURS[4],
    "global": COLOURS[0],
    "position": COLOURS[2],
    "self": "#66c2a4",
    "previous": "#41ae76",
    "next": "#99d8c9",
    "sink": COLOURS[3],
    "mixed": "#c7c9cc",
}


def head_map(heads: list[HeadMode]) -> "Figure":
    """One cell per head: the colour is the label, the number the score that gave it."""
    layers = 1 + max(head.layer for head in heads)
    width = 1 + max(head.head for head in heads)
    made, axes = figure(max(4.0, 0.55 * width + 2.2), max(1.8, 0.42 * layers + 0.9))
    for head in heads:
        score = max(head.scores[name] for name in ("max", "top", "global", "position", "sink"))
        shown = head.scores[head.label] if head.label != "mixed" else score
        axes.add_patch(_cell(head.head, head.layer, COLOUR[head.label]))
        axes.text(head.head, head.layer, f"{shown:.2f}"[1:] if shown < 1 else "1", ha="center", va="center", fontsize=7)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(layers - 0.5, -0.5), xlabel="head", ylabel="layer")
    axes.set_xticks(range(width), [str(i + 1) for i in range(width)])
    axes.set_yticks(range(layers), [str(l + 1) for l in range(layers)])
    axes.grid(False)
    used = [label for label in LABELS if any(head.label == label for head in heads)]
    axes.legend(
        handles=[_cell(0, 0, COLOUR[label], label) for label in used], loc="center left", bbox_to_anchor=(1.01, 0.5)
    )
    return made


def _cell(column: int, row: int, colour: str, label: str | None = None) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=1.5, label=label)


def cost_bars(found: Interventions) -> "Figure":
    """What forcing all heads into one mode costs, with intervals."""
    costs = list(found.all_heads().values())
    made, axes = figure(5.6, 0.42 * len(costs) + 1.2)
    rows = range(len(costs))
    errors = [[c.cost - c.low for c in costs], [c.high - c.cost for c in costs]]
    axes.barh(rows, [c.cost for c in costs], xerr=errors, color=COLOURS[0], ecolor=INK, height=0.62)
    axes.set_yticks(rows, [c.mode for c in costs])
    axes.invert_yaxis()
    axes.set_xlabel(f"cost of forcing every head ({found.unit})")
    axes.grid(axis="y", visible=False)
    return made


def joint_curve(path: JointPath) -> "Figure":
    """Heads forced against joint cost on held-out documents."""
    made, axes = figure(5.6, 3.2)
    x = range(1, len(path.points) + 1)
    axes.fill_between(x, [p.low for p in path.points], [p.high for p in path.points], color=FAINT)
    axes.plot(x, [p.cost for p in path.points], color=INK, linewidth=1.0)
    for mode in dict.fromkeys(p.mode for p in path.points):
        rows = [(n, p.cost) for n, p in zip(x, path.points, strict=True) if p.mode == mode]
        label = {"hardmax": "max", "uniform": "global"}.get(mode, mode)
        axes.scatter(*zip(*rows, strict=True), s=16, color=COLOUR.get(label, COLOURS[6]), label=mode, zorder=3)
    axes.set(xlabel="heads forced", ylabel=f"joint cost ({path.unit})")
    axes.legend()
    return made


def recovery_bars(rows: list[Recovered]) -> "Figure":
    """(56) by layer for each rank, averaged over heads."""
    layers = sorted({row.layer for row in rows})
    ranks = list(dict.fromkeys(row.rank for row in rows))
    made, axes = figure(5.6, 3.0)
    for number, rank in enumerate(ranks):
        means = []
        for layer in layers:
            errors = [row.error for row in rows if row.layer == layer and row.rank == rank]
            means.append(sum(errors) / len(errors))
        name = {1: "largest score", 2: "second largest", "random": "random key"}.get(rank, f"rank {rank}")
        axes.plot([l + 1 for l in layers], means, marker="o", label=name, color=COLOURS[number % len(COLOURS)])
    axes.set(xlabel="layer", ylabel="recovery error (56)", ylim=(0, None))
    axes.set_xticks([l + 1 for l in layers])
    axes.legend()
    return made
