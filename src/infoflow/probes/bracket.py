"""Redundancy as a bracket: the sources each of which is necessary, and a set that suffices.

    necessary    {s : the effect of s alone is at least the threshold}
    sufficient   a set S whose complement, all drawn again at once, has an effect below the threshold

Of two copies of one value neither is necessary, and one of them is in every set that suffices; a mean over many tokens
has no necessary source and needs most of them. The smallest sufficient set cannot be found without trying all: we take
the sources by falling effect, the shortest beginning that suffices, then leave out each member that can be spared. What
comes out suffices and cannot be made smaller by one; it is an upper bound on the smallest.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from infoflow.probes.effects import Stage


@dataclass(frozen=True)
class Bracket:
    """0-based members, and the effect of drawing everything else again."""

    necessary: tuple[int, ...]
    sufficient: tuple[int, ...]
    left: float
    error: float

    def to_json(self) -> dict[str, Any]:
        return {
            "necessary": [s + 1 for s in self.necessary],
            "sufficient": [s + 1 for s in self.sufficient],
            "effect_of_the_rest": self.left,
            "standard_error": self.error,
        }


def bracket(stage: Stage, effect: np.ndarray, threshold: float) -> Bracket:
    """Of the output, with attention frozen; `effect` are the effects of single sources."""
    order = sorted(stage.sources, key=lambda s: -effect[s])
    necessary = tuple(sorted(s for s in order if effect[s] >= threshold))
    chosen = _shortest(stage, order, threshold)
    for member in reversed(chosen.copy()):
        rest = [s for s in stage.sources if s not in chosen or s == member]
        if len(chosen) > len(necessary) and member not in necessary and _joint(stage, rest)[0] < threshold:
            chosen.remove(member)
    left, error = _joint(stage, [s for s in stage.sources if s not in chosen])
    return Bracket(necessary, tuple(sorted(chosen)), left, error)


def _joint(stage: Stage, group: list[int]) -> tuple[float, float]:
    if not group:
        return 0.0, 0.0
    value, error = stage.joint([group], frozen=True)
    return float(value[0]), float(error[0])


def _shortest(stage: Stage, order: list[int], threshold: float) -> list[int]:
    """The shortest beginning of the order that suffices, by doubling and halving: effects fall along the order."""
    low, high = 0, 1
    if _joint(stage, order)[0] < threshold:
        return []
    while high < len(order) and _joint(stage, order[high:])[0] >= threshold:
        low, high = high, 2 * high
    high = min(high, len(order))
    while high - low > 1:
        middle = (low + high) // 2
        if _joint(stage, order[middle:])[0] >= threshold:
            low = middle
        else:
            high = middle
    return order[:high]
