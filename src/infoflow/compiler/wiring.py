"""From directions to rows: what every head asks, compares and fetches, and what every feed-forward block computes.

Units: a direction stores scale * (its meaning); `kappa` is that scale for scores, scores(stored) = kappa * score(true).
Rows are over the directions of a layer. All query, key and value entries are at most 1 in absolute value, which fixes
kappa = min over components of 1 / (max|psi row| max|phi row|): the larger kappa, the smaller the temperature 1/beta.

A head that leaves out the token that asks adds -penalty <e_t, e_s> to the score, e_t the code of position t, one
direction per position. The values it fetches are the scores without the penalty, stored at `fetched` >= kappa times
their size: the penalty asks for a smaller kappa, that is a larger beta, and for no wider feed-forward block.

A head that fetches from the neighbour `shift` positions away compares by position alone: its score is
<e_{t+shift}, e_s>, 1 at that token and 0 at all others. What it fetches is held in directions of its own until the CLS
reads it.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float

from infoflow.compiler.blocks import Block, Piece
from infoflow.flow.jobs import Job
from infoflow.flow.layout import LayerDirections, Layout
from infoflow.flow.normal_form import HELD, Message, NormalForm, Term, names_positions

# Scores may be stored smaller than they arrive. Under a weight bound the block that computes them shrinks by that
# factor while what reads them grows less (its rule has room), at the price of a larger beta. Which of these gives the
# fewest units depends on the target and on eps, so `budget` tries them.
SLOT_GAINS = (1 / 32, 1 / 16, 3 / 32, 1 / 8, 3 / 16, 1 / 4, 5 / 16, 3 / 8, 1 / 2, 1.0)
USUAL_GAIN = 1 / 4  # where the search begins
BELOW = 1.0 - 2.0**-50  # entries scaled to at most 1 stay there after rounding
# A token is kept from itself by a penalty of this many times the spread of the scores it compares: once the spread to
# be below every other, once more so that its weight is exp(-beta kappa spread), nothing beside the softmax error.
PENALTY_SPREADS = 2.0


@dataclass(frozen=True)
class WiredHead:
    """One job in rows: logit = beta * <query z_t, key z_s>, fetched = average of value z_s, written to `writes`."""

    job: Job
    query: Float[np.ndarray, "keys directions"]
    key: Float[np.ndarray, "keys directions"]
    value: Float[np.ndarray, "values directions"]
    writes: tuple[int, ...]
    kappa: float  # logit = beta * kappa * (score - penalty at the token itself)
    fetched: float  # of a message: stored score / true score; 0 for a read
    units: tuple[float, ...]  # stored value / true value, per fetched number of a read or of a neighbour
    psi: Float[np.ndarray, "rank directions"]  # true functionals as rows, for the error analysis
    phi: Float[np.ndarray, "rank directions"]
    own: Float[np.ndarray, " directions"]  # true child score (or the score read) as a row
    defect: float  # what rows leave out of the true score, by rounding or rank reduction
    value_defect: float = 0.0  # what the values of a winner's read leave out, true units
    value_error: float = 0.0  # how far stored values may be from the rows above, 0 for those that are written
    penalty: float = 0.0  # what a token's own score loses, where the message leaves it out
    code_scale: float = 1.0  # what a position's own direction holds there


@dataclass(frozen=True)
class Wiring:
    """Every head and block of a layout as rows over named directions, with the units they are stored in."""

    layout: Layout
    scales: tuple[Float[np.ndarray, " coordinates"], ...]  # per layer: stored feature / basis row
    token_one: tuple[float, ...]  # value of the constant direction for tokens, per layer
    cls: Float[np.ndarray, " directions"]  # the CLS token of layer 1
    heads: tuple[tuple[WiredHead, ...], ...]
    slot_units: tuple[dict[tuple[int, int], float], ...]  # per layer: kappa of each slot
    value_units: tuple[dict[tuple[int, int], float], ...]
    blocks: tuple[Block, ...]  # F_1 .. F_{L-1}, pieces without choices
    encoder: Block | None
    gain: float  # stored score / score as it arrives from a head
    embedding_error: float = 0.0  # how far stored embeddings may be from scales * basis . features

    @property
    def form(self) -> NormalForm:
        """The target's normal form."""
        return self.layout.form


