"""From an error eps to inverse temperatures and rules, with the bound they give and its parts.

A share s of eps goes to softmax: beta = (sum over retrievals of W((T-1)/e)/(2 kappa), weighted by the outer map) /
(s eps), the one-sided error being centred in the output bias. A fixed share goes to the feed-forward blocks, divided
over their outputs in inverse proportion to how strongly each reaches the result; what is left covers float64 rounding.
Widths never see T: only beta does.
"""

import sys
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from infoflow import cost
from infoflow.compiler.blocks import Block, Piece, choose, flag_choice
from infoflow.compiler.offer import Offer, Question, Refusal
from infoflow.compiler.propagation import Arrived, no_errors, output_error, propagate, read_out
from infoflow.compiler.wiring import SLOT_GAINS, USUAL_GAIN, Wiring, state_bounds, value_bound, wire
from infoflow.flow.layout import Layout, Refused, lay_out
from infoflow.targets.target import OuterNetwork

# Shares of eps for softmax and for the feed-forward blocks. beta is a field and costs nothing, and accuracy is cheap
# for chebyshev (width ~ log^2 1/share; one layer has a read-out alone, so it is cheapest there); plain pays 1/share.
SHARES = {"chebyshev": (0.25, 0.25), "plain": (0.25, 0.45)}
ONE_LAYER_SHARES = {"chebyshev": (0.05, 0.1), "plain": (0.05, 0.45)}
MOST_NUMBERS = 2**25  # feed-forward weights of a network that is still written, 256 MiB
# Each product's rule is chosen by how strongly it reaches the result through all others: measured on one core.
SECONDS_A_PAIR, SECONDS_A_PAIR_OF_LAYERS = 2e-4, 1e-3
# Free choices, every one of which gives a valid bound. In 28 cases (benchmarks/budget_constants.py) the networks are
# the same with RETRY from 0.4 to 0.95, LEAK_SHARE from 0.005 to 0.5, SENSITIVITY_STEP from 1e-9 to 1e-5.
# Where rounding leaves an attempt above eps, or an encoder lifts a token above norm 1, blocks may err by RETRY as much.
RETRY, ATTEMPTS = 0.6, 18
LEAK_SHARE = 0.05  # of the softmax's share goes to what leaks past a margin; it costs log 20 in beta kappa, no unit
SENSITIVITY_STEP = 1e-7  # of a difference quotient: rounding adds 2^-53 / step = 1e-9 to it, curvature a step
SMALLEST_EPS = 1e-100
SHARPEST = 1e300  # beta without softmax error
MOST_BLUR = 0.5  # share of a margin that errors of scores may use up, half softmax, half blocks; a larger beta pays


@dataclass(frozen=True)
class Budget:
    """betas and widths per layer (the last width is the read-out's), the bound and its summands, and the wiring."""

    betas: tuple[float, ...]
    widths: tuple[int, ...]
    encoder_width: int
    bound: float
    parts: dict[str, float]
    wiring: Wiring
    blocks: tuple[Block, ...]  # F_1..F_{L-1}, read-out, with their rules
    encoder: Block | None


def budget(
    layout: Layout,
    eps: float,
    weight_bound: float | None = 1.0,
    rule: str = "chebyshev",
    gain: float | None = None,
) -> Budget:
    """Choose betas and rules for `layout` so that the bound is at most eps; Refused when that is impossible.

    `gain` is how large scores are stored; None takes the one that needs the fewest units.
    """
    T = layout.form.T
    reasons = _call_reasons(eps, rule)
    if reasons:
        raise Refused(reasons, "accuracy")
    weight_bound = weight_class(weight_bound)
    products = sum(1 if job.message is None else job.message.rank for jobs in layout.jobs for job in jobs)
    seconds = SECONDS_A_PAIR * products**2 + SECONDS_A_PAIR_OF_LAYERS * layout.layers**2
    what = f"spending the error over {products} products in {layout.layers} layers"
    cost.work(seconds, 1.0, what, "D, d or the number of layers")
    gain = _settled_gain(layout, weight_bound, rule) if gain is None else gain
    if gain is None:
        return _fits(_fewest_units(layout, T, eps, weight_bound, rule), layout)
    return _fits(_spend(layout, T, eps, weight_bound, rule, gain), layout)


