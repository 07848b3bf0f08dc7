"""How errors travel through the construction, as rigorous intervals.

For every score b_v (true units) an interval [lo, hi] of (computed - true); for every stored feature an absolute error.
A message or a read replaces scores S' = S + [lo, hi] by their softmax average, which lies in
[max S' - W((T-1)/e)/(beta kappa), max S'], and max S' lies in max S + [lo, hi]. A feed-forward output adds its
own error.

Where a token leaves out itself the maximum is over T - 1 scores, and its own, lowered by the penalty P, keeps a weight
q <= exp(-beta kappa (P - r)), r the spread of the computed scores: the average moves by q r at most.

A head that fetches from a neighbour has one winner with a score of 1 against 0: the others keep a weight
q <= (T - 1) exp(-beta kappa (1 - w)), w the width of the errors of these scores, and what is fetched moves by
2 q sup|value| at most.

Where the m winners are read (`Term.reads`), the others keep a weight q <= (T - m)/m exp(-beta kappa (margin - w)), w
the width of the errors of their scores, and the mean of the values moves by 2 q sup|value| at most. Among several
winners the weights are within a factor exp(beta kappa w) of each other.

The read-out block is the outer map on the values the CLS has read, with the one-sided softmax error centred. Value i is
v_i = sign_i (constant_i - centre_i) + sign_i (y_i - offset_i) / unit_i, y_i the stored number. The read-out computes
the outer polynomial of v: one odd rule per output for the affine part, product rules for the rest.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from infoflow.certificates.rules import UNIT, softmax_gap
from infoflow.compiler.blocks import Block, Piece
from infoflow.compiler.heads import WiredHead, cls_entry
from infoflow.compiler.wiring import Wiring, state_bounds, value_bound
from infoflow.flow.normal_form import HELD, NormalForm, Term
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.target import OuterNetwork

Interval = tuple[float, float]
MOST_UNEVEN = 700.0  # exp of more overflows; a bound is of no use long before
# errors(block index, block, excess) -> absolute errors (2, outputs): row 0 for any row of the box, row 1 for the CLS in
# outputs whose intended CLS entry is a constant. Block -1 is the encoder, L-1 the read-out.
Errors = Callable[[int, Block, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Arrived:
    """What the CLS holds before the read-out."""

    deviations: dict[tuple[int, int], Interval]  # (term, component) -> computed - true, true units
    places: dict[tuple[int, int], tuple[int, float]]  # -> (direction of layer L, unit)
    excess: Float[np.ndarray, " directions"]  # how far stored numbers may leave their nominal range
    blur: float = 0.0  # the largest share of a margin that the errors of scores use up


@dataclass(frozen=True)
class _Met:
    """What the heads of a layer meet: how far its stored numbers and its scores may be off."""

    layer: int
    T: int
    excess: Float[np.ndarray, " directions"]
    scores: dict[tuple[int, int], Interval]
    rounding: bool  # count float64


def no_errors(index: int, block: Block, excess: np.ndarray) -> np.ndarray:
    """Blocks without an error of their own: what is left is the softmax's."""
    return np.zeros((2, block.outputs))


