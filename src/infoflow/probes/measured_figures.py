"""Drawings of measured information sets."""

from typing import TYPE_CHECKING, Any

import numpy as np

from infoflow.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from infoflow.probes.halving import LongFlow
    from infoflow.probes.measured import MeasuredFlow

FLOOR = 1e-5  # effects are drawn on a log axis from here on
COLOURS = {"used": style.COLOURS[0], "held": "#9ecae1", "nothing": "#f3f4f6"}


def draw_measured(flow: "MeasuredFlow") -> "Figure":
    """Above, one square per layer: which token's value is in which state, and whether the output uses it from there.
    Below, the effect of every token on the output, with attention frozen and free."""
    inner = range(1, flow.layers)
    rows = 2 if len(inner) else 1
    columns = max(1, len(inner))
    width = max(6.4, 3.4 * columns)
    made, axes = style.figure(
        width, 3.3 * (rows - 1) + 2.6, rows, columns, squeeze=False, gridspec_kw={"height_ratios": [3, 2][-rows:]}
    )
    for place, layer in enumerate(inner):
        _states(axes[0][place], flow, layer)
    grid = axes[-1][0].get_gridspec()
    for unused in axes[-1]:
        unused.remove()
    with style.settings():
        _output(made.add_subplot(grid[-1, :]), flow)
    made.suptitle(f"{flow.name}: whose value is where", fontsize=10, fontweight="bold")
    return made


def draw_long(flow: "LongFlow") -> "Figure":
    """The tokens of a long document whose values are in the output, by their effect."""
    made, axes = style.figure(8.0, 2.6)
    places = [s + 1 for s in flow.members]
    axes.vlines(places, FLOOR, flow.effect, color=style.COLOURS[0])
    axes.errorbar(places, flow.effect, flow.error, fmt="o", color=style.COLOURS[0], ecolor=style.MUTED, linewidth=0.7)
    axes.axhline(flow.threshold, color=style.INK, linewidth=0.9, linestyle="--", label="threshold")
    axes.set_yscale("log")
    axes.set_xlim(0, flow.T + 1)
    axes.set_xlabel(f"token (of {flow.T})")
    axes.set_ylabel("change of the output,\nas a share of its variance")
    axes.set_title(f"{flow.name}: the tokens whose values are in the output")
    axes.legend()
    return made


def _states(axes: Any, flow: "MeasuredFlow", layer: int) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    shown = flow.inside(layer, "held").astype(int)
    if flow.content.used is not None:
        shown = np.where(flow.inside(layer, "content"), 2, shown)
    T = flow.T
    axes.imshow(shown, cmap=ListedColormap([COLOURS[n] for n in ("nothing", "held", "used")]), vmin=0, vmax=2,
                extent=(0.5, T + 0.5, len(shown) + 0.5, 0.5), interpolation="nearest")  # fmt: skip
    names = ["in the state, but not used", "in the state, and used"]
    handles = [Patch(color=COLOURS[n], label=text) for n, text in zip(("held", "used"), names, strict=True)]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=1, fontsize=7.5, frameon=False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.set_title(f"behind layer {layer}")
    axes.set_xlabel("the token it comes from")
    axes.set_ylabel("the state of token" + (" (last: CLS)" if len(shown) > T else ""))
    axes.grid(False)


def _output(axes: Any, flow: "MeasuredFlow") -> None:
    places = np.arange(1, flow.T + 1)
    series = [("content: attention frozen", flow.content, style.COLOURS[0], -0.2)]
    if flow.free is not None:
        series.append(("attention free: it may also be chosen, or lose", flow.free, style.COLOURS[4], 0.2))
    width = 0.4 if len(series) > 1 else 0.8
    for name, found, colour, shift in series:
        shift = shift if len(series) > 1 else 0.0
        height = np.maximum(found.output, FLOOR)
        axes.bar(places + shift, height, width, color=colour, label=name, bottom=0)
        if flow.T <= 64:
            axes.errorbar(places + shift, height, found.output_error, fmt="none", ecolor=style.MUTED, linewidth=0.7)
    axes.axhline(flow.threshold.value, color=style.INK, linewidth=0.9, linestyle="--", label="threshold")
    axes.set_yscale("log")
    axes.set_ylim(FLOOR, None)
    axes.set_xlim(0.3, flow.T + 0.7)
    axes.set_xlabel("token that is drawn again")
    axes.set_ylabel("change of the output,\nas a share of its variance")
    axes.set_title("the output")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=3, fontsize=7.5)