def _settled_gain(layout: Layout, weight_bound: float | None, rule: str) -> float | None:
    """The gain where there is nothing to choose; None where the number of units decides."""
    if weight_bound is None or layout.layers == 1:
        return 1.0  # coefficients are free, or no score is stored
    return USUAL_GAIN if rule == "plain" else None  # gains of order sqrt(eps) would spoil its law, width ~ 1/eps


def _fewest_units(layout: Layout, T: int, eps: float, weight_bound: float | None, rule: str) -> Budget:
    """Downhill over the gains from the usual one; a network that fits the given widths goes before others."""
    found: dict[int, tuple[tuple[int, int], Budget | Refused]] = {}

    def units(i: int) -> tuple[int, int]:
        if i not in found:
            try:
                result = _spend(layout, T, eps, weight_bound, rule, SLOT_GAINS[i])
                found[i] = (len(_misfits(result, layout)), sum(result.widths)), result
            except Refused as refusal:
                found[i] = (sys.maxsize, 0), refusal
        return found[i][0]

    here = SLOT_GAINS.index(USUAL_GAIN)
    for step in (-1, 1):
        while 0 <= here + step < len(SLOT_GAINS) and units(here + step) < units(here):
            here += step
    best = found[here][1]
    if isinstance(best, Refused):
        raise best
    return best


def _spend(layout: Layout, T: int, eps: float, weight_bound: float | None, rule: str, gain: float) -> Budget:
    wiring = wire(layout, weight_bound, gain)
    stated = layout.form.target.outer.error if isinstance(layout.form.target.outer, OuterNetwork) else 0.0
    if stated >= eps:
        raise Refused([f"the outer network states an error of {stated:g}, which is not below eps={eps:g}"], "accuracy")
    for_softmax, for_blocks = (ONE_LAYER_SHARES if layout.layers == 1 else SHARES)[rule]
    chooser = _Chooser(wiring, (eps - stated) * for_blocks, weight_bound, rule)
    share = 1.0
    for _ in range(ATTEMPTS):
        result = _attempt(chooser, T, (eps - stated) * for_softmax, share, weight_bound)
        if result is not None and result.bound + stated + _checked_rounding(result) <= eps:
            result = replace(result, bound=result.bound + stated, parts={**result.parts, "outer network": stated})
            return result if stated else replace(result, parts=_without(result.parts, "outer network"))
        share *= RETRY
    if result is None:
        raise Refused(
            ["the encoder's error lifts a token above norm 1, however small it is; lift the weight bound"], "weights"
        )
    raise Refused([f"float64 rounding leaves no rule within eps={eps:g} at T={T}; take a larger eps"], "accuracy")


def _checked_rounding(result: Budget) -> float:
    """What reading the stored units back may add to the bound, so that certify, too, stays within eps.

    With a unit amplitude a block is allowed u (4 (inputs + 4) + 6 + width) here; the series of its stored units is
    summed with a slack of 2 u (units + 8) sum_m |t_m| reach^m, the last factor below 3/2, which is at most three times
    as much. A millionth of the bound covers what coefficients lose when they are stored.
    """
    return 3.0 * result.parts["rounding"] + 1e-6 * result.bound


def _without(parts: dict[str, float], name: str) -> dict[str, float]:
    return {key: value for key, value in parts.items() if key != name}


def weight_class(weight_bound: float | None) -> float | None:
    """The class the compiler writes for: weights at most 1, which every larger bound admits, or no bound."""
    if weight_bound is None:
        return None
    if not weight_bound >= 1:
        raise Refused([f"the compiler writes weights up to 1, the weight bound is {weight_bound:g}"], "weights")
    return 1.0


