"""The target as the search climbs it: extrema softened at a sharpness that grows, everything else as it is.

A soft extremum is (1/b) log sum_s exp(b rho_s), b = sharpness / spread of the scores, never below max(rho) and at most
log(number of tuples)/b above it.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.targets.target import Extremum, Target, Term

MOST_TUPLES = 20_000  # beyond this many tuples per sequence the extremum is climbed as it is


@dataclass(frozen=True)
class Surrogate:
    """`value` is the true target; `smooth(X, sharpness)` (one sharpness per sequence) is what is climbed.

    `noise` asks for gradients averaged over small perturbations, for targets whose kinks are not softened.
    """

    value: Callable[[Tensor], Tensor]
    smooth: Callable[[Tensor, Tensor], Tensor]
    noise: bool


def surrogate_of(target: Any, T: int) -> Surrogate:
    """A smooth stand-in for the target that the continuation can follow."""
    if not isinstance(target, Target):
        return Surrogate(target, lambda X, sharpness: target(X), noise=True)

    def value(X: Tensor) -> Tensor:
        return _scalar(target(X))

    terms: list[tuple[Extremum, Tensor, float]] = []
    for term in target.terms:
        positions = _tuples(term, T)
        if positions is None or not isinstance(term, Extremum):
            return Surrogate(value, lambda X, sharpness: value(X), noise=True)
        terms.append((term, positions, _spread(term, target.domain)))

    def smooth(X: Tensor, sharpness: Tensor) -> Tensor:
        values = [_soft(term, X, positions, sharpness / spread) for term, positions, spread in terms]
        return _scalar(target.outer(torch.stack(values, -1)))

    return Surrogate(value, smooth, noise=False)


def _scalar(y: Tensor) -> Tensor:
    """A vector-valued target is refuted in its first coordinate: a gap there is a gap."""
    return y[..., 0] if y.ndim == 2 else y


def _tuples(term: Term, T: int) -> Tensor | None:
    """All position tuples an extremum runs over, (tuples, k); None for other terms and for too many tuples."""
    if not isinstance(term, Extremum):
        return None
    choices = [positions.tolist() for positions in term.choices(T)]
    if math.prod(map(len, choices)) > MOST_TUPLES:
        return None
    rows = [row for row in itertools.product(*choices) if not term.distinct or len(set(row)) == term.arity]
    return torch.tensor(rows)


def _spread(term: Extremum, domain: tuple[float, float]) -> float:
    """Standard deviation of the score over the box, the unit in which sharpness is counted."""
    generator = torch.Generator().manual_seed(0)
    low, high = domain
    tokens = torch.rand(512, term.score.arity, term.score.dim, generator=generator, dtype=torch.float64)
    return max(float(term.score(low + (high - low) * tokens).std()), 1e-9)


def _soft(term: Extremum, X: Float[Tensor, "B T d"], positions: Tensor, b: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    scores = term.score(X[:, positions, :])  # (B, tuples)
    sign = 1.0 if term.kind == "max" else -1.0
    return sign * torch.logsumexp(sign * b[:, None] * scores, -1) / b
