"""Bounds of short sequences by splitting the box of inputs: networks of any depth, T d of 6 or less.

On a box of inputs network and target are forms (`network_forms.py`, `target_forms.py`). With F = const + sum_i w_i M_i
and M_i the largest of its pieces, sign (network - F) is at most

    sign (network - const) - sum over terms that enter with a minus of one piece each     (any one: M_i >= each piece)
                           + the largest, over one piece of each term that enters with a plus, of their sum.

Boxes with the largest bound are halved. Where neither network nor target asks for positions, sequences whose first
coordinates rise cover all of them, so boxes without such a sequence are dropped: T! times less work.
"""

import heapq
import time
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer
from infoflow.proofs import network_forms, target_forms
from infoflow.proofs.forms import AffineForm, boxes, joined
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.target import Target

MOST_INPUTS = 6  # T d, beyond which halving boxes proves nothing in useful time
MOST_CHOICES = 256  # of one piece for each term
TOGETHER = 128  # boxes halved at once
CLOSE = 0.01  # the search ends when the bound is within this share of an error that was attained


@dataclass(frozen=True)
class Split:
    bound: float
    boxes: int
    open: int  # boxes that a longer search would halve
    seconds: float


@dataclass(order=True)
class Box:
    key: float
    number: int
    low: np.ndarray = field(compare=False)
    high: np.ndarray = field(compare=False)
    axis: int = field(compare=False)


def uncovered(network: Transformer, target: Target, T: int) -> list[str]:
    """Why splitting gives no bound; empty when it gives one."""
    reasons = network_forms.uncovered(network)
    if T * target.dim > MOST_INPUTS:
        reasons.append(f"T d = {T * target.dim} inputs, above the {MOST_INPUTS} that can be split")
    reason = target_forms.uncovered(target, T)
    return reasons if reason is None else [*reasons, f"a target without pieces ({reason})"]


def errors(network: Transformer, target: Target, T: int, low: np.ndarray, high: np.ndarray) -> AffineForm:
    """Forms whose largest value bounds |network - F| on every box: (boxes, all signs, outputs and choices)."""
    tokens = boxes(low, high).each(lambda array: array.reshape(*array.shape[:-1], T, -1))
    nets, values = network_forms.outputs(network, tokens), target_forms.values(target, tokens)
    assert isinstance(target.outer, Polynomial)
    weight, constant = target.outer.affine()
    found = []
    for o, sign in product(range(len(constant)), (1.0, -1.0)):
        total = nets[:, o].shifted(-constant[o]).times(sign)
        total, rising = _lowered(total, values, -sign * weight[o])
        found.append(_with_choices(total, rising))
    return joined(found, -1)


def _lowered(
    total: AffineForm, values: list[target_forms.Pieces], weights: np.ndarray
) -> tuple[AffineForm, list[AffineForm]]:
    """The terms that enter with a minus, each by its piece that is largest in the middle; the others as they are."""
    rising = []
    for value, weight in zip(values, (weights * [v.sign for v in values]).tolist(), strict=True):
        if weight > 0.0:
            rising.append(value.forms.times(weight))
        elif weight < 0.0:
            best = value.forms.c.argmax(-1)
            rows = np.arange(len(best))
            total = total + value.forms[rows, best].times(weight)
    return total, rising


def _with_choices(total: AffineForm, rising: list[AffineForm]) -> AffineForm:
    """(boxes, choices): one piece of each rising term added to the rest."""
    found = total[:, None]
    for value in rising:
        many = found.c.shape[1] * value.c.shape[1] > MOST_CHOICES
        grid = found[:, :, None] + (_one_piece(value) if many else value)[:, None, :]
        found = grid.each(lambda array: array.reshape(*array.shape[:-2], -1))
    return found


def _one_piece(value: AffineForm) -> AffineForm:
    """A single form above all pieces: the one largest in the middle, raised by what another may exceed it."""
    rows = np.arange(len(value.c))
    best = value[rows, value.c.argmax(-1)][:, None]
    over = np.maximum((value - best).high.max(-1, keepdims=True), 0.0)
    return best.shifted(over)


def split(
    network: Transformer,
    target: Target,
    T: int,
    low: np.ndarray,
    high: np.ndarray,
    seconds: float,
    attained: float = 0.0,
) -> Split:
    """The largest error over the box; `attained` is an error some input has, at which the search may stop."""
    reasons = uncovered(network, target, T)
    if reasons:
        raise InfoFlowError(f"expected a short sequence and a known target, got {', '.join(reasons)}.")
    begin, made = time.monotonic(), 0
    c = network.config
    if c.positions != "none" and c.length < T:
        raise InfoFlowError(f"expected at most {c.length} tokens (the position table), got {T}.")
    free = c.positions == "none" and c.mask == "none" and target_forms.symmetric(target)
    heap: list[Box] = []
    lows, highs, above = np.tile(low, T)[None], np.tile(high, T)[None], np.array([np.inf])
    _push(heap, errors(network, target, T, lows, highs), lows, highs, above, made)
    made = 1
    while time.monotonic() - begin < seconds and -heap[0].key > (1.0 + CLOSE) * attained:
        worst = [heapq.heappop(heap) for _ in range(min(TOGETHER, len(heap)))]
        lows, highs, above = _halves(worst)
        if free:
            keep = _ordered(lows, highs, T)
            lows, highs, above = lows[keep], highs[keep], above[keep]
        _push(heap, errors(network, target, T, lows, highs), lows, highs, above, made)
        made += len(lows)
    bound = -heap[0].key
    return Split(bound, made, len(heap), time.monotonic() - begin)


def _push(
    heap: list[Box], found: AffineForm, lows: np.ndarray, highs: np.ndarray, above: np.ndarray, made: int
) -> None:
    """The boxes with the bounds that were found, never above what their parents had, and the side to halve next."""
    tops = np.where(np.isnan(found.high), np.inf, found.high)
    at = tops.argmax(1)
    rows = np.arange(len(lows))
    slopes, rest = np.abs(found.a[:, rows, at]).T, found.e[rows, at]
    side = highs - lows
    scores = np.nan_to_num(slopes + rest[:, None] * side / side.max(1, keepdims=True), nan=0.0, posinf=0.0)
    axes = np.where(scores.any(1), scores.argmax(1), side.argmax(1))
    for i, bound in enumerate(np.minimum(tops[rows, at], above).tolist()):
        heapq.heappush(heap, Box(-bound, made + i, lows[i], highs[i], int(axes[i])))


def _halves(worst: list[Box]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lows, highs, above = [], [], []
    for box in worst:
        middle = 0.5 * (box.low[box.axis] + box.high[box.axis])
        left, right = box.high.copy(), box.low.copy()
        left[box.axis] = right[box.axis] = middle
        lows += [box.low, right]
        highs += [left, box.high]
        above += [-box.key] * 2
    return np.array(lows), np.array(highs), np.array(above)


def _ordered(lows: np.ndarray, highs: np.ndarray, T: int) -> np.ndarray:
    """Boxes that hold a sequence with rising first coordinates: running maxima of lower ends fit under the upper."""
    first, last = lows.reshape(len(lows), T, -1)[:, :, 0], highs.reshape(len(highs), T, -1)[:, :, 0]
    return np.asarray((np.maximum.accumulate(first, 1) <= last).all(1))
