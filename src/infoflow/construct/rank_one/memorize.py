"""Corollary 1 and 2 as weights: a one-layer, one-head Transformer with all skip connections that outputs every label.

    H = X + W_O (W_V X) softmax((W_K X)^T (W_Q X)),   out = H + W_2 relu(W_1 H + b_1) + b_2

W_1 = 1 w^T and b_1 = -t_j: the ReLU layer is a table on the line t = w.h, one knot per class, with targets Y - H
because the skip adds H. m classes need m - 1 units.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from infoflow import arguments
from infoflow.certificates import Certificate, Claim
from infoflow.certificates.rules import UNIT
from infoflow.construct.rank_one import lookup
from infoflow.construct.rank_one.certificate import TINY, gamma, rounding_bound
from infoflow.construct.rank_one.contexts import Contexts, Mask, read_contexts
from infoflow.construct.rank_one.head import RankOneHead
from infoflow.construct.rank_one.network import Memory, block_network
from infoflow.construct.rank_one.positions import Encoding, encoding
from infoflow.construct.rank_one.search import Spread, find_spreads
from infoflow.errors import InfoFlowError, JobError

RIGHT = 0.49  # an output this near to a label rounds to it
TRIED = 4  # heads whose rounding is measured before one is taken
TRIED_CONTEXTS = 300_000  # together no more contexts than this, but one head
LOUDEST = 256  # places it is measured at
DENSE_LIMIT = 2_000_000_000  # hidden activations of a full dense check; above it a sample is checked densely


@dataclass(frozen=True)
class Memorizer:
    """The network, the data it was made for, and what was measured on it."""

    memory: Memory
    contexts: Contexts
    labels: Int[ndarray, "M d"]
    spread: Spread
    certificate: Certificate
    max_error: float  # below 1/2: no label is wrong
    dense_places: int  # places evaluated with the dense network; all others with the O(log m) form of it
    seconds: dict[str, float] = field(default_factory=dict)
    inputs: Float[ndarray, "N n d"] | None = None  # what enters before the position table; None without one

    def save(self, path: str | Path) -> Path:
        """The network and its data: `certify` computes the certificate again from them."""
        from infoflow.construct.rank_one.saving import save_memorizer

        return save_memorizer(self, path)

    def stored(self) -> Any:
        """What `load` makes of the saved file."""
        from infoflow.construct.rank_one.saving import stored_memorizer

        return stored_memorizer(self)

    def parameters(self) -> dict[str, int]:
        """Its weights, and those the theorem counts."""
        places = int((self.contexts.tokens >= 0).sum())  # nN, or the sum of the lengths
        return parameter_counts(self.memory.dim, self.memory.head_size, places, self.contexts.size)


def parameter_counts(d: int, s: int, places: int, classes: int) -> dict[str, int]:
    """Corollary 1's 4(s+d) + d(2nN+d) against what is stored: independent numbers (factored) and matrix entries
    (dense)."""
    return {
        "paper": 4 * (s + d) + d * (2 * places + d),
        "factored": 4 * (s + d) + (d + 1) * classes + d - 1,
        "dense": 4 * s * d + (2 * d + 1) * (classes - 1) + d,
    }


def memorize(
    X: Any,
    Y: Any,
    positions: Encoding | ndarray | None = None,
    mask: Mask | Bool[ndarray, "n n"] = "none",
    head_size: int = 1,
    seed: int = 0,
    heads: int = 16,
    dense_places: int | None = None,
) -> Memorizer:
    """A network with out = Y at every place of X; labels must agree wherever token and visible multiset do.

    X: (N, n, d) or a list of (n_i, d). Y: integers (N, n), carried by every output coordinate, or (N, n, d).
    `dense_places`: how many places the dense network is checked on (None: all, while that stays below DENSE_LIMIT).
    """
    arguments.seed(seed)
    contexts = read_contexts(X, mask)
    table = inputs = None
    if positions is not None:
        table = encoding(positions, contexts.length, contexts.vocabulary, seed)
        inputs = contexts.vocabulary[contexts.tokens] * (contexts.tokens >= 0)[..., None]
        contexts = _shifted(contexts, table, mask)
    labels = class_labels(contexts, read_labels(Y, contexts))
    made = memorize_contexts(contexts, labels, table, head_size, seed, heads, dense_places)
    return replace(made, inputs=inputs)


def memorize_contexts(
    contexts: Contexts,
    labels: Int[ndarray, "M k"],
    table: Float[ndarray, "n d"] | None = None,
    head_size: int = 1,
    seed: int = 0,
    heads: int = 16,
    dense_places: int | None = None,
) -> Memorizer:
    """The same for classes and their labels (one column, or d)."""
    arguments.integer("head_size", head_size)
    arguments.integer("heads", heads)
    arguments.seed(seed)
    if dense_places is not None:
        arguments.integer("the number of dense places (--dense)", dense_places, 0)
    clock = time.perf_counter
    started = clock()
    labels = np.broadcast_to(labels, (contexts.size, contexts.vocabulary.shape[1]))
    spreads = find_spreads(contexts, heads=heads, seed=seed)
    searched = clock()
    tried = spreads[: int(np.clip(TRIED_CONTEXTS // contexts.size, 1, TRIED))]
    placed = _quietest(labels, _placements(contexts, tried, table, head_size))
    placed.solve(labels)
    solved_at = clock()
    worst, dense = _check(placed.memory, contexts, labels, dense_places, seed)
    certificate = certificate_of(placed.memory, contexts, placed.head, labels).with_attack(worst)
    seconds = {"search": searched - started, "solve": solved_at - searched, "check": clock() - solved_at}
    return Memorizer(placed.memory, contexts, labels, placed.spread, certificate, worst, dense, seconds)


@dataclass(frozen=True)
class _Placed:
    """A head in its network with the ids it gives, the table still blank."""

    spread: Spread
    head: RankOneHead
    memory: Memory
    states: Float[ndarray, "M d"]
    margin: float  # the smallest gap of the ids over the rounding of one

    @property
    def ids(self) -> Float[ndarray, " M"]:
        return lookup.grid(self.states @ self.spread.readout)

    def solve(self, labels: Int[ndarray, "M d"]) -> None:
        """Write the table for these labels."""
        self._fill(labels - self.states)

    def loudness(self, labels: Int[ndarray, "M d"]) -> float:
        """The largest error of the module where all units act, at the largest ids, for the two coordinates with the
        widest targets (the exact solve is what costs)."""
        targets = labels - self.states
        wanted = targets[:, np.argsort(np.ptp(targets, axis=0))[-2:]]
        self._fill(wanted)
        last = np.argsort(self.ids)[-LOUDEST:]
        out = self.memory.module_output(self.states[last]) - self.states[last]
        return float(np.abs(out - wanted[last][:, np.arange(self.memory.dim) % wanted.shape[1]]).max())

    def _fill(self, targets: Float[ndarray, "M k"]) -> None:
        order = np.argsort(self.ids)
        self.memory.fill(self.spread.readout, lookup.solve(self.ids[order], targets[order]))

    def reversed(self) -> "_Placed":
        return replace(self, spread=self.spread.reversed())


def _place(contexts: Contexts, spread: Spread, table: Float[ndarray, "n d"] | None, head_size: int) -> _Placed:
    head = RankOneHead(spread.key, spread.query, spread.amplitude * spread.readout / _square(spread.readout), head_size)
    blur = _readout_error(contexts, head, spread.readout)
    _refuse_tight(contexts, spread, blur)
    memory = block_network(head, contexts, table)
    states = memory.class_states(contexts)
    margin = spread.gap * float(np.ptp(states @ spread.readout)) / blur if contexts.size > 1 else math.inf
    placed = _Placed(spread, head, memory, states, margin)
    if not (np.diff(np.sort(placed.ids)) > 0).all():
        raise InfoFlowError(_too_many(contexts, spread.gap, blur))
    return placed


def _placements(
    contexts: Contexts, spreads: list[Spread], table: Float[ndarray, "n d"] | None, head_size: int
) -> list[_Placed]:
    """Those that float64 can hold with room like the best of them; the refusal of the first when it can hold none."""
    found, refusals = [], []
    for spread in spreads:
        try:
            found.append(_place(contexts, spread, table, head_size))
        except InfoFlowError as refusal:
            refusals.append(refusal)
    if not found:
        raise refusals[0]
    return [placed for placed in found if placed.margin >= max(other.margin for other in found) / 10]


def _quietest(labels: Int[ndarray, "M d"], candidates: list[_Placed]) -> _Placed:
    """The candidate, forwards or backwards, that errs least: how a sum is rounded depends on how the machine splits it,
    so it is measured."""
    return min((each for one in candidates for each in (one, one.reversed())), key=lambda each: each.loudness(labels))


def _square(w: ndarray) -> float:
    return float(w @ w)


def _shifted(contexts: Contexts, table: Float[ndarray, "n d"], mask: Mask | ndarray) -> Contexts:
    """The contexts of X + E: the same float64 additions as the network makes."""
    real = contexts.tokens >= 0
    moved = contexts.vocabulary[contexts.tokens] + table
    rows = [row[keep] for row, keep in zip(moved, real, strict=True)]
    return read_contexts(rows if not real.all() else moved, mask)


def read_labels(Y: Any, contexts: Contexts) -> Int[ndarray, "places k"]:
    """Integer labels at every real place, (places, 1) or (places, d)."""
    real, d = contexts.tokens >= 0, contexts.vocabulary.shape[1]
    rows: Sequence[ndarray]
    try:
        rows = [np.asarray(row, dtype=np.float64) for row in Y]
    except (TypeError, ValueError):
        raise InfoFlowError(
            "expected integer labels, N sequences of n (or n x d) numbers, got something else."
        ) from None
    if len(rows) != len(real):
        raise InfoFlowError(f"expected labels for {len(real)} sequences, got {len(rows)}.")
    for index, (row, length) in enumerate(zip(rows, real.sum(1), strict=True)):
        if row.shape not in ((length,), (length, d)) or row.ndim != rows[0].ndim:
            raise InfoFlowError(
                f"expected {length} labels, or {length} x {d}, in sequence {index + 1} (all sequences alike), "
                f"got shape {row.shape}."
            )
    flat = np.concatenate([row.reshape(len(row), -1) for row in rows])
    if not np.isfinite(flat).all() or (flat != np.rint(flat)).any() or np.abs(flat).max() > 2**31:
        raise InfoFlowError("expected integer labels below 2^31, got NaN or fractions; number the classes 1, 2, ...")
    return flat.astype(np.int64)


def class_labels(contexts: Contexts, labels: Int[ndarray, "places k"]) -> Int[ndarray, "M k"]:
    """One label per class; two places of a class with different labels are shown."""
    places = np.flatnonzero(contexts.class_of.ravel() >= 0)
    of = contexts.class_of.ravel()[places]
    index = np.full(contexts.tokens.size, -1)
    index[places] = np.arange(len(places))
    chosen: ndarray = labels[index[contexts.first]]
    clash = np.flatnonzero((labels != chosen[of]).any(1))
    if len(clash):
        at = int(clash[0])
        one, other = contexts.first[of[at]], places[at]
        shown = [row.tolist()[0] if labels.shape[1] == 1 else row.tolist() for row in (chosen[of[at]], labels[at])]
        hint = _order_hint(contexts, int(one), int(other))
        raise InfoFlowError(
            f"expected one label per token and context, got {shown[0]} at {contexts.place(one)} and {shown[1]} at "
            f"{contexts.place(other)}, which no head can tell apart; correct one of them{hint}."
        )
    return chosen


def _order_hint(contexts: Contexts, one: int, other: int) -> str:
    """Positions help when the two places, or the order of what they see, differ."""
    n = contexts.length
    seen = np.ones((n, n), dtype=bool) if contexts.visible is None else contexts.visible
    views = [np.where(seen[flat % n], contexts.tokens[flat // n], -1) for flat in (one, other)]
    differ = one % n != other % n or not np.array_equal(views[0], views[1])
    return ", or let order count with positions=corollary (--positions corollary)" if differ else ""


def _readout_error(contexts: Contexts, head: RankOneHead, readout: Float[ndarray, " d"]) -> float:
    """|t computed - t| for float64 execution: the averages' error, the sum x + a s, and the product with w."""
    vocabulary, w = contexts.vocabulary, np.abs(readout)
    largest = float(np.abs(vocabulary @ head.key).max())
    size = float((np.abs(vocabulary) @ w).max()) + float(w @ np.abs(head.output)) * largest
    d = vocabulary.shape[1]
    underflow = TINY * (d + 8 * head.size * (1 + largest) * float(w.sum()))
    average = float(w @ np.abs(head.output)) * rounding_bound(contexts, head)
    return float(average + 2 * gamma(d + head.size + 6) * size + underflow)