def propagate(wiring: Wiring, T: int, betas: tuple[float, ...], errors: Errors, rounding: bool) -> Arrived:
    """The error of every stored number, layer by layer, up to what the CLS holds before the read-out."""
    layout = wiring.layout
    excess = _embedding_excess(wiring, errors, rounding)
    scores: dict[tuple[int, int], Interval] = {}
    values: dict[tuple[int, int], Interval] = {}
    places: dict[tuple[int, int], tuple[int, float]] = {}
    at_cls = np.zeros(layout.states[0].size)  # how far the CLS entries may be from their known constants
    blur = 0.0
    for layer, state in enumerate(layout.states):
        arrived: list[tuple[WiredHead, Interval]] = []
        places = {key: (j, wiring.value_units[layer][key]) for key, j in state.values.items()}
        fetched = excess.copy()
        sizes = state_bounds(wiring, layer) + excess
        met = _Met(layer, T, excess, scores, rounding)
        for head in wiring.heads[layer]:
            interval = _retrieve(wiring, head, met, betas[layer])
            arrived.append((head, interval))
            fetched[list(head.writes)] = (
                np.abs(head.value) @ excess + _value_rounding(head, T, sizes, rounding) + head.value_error
            )
            if head.job.message is not None and head.job.message.shift:
                off = _neighbour_deviation(wiring, layer, head, T, betas[layer], excess, rounding)
                fetched[list(head.writes)] += off * np.array(head.units)
            if head.job.message is None:
                blur = max(blur, _blur(wiring, head, met))
                for k, unit in enumerate(head.units):
                    values[head.job.term, k] = _widen(interval, at_cls[head.writes[k]] / unit)
                    places[head.job.term, k] = (head.writes[k], unit)
        if layer + 1 == layout.layers:
            return Arrived(values, places, fetched, blur)
        block = wiring.blocks[layer]
        added, at_cls = errors(layer, block, fetched)
        scores = _add_messages(wiring, layer, arrived, scores, fetched, added)
        values = {
            key: _widen(values[key], added[j] / wiring.value_units[layer + 1][key])
            for key, j in layout.states[layer + 1].values.items()
        }
        excess = _block_excess(block, fetched) + added
    raise AssertionError("a layout has at least one layer")


def _embedding_excess(wiring: Wiring, errors: Errors, rounding: bool) -> np.ndarray:
    state = wiring.layout.states[0]
    result = np.full(state.size, wiring.embedding_error)
    if wiring.encoder is not None:
        result += errors(-1, wiring.encoder, np.zeros(wiring.encoder.inputs))[0]
    if rounding:  # |stored| <= 1, a dot product over d coordinates with entries (x - centre)/half
        spread = float((1.0 + np.abs(wiring.form.centre) / wiring.form.half).max())
        result += 8.0 * UNIT * (wiring.form.dim + 4) * spread
    return result


def _retrieve(wiring: Wiring, head: WiredHead, met: _Met, beta: float) -> Interval:
    """Deviation of the softmax average from the true maximum, in true units."""
    term = wiring.form.terms[head.job.term]
    if head.job.message is not None and head.job.message.shift:
        return 0.0, 0.0  # no score: what is fetched counts as stored numbers do
    if term.reads is not None and head.job.message is None:
        return _winner_deviation(term, head, met, beta, term.margin * _blur(wiring, head, met))
    low, high, moved, noise = _score_errors(wiring, head, met)
    if not head.penalty:
        return low - moved - softmax_gap(met.T, beta * head.kappa) - noise, high + moved + noise
    moved += _code_error(wiring, met.layer, head, met.excess)
    leak = self_leak(term, head, beta, high - low + 2.0 * (moved + noise))
    return low - moved - softmax_gap(met.T - 1, beta * head.kappa) - noise - leak, high + moved + noise + leak


def _score_errors(wiring: Wiring, head: WiredHead, met: _Met) -> tuple[float, float, float, float]:
    """How far the scores a head compares may be off: the interval they came with, what its own rows add, rounding."""
    term = wiring.form.terms[head.job.term]
    vertex = head.job.message.child if head.job.message is not None else term.root
    low, high = met.scores.get((term.index, vertex), (0.0, 0.0))
    features = met.excess.copy()
    for coordinate in wiring.layout.states[met.layer].slots.values():
        features[coordinate] = 0.0  # slots are covered by their interval
    moved = head.defect + float(np.abs(head.own) @ features)
    if head.job.message is not None:
        message = head.job.message
        left, right = np.abs(head.psi) @ features, np.abs(head.phi) @ features
        a, b = np.abs(message.psi).sum(axis=1), np.abs(message.phi).sum(axis=1)
        moved += float((left * b + right * a + left * right).sum())
    return low, high, moved, _softmax_rounding(wiring, met.layer, head, met.T) if met.rounding else 0.0