def _call_reasons(eps: float, rule: str) -> list[str]:
    reasons = []
    if not (isinstance(eps, (int, float)) and np.isfinite(eps) and eps > 0):
        reasons.append(f"eps must be a positive number, got {eps!r}")
    elif eps < SMALLEST_EPS:
        reasons.append(f"eps must be at least {SMALLEST_EPS:g}, whose shares are numbers of float64, got {eps!r}")
    if rule not in ("chebyshev", "plain"):
        reasons.append(f"rule must be chebyshev or plain, got {rule!r}")
    return reasons


class _Chooser:
    """Tolerances from sensitivities, then rules layer by layer."""

    def __init__(self, wiring: Wiring, share: float, weight_bound: float | None, rule: str) -> None:
        self.wiring, self.share, self.weight_bound, self.rule = wiring, share, weight_bound, rule
        self.factor = 1.0
        self.rounding = False
        self.fitted: dict[int, Block] = {}
        sharpest = (SHARPEST,) * wiring.layout.layers
        nominal = propagate(wiring, 1, sharpest, no_errors, False)
        self.readout_outputs = read_out(wiring, nominal).outputs
        outer = wiring.form.target.outer
        self.last = outer.lipschitz if isinstance(outer, OuterNetwork) else 1.0
        base = output_error(wiring, nominal, np.zeros(self.readout_outputs)), nominal.blur
        self.sensitivity = self._sensitivities(sharpest, *base)
        self.outputs = max(sum(1 for s in self.sensitivity.values() if s > 0.0), 1)

    def _sensitivities(self, sharpest: tuple[float, ...], base: float, blur: float) -> dict[tuple[int, int], float]:
        """How strongly an error of each output reaches the result, or (as if that cost the whole share) uses up half of
        what may blur a margin."""
        wiring, step = self.wiring, SENSITIVITY_STEP
        blocks = list(enumerate(wiring.blocks))
        if wiring.encoder is not None:
            blocks.append((-1, wiring.encoder))
        result = {}
        for index, block in blocks:
            for output in sorted({piece.output for piece in block.pieces}):

                def one(i: int, b: Block, _: np.ndarray, index: int = index, output: int = output) -> np.ndarray:
                    errors = np.zeros((2, b.outputs))
                    if i == index:
                        errors[0, output] = step
                    return errors

                arrived = propagate(wiring, 1, sharpest, one, False)
                error = output_error(wiring, arrived, np.zeros(self.readout_outputs))
                blurs = self.share * (arrived.blur - blur) / (MOST_BLUR / 2.0)
                result[index, output] = max(error - base, blurs) / step
        for output in range(self.readout_outputs):
            result[wiring.layout.layers - 1, output] = self.last
        return result

    def outer_slope(self) -> float:
        """How strongly an error of every value reaches the result, at most."""
        wiring = self.wiring
        nominal = propagate(wiring, 1, (SHARPEST,) * wiring.layout.layers, no_errors, False)
        shifted = replace(nominal, deviations=dict.fromkeys(nominal.deviations, (-1e-6, 1e-6)))
        return max(output_error(wiring, shifted, np.zeros(self.readout_outputs)) * 1e6, 1e-12)

    def __call__(self, index: int, block: Block, excess: np.ndarray) -> np.ndarray:
        """Choose rules for a block whose inputs may leave their nominal ranges by `excess`; errors per output."""
        if index in self.fitted:
            fitted = self.fitted[index]
        else:
            fitted = self.fitted[index] = self._fit(index, block, excess)
        errors = np.zeros((2, block.outputs))
        for piece in fitted.pieces:
            assert piece.choice is not None
            errors[0, piece.output] += piece.choice.error
        if self.rounding:
            errors += fitted.rounding(self.weight_bound)
        return errors

    def _fit(self, index: int, block: Block, excess: np.ndarray) -> Block:
        pieces = []
        shared = Counter(piece.output for piece in block.pieces)
        for piece, errors in zip(block.pieces, block.factor_errors(excess), strict=True):
            radii = tuple((r + error) * (1.0 + 1e-9) for r, error in zip(piece.radii, errors, strict=True))
            choice = self._choice(index, piece, radii, shared[piece.output])
            pieces.append(replace(piece, radii=radii, choice=choice))
        return Block(block.inputs, block.outputs, pieces, block.constants)

    def _choice(self, index: int, piece: Piece, radii: tuple[float, ...], shared: int) -> Any:
        if is_flag(self.wiring, index, piece):
            return flag_choice(piece.gain, self.weight_bound)
        sensitivity = self.sensitivity.get((index, piece.output), 0.0)
        share = self.share * self.factor / self.outputs / shared
        tolerance = share / sensitivity if sensitivity > 0.0 else abs(piece.gain) * 0.1
        bound = None if index == -1 and self.weight_bound is None else self.weight_bound
        choice = choose(piece.power, piece.gain, radii, piece.caps, tolerance, bound, self.rule)
        if choice is None:
            reason = f"no tanh rule in float64 reaches the tolerance {tolerance:.2g} this eps asks for"
            raise Refused([reason], "accuracy")
        return choice