def state_error(contexts: Contexts, head: RankOneHead) -> float:
    """|H computed - H| per coordinate."""
    largest = float(np.abs(contexts.vocabulary @ head.key).max())
    a = float(np.abs(head.output).max())
    size = float(np.abs(contexts.vocabulary).max()) + a * largest
    underflow = 8 * head.size * TINY * (1 + largest)
    return a * rounding_bound(contexts, head) + 2 * gamma(head.size + 6) * size + underflow


def _range(contexts: Contexts, spread: Spread) -> float:
    p = contexts.vocabulary @ spread.key
    return float(np.ptp(contexts.vocabulary @ spread.readout)) + abs(spread.amplitude) * float(np.ptp(p))


def _refuse_tight(contexts: Contexts, spread: Spread, blur: float) -> None:
    if contexts.size > 1 and spread.gap * _range(contexts, spread) < blur / 4:
        raise InfoFlowError(_too_many(contexts, spread.gap, blur / _range(contexts, spread)))


def _too_many(contexts: Contexts, gap: float, error: float) -> str:
    fit = max(int(contexts.size * math.sqrt(gap / error)), 1) if gap > 0 else 1
    return (
        f"expected contexts that float64 can separate, got {contexts.size} whose ids come {gap:.2g} of their range "
        f"close where rounding is {error:.2g}; about {fit} would fit: use fewer sequences or tokens farther apart."
    )


