"""The picture of a forecast: error against steps, with its band."""

from typing import TYPE_CHECKING

from infoflow.report.style import COLOURS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from infoflow.forecasts.forecast import Forecast


def forecast_figure(found: "Forecast") -> "Figure":
    made, axes = figure()
    if found.curve:  # a pilot speaks of its own number of steps alone
        steps, middle, low, high = zip(*found.curve, strict=True)
        axes.fill_between(steps, low, high, color=COLOURS[0], alpha=0.18, linewidth=0, label="eight in ten")
        axes.plot(steps, middle, color=COLOURS[0], label="forecast")
    ends = [[found.nmse - found.low], [found.high - found.nmse]]
    axes.errorbar([found.steps], [found.nmse], ends, fmt="o", color=COLOURS[1], capsize=3, label="this recipe")
    if found.parts.has_floor:
        axes.axhline(found.parts.floor, color=COLOURS[6], linestyle="--", label="floor of these reads")
    axes.set(xscale="log", yscale="log", xlabel="steps", ylabel="NMSE")
    axes.set_title(f"{found.target}, T={found.T}\n{found.arch}", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return made
