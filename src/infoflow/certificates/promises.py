"""Attacks on what somebody stated and nobody proved: a pair of points that a Lipschitz constant does not allow."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

STEPS = 10.0 ** -np.arange(1, 6)  # lengths of the steps, in shares of the range of the points
SLACK = 1e-9  # share of the values: far above the rounding of a function in float64


def steeper(
    function: Callable[[Any], Any],
    points: Float[np.ndarray, "k n"],
    constant: float,
    rng: np.random.Generator,
    box: tuple[Any, Any] | None = None,
    euclidean: bool = False,
    rounds: int = 4,
) -> str | None:
    """A pair with |f(x) - f(y)| > constant |x - y| in words, or None when no step from the points shows one.

    The norm of x - y is the largest entry, or the Euclidean one; of f the largest entry. Steps stay in the box where
    there is one. Every round starts from the steepest places of the last.
    """
    spread = float(np.ptp(points, axis=0).max(initial=0.0)) or 1.0
    here = points
    for _ in range(rounds):
        steps = rng.choice(STEPS, size=(len(here), 1)) * spread
        away = here + steps * rng.uniform(-1.0, 1.0, size=here.shape)
        away = away if box is None else np.clip(away, *box)
        before, after = (np.asarray(_numbers(function(x))).reshape(len(here), -1) for x in (here, away))
        change = np.abs(after - before).max(1)
        norms = np.linalg.norm(away - here, axis=1) if euclidean else np.abs(away - here).max(1)
        size = np.abs(before).max(1) + np.abs(after).max(1)
        slopes = change / np.maximum(norms, 1e-300)
        broken = change > constant * norms + SLACK * (size + constant * norms)
        if broken.any():
            at = int(np.where(broken, slopes, -np.inf).argmax())
            return f"a slope of {slopes[at]:.6g} where at most {constant:g} was stated"
        here = np.repeat(here[np.argsort(-slopes)[: max(len(here) // 4, 1)]], 4, axis=0)
    return None


def _numbers(values: Any) -> Any:
    return values.detach().numpy() if hasattr(values, "detach") else values