def _check(
    memory: Memory, contexts: Contexts, labels: Int[ndarray, "M d"], dense_places: int | None, seed: int
) -> tuple[float, int]:
    """(largest error, places checked densely): every place by the lookup, the dense ones tile by tile, and those with
    the largest ids, where all units act, by the module itself."""
    places = np.flatnonzero(contexts.class_of.ravel() >= 0)
    limit = max(DENSE_LIMIT // max(contexts.size, 1), 1)
    count = min(len(places), limit if dense_places is None else dense_places)
    dense = np.sort(np.random.default_rng(seed).permutation(len(places))[:count])
    wanted = labels[contexts.class_of.ravel()[places]]
    wrong, worst = np.zeros(len(places), dtype=bool), 0.0
    states = memory.place_states(contexts)[places]
    last = np.argsort(states @ memory.readout)[-LOUDEST:]
    for out, at in (
        (memory.lookup_output(states), np.arange(len(places))),
        (memory.dense_output(states[dense]), dense),
        (memory.module_output(states[last]), last),
    ):
        error = np.abs(out - wanted[at])
        wrong[at] |= (np.rint(out) != wanted[at]).any(1)
        worst = max(worst, float(error.max(initial=0.0)))
    if wrong.any():
        raise JobError(
            f"expected every label right, got {int(wrong.sum())} of {len(places)} wrong (largest error {worst:.3g}): "
            f"{contexts.size} contexts with these labels are more than float64 can hold; use fewer sequences, fewer "
            "classes of labels, or tokens of moderate size farther apart."
        )
    return worst, count


def certificate_of(memory: Memory, contexts: Contexts, head: RankOneHead, labels: Int[ndarray, "M d"]) -> Certificate:
    """|out - Y| on the data, for float64 execution in any order, from the stored weights alone:

    residual of the exact table + slope * error of the read-out + error of H + rounding of the ReLU sum.
    """
    assert memory.lookup is not None
    assert memory.readout is not None
    states, table, blur = memory.class_states(contexts), memory.lookup, _readout_error(contexts, head, memory.readout)
    size = float(np.abs(states).max() + np.abs(labels).max())
    slope = float(np.abs(table.slopes).max(initial=0.0))
    parts = {
        "residual": float(np.abs(memory.lookup_output(states) - labels).max()) + 4 * UNIT * size,
        "slope": slope * 2 * blur + 2 * state_error(contexts, head),
        "rounding": lookup.rounding_bound(table, blur, float((states @ memory.readout).max())) + 4 * UNIT * size,
    }
    return Certificate(
        Claim("|output - label|", RIGHT, f"the {contexts.size} contexts of the data"),
        sum(parts.values()),
        "float64 with rounding allowance",
        ("IEEE float64, exp within 4 units in the last place", "sums in any order"),
        parts=parts,
    )
