"""Terms: the numbers (or vectors) an outer map is applied to. Each finds its winning positions and its value there."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from infoflow import arguments
from infoflow.arguments import number
from infoflow.errors import InfoFlowError
from infoflow.targets.arrays import (
    Array,
    broadcast,
    concatenate,
    detach,
    dot,
    indices,
    is_torch,
    like,
    on_host,
    order,
    stack,
    sum_of_tokens,
    two_largest,
)
from infoflow.targets.norm_search import search_in_c, smallest_triples
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import CallableScore, NormOfSum, Score, TreeScore, differentiate, tree_form
from infoflow.targets.search import best_at, best_distinct_tuples, best_of_all_tuples, best_tuples

# Measured on one core: features of pairs, pairs of a search for three, tuples one by one.
PAIRS_A_SECOND, TRIPLES_A_SECOND, TUPLES_A_SECOND = 2e8, 7e7, 3e6
MOST_SHIFT = 1024  # positions between a winner and what is read there
MOST_POWER = 30  # tuples of more tokens take for ever from T = 2 on; floats have an end
Sets = tuple[tuple[int, ...] | slice | None, ...]


@dataclass(frozen=True, eq=False)
class Extremum:
    """max or min over k-tuples (t_1..t_k) of positions of a score.

    `sets[v]`, when given, restricts t_v to those positions (0-based; a slice counts from the end where it is negative:
    slice(-1, None) is the last position); `distinct` asks for pairwise different positions.
    Ties: the lexicographically first tuple wins.
    """

    score: Score
    kind: Literal["max", "min"] = "max"
    sets: Sets | None = None
    distinct: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("max", "min"):
            raise InfoFlowError(f"expected kind 'max' or 'min', got {self.kind!r}.")
        if self.sets is not None:
            if not isinstance(self.sets, (tuple, list)):
                raise InfoFlowError(f"expected position sets as a tuple, got {arguments.shown(self.sets)}.")
            if len(self.sets) != self.arity:
                raise InfoFlowError(f"expected {self.arity} position sets (or None), got {len(self.sets)}.")
            if any(isinstance(s, slice) and s.step not in (None, 1) for s in self.sets):
                raise InfoFlowError("expected slices of positions with step 1, got another step.")
            sets = tuple(s if s is None or isinstance(s, slice) else _position_set(s) for s in self.sets)
            object.__setattr__(self, "sets", sets)

    @property
    def arity(self) -> int:
        """Tokens of a tuple."""
        return self.score.arity

    @property
    def dim(self) -> int:
        """Coordinates of a token."""
        return self.score.dim

    @property
    def values(self) -> int:
        """One."""
        return 1

    def choices(self, T: int) -> tuple[np.ndarray, ...]:
        """The sorted positions each vertex may take."""
        return tuple(np.asarray(positions, dtype=np.int64) for positions in self.ranges(T))

    def ranges(self, T: int) -> tuple[Sequence[int], ...]:
        """The same without an array of T numbers where all positions are allowed."""
        every = slice(None)
        sets = [every if s is None else s for s in self.sets or (None,) * self.arity]
        return tuple(range(*s.indices(T)) if isinstance(s, slice) else s for s in sets)

    def check_length(self, T: int) -> None:
        """Refuse a length at which a restricted vertex has no position."""
        for positions in self.ranges(T):
            if not positions or max(positions[0], positions[-1]) >= T:
                got = f"position {positions[-1] + 1}" if positions else "an empty one"
                raise InfoFlowError(f"expected position sets within 1..{T}, got {got}; take a longer sequence.")
        if self.distinct and self.arity > T:
            raise InfoFlowError(f"expected T >= {self.arity}, the number of different positions of a tuple, got T={T}.")
        if self.distinct and self.sets is not None and not _matching(self.choices(T)):
            raise InfoFlowError("expected position sets that admit a tuple of different positions, these admit none.")

    def search_seconds(self, T: int) -> float:
        """How long the winners of one input take, roughly: every pair of an edge, every tuple of a score without a
        tree; the smallest sum of three looks at T^2 pairs in the plane and at more of the T^3 tuples in space."""
        score = self.score
        if isinstance(score, TreeScore):
            return self.arity * score.dim * T * (T if self.arity > 1 else 1) / PAIRS_A_SECOND
        if isinstance(score, NormOfSum) and score.arity == 3 and self.kind == "min" and self.sets is None:
            return T**2 * min(T, 8 ** (score.dim - 2) if score.dim < 16 else T) / TRIPLES_A_SECOND
        return float(min(T, 10**9) ** min(self.arity, MOST_POWER) / TUPLES_A_SECOND)

    def winners(self, X: Array) -> Array:
        """X (B, T, d) -> (B, k), the lexicographically first best tuple."""
        if is_torch(X) and X.device.type == "cpu" and not isinstance(self.score, CallableScore):
            return indices(self.winners(on_host(X)), X)  # a search is many small steps, in which numpy is faster
        sign = 1 if self.kind == "max" else -1
        score = self.score
        if isinstance(score, TreeScore):
            best = best_distinct_tuples if self.distinct else best_tuples
            return best(score, X, sign, self.mask(X))[0]
        if isinstance(score, NormOfSum) and score.arity == 3 and sign < 0 and self.sets is None:
            found = search_in_c(on_host(X), self.distinct)  # faster than the array search, GPUs included
            return smallest_triples(score, X, self.distinct) if found is None else indices(found, X)
        return best_of_all_tuples(score, X, sign, self.choices(X.shape[1]), self.distinct)[0]

    def mask(self, X: Array) -> Array:
        """(1, k, T), true where a vertex may stand."""
        allowed = np.zeros((1, self.arity, X.shape[1]), dtype=np.int64)
        for vertex, choice in enumerate(self.choices(X.shape[1])):
            allowed[0, vertex, choice] = 1
        return indices(allowed, X) > 0

    def value(self, tokens: Array) -> Array:
        """Tokens at the winning positions (..., k, d) -> (..., 1)."""
        return self.score(tokens)[..., None]

    def gradient(self, tokens: Array) -> Array:
        """(..., k, d) -> d value / d token as (..., values, k, d)."""
        return self.score.gradient(tokens)[..., None, :, :]


@dataclass(frozen=True, eq=False)
class ValueAtExtremum:
    """value(x(t_v + shift)) at the tuple (t_1..t_k) that wins an extremum: recall, lookup, induction. Vector-valued.

    With `shift` the token that is read stands that many positions behind the winner (before it, where negative).
    It jumps where two tuples tie, so no continuous network is near it everywhere. What is certified speaks of inputs
    on which the winner leads by `margin` at least: the best score of a tuple with t_v = t* exceeds the best score of
    every tuple with another t_v by that much (`lead`).
    """

    extremum: Extremum
    read: Polynomial  # of one token
    vertex: int = 0
    margin: float = 0.1
    name: str = ""
    shift: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", arguments.integer("shift", self.shift, -MOST_SHIFT, MOST_SHIFT))
        if tree_form(self.extremum.score) is None or (self.extremum.distinct and self.arity > 2):
            raise InfoFlowError("expected a score that is a sum over a tree (with distinct: over pairs), got another.")
        if not 0 <= self.vertex < self.arity or self.read.inputs != self.dim:
            raise InfoFlowError(
                f"expected a vertex below {self.arity} and a map of tokens of dimension {self.dim}, "
                f"got vertex {self.vertex} and a map of dimension {self.read.inputs}."
            )
        object.__setattr__(self, "margin", number("margin", self.margin, above=0))

    @property
    def arity(self) -> int:
        """Tokens of a tuple."""
        return self.extremum.arity

    @property
    def dim(self) -> int:
        """Coordinates of a token."""
        return self.extremum.dim

    @property
    def values(self) -> int:
        """Numbers that are read."""
        return self.read.outputs

    def check_length(self, T: int) -> None:
        """Refuse a length at which a restricted vertex has no position."""
        self.extremum.check_length(T)
        positions = self.extremum.ranges(T)[self.vertex]  # sorted, and a range where T is large
        first, last = positions[0], positions[-1]
        if not (first + self.shift >= 0 and last + self.shift < T):
            raise InfoFlowError(
                f"expected position sets whose every position p has a token at p{self.shift:+d} among T={T}, "
                f"got positions {first + 1} to {last + 1}; leave out the ends."
            )

    def search_seconds(self, T: int) -> float:
        """About how long the search of one sequence takes."""
        return self.extremum.search_seconds(T)

    def winners(self, X: Array) -> Array:
        """The winning tuple, and behind it the position that is read, where that is another."""
        found = self.extremum.winners(X)
        if not self.shift:
            return found
        return concatenate([found, found[:, self.vertex : self.vertex + 1] + self.shift], -1)

    @property
    def _place(self) -> int:
        """Where in `winners` the position that is read stands."""
        return self.arity if self.shift else self.vertex

    def value(self, tokens: Array) -> Array:
        """What is read there."""
        return self.read(tokens[..., self._place, :])

    def gradient(self, tokens: Array) -> Array:
        """d value / d token: not zero at the token that is read alone; the others only choose."""
        at = tokens[..., self._place, :]
        slope = stack([self.read.derivative(i)(at) for i in range(self.dim)], -1)  # (..., values, d)
        return stack([slope if v == self._place else 0 * slope for v in range(tokens.shape[-2])], -2)

    def lead(self, X: Array) -> Array:
        """X (B, T, d) -> (B,): by how much the best score with the winning t_v exceeds the best with another t_v."""
        tree = tree_form(self.extremum.score)
        assert tree is not None
        sign = 1 if self.extremum.kind == "max" else -1
        scores = best_at(tree, X, sign, self.extremum.mask(X), self.vertex, self.extremum.distinct)
        best, second = two_largest(scores)
        return best - second


@dataclass(frozen=True, eq=False)
class KthLargest:
    """The k-th largest of a linear functional of the tokens (k = 1 is the maximum); equal values count in the order
    of their positions."""

    k: int
    direction: np.ndarray  # (d,)
    name: str = ""

    def __post_init__(self) -> None:
        direction = arguments.array("the direction", self.direction)
        object.__setattr__(self, "k", arguments.integer("k", self.k))
        if direction.ndim != 1 or not np.isfinite(direction).all() or not direction.any():
            raise InfoFlowError(f"expected k >= 1 and a finite non-zero direction (d,), got k={self.k}, {direction}.")
        object.__setattr__(self, "direction", direction)

    @property
    def arity(self) -> int:
        """One token."""
        return 1

    @property
    def dim(self) -> int:
        """Coordinates of a token."""
        return int(self.direction.shape[0])

    @property
    def values(self) -> int:
        """One."""
        return 1

    def check_length(self, T: int) -> None:
        """Refuse sequences of fewer than k tokens."""
        if self.k > T:
            raise InfoFlowError(f"expected T >= k={self.k} for the {self.k}-th largest, got T={T}.")

    def search_seconds(self, T: int) -> float:
        """About how long the search of one sequence takes."""
        return self.dim * T / PAIRS_A_SECOND

    def winners(self, X: Array) -> Array:
        """The place of the k-th largest in each sequence."""
        falling = order(-dot(detach(X), like(self.direction, X)))
        return falling[:, self.k - 1 : self.k]

    def value(self, tokens: Array) -> Array:
        """Its coordinate along the direction."""
        return dot(tokens, like(self.direction, tokens))

    def gradient(self, tokens: Array) -> Array:
        """The direction, for every token."""
        return broadcast(like(self.direction, tokens), tuple(tokens.shape))[..., None, :, :]


@dataclass(frozen=True, eq=False)
class PositionSum:
    """x(p_1) + ... + x(p_m) for fixed 0-based positions: vector-valued, zero comparisons."""

    positions: tuple[int, ...]
    dim: int
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "positions", _position_set(self.positions))

    @property
    def arity(self) -> int:
        """Positions that are summed."""
        return len(self.positions)

    @property
    def values(self) -> int:
        """One number a coordinate."""
        return self.dim

    def check_length(self, T: int) -> None:
        """Refuse sequences that end before the last position."""
        if self.positions[-1] >= T:
            raise InfoFlowError(f"expected positions within 1..{T}, got position {self.positions[-1] + 1}.")

    def search_seconds(self, T: int) -> float:
        """About how long the sum of one sequence takes."""
        return self.arity * self.dim / TUPLES_A_SECOND

    def winners(self, X: Array) -> Array:
        """The positions, whatever the tokens are."""
        return broadcast(indices(self.positions, X), (X.shape[0], self.arity))

    def value(self, tokens: Array) -> Array:
        """The sum of the tokens there."""
        return sum_of_tokens(tokens)

    def gradient(self, tokens: Array) -> Array:
        """One, for every token and coordinate of its own."""
        unit = like(np.eye(self.dim), tokens)[:, None, :]  # (values, 1, d)
        return broadcast(unit, (*tokens.shape[:-2], self.dim, self.arity, self.dim))


@dataclass(frozen=True, eq=False)
class WholeSequence:
    """Any function of the whole sequence, (..., T, d) -> (...) or (..., values): nobody wins, any token may matter."""

    function: Callable[[Any], Any]
    dim: int
    values: int = 1
    name: str = ""

    @property
    def arity(self) -> int:
        """The sequence counts as one token."""
        return 1  # at least; `targets.estimates` says more

    def check_length(self, T: int) -> None:
        """Any length."""

    def search_seconds(self, T: int) -> float:
        """About how long one sequence takes."""
        return self.dim * T / TUPLES_A_SECOND

    def winners(self, X: Array) -> Array:
        """Every position."""
        return broadcast(indices(np.arange(X.shape[1]), X), (X.shape[0], X.shape[1]))

    def value(self, tokens: Array) -> Array:
        """The function of the sequence, checked for its shape."""
        lead = tuple(tokens.shape[:-2])
        values = self.function(tokens)
        if self.values == 1 and tuple(values.shape) == lead:
            return values[..., None]
        if tuple(values.shape) != (*lead, self.values):
            wanted = lead if self.values == 1 else (*lead, self.values)
            raise InfoFlowError(
                f"expected the function to map {tuple(tokens.shape)} to {wanted}, got {tuple(values.shape)}."
            )
        return values

    def gradient(self, tokens: Array) -> Array:
        """By automatic differentiation, in torch."""

        def output(j: int) -> Callable[[Array], Array]:
            return lambda x: self.value(x)[..., j]

        return stack([differentiate(output(j), tokens) for j in range(self.values)], -3)


Term = Extremum | KthLargest | PositionSum | ValueAtExtremum | WholeSequence


def _position_set(positions: tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(positions, (str, bytes)) or not isinstance(positions, Iterable):
        raise InfoFlowError(f"expected positions as a tuple of integers, got {arguments.shown(positions)}.")
    found = tuple(sorted({arguments.integer("a position", p, 0) for p in positions}))
    if not found:
        raise InfoFlowError("expected at least one position in a position set, got an empty one.")
    return found


def _matching(choices: tuple[np.ndarray, ...]) -> bool:
    """Whether the vertices can take pairwise different positions (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(vertex: int, tried: set[int]) -> bool:
        for position in choices[vertex].tolist():
            if position not in tried:
                tried.add(position)
                if position not in owner or place(owner[position], tried):
                    owner[position] = vertex
                    return True
        return False

    return all(place(vertex, set()) for vertex in range(len(choices)))
