"""trace: the information flow of one input through an architecture, set by set."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from infoflow import cost
from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.flow.counting import Mode, mode_cost
from infoflow.flow.program import choose, flow_layout
from infoflow.flow.sets import (
    FlowHead,
    LayerInput,
    LayerSets,
    MaxHead,
    PositionHead,
    Slot,
    Ties,
    pack,
    simulate,
    sizes,
    unpack,
)
from infoflow.flow.used import used_sets
from infoflow.report.html import Shown
from infoflow.targets import Target
from infoflow.targets.arrays import as_tokens, on_host
from infoflow.targets.named import TargetLike, target_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES_A_SECOND = 1e8  # of a head for every pair of tokens, measured on one core


@dataclass(frozen=True, eq=False, repr=False)
class Flow(Shown):
    """Information sets I(t, l) of one input. Positions and layers are 1-based; T + 1 is the CLS, layer 0 the start.

    `note` says why the flow is a global aggregation where no layout exists.
    """

    target: Target
    arch: Architecture
    X: Float[np.ndarray, "T d"]
    slots: tuple[tuple[Slot, ...], ...]
    steps: tuple[LayerSets, ...]
    active: Bool[np.ndarray, " T"]
    note: str = ""

    @property
    def T(self) -> int:
        """Tokens."""
        return len(self.X)

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.slots)

    def members(self, position: int, layer: int) -> tuple[int, ...]:
        """I(position, layer), sorted."""
        return tuple(p + 1 for p in unpack(self.steps[layer].sets[position - 1]))

    def used(self, position: int, layer: int) -> tuple[int, ...]:
        """The part of I(position, layer) that ends up in the value of the target, sorted (flow/used.py).

        Where no layout exists nothing says which part that is, and the active positions of the set stand for it."""
        if self.note:
            return tuple(p for p in self.members(position, layer) if self.active[p - 1])
        return tuple(sorted(p + 1 for p in self._used[layer][position - 1]))

    @cached_property
    def _used(self) -> list[list[set[int]]]:
        return used_sets(flow_layout(self.target, self.arch, self.T), self.steps, self.T)

    def winners(self, position: int, layer: int) -> tuple[int | None, ...]:
        """The winning position of every head (one of those that tie), None for a head that does not retrieve."""
        return tuple(int(w) + 1 if w >= 0 else None for w in self.steps[layer].winners[position - 1])

    def scores(self, position: int, layer: int) -> tuple[Float[np.ndarray, " T"] | None, ...]:
        """What every head compared for this position, one score per key (-inf: a key it may not see), None for a head
        that does not retrieve; `winners` are the largest of them."""
        before = self.steps[layer - 1]
        state = LayerInput(self.X, before.sets, before.best)
        return tuple(self._row(head, state, position) for head in self._heads(position, layer))

    def _row(self, head: FlowHead | None, state: LayerInput, position: int) -> Float[np.ndarray, " T"] | None:
        if not isinstance(head, MaxHead):
            return None
        row = np.array(head.scores(state)(np.array([position - 1]))[0])
        if self.arch.mask == "causal":
            row[position:] = -np.inf
        return row

    def _heads(self, position: int, layer: int) -> tuple[FlowHead | None, ...]:
        """What every head does for a position; in the last layer the CLS alone moves."""
        if position <= self.T and layer == self.layers:
            return (None,) * len(self.slots[layer - 1])
        return tuple(slot.cls if position == self.T + 1 else slot.tokens for slot in self.slots[layer - 1])

    def mode(self, position: int, layer: int) -> Mode:
        """How the position moved in this layer; the dearest mode where its heads differ."""
        found = {head.mode for head in self._heads(position, layer) if head is not None}
        return next((mode for mode in ("global", "specific", "max") if mode in found), "skip")

    def cost(self, position: int, layer: int) -> Fraction:
        """The exponent of the cost law at (position, layer)."""
        mode, embed = self.mode(position, layer), self.arch.embeds[layer - 1]
        size = int(sizes(self.steps[layer].sets[position - 1 : position])[0])
        positions = {
            p
            for slot in self.slots[layer - 1]
            for p in (slot.cls.positions if isinstance(slot.cls, PositionHead) else ())
        }
        source = max((len(self.members(p + 1, layer - 1)) for p in positions), default=0)
        return mode_cost(mode, self.T, self.target.dim, embed, size, len(positions), source)

    @property
    def exponent(self) -> Fraction:
        """The largest cost over all positions and layers."""
        tokens = [self.cost(int(sizes(self.steps[l].sets[: self.T]).argmax()) + 1, l) for l in range(1, self.layers)]
        return max([*tokens, *(self.cost(self.T + 1, l) for l in range(1, self.layers + 1))])

    @property
    def learns(self) -> bool:
        """True when the active index set lies inside I(T+1, L)."""
        needed = pack(np.flatnonzero(self.active), self.T)
        return not (needed & ~self.steps[-1].sets[self.T]).any()

    def to_json(self) -> dict[str, Any]:
        """Sets and winners with 1-based positions."""
        positions, layers = range(1, self.T + 2), range(1, self.layers + 1)
        return {
            "sets": [[list(self.members(t, l)) for t in positions] for l in (0, *layers)],
            "argmax": [[list(self.winners(t, l)) for t in positions] for l in layers],
            "active": [int(t) + 1 for t in np.flatnonzero(self.active)],
            "learns": self.learns,
            "modes": [{"tokens": self.mode(1, l), "cls": self.mode(self.T + 1, l)} for l in layers],
            "exponent": self.exponent,
            "note": self.note or None,
        }

    def figure(self) -> "Figure":
        """Figure 5 of the paper for this input: the sets layer by layer, the way of the read-out in colour."""
        from infoflow.flow.figures import draw_flow

        return draw_flow(self)

    def __str__(self) -> str:
        lines = [f"{self.target.spelling}  {self.arch}  T={self.T}"]
        if self.note:
            lines.append(self.note)
        for l in range(self.layers + 1):
            shown = range(1, self.T + 2) if self.T <= 16 and l < self.layers else [self.T + 1]
            sets = "  ".join(f"I({t},{l})={braces(self.members(t, l))}" for t in shown)
            lines.append(f"layer {l}: {sets}")
        active = braces(tuple(int(t) + 1 for t in np.flatnonzero(self.active)))
        lines.append(f"active {active}: {'learned' if self.learns else 'missed'}; cost exponent {self.exponent}")
        return "\n".join(lines)


def trace(target: TargetLike, arch: Architecture | str, X: Any, ties: Ties = "first", cls_skip: bool = True) -> Flow:
    """The information flow of the tokens X (T, d), with the heads the target's layout gives them.

    Each head scores by what its query and keys know: a token's own value and the messages it has received. Where the
    architecture has no layout for the target, the CLS aggregates globally in the last layer and `note` says so.
    """
    target, arch = target_of(target), Architecture.of(arch)
    tokens = _tokens(X, target)
    T = len(tokens)
    cost.memory((arch.layers + 2) * T**2 / 8, f"the information sets of T={T} tokens in {arch.layers} layers", "T")
    slots, note = choose(target, arch, T, cls_skip)
    retrievals = sum(isinstance(slot.tokens, MaxHead) for layer in slots for slot in layer)
    cost.work(retrievals * T**2, SCORES_A_SECOND, f"{retrievals} retrievals among T={T} tokens", "T")
    steps = simulate(tokens, slots, arch.mask, ties)
    frozen = tuple(tuple(layer) for layer in slots)
    return Flow(target, arch, tokens, frozen, tuple(steps), np.asarray(target.active(tokens)), note)


def check_length(target: Target, T: int) -> None:
    """Refuse lengths the target is not defined for, and tuples with more vertices than there are positions."""
    target.check_length(T)
    if target.arity > T:
        raise InfoFlowError(f"expected T >= {target.arity}, the tokens this target compares at once, got T={T}.")


def _tokens(X: Any, target: Target) -> np.ndarray:
    tokens = on_host(as_tokens(X, target.dim)).astype(np.float64)
    if tokens.ndim != 2:
        raise InfoFlowError(f"expected one input of shape (T, {target.dim}), got {tokens.shape}.")
    check_length(target, len(tokens))
    return tokens


def braces(members: Sequence[int], most: int = 12) -> str:
    """{1,2,5}; of a long one the first members and how many there are."""
    shown = ",".join(map(str, members[:most])) + (f",.. ({len(members)})" if len(members) > most else "")
    return "{" + shown + "}"
