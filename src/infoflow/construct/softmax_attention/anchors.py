"""Interpolation points on [a, b] (Definition 3.3) and the two better grids.

| kind     | L_k                      | spacing     | sup over z of |nearest anchor - clip(z, a, b)| |
|----------|--------------------------|-------------|------------------------------------------------|
| paper    | a + k (b-a)/p            | (b-a)/p     | (b-a)/p, attained for every z >= b             |
| closed   | linspace(a, b, p)        | (b-a)/(p-1) | (b-a)/(2(p-1))                                 |
| midpoint | a + (k + 1/2) (b-a)/p    | (b-a)/p     | (b-a)/(2p)                                     |
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.errors import InfoFlowError, unknown

KINDS = ("paper", "closed", "midpoint")


@dataclass(frozen=True)
class Anchors:
    """p values in [a, b] at equal distances; `kind` says whether they begin at a, end at b, or sit in the middle of
    their cells."""

    a: float
    b: float
    p: int
    kind: str = "paper"

    def __post_init__(self) -> None:
        check_interval(self.a, self.b)
        if self.kind not in KINDS:
            raise unknown("anchor grid", self.kind, list(KINDS))
        if self.p < 2:
            raise InfoFlowError(f"expected at least two anchors, got p={self.p}; raise p.")

    @property
    def spacing(self) -> float:
        """The distance between neighbouring anchors."""
        return (self.b - self.a) / (self.p - 1 if self.kind == "closed" else self.p)

    @property
    def first(self) -> float:
        """The smallest anchor."""
        return self.a + self.spacing / 2 if self.kind == "midpoint" else self.a

    @property
    def interpolation_error(self) -> float:
        """The largest distance of a point of [a, b] from the anchor it is rounded to."""
        return self.spacing if self.kind == "paper" else self.spacing / 2

    def points(self, dtype: torch.dtype = torch.float64) -> Float[Tensor, " p"]:
        """All anchors in rising order."""
        return self.first + self.spacing * torch.arange(self.p, dtype=dtype)


def check_interval(a: float, b: float) -> None:
    """Refuse ends that are not finite or not in order."""
    if not (math.isfinite(a) and math.isfinite(b) and a < b):
        raise InfoFlowError(f"expected finite ends with a < b, got a={a}, b={b}; swap or widen the interval.")


def check_finite(name: str, values: Tensor) -> None:
    """Refuse a tensor with NaN or infinity and name its first such place."""
    bad = torch.nonzero(~torch.isfinite(values))
    if len(bad):
        place = tuple(int(index) + 1 for index in bad[0])
        raise InfoFlowError(
            f"expected finite numbers in {name}, got {values[tuple(bad[0])].item()} at position {place}; correct it."
        )