def is_flag(wiring: Wiring, index: int, piece: Piece) -> bool:
    """Pieces that carry the CLS flag have inputs 0 and 1 only and are exact."""
    if not 0 <= index < wiring.layout.layers - 1 or piece.power != 1:
        return False
    flag = wiring.layout.states[index].flag
    return flag is not None and bool(piece.factors[0][flag] != 0.0)


def _attempt(chooser: _Chooser, T: int, for_softmax: float, factor: float, weight_bound: float | None) -> Budget | None:
    wiring = chooser.wiring
    layout = wiring.layout
    chooser.factor, chooser.fitted = factor, {}
    betas = _betas(wiring, chooser, T, for_softmax)
    chooser.rounding = False
    dry = _total(wiring, chooser, T, (SHARPEST,) * layout.layers, False)
    soft = _total(wiring, no_errors, T, betas, False, zero_readout=True)
    chooser.rounding = True
    # the read-out's constants depend on the centred softmax error, so it is fitted again for these betas
    chooser.fitted.pop(layout.layers - 1, None)
    bound, _ = _evaluate(wiring, chooser, T, betas, True)
    parts = {"softmax": soft, "feed-forward": dry, "rounding": max(bound - soft - dry, 0.0)}
    blocks = tuple(chooser.fitted[layer] for layer in range(layout.layers))
    widths = tuple(block.width(weight_bound) for block in blocks)
    encoder = chooser.fitted.get(-1)
    if (
        encoder is not None
        and weight_bound is not None
        and _embedding_norm(wiring, chooser(-1, encoder, np.zeros(encoder.inputs))) > 1.0
    ):
        return None
    width = encoder.width(weight_bound) if encoder is not None else 0
    return Budget(betas, widths, width, bound, parts, wiring, blocks, encoder)


def _embedding_norm(wiring: Wiring, errors: np.ndarray) -> float:
    """sup |embedding| of a token: every coordinate at its largest, its error added."""
    return float(np.linalg.norm(state_bounds(wiring, 0)[: len(errors[0])] * _used(wiring) + errors[0]))


def _used(wiring: Wiring) -> np.ndarray:
    """1 on the directions a token's embedding fills, the constant's value on the constant."""
    state = wiring.layout.states[0]
    used = np.zeros(state.size)
    used[: len(state.basis)] = 1.0
    used[list(state.codes[1:])] = 0.0  # a token fills one of the single positions
    if state.one is not None:
        used[state.one] = wiring.token_one[0]
    return used


def _evaluate(wiring: Wiring, errors: Any, T: int, betas: tuple[float, ...], rounding: bool) -> tuple[float, Arrived]:
    arrived = propagate(wiring, T, betas, errors, rounding)
    block = read_out(wiring, arrived)
    added = errors(wiring.layout.layers - 1, block, arrived.excess)[0]
    return output_error(wiring, arrived, added), arrived


def _total(
    wiring: Wiring, errors: Any, T: int, betas: tuple[float, ...], rounding: bool, zero_readout: bool = False
) -> float:
    if zero_readout:
        arrived = propagate(wiring, T, betas, errors, rounding)
        return output_error(wiring, arrived, np.zeros(read_out(wiring, arrived).outputs))
    return _evaluate(wiring, errors, T, betas, rounding)[0]


