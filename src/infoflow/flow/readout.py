"""The read-out block: the outer map on the values the CLS has read, with the one-sided softmax error centred.

Value i is v_i = sign_i (constant_i - centre_i) + sign_i (y_i - offset_i) / unit_i, y_i the stored number. The read-out
computes the outer polynomial of v: one odd rule per output for the affine part, product rules for the rest.
"""

import math

import numpy as np

from infoflow.flow.blocks import Block, Piece
from infoflow.flow.normal_form import NormalForm
from infoflow.flow.propagation import Arrived
from infoflow.flow.wiring import Wiring, cls_entry, value_bound
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.target import OuterNetwork


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