def wire(layout: Layout, weight_bound: float | None, gain: float) -> Wiring:
    """Write a layout down as heads and blocks; `gain` is how much larger scores are stored."""
    scales, ones = _scales(layout, weight_bound)
    heads: list[tuple[WiredHead, ...]] = []
    slot_units: list[dict[tuple[int, int], float]] = [{}]
    value_units: list[dict[tuple[int, int], float]] = [{}]
    blocks: list[Block] = []
    for layer in range(layout.layers):
        row = _Rows(layout, layer, scales[layer], slot_units[layer])
        heads.append(tuple(_head(layout, layer, i, row, ones[layer]) for i in range(len(layout.jobs[layer]))))
        if layer + 1 < layout.layers:
            slot_units.append(_units_after(layout, layer, heads[layer], slot_units[layer], gain))
            value_units.append(_values_after(heads[layer], value_units[layer]))
            blocks.append(_block(layout, layer, heads[layer], scales, slot_units, value_units[-1], row))
    encoder = None if layout.form.linear else _encoder(layout, scales[0], ones[0])
    cls = _cls(layout)
    return Wiring(
        layout,
        tuple(scales),
        tuple(ones),
        cls,
        tuple(heads),
        tuple(slot_units),
        tuple(value_units),
        tuple(blocks),
        encoder,
        gain,
    )


class _Rows:
    """Functionals on features, and scores, as rows over the directions of one layer."""

    def __init__(self, layout: Layout, layer: int, scale: np.ndarray, units: dict[tuple[int, int], float]) -> None:
        self.state, self.scale, self.units, self.layer = layout.states[layer], scale, units, layer
        self.size = layout.states[layer].size
        basis = self.state.basis
        self._exact = len(basis) and np.array_equal(np.abs(basis).sum(axis=1), np.abs(basis).max(axis=1))

    @cached_property
    def _solve(self) -> np.ndarray:
        return np.linalg.pinv(self.state.basis.T)

    def functional(self, vector: np.ndarray) -> tuple[np.ndarray, float]:
        """(row, defect): row . z = vector . features up to defect."""
        result = np.zeros(self.size)
        basis = self.state.basis
        if not len(basis) or not vector.any():
            return result, float(np.abs(vector).sum())
        if self._exact:  # unit rows: coordinates are entries
            coordinates = basis @ vector / (basis**2).sum(axis=1)
        else:
            coordinates = self._solve @ vector
            coordinates[np.abs(coordinates) < 1e-15 * np.abs(coordinates).max()] = 0.0
        defect = float(np.abs(coordinates @ basis - vector).sum())
        result[: len(basis)] = coordinates / self.scale
        return result, defect

    def score(self, term: Term, vertex: int) -> tuple[np.ndarray, float]:
        """b_v: its slot where one is held, else its unary functional."""
        if (term.index, vertex) in self.state.slots:
            result = np.zeros(self.size)
            result[self.state.slots[term.index, vertex]] = 1.0 / self.units[term.index, vertex]
            return result, 0.0
        return self.functional(term.unary[vertex])

    def unit(self, index: int) -> np.ndarray:
        result = np.zeros(self.size)
        result[index] = 1.0
        return result


