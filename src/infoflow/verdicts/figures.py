"""Drawings of verdicts: exponents against the length."""

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from infoflow.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_exponents(lengths: list[int], series: dict[str, list[Fraction | None]], title: str) -> "Figure":
    """Exponents against T on a logarithmic axis; a length that no set serves is left out of its line."""
    made, axes = style.figure(6.4, 3.6)
    for number, (name, values) in enumerate(series.items()):
        shown = np.array([float("nan") if value is None else float(value) for value in values])
        axes.plot(lengths, shown, label=name, marker=style.MARKERS[number % len(style.MARKERS)], clip_on=False)
    axes.set_xscale("log", base=2)
    if axes.get_ylim()[1] > 1:
        axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(0, max(1.0, 1.2 * axes.get_ylim()[1]))  # an exponent is never below 0
    axes.set_xlabel("sequence length T")
    axes.set_ylabel("exponent (parameters $\\varepsilon^{-\\mathrm{exponent}}$)")
    axes.set_title(title)
    if len(lengths) <= 12:
        axes.set_xticks(lengths, [str(T) for T in lengths])
        axes.minorticks_off()
    axes.legend(frameon=False)
    return made
