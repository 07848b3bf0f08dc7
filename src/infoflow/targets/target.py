"""Target: an outer map over extrema of scores. This is what is asked of a Transformer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import Score


@dataclass(frozen=True, eq=False)
class Extremum:
    """max or min over k-tuples (t_1..t_k) of positions of a score.

    `sets[v]`, when given, restricts t_v to those positions (0-based); `distinct` asks for pairwise different positions.
    Ties: the lexicographically first tuple wins.
    """

    score: Score
    kind: Literal["max", "min"] = "max"
    sets: tuple[tuple[int, ...] | None, ...] | None = None
    distinct: bool = False
    name: str = ""


@dataclass(frozen=True, eq=False)
class KthLargest:
    """The k-th largest of a linear functional of the tokens (k = 1 is the maximum)."""

    k: int
    direction: np.ndarray  # (d,)
    name: str = ""


@dataclass(frozen=True, eq=False)
class PositionSum:
    """x(p_1) + ... + x(p_m) for fixed 0-based positions: vector-valued, zero comparisons."""

    positions: tuple[int, ...]
    dim: int
    name: str = ""


Term = Extremum | KthLargest | PositionSum


@dataclass(frozen=True, eq=False)
class OuterNetwork:
    """An outer map given as a function, with the error it is stated to have and its sup-norm Lipschitz constant."""

    function: Callable[[Any], Any]  # (..., values) -> (..., outputs), numpy or torch
    lipschitz: float
    error: float = 0.0
    outputs: int = 1


@dataclass(frozen=True, eq=False)
class Target:
    """F(X) = outer(term values), X (..., T, d) -> (...) or (..., outputs) for a vector-valued target.

    `spelling` (`pairwise_max:D=4,d=4,seed=0`) is the identity of a named target: it is what files and results record.
    `domain` is the box the theorems speak of; `sampler` names the input law of the paper's experiments.
    """

    terms: tuple[Term, ...]
    outer: Polynomial | OuterNetwork
    dim: int
    spelling: str
    domain: tuple[float, float] = (-1.0, 1.0)
    sampler: str = "uniform"