def _blur(wiring: Wiring, head: WiredHead, met: _Met) -> float:
    """How far differences of computed scores may be from true ones, as a share of the margin of a term whose winner is
    read; 0 for other reads."""
    term = wiring.form.terms[head.job.term]
    if term.reads is None:
        return 0.0
    low, high, moved, noise = _score_errors(wiring, head, met)
    return (high - low + 2.0 * (moved + noise)) / term.margin


def self_leak(term: Term, head: WiredHead, beta: float, width: float) -> float:
    """q r: how far a token's own score, left out by the penalty, moves the average; scores err by `width` in all."""
    assert head.job.message is not None
    reach = term.spread(head.job.message) + width
    return math.exp(min(-beta * head.kappa * (head.penalty - reach), 0.0)) * reach


def _code_error(wiring: Wiring, layer: int, head: WiredHead, excess: np.ndarray) -> float:
    """Codes off by e (of what they hold) move the penalties by P (2 e + T e^2), and comparisons by twice that."""
    return head.penalty * _code_blur(wiring, layer, head, excess)


def _code_blur(wiring: Wiring, layer: int, head: WiredHead, excess: np.ndarray) -> float:
    """2 (2 e + T e^2): how far differences of products of codes may be from those of 0 and 1."""
    codes = list(wiring.layout.states[layer].codes)
    off = float(excess[codes].max()) / head.code_scale
    return 2.0 * (2.0 * off + len(codes) * off**2)


def neighbour_leak(term: Term, head: WiredHead, T: int, beta: float, width: float) -> float:
    """2 q sup|value| with q <= (T - 1) e^(-beta kappa (1 - width)), q <= 1."""
    bound = max(value_bound(term, k) for k in range(term.values))
    clear = 1.0 - width
    odds = (T - 1) * math.exp(-beta * head.kappa * clear) if clear > 0.0 else math.inf
    return 2.0 * bound * (odds / (1.0 + odds) if odds < math.inf else float(T > 1))


def _neighbour_deviation(
    wiring: Wiring, layer: int, head: WiredHead, T: int, beta: float, excess: np.ndarray, rounding: bool
) -> float:
    """How far what is fetched from a neighbour may be from the truth, beside the errors of what is stored there.

    Scores are products of codes, 0 or 1, so a logit errs by (2E + n + 8) u of beta kappa as in `_softmax_rounding`.
    """
    noise = UNIT * 4.0 * (3 * wiring.layout.sizes[layer] + 8) if rounding else 0.0
    width = _code_blur(wiring, layer, head, excess) + 2.0 * (head.defect + noise)
    return neighbour_leak(wiring.form.terms[head.job.term], head, T, beta, width) + head.value_defect


def _softmax_rounding(wiring: Wiring, layer: int, head: WiredHead, T: int) -> float:
    """Float64 allowance of one retrieval in true units.

    Queries and keys are dot products of length E, logits of length n, so a logit errs by (2E + n + 8) u * sum|q||k|;
    two such errors move the average of exact scores by at most twice that over kappa. Weights carry (T + 16) u relative
    error from exp (4 ulp), sum and quotient, and the average of T values T u more.
    """
    term = wiring.form.terms[head.job.term]
    message = head.job.message
    reach = term.bound(message.child if message is not None else term.root)
    reach += message.bound if message is not None else 0.0
    spread = (
        sum(float(np.abs(message.psi[k]).sum() * np.abs(message.phi[k]).sum()) for k in range(message.rank))
        if message is not None
        else 0.0
    )
    size = wiring.layout.sizes[layer]
    return UNIT * (4.0 * (3 * size + 8) * (spread + reach) + (2.0 * T + 32.0) * (spread + reach))


def _value_rounding(head: WiredHead, T: int, sizes: np.ndarray, rounding: bool) -> float:
    """Float64 allowance of a fetched number: an average of T values, each a dot product, weights off by (T + 16) u."""
    return UNIT * (2.0 * T + 32.0 + len(sizes)) * float((np.abs(head.value) @ sizes).max(initial=0.0)) * rounding