def _scales(layout: Layout, weight_bound: float | None) -> tuple[list[np.ndarray], list[float]]:
    """Every feature coordinate is scaled to at most s, s = 1/sqrt(number of coordinates) so that |embedding| <= 1.

    A token fills one of the single positions, so they count once."""
    first = layout.states[0]
    count = len(first.basis) - max(len(first.codes) - 1, 0) + (first.one is not None)
    s = 1.0 if weight_bound is None else 1.0 / math.sqrt(max(count, 1))
    s *= 1.0 - 1e-12 if layout.form.linear else 0.95  # room for rounding, or for the error of computed features
    scales = [s / np.abs(state.basis).sum(axis=1) for state in layout.states]
    return scales, [s if layer == 0 else 1.0 for layer in range(layout.layers)]


def _cls(layout: Layout) -> np.ndarray:
    """The CLS: its flag, or the constant its reads of layer 1 ask with; 0 elsewhere."""
    state = layout.states[0]
    cls = np.zeros(state.size)
    reads = any(job.message is None for job in layout.jobs[0])
    if state.flag is not None:
        cls[state.flag] = 1.0
    elif reads and layout.layers == 1:
        cls[0] = 1.0
    elif reads and state.one is not None:
        cls[state.one] = 1.0
    return cls


def asks_with(layout: Layout, layer: int) -> int:
    """The direction that is 1 for the CLS when it reads."""
    state = layout.states[layer]
    if state.flag is not None:
        return state.flag
    if layout.layers == 1:
        return 0
    assert state.one is not None
    return state.one


def cls_entry(layout: Layout, layer: int, direction: int) -> float:
    """What the CLS holds in a read's destination before the read: a known constant."""
    state = layout.states[layer]
    if layer == 0:
        return float(_cls(layout)[direction])
    if direction == state.flag:
        return 1.0
    if direction == state.one:
        return 1.0 if state.flag is None else 0.0
    return 0.0


def _head(layout: Layout, layer: int, index: int, row: _Rows, one: float) -> WiredHead:
    job = layout.jobs[layer][index]
    writes = layout.states[layer].received[index]
    term = layout.form.terms[job.term]
    if job.message is not None and job.message.shift:
        return _fetching_head(job, term, row, writes)
    if job.message is not None:
        return _message_head(job, job.message, term, row, one, writes)
    if term.reads is not None:
        return _winner_head(layout, layer, job, term, row, writes)
    own, defect = row.score(term, term.root)
    kappa = BELOW / (float(np.abs(own).max()) or 1.0)
    key = kappa * own[None]
    none = np.zeros((0, row.size))
    query = row.unit(asks_with(layout, layer))[None]
    return WiredHead(job, query, key, key, writes, kappa, 0.0, (kappa,), none, none, own, defect)


def _message_head(job: Job, message: Message, term: Term, row: _Rows, one: float, writes: tuple[int, ...]) -> WiredHead:
    psi, phi, defect = [], [], message.defect
    for left, right in zip(message.psi, message.phi, strict=True):
        (a, da), (b, db) = row.functional(left), row.functional(right)
        psi.append(a)
        phi.append(b)
        defect += da * float(np.abs(right).sum()) + db * float(np.abs(left).sum())
    limits = [1.0 / m for a, b in zip(psi, phi, strict=True) if (m := float(np.abs(a).max() * np.abs(b).max())) > 0]
    own = np.zeros(row.size)
    carries = term.carries(message.child)
    if carries:
        own, extra = row.score(term, message.child)
        defect += extra
        limits.append(one / float(np.abs(own).max()))
    fetched = kappa = min(limits, default=1.0) * BELOW
    penalty, code = 0.0, 1.0
    if message.excludes:
        penalty = PENALTY_SPREADS * term.spread(message)
        code = float(row.scale[row.state.codes[0]])
        kappa = min(kappa, code**2 / penalty * BELOW) if penalty > 0.0 else kappa
    query, key, value = [], [], []
    for a, b in zip(psi, phi, strict=True):
        size = float(np.abs(a).max()) or 1.0
        query.append(a / size)
        key.append(kappa * size * b)
        value.append(fetched * size * b)
    if carries:
        assert row.state.one is not None
        query.append(row.unit(row.state.one))
        key.append(kappa / one * own)
        value.append(fetched * own)
    for j in row.state.codes if message.excludes else ():
        query.append(row.unit(j))
        key.append(-kappa * penalty / code**2 * row.unit(j))
    return WiredHead(
        job,
        np.array(query),
        np.array(key),
        np.array(value),
        writes,
        kappa,
        fetched,
        (),
        np.array(psi).reshape(-1, row.size),
        np.array(phi).reshape(-1, row.size),
        own,
        defect,
        penalty=penalty,
        code_scale=code,
    )


