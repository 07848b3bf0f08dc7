"""The picture of a forecast: error against steps, with its band."""

from pathlib import Path
from typing import TYPE_CHECKING

from infoflow.report.style import COLOURS, figure, save

if TYPE_CHECKING:
    from infoflow.forecasts.forecast import Forecast


def forecast_figure(found: "Forecast", path: Path) -> list[Path]:
    made, axes = figure()
    steps, middle, low, high = zip(*found.curve, strict=True)
    axes.fill_between(steps, low, high, color=COLOURS[0], alpha=0.18, linewidth=0, label="eight in ten")
    axes.plot(steps, middle, color=COLOURS[0], label="forecast")
    axes.plot([found.steps], [found.nmse], "o", color=COLOURS[1], label="this recipe")
    axes.axhline(found.parts.floor, color=COLOURS[6], linestyle="--", label="least error of the reduced problem")
    axes.set(xscale="log", yscale="log", xlabel="steps", ylabel="NMSE")
    axes.set_title(f"{found.target}, {found.arch}, T={found.T}")
    axes.legend()
    return save(made, path)