def _winner_deviation(term: Term, head: WiredHead, met: _Met, beta: float, width: float) -> Interval:
    """The weight of the others against the winners' is at most (T - m)/m e^(-beta kappa (margin - width)); where the
    errors of the scores reach the margin nothing is known."""
    m, T = term.winners, met.T
    bound = max(value_bound(term, k) for k in range(term.values))
    clear = term.margin - width
    odds = (T - m) / m * math.exp(-beta * head.kappa * clear) if clear > 0.0 else math.inf
    leak = odds / (1.0 + odds) if odds < math.inf else float(m < T)
    uneven = math.expm1(min(beta * head.kappa * width, MOST_UNEVEN)) if m > 1 else 0.0
    from_features = max(
        float(np.abs(row) @ met.excess) / unit for row, unit in zip(head.value, head.units, strict=True)
    )
    noise = UNIT * (4.0 * T + 64.0) * bound if met.rounding else 0.0
    off = (2.0 * leak + uneven) * bound + from_features + noise + head.value_defect
    return -off, off


def _add_messages(
    wiring: Wiring,
    layer: int,
    arrived: list[tuple[WiredHead, Interval]],
    scores: dict[tuple[int, int], Interval],
    fetched: np.ndarray,
    added: np.ndarray,
) -> dict[tuple[int, int], Interval]:
    """Scores of the next layer: what was held, plus messages, plus the block's own error."""
    layout = wiring.layout
    result = {}
    for key, output in layout.states[layer + 1].slots.items():
        low, high = scores.get(key, (0.0, 0.0))
        term = wiring.form.terms[key[0]]
        if key[1] <= HELD:
            continue
        if key not in layout.states[layer].slots and term.unary[key[1]].any():
            for piece in wiring.blocks[layer].of(output):
                if piece.power == 1:  # the unary score enters with the error of the features it is read from
                    features = np.zeros(len(fetched))
                    count = len(layout.states[layer].basis)
                    features[:count] = fetched[:count]
                    moved = abs(piece.gain) * float(np.abs(piece.factors[0]) @ features)
                    low, high = _widen((low, high), moved / wiring.slot_units[layer + 1][key])
        for head, (a, b) in arrived:
            message = head.job.message
            if message is not None and not message.shift and (head.job.term, message.parent) == key:
                low, high = (low + a, high + b) if message.sign > 0 else (low - b, high - a)
        result[key] = _widen((low, high), added[output] / wiring.slot_units[layer + 1][key])
    return result


def _widen(interval: Interval, error: float) -> Interval:
    return interval[0] - error, interval[1] + error


def _block_excess(block: Block, excess: np.ndarray) -> np.ndarray:
    """How far outputs may leave their nominal range when inputs do: products r1 e2 + r2 e1 + e1 e2, sums add."""
    result = np.zeros(block.outputs)
    if not excess.any():
        return result
    for piece, factor_errors in zip(block.pieces, block.factor_errors(excess), strict=True):
        whole = math.prod(r + e for r, e in zip(piece.radii, factor_errors, strict=True))
        result[piece.output] += abs(piece.gain) * (whole - math.prod(piece.radii))
    return result


def value_keys(form: NormalForm) -> list[tuple[int, int]]:
    """Terms in order, components in order: the arguments of the outer map."""
    return [(term.index, k) for term in form.terms for k in range(term.values)]


def outer_polynomial(form: NormalForm) -> Polynomial:
    """The polynomial the read-out computes; the identity when a network of the user's own follows."""
    outer = form.target.outer
    return Polynomial.identity(len(value_keys(form))) if isinstance(outer, OuterNetwork) else outer