def _fetching_head(job: Job, term: Term, row: _Rows, writes: tuple[int, ...]) -> WiredHead:
    """Query j is position j's own direction, key j that of position j + shift: they meet where s = t + shift."""
    assert term.reads is not None
    codes, code = row.state.codes, float(row.scale[row.state.codes[0]])
    kappa = code**2 * BELOW
    met = [(j, codes[p + term.shift]) for p, j in enumerate(codes) if 0 <= p + term.shift < len(codes)]
    pairs = [(row.unit(asks), row.unit(answers)) for asks, answers in met]
    rows, units, off = _read_rows(term, row)
    none = np.zeros((0, row.size))
    return WiredHead(
        job,
        np.array([query for query, _ in pairs]),
        BELOW * np.array([key for _, key in pairs]),
        rows,
        writes,
        kappa,
        1.0,
        units,
        none,
        none,
        np.zeros(row.size),
        0.0,
        value_defect=off,
        code_scale=code,
    )


def _read_rows(term: Term, row: _Rows) -> tuple[np.ndarray, tuple[float, ...], float]:
    """What is read at a token as rows, the unit of each, and what they leave out."""
    assert term.reads is not None
    rows, units, off = [], [], 0.0
    for read in term.reads:
        functional, extra = row.functional(read)
        unit = BELOW / (float(np.abs(functional).max()) or 1.0)
        rows.append(unit * functional)
        units.append(unit / term.winners)
        off = max(off, extra * term.winners)
    return np.array(rows), tuple(units), off


def _held_rows(term: Term, row: _Rows) -> tuple[np.ndarray, tuple[float, ...], float]:
    """The same for what a token has fetched from its neighbour: a direction each."""
    keys = [(term.index, HELD - k) for k in range(term.values)]
    rows = BELOW * np.array([row.unit(row.state.slots[key]) for key in keys])
    return rows, tuple(BELOW * row.units[key] for key in keys), 0.0


def _winner_head(layout: Layout, layer: int, job: Job, term: Term, row: _Rows, writes: tuple[int, ...]) -> WiredHead:
    """The key is the score alone (for fixed positions their code, 0 on the set and -1 off it), the values are what is
    read at the winners."""
    assert term.reads is not None
    own, defect = row.score(term, term.root)
    kappa = BELOW / (float(np.abs(own).max()) or 1.0)
    values, units, off = _read_rows(term, row) if term.fetch is None else _held_rows(term, row)
    none = np.zeros((0, row.size))
    query = row.unit(asks_with(layout, layer))[None]
    head = WiredHead(job, query, kappa * own[None], values, writes, kappa, 0.0, units, none, none, own, defect)
    return replace(head, value_defect=off)


def _units_after(
    layout: Layout, layer: int, heads: tuple[WiredHead, ...], units: dict[tuple[int, int], float], gain: float
) -> dict[tuple[int, int], float]:
    """kappa of every slot of the next layer: `gain` times the least of what the messages bring, at most what it was."""
    result = {}
    for term_index, vertex in layout.states[layer + 1].slots:
        flows = [gain * h.fetched for h in heads if _into(h, term_index, vertex)]
        if vertex <= HELD:  # as it was fetched
            flows = [h.units[HELD - vertex] for h in heads if _fetches(h, term_index)]
        if (term_index, vertex) in units:
            flows.append(units[term_index, vertex])
        result[term_index, vertex] = min(flows)
    return result


