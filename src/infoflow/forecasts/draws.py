"""What a family of targets is: a way to draw one from a random generator."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from infoflow.targets import Target


@dataclass(frozen=True)
class Drawn:
    """A target with the spelling that makes it again, and how many heads a layer might use (its number of extrema)."""

    target: Target
    heads: int
    positions: bool = False  # the target names positions, so the network needs a position code


Family = Callable[[np.random.Generator], Drawn]


def seed_of(rng: np.random.Generator) -> int:
    """A seed for a named target, of the kind a person types."""
    return int(rng.integers(100, 10**6))