def read_out(wiring: Wiring, arrived: Arrived) -> Block:
    """The block, its softmax error centred at the middle of every deviation interval."""
    form, layout = wiring.form, wiring.layout
    outer = outer_polynomial(form)
    size = layout.states[-1].size
    block = Block(size, outer.outputs)
    base, slopes, rows, shifts, radii = [], [], [], [], []
    for key in value_keys(form):
        term = form.terms[key[0]]
        direction, unit = arrived.places[key]
        offset = cls_entry(layout, layout.layers - 1, direction) if _read_last(wiring, key[0]) else 0.0
        low, high = arrived.deviations[key]
        base.append(term.sign * (float(term.constant[key[1]]) - (low + high) / 2))
        slopes.append(term.sign / unit)
        rows.append(np.eye(size)[direction])
        shifts.append(offset)
        radii.append(unit * value_bound(term, key[1]))
    monomials = _expand(outer, base, slopes)
    for output in range(outer.outputs):
        _affine_piece(block, output, monomials, rows, shifts, radii)
        for exponent, column in monomials.items():
            if sum(exponent) >= 2 and column[output]:
                axes = [i for i, power in enumerate(exponent) for _ in range(power)]
                most = 1.0 / max(exponent)  # a repeated factor adds up inside the tanh
                caps = tuple(min(most, 0.3 / len(axes) if shifts[i] else 1.0) for i in axes)
                block.pieces.append(
                    Piece(
                        output,
                        float(column[output]),
                        np.array([rows[i] for i in axes]),
                        tuple(shifts[i] for i in axes),
                        tuple(radii[i] for i in axes),
                        caps,
                    )
                )
        block.constants[output] = float(monomials.get((0,) * len(base), np.zeros(outer.outputs))[output])
    return block


def _read_last(wiring: Wiring, term: int) -> bool:
    return wiring.layout.layer_of(term, None) == wiring.layout.layers - 1


def _affine_piece(
    block: Block,
    output: int,
    monomials: dict[tuple[int, ...], np.ndarray],
    rows: list[np.ndarray],
    shifts: list[float],
    radii: list[float],
) -> None:
    """All affine terms of an output as one odd rule on one functional."""
    n = len(rows)
    unit = np.eye(n, dtype=int)
    slopes = np.array([monomials.get(tuple(unit[i].tolist()), np.zeros(block.outputs))[output] for i in range(n)])
    size = float(np.abs(slopes).max(initial=0.0))
    if size == 0.0:
        return
    share = slopes / size
    factor = sum((s * row for s, row in zip(share, rows, strict=True)), np.zeros(block.inputs))
    shift = float(share @ np.array(shifts))
    radius = float(np.abs(share) @ np.array(radii))
    block.pieces.append(Piece(output, size, factor[None], (shift,), (radius,), (1.0 / max(abs(shift), 1.0),)))


def _expand(outer: Polynomial, base: list[float], slopes: list[float]) -> dict[tuple[int, ...], np.ndarray]:
    """outer(base + slopes * y) over monomials of y, a column of output coefficients each."""
    result: dict[tuple[int, ...], np.ndarray] = {}
    for m, exponent in enumerate(outer.exponents.tolist()):
        terms: dict[tuple[int, ...], float] = {(0,) * len(base): 1.0}
        for i, power in enumerate(exponent):
            new: dict[tuple[int, ...], float] = {}
            for j in range(power + 1):
                factor = math.comb(power, j) * slopes[i] ** j * base[i] ** (power - j)
                for monomial, c in terms.items():
                    key = (*monomial[:i], monomial[i] + j, *monomial[i + 1 :])
                    new[key] = new.get(key, 0.0) + c * factor
            terms = new
        for monomial, c in terms.items():
            if c:
                result[monomial] = result.get(monomial, np.zeros(outer.outputs)) + c * outer.coefficients[:, m]
    return result


def output_error(wiring: Wiring, arrived: Arrived, added: np.ndarray) -> float:
    """sup over outputs: Lipschitz constants of the outer map times half widths, plus the read-out's own error."""
    form = wiring.form
    keys = value_keys(form)
    halves = np.array([(arrived.deviations[key][1] - arrived.deviations[key][0]) / 2 for key in keys])
    outer = outer_polynomial(form)
    reach = np.array(
        [
            abs(float(form.terms[t].constant[k]))
            + value_bound(form.terms[t], k)
            + 2 * max(map(abs, arrived.deviations[t, k]))
            for t, k in keys
        ]
    )
    total = added.astype(float) + halves @ outer.slopes(reach)
    worst = float(total.max())
    if isinstance(form.target.outer, OuterNetwork):
        return form.target.outer.lipschitz * worst + form.target.outer.error
    return worst
