"""Drawings of the framework: the information flow of one input (Figure 5 for any input)."""

from typing import TYPE_CHECKING, Any

import numpy as np

from infoflow.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from infoflow.flow.trace import Flow

LABELLED = 12  # up to this many tokens every set is written out
MOST_LINES = 4096  # idle retrieval lines drawn at most
PLATE = {"boxstyle": "round,pad=0.15", "facecolor": style.PAPER, "edgecolor": "none", "alpha": 0.9}  # under a label


def draw_flow(flow: "Flow") -> "Figure":
    """Columns are positions (the CLS last), rows are layers; a line leads from a winner to the one that retrieved it.

    In colour: what the CLS ends up knowing. Ringed: the active positions. Long sequences keep the same picture with
    small dots, and only the sets of the CLS are written. A legend under the picture says what the colours mean.
    """
    small = flow.T <= LABELLED
    width = 1.05 * (flow.T + 2) if small else 11.0
    columns = 2 if width >= 8.0 else 1  # of the legend
    made, axes = style.figure(max(width, 5.2), 1.25 * (flow.layers + 1) + 1.1 + 0.35 * (2 - columns))
    useful = _useful(flow)
    _lines(axes, flow, useful)
    _dots(axes, flow, useful, small)
    _labels(axes, flow, small)
    axes.set_ylim(flow.layers + 0.65, -0.55)
    axes.set_xlim(0.3, _column(flow, flow.T + 1) + (0.9 if small else 0.06 * flow.T))
    axes.set_yticks(range(flow.layers + 1), [f"layer {l}" for l in range(flow.layers + 1)])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(f"{flow.target.spelling}   heads {','.join(map(str, flow.arch.heads))}   T={flow.T}")
    made.legend(handles=_meanings(), loc="outside lower center", ncols=columns, frameon=False)
    return made


def _meanings() -> list[Any]:
    """What each colour stands for."""
    from matplotlib.lines import Line2D

    ring: Any = {"marker": "o", "markersize": 8, "markerfacecolor": "none", "markeredgewidth": 2.0, "linestyle": "none"}
    return [
        Line2D([], [], color=style.COLOURS[0], linewidth=1.4, label="read by a head, and reaches the CLS in the end"),
        Line2D([], [], color=style.COLOURS[4], linewidth=1.4, label="kept by the token itself, and reaches the CLS"),
        Line2D([], [], color="#c3c8d0", linewidth=1.4, label="read by a head, but not used in the end"),
        Line2D([], [], color=style.COLOURS[1], label="active: the target changes with this token", **ring),
    ]


def _column(flow: "Flow", position: int) -> float:
    return position if position <= flow.T else flow.T + 1 + (0.3 if flow.T <= LABELLED else 0.04 * flow.T)


def _useful(flow: "Flow") -> list[set[int]]:
    """Per layer the positions whose state reaches the CLS of the last layer."""
    reached: list[set[int]] = [set() for _ in range(flow.layers + 1)]
    reached[flow.layers].add(flow.T + 1)
    for l in range(flow.layers, 0, -1):
        for position in reached[l]:
            reached[l - 1].add(position)
            reached[l - 1] |= set(_sources(flow, position, l))
    return reached


def _sources(flow: "Flow", position: int, layer: int) -> list[int]:
    """Positions of the layer before whose sets were joined."""
    if flow.mode(position, layer) == "global":
        return list(range(1, flow.T + 1))
    if flow.mode(position, layer) == "specific":
        heads = [slot.cls for slot in flow.slots[layer - 1]]
        return [p + 1 for head in heads for p in getattr(head, "positions", ())]
    return [w for w in flow.winners(position, layer) if w is not None]


def _lines(axes: Any, flow: "Flow", useful: list[set[int]]) -> None:
    from matplotlib.collections import LineCollection

    idle: list[Any] = []
    bright: list[Any] = []
    own: list[Any] = []
    for l in range(1, flow.layers + 1):
        for position in range(1, flow.T + 2):
            end = (_column(flow, position), l)
            path = [((_column(flow, source), l - 1), end) for source in _sources(flow, position, l)]
            (bright if position in useful[l] else idle).extend(path)
            if position in useful[l] and flow.members(position, l - 1):
                own.append(((_column(flow, position), l - 1), end))
    idle = idle[:: max(1, -(-len(idle) // MOST_LINES))]
    axes.add_collection(LineCollection(idle, colors=style.FAINT, linewidths=0.8 if flow.T <= 64 else 0.35, zorder=1))
    axes.add_collection(LineCollection(own, colors=style.COLOURS[4], linewidths=1.2, zorder=2))
    axes.add_collection(LineCollection(bright, colors=style.COLOURS[0], linewidths=1.4, zorder=3))


def _dots(axes: Any, flow: "Flow", useful: list[set[int]], small: bool) -> None:
    for l in range(flow.layers + 1):
        shown = [t for t in range(1, flow.T + 2) if l < flow.layers or t == flow.T + 1]
        bright = [t for t in shown if t in useful[l] and flow.members(t, l)]
        dull = [t for t in shown if t not in set(bright)]
        area = 330.0 if small else max(2.0, 1600.0 / flow.T)
        axes.scatter([_column(flow, t) for t in dull], [l] * len(dull), s=area, c="#c3c8d0", zorder=4)
        area = 330.0 if small else max(26.0, area)
        axes.scatter([_column(flow, t) for t in bright], [l] * len(bright), s=area, c=style.COLOURS[0], zorder=5)
    active = np.flatnonzero(flow.active) + 1
    ring = {"s": 330.0 if small else 60.0, "facecolors": "none", "edgecolors": style.COLOURS[1], "linewidths": 2.0}
    axes.scatter(active, np.zeros(len(active)), zorder=6, **ring)


def _labels(axes: Any, flow: "Flow", small: bool) -> None:
    for l in range(flow.layers + 1):
        shown = range(1, flow.T + 2) if small and l < flow.layers else [flow.T + 1]
        for t in shown:
            name = "CLS" if t == flow.T + 1 else str(t)
            if small:
                axes.text(_column(flow, t), l, name, ha="center", va="center", color="white", fontsize=8, zorder=7)
            members = flow.members(t, l)
            text = "∅" if not members else "{" + _short(members) + "}"
            side = "center" if small else "right"  # a long list of the last column stays inside the picture
            axes.text(_column(flow, t), l + 0.33, text, ha=side, va="center", fontsize=7.5, bbox=PLATE, zorder=7)
    if not small:
        axes.set_xticks([1, *range(flow.T // 4, flow.T + 1, max(1, flow.T // 4)), _column(flow, flow.T + 1)])
        axes.set_xticklabels([1, *range(flow.T // 4, flow.T + 1, max(1, flow.T // 4)), "CLS"])
    else:
        axes.set_xticks([])


def _short(members: tuple[int, ...], most: int = 6) -> str:
    return ",".join(map(str, members[:most])) + (f",… {len(members)}" if len(members) > most else "")
