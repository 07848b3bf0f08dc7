"""The picture of a trained network's certificate: how wrong it can be at most, how wrong it was seen, and where."""

from typing import TYPE_CHECKING, Any

import numpy as np

from infoflow.certificates import Certificate
from infoflow.refutations.figures import tokens_image
from infoflow.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 64  # positions of the worst input that are drawn


def certificate_figure(certificate: Certificate) -> "Figure":
    """Left the largest error proved and the one attained, right the input that attains it (positions from 1 on)."""
    made, (numbers, tokens) = style.figure(8.0, 2.9, columns=2)
    _bracket(numbers, certificate)
    if certificate.worst is None:
        tokens.set_axis_off()
        tokens.set_title("no input is kept")
    else:
        made.colorbar(_worst(tokens, np.array(certificate.worst)), ax=tokens, shrink=0.9, label="value")
    return made


def _bracket(axis: Any, certificate: Certificate) -> None:
    share = certificate.claim.least
    names = ("proved, at least", "counted") if share else ("proved, at most", "attained by an input")
    rows = [(name, value) for name, value in zip(names, (certificate.bound, certificate.attacked), strict=True)]
    for place, (name, value) in enumerate(rows):
        axis.barh(place, value or 0.0, color=style.COLOURS[place], height=0.55)
        axis.annotate(f" {name}: {'no bound' if value is None else f'{value:.4g}'}", (0.0, place + 0.42))
    axis.set(yticks=[], ylim=(1.8, -0.4), xlim=(0.0, None), xlabel=certificate.claim.quantity)
    axis.set_title("the truth lies between")
    axis.invert_yaxis()


def _worst(axis: Any, X: np.ndarray) -> Any:
    X = X[:LONGEST]
    return tokens_image(axis, X, "the input that attains it", float(np.abs(X).max()) or 1.0)