def _into(head: WiredHead, term: int, vertex: int) -> bool:
    message = head.job.message
    return message is not None and not message.shift and head.job.term == term and message.parent == vertex


def _fetches(head: WiredHead, term: int) -> bool:
    return head.job.message is not None and head.job.message.shift != 0 and head.job.term == term


def _values_after(heads: tuple[WiredHead, ...], units: dict[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    result = dict(units)
    for head in heads:
        if head.job.message is None:
            result.update({(head.job.term, k): unit for k, unit in enumerate(head.units)})
    return result


def _block(
    layout: Layout,
    layer: int,
    heads: tuple[WiredHead, ...],
    scales: list[np.ndarray],
    slot_units: list[dict[tuple[int, int], float]],
    value_units: dict[tuple[int, int], float],
    row: _Rows,
) -> Block:
    """F_l: carried features, scores with the messages added, values read so far, the constant and the flag."""
    state, after = layout.states[layer], layout.states[layer + 1]
    block = Block(state.size, after.size)
    for j, functional in enumerate(after.basis):
        vector, _ = row.functional(functional)
        scale = scales[layer + 1][j]
        _linear(block, j, scale * vector, scale * float(np.abs(functional).sum()))
    for (term_index, vertex), output in after.slots.items():
        if vertex <= HELD:
            source = next((h.writes[HELD - vertex] for h in heads if _fetches(h, term_index)), None)
            source = state.slots[term_index, vertex] if source is None else source
            bound = slot_bound(layout, row.layer, term_index, vertex) * slot_units[layer + 1][term_index, vertex]
            _linear(block, output, row.unit(source), bound)
            continue
        into = tuple(head for head in heads if _into(head, term_index, vertex))
        _score_pieces(block, output, layout, row, (term_index, vertex), into, slot_units[layer + 1])
    for (term_index, k), output in after.values.items():
        source = _value_source(state, heads, term_index, k)
        bound = value_bound(layout.form.terms[term_index], k) * value_units[term_index, k]
        _linear(block, output, row.unit(source), bound)
    if after.flag is not None:
        assert state.flag is not None
        block.pieces.append(_flag_piece(after.flag, 1.0, row.unit(state.flag)))
    if after.one is not None:
        block.constants[after.one] = 1.0
        if after.flag is not None:
            assert state.flag is not None
            block.pieces.append(_flag_piece(after.one, -1.0, row.unit(state.flag)))
    return block


def _linear(block: Block, output: int, row: np.ndarray, radius: float) -> None:
    """gain * (row / max|row|) . z as one odd rule."""
    size = float(np.abs(row).max(initial=0.0))
    if size > 0.0:
        block.pieces.append(Piece(output, size, (row / size)[None], (0.0,), (radius / size,), (1.0,)))


def _flag_piece(output: int, gain: float, row: np.ndarray) -> Piece:
    return Piece(output, gain, row[None], (0.0,), (1.0,), (1.0,))


def _score_pieces(
    block: Block,
    output: int,
    layout: Layout,
    row: _Rows,
    key: tuple[int, int],
    heads: tuple[WiredHead, ...],
    next_units: dict[tuple[int, int], float],
) -> None:
    """kappa' (b_v + sum over messages of sign [sum_k psi_k v_k + v_b]): a product per component, one rule otherwise."""
    (term_index, vertex), units = key, row.units
    term, kappa = layout.form.terms[term_index], next_units[key]
    linear, radius = np.zeros(row.size), 0.0
    if key in units:
        linear[row.state.slots[key]] += kappa / units[key]
        radius += kappa * slot_bound(layout, row.layer, term_index, vertex)
    elif term.unary[vertex].any():
        linear += kappa * row.functional(term.unary[vertex])[0]
        radius += kappa * float(np.abs(term.unary[vertex]).sum())
    for head in heads:
        message = head.job.message
        assert message is not None
        gain = message.sign * kappa / head.fetched
        for k in range(message.rank):
            left = float(np.abs(message.psi[k]).sum()) / (float(np.abs(head.psi[k]).max()) or 1.0)
            right = float(np.abs(message.phi[k]).sum()) * head.fetched * (float(np.abs(head.psi[k]).max()) or 1.0)
            if left > 0.0 and right > 0.0:
                factors = np.array([head.query[k], row.unit(head.writes[k])])
                block.pieces.append(Piece(output, gain, factors, (0.0, 0.0), (left, right), (1.0, 1.0)))
        if term.carries(message.child):
            linear[head.writes[-1]] += gain
            radius += kappa * term.bound(message.child)
    _linear(block, output, linear, radius)


def slot_bound(layout: Layout, layer: int, term_index: int, vertex: int) -> float:
    """sup |b_v| with the messages that have arrived before `layer`; of a component that was fetched, its own sup."""
    term = layout.form.terms[term_index]
    if vertex <= HELD:
        return value_bound(term, HELD - vertex)
    arrived = [m for m in term.incoming(vertex) if layout.layer_of(term_index, m.child) < layer]
    return float(np.abs(term.unary[vertex]).sum()) + sum(m.bound + term.bound(m.child) for m in arrived)


def state_bounds(wiring: Wiring, layer: int) -> Float[np.ndarray, " directions"]:
    """Nominal sup of every direction of a layer before its attention, over tokens and CLS."""
    layout, state = wiring.layout, wiring.layout.states[layer]
    result = np.ones(state.size)  # constants; directions that are still empty are 0
    result[: len(state.basis)] = wiring.scales[layer] * np.abs(state.basis).sum(axis=1)
    for key, j in state.slots.items():
        result[j] = wiring.slot_units[layer][key] * slot_bound(layout, layer, *key)
    for key, j in state.values.items():
        result[j] = wiring.value_units[layer][key] * value_bound(wiring.form.terms[key[0]], key[1])
    return result


def _value_source(state: LayerDirections, heads: tuple[WiredHead, ...], term_index: int, component: int) -> int:
    """The direction that holds a read value after this layer's attention."""
    for head in heads:
        if head.job.message is None and head.job.term == term_index:
            return head.writes[component]
    return state.values[term_index, component]


def value_bound(term: Term, component: int) -> float:
    """sup of the read value in true units (before sign and constant)."""
    if term.reads is not None:
        return float(np.abs(term.reads[component]).sum()) * term.winners
    return term.bound(term.root)


def _encoder(layout: Layout, scale: np.ndarray, one: float) -> Block:
    """Features of higher degree: F_0 on u = (x - centre) / half, linear parts by odd rules, monomials by products."""
    form, state = layout.form, layout.states[0]
    block = Block(form.dim, state.size)
    units = np.diag(1.0 / form.half)
    shifts = form.centre / form.half
    for j, row in enumerate(state.basis):
        linear = np.zeros(form.dim)
        for i in np.flatnonzero(row):
            feature = form.features[i]
            if names_positions(feature):
                continue
            if sum(feature) == 1:
                linear[feature.index(1)] += row[i]
                continue
            axes = [axis for axis, power in enumerate(feature) for _ in range(power)]
            block.pieces.append(
                Piece(
                    j,
                    scale[j] * row[i],
                    units[axes],
                    tuple(shifts[axes].tolist()),
                    (1.0,) * len(axes),
                    (1.0,) * len(axes),
                )
            )
        size = float(np.abs(linear).max(initial=0.0))
        if size > 0.0:
            factor = linear / size
            radius = (float(np.abs(factor).sum()),)
            piece = Piece(j, scale[j] * size, (factor @ units)[None], (float(factor @ shifts),), radius, (1.0,))
            block.pieces.append(piece)
    if state.one is not None:
        block.constants[state.one] = one
    return block
