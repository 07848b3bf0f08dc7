"""Information sets for one input (Section 5.1 of the InfoFlow paper), bit-packed: the update rule, layer by layer.

I(t, 0) = {t}, I(T+1, 0) = {}; for l = 1..L, simultaneously from the old state (in the last layer the CLS alone moves),

    I(t, l) = I(t, l-1)  u  union over the heads of   I(s*, l-1),  s* = argmax_{s in K(t)} score(t, s)     max-position
                                                      union_{s in K(t)} I(s, l-1)                          global
                                                      union_{j in I'(t) n K(t)} I(j, l-1)                  specific.

Keys K(t) are the tokens 1..T, never the CLS; under a causal mask {1..t} for a token and all of them for the CLS. A set
is a row of 64-bit words, position p at bit p mod 64 of word p // 64.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from jaxtyping import Float, Int, UInt64

from infoflow.errors import InfoFlowError

Ties = Literal["first", "last", "all"]
Packed = UInt64[np.ndarray, "positions words"]
Rows = UInt64[np.ndarray, "rows words"]
TOLERANCE = 1e-12  # scores this close, relative to the best, tie
BLOCK = 1 << 16  # scores held at once: 512 KB, so that they stay in the cache between the passes


@dataclass
class LayerInput:
    """What the heads of a layer may look at: tokens, the sets before the layer, the best scores remembered so far."""

    X: Float[np.ndarray, "T d"]
    sets: Packed
    best: dict[Hashable, Float[np.ndarray, " T"]] = field(default_factory=dict)

    @property
    def T(self) -> int:
        """Tokens."""
        return len(self.X)

    def members(self, position: int) -> tuple[int, ...]:
        """The set of a 0-based position (T is the CLS), 0-based and sorted."""
        return unpack(self.sets[position])


RowScores = Callable[[Int[np.ndarray, " rows"]], Float[np.ndarray, "rows T"]]


@dataclass(frozen=True)
class MaxHead:
    """Max-position retrieval. `scores(state)(rows)` gives (rows, T) for 0-based query positions, T being the CLS; -inf
    forbids a key, and a query without a key retrieves nothing.

    With `name`, the best score of every token is kept in `state.best[name]`: the message later layers build on.
    """

    scores: Callable[[LayerInput], RowScores]
    name: Hashable | None = None
    mode: Literal["max"] = "max"


@dataclass(frozen=True)
class GlobalHead:
    """Global aggregation: every key's set."""

    mode: Literal["global"] = "global"


@dataclass(frozen=True)
class PositionHead:
    """Specific position aggregation: the sets of fixed 0-based positions."""

    positions: tuple[int, ...]
    mode: Literal["specific"] = "specific"


FlowHead = MaxHead | GlobalHead | PositionHead


@dataclass(frozen=True)
class Slot:
    """One head of one layer: what it does for the tokens and for the CLS; None leaves the set as it was."""

    tokens: FlowHead | None = None
    cls: FlowHead | None = None


@dataclass(frozen=True)
class LayerSets:
    """One layer carried out: the sets behind it, per head the first winner of every position (-1: none), and the best
    scores remembered up to here, which later heads build on."""

    sets: Packed
    winners: Int[np.ndarray, "positions heads"]
    best: dict[Hashable, Float[np.ndarray, " T"]] = field(default_factory=dict)


def set_score(function: Callable[..., float]) -> Callable[[LayerInput], RowScores]:
    """A score A(t, I(t), s, I(s), X) given as a plain function of 0-based positions and their sets."""

    def scores(state: LayerInput) -> RowScores:
        sets = [state.members(p) for p in range(state.T + 1)]

        def rows_of(rows: np.ndarray) -> np.ndarray:
            found = [[function(int(t), sets[t], s, sets[s], state.X) for s in range(state.T)] for t in rows]
            return np.array(found, dtype=np.float64)

        return rows_of

    return scores


def simulate(
    X: Float[np.ndarray, "T d"],
    layers: Sequence[Sequence[Slot]],
    mask: Literal["none", "causal"] = "none",
    ties: Ties = "first",
) -> list[LayerSets]:
    """Steps 0..L; step 0 holds the start. `layers[l]` are the heads of layer l + 1."""
    if ties not in ("first", "last", "all"):
        raise InfoFlowError(f"expected ties to be first, last or all, got {ties!r}.")
    state = LayerInput(np.asarray(X, dtype=np.float64), start(len(X)))
    steps = [LayerSets(state.sets, np.full((len(X) + 1, 0), -1))]
    for number, slots in enumerate(layers, 1):
        step, best = _layer(state, slots, mask == "causal", ties, last=number == len(layers))
        steps.append(replace(step, best={**state.best, **best}))
        state = LayerInput(state.X, step.sets, steps[-1].best)
    return steps


