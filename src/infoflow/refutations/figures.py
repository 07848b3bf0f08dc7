"""The picture of a collision: two sequences that differ, two states that do not, two targets that do."""

from typing import TYPE_CHECKING, Any

import numpy as np

from infoflow.refutations.collision import Collision
from infoflow.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def collision_figure(found: Collision) -> "Figure":
    """Y and Z as pictures (positions from 1 on), their states side by side, their targets."""
    made, axes = style.figure(8.0, 4.6, rows=2, columns=2)
    limit = float(max(np.abs(found.Y).max(), np.abs(found.Z).max()))
    for axis, X, name in ((axes[0, 0], found.Y, "Y"), (axes[0, 1], found.Z, "Z")):
        image = tokens_image(axis, X, f"sequence {name}", limit)
    made.colorbar(image, ax=axes[0, :], shrink=0.8, label="value of the coordinate")
    _states(axes[1, 0], found)
    _targets(axes[1, 1], found)
    return made


def tokens_image(axis: Any, X: np.ndarray, title: str, limit: float) -> Any:
    """A sequence as a picture: a column a token, positions from 1 on."""
    T, d = X.shape
    image = axis.imshow(X.T, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, extent=(0.5, T + 0.5, d + 0.5, 0.5))
    axis.set(title=title, xlabel="position", ylabel="coordinate", yticks=range(1, d + 1))
    axis.grid(False)
    return image


def _states(axis: Any, found: Collision) -> None:
    places = np.arange(1, found.state_dim + 1)
    axis.plot(places, found.state_Y, "o", markersize=8, fillstyle="none", label="R(Y)")
    axis.plot(places, found.state_Z, "x", label="R(Z)")
    axis.set(title=f"states, {found.state_distance:.1g} apart", xlabel="coordinate of the state")
    axis.margins(y=0.15)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _targets(axis: Any, found: Collision) -> None:
    axis.barh(["Z", "Y"], [found.target_Z, found.target_Y], color=[style.COLOURS[1], style.COLOURS[0]], height=0.5)
    proved = found.certified_error is not None
    half = found.certified_error if found.certified_error is not None else found.gap / 2
    said = f"some error is at least {half:.3g}, {'proved' if proved else 'numerical'}"
    axis.set(title=f"targets, {found.gap:.3g} apart", xlabel=f"value of the target ({said})")