def _betas(wiring: Wiring, chooser: _Chooser, T: int, share: float) -> tuple[float, ...]:
    """One beta for all layers from the softmax error at beta = 1 (it is proportional to 1/beta); heads that read fixed
    positions, or leave out the token that asks, need beta kappa >= log of what may leak."""
    layout = wiring.layout
    result = [1.0] * layout.layers
    for layer, heads in enumerate(wiring.heads):
        for head in heads:
            term = wiring.form.terms[head.job.term]
            if term.reads is not None and head.job.message is None and term.winners < T:
                m, bound = term.winners, max(value_bound(term, k) for k in range(term.values))
                leak = LEAK_SHARE * share / (2.0 * bound * (T - m) / m * chooser.outer_slope())
                clear = term.margin * (1.0 if term.positions is not None else 1.0 - MOST_BLUR)
                result[layer] = max(result[layer], -np.log(leak) / (head.kappa * clear))
            if head.job.message is not None and head.job.message.shift:
                bound = max(value_bound(term, k) for k in range(term.values))
                leak = LEAK_SHARE * share / (2.0 * bound * max(T - 1, 1) * chooser.outer_slope())
                result[layer] = max(result[layer], -np.log(leak) / (head.kappa * (1.0 - MOST_BLUR)))
            if head.penalty:
                assert head.job.message is not None
                reach = 1.1 * term.spread(head.job.message)  # a tenth of it is far above the errors of scores
                leak = LEAK_SHARE * share / (reach * chooser.outer_slope())
                result[layer] = max(result[layer], -np.log(leak) / (head.kappa * (head.penalty - reach)))
    large = 1e6  # softmax error is proportional to 1/beta once it is small against the curvature of the outer map
    arrived = propagate(wiring, T, (large,) * layout.layers, no_errors, False)
    soft = output_error(wiring, arrived, np.zeros(read_out(wiring, arrived).outputs))
    common = max(soft / share, arrived.blur / (MOST_BLUR / 2.0)) * large
    return tuple(max(float(b), float(common), 1e-6) for b in result)


def _fits(result: Budget, layout: Layout) -> Budget:
    sizes = [*layout.sizes, result.blocks[-1].outputs]
    numbers = [w * (a + b + 2) for w, a, b in zip(result.widths, sizes, sizes[1:], strict=False)]
    if sum(numbers) > MOST_NUMBERS:
        raise Refused(
            [
                f"weights of at most 1 need widths {', '.join(map(str, result.widths))} here, "
                f"{8 * sum(numbers) / 2**30:.3g} GiB; take a larger eps, rule chebyshev or weight_bound None"
            ],
            "accuracy",
        )
    reasons = _misfits(result, layout)
    if reasons:
        raise Refused(reasons, "architecture")
    return result


def _misfits(result: Budget, layout: Layout) -> list[str]:
    """Blocks that need more units than the given architecture has."""
    if layout.arch is None or layout.arch.width is None:
        return []
    return [
        f"{'the read-out' if layer == layout.layers else f'feed-forward block {layer}'} needs width {need}, "
        f"the architecture has {have}"
        for layer, (need, have) in enumerate(zip(result.widths, layout.arch.width, strict=True), 1)
        if need > have
    ]


READOUT = "one hidden layer of tanh units"


def fits(asked: Question) -> Offer | Refusal:
    """The compiler's answer: the layout of the target's jobs on the heads, the error budget within the widths."""
    try:
        shape = asked.arch or asked.target.stated_shape
        layout = lay_out(asked.target, asked.T, shape, asked.domain)
        spent = budget(layout, asked.eps, asked.weight_bound, asked.rule)
    except Refused as refused:
        return Refusal.of("compiler", refused)
    plan = (layout, spent)
    return Offer("compiler", layout.heads, layout.embed, spent.widths, spent.bound, spent.betas, READOUT, plan)