def _layer(
    state: LayerInput, slots: Sequence[Slot], causal: bool, ties: Ties, last: bool
) -> tuple[LayerSets, dict[Hashable, np.ndarray]]:
    T = state.T
    new = state.sets.copy()
    winners = np.full((T + 1, len(slots)), -1, dtype=np.int64)
    best: dict[Hashable, np.ndarray] = {}
    for h, slot in enumerate(slots):
        for head, rows in ((None if last else slot.tokens, np.arange(T)), (slot.cls, np.array([T]))):
            if isinstance(head, MaxHead):
                winners[rows, h], values = _retrieve(state, head, rows, causal, ties, new)
                if head.name is not None:
                    best[head.name] = values
            elif isinstance(head, GlobalHead):
                new[rows] |= _everything(state.sets[:T], rows, causal)
            elif isinstance(head, PositionHead):
                new[rows] |= _fixed(state.sets[:T], head.positions, rows, causal)
    return LayerSets(new, winners), best


def _retrieve(
    state: LayerInput, head: MaxHead, rows: np.ndarray, causal: bool, ties: Ties, new: Packed
) -> tuple[np.ndarray, np.ndarray]:
    """Winners and best scores of the rows; the winners' old sets are joined to `new`."""
    winners = np.empty(len(rows), dtype=np.int64)
    values = np.empty(len(rows))
    size = max(1, BLOCK // state.T)
    row_scores = head.scores(state)
    for low in range(0, len(rows), size):
        block = slice(low, low + size)
        queries = rows[block]
        scores = row_scores(queries)
        if causal:
            scores = np.where(np.arange(state.T) > queries[:, None], -np.inf, scores)
        top = scores.max(axis=1)
        tied = scores >= (top - TOLERANCE * np.maximum(1.0, np.abs(top)))[:, None]
        values[block] = top
        found = state.T - 1 - tied[:, ::-1].argmax(axis=1) if ties == "last" else tied.argmax(axis=1)
        winners[block] = np.where(top > -np.inf, found, -1)
        if ties == "all":
            for row in np.flatnonzero((tied.sum(axis=1) > 1) & (top > -np.inf)):
                new[queries[row]] |= np.bitwise_or.reduce(state.sets[: state.T][tied[row]], axis=0)
    some = winners >= 0
    new[rows[some]] |= state.sets[winners[some]]
    return winners, values


def _everything(sets: Packed, rows: np.ndarray, causal: bool) -> Rows:
    if causal and len(rows) == len(sets):
        return np.bitwise_or.accumulate(sets, axis=0)
    return np.broadcast_to(np.bitwise_or.reduce(sets, axis=0), (len(rows), sets.shape[1]))


def _fixed(sets: Packed, positions: tuple[int, ...], rows: np.ndarray, causal: bool) -> Rows:
    joined = np.zeros((len(rows), sets.shape[1]), dtype=np.uint64)
    for position in positions:
        seen = rows >= position if causal else np.ones(len(rows), dtype=bool)
        joined[seen] |= sets[position]
    return joined


def start(T: int) -> Packed:
    """I(t, 0) = {t} for the tokens, {} for the CLS in the last row."""
    sets = np.zeros((T + 1, -(-T // 64)), dtype=np.uint64)
    positions = np.arange(T)
    sets[positions, positions // 64] = np.uint64(1) << (positions % 64).astype(np.uint64)
    return sets


def pack(members: Sequence[int] | np.ndarray, T: int) -> UInt64[np.ndarray, " words"]:
    """0-based members as one row of words."""
    made: UInt64[np.ndarray, " words"] = np.bitwise_or.reduce(start(T)[np.asarray(members, dtype=np.int64)], axis=0)
    return made


def unpack(row: UInt64[np.ndarray, " words"]) -> tuple[int, ...]:
    """The sorted 0-based members of one row."""
    bits = np.unpackbits(np.ascontiguousarray(row, dtype="<u8").view(np.uint8), bitorder="little")
    return tuple(int(p) for p in np.flatnonzero(bits))


def sizes(sets: Packed) -> Int[np.ndarray, " positions"]:
    """|I| of every row."""
    made: np.ndarray = np.bitwise_count(sets).sum(axis=1, dtype=np.int64)
    return made
