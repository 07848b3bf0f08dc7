"""Corollary 1 of the head-count paper: the intrinsic dimension D of a retrieval target, the heads it asks for, and
which other dimensions the same target cannot have.

With h >= D heads eps takes order eps^-gamma parameters (gamma: the rate of the feed-forward blocks), with h < D heads
at least order eps^-k(h), k(h) = (T/4 - h - D + 1) / ((n + 1) h + 1) - 1. A second representation of dimension D' would
make the smaller of the two enough: with D_1 < D_2, D_1 heads would cost eps^-gamma by the one and eps^-k by the other.
That is a contradiction where k > gamma, which D_1^2 + D_2^2 <= T/50 alone does not give for every gamma.
"""

from dataclasses import dataclass
from fractions import Fraction

from infoflow import arguments
from infoflow.verdicts.bounds import head_count_exponent


@dataclass(frozen=True)
class Intrinsic:
    """What a target of intrinsic dimension D costs a one-layer network with heads of size n at length T."""

    D: int
    T: int
    head_dim: int
    gamma: Fraction

    @property
    def heads(self) -> int:
        """As many make the cost independent of T."""
        return self.D

    def exponent(self, heads: int) -> Fraction:
        """eps takes order eps^-exponent parameters: at most with D heads and more, at least with fewer.

        A negative exponent of the lower bound says nothing, and gamma is what is left.
        """
        arguments.integer("heads", heads)
        if heads >= self.D:
            return self.gamma
        return max(self.gamma, head_count_exponent(self.T, heads, self.D, self.head_dim))

    def excludes(self, D: int) -> bool:
        """Whether Corollary 1 forbids the same target a representation of dimension `D`."""
        arguments.integer("D", D)
        if D == self.D or 50 * (D**2 + self.D**2) > self.T:
            return False
        small, large = sorted((D, self.D))
        return head_count_exponent(self.T, small, large, self.head_dim) > self.gamma

    def excluded(self) -> tuple[int, ...]:
        """The dimensions that Corollary 1 excludes at this length."""
        return tuple(D for D in range(1, self.T) if 50 * D**2 <= self.T and self.excludes(D))


def intrinsic(D: int, T: int, head_dim: int = 2, gamma: Fraction | int = 1) -> Intrinsic:
    """Heads and cost of a target with intrinsic dimension D; `gamma` is the rate of its feed-forward blocks."""
    for name, value in (("D", D), ("T", T), ("head_dim", head_dim)):
        arguments.integer(name, value)
    return Intrinsic(D, T, head_dim, Fraction(gamma))
