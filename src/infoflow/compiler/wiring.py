"""A layout written down: every head (`heads.py`), every feed-forward block, and the units in which directions are kept.

Scores arrive in the unit of the head that fetched them and are kept in that of their slot; a block carries features,
adds the messages to the scores, and passes on what was read. What may stand in each direction at most is known from the
layout alone (`state_bounds`).
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from infoflow.compiler.blocks import Block, Piece
from infoflow.compiler.heads import Rows, WiredHead, first_cls, wired_head
from infoflow.flow.layout import LayerDirections, Layout
from infoflow.flow.normal_form import HELD, NormalForm, Term, names_positions

# Scores may be stored smaller than they arrive. Under a weight bound the block that computes them shrinks by that
# factor while what reads them grows less (its rule has room), at the price of a larger beta. Which of these gives the
# fewest units depends on the target and on eps, so `budget` tries them.
SLOT_GAINS = (1 / 32, 1 / 16, 3 / 32, 1 / 8, 3 / 16, 1 / 4, 5 / 16, 3 / 8, 1 / 2, 1.0)
USUAL_GAIN = 1 / 4  # where the search begins


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
        row = Rows(layout, layer, scales[layer], slot_units[layer])
        heads.append(tuple(wired_head(layout, layer, i, row, ones[layer]) for i in range(len(layout.jobs[layer]))))
        if layer + 1 < layout.layers:
            slot_units.append(_units_after(layout, layer, heads[layer], slot_units[layer], gain))
            value_units.append(_values_after(heads[layer], value_units[layer]))
            blocks.append(_block(layout, layer, heads[layer], scales, slot_units, value_units[-1], row))
    encoder = None if layout.form.linear else _encoder(layout, scales[0], ones[0])
    cls = first_cls(layout)
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


def _scales(layout: Layout, weight_bound: float | None) -> tuple[list[np.ndarray], list[float]]:
    """Every feature coordinate is scaled to at most s, s = 1/sqrt(number of coordinates) so that |embedding| <= 1.

    A token fills one of the single positions, so they count once."""
    first = layout.states[0]
    count = len(first.basis) - max(len(first.codes) - 1, 0) + (first.one is not None)
    s = 1.0 if weight_bound is None else 1.0 / math.sqrt(max(count, 1))
    s *= 1.0 - 1e-12 if layout.form.linear else 0.95  # room for rounding, or for the error of computed features
    scales = [s / np.abs(state.basis).sum(axis=1) for state in layout.states]
    return scales, [s if layer == 0 else 1.0 for layer in range(layout.layers)]


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
    row: Rows,
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
    row: Rows,
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
