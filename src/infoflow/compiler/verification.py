"""The a-priori bound, recomputed from the tensors of a built network.

What the heads do is compared with the wiring of the target entry by entry, in the low-rank factors the network was
built with (flow.jobs); differences of rounding size, as another linear algebra library makes them, enter the bound.
What the feed-forward blocks do is read from their stored weights (certificates.measured), so a changed weight there
changes the bound. A deviation that is not bounded makes `holds` false and is named, tensor and index.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from infoflow.architecture import Architecture
from infoflow.arguments import shown
from infoflow.certificates.certificate import expect_config, expect_fields, expect_float64
from infoflow.certificates.measured import UnitBundle, bundle_at_zero, bundle_error
from infoflow.certificates.rules import UNIT, rule_bias
from infoflow.compiler.blocks import Block, Piece
from infoflow.compiler.budget import Budget, is_flag
from infoflow.compiler.compile import coordinates, linear_maps, write
from infoflow.compiler.propagation import no_errors, outer_polynomial, output_error, propagate, read_out
from infoflow.compiler.wiring import Wiring, state_bounds, wire
from infoflow.errors import InfoFlowError
from infoflow.flow.layout import Layout, lay_out
from infoflow.nn import Transformer
from infoflow.nn.transformer import AttentionLayer, Linear
from infoflow.targets.target import Target

SAME = 4 * UNIT  # entries may differ by this much relatively: the rounding allowance covers it
LEAST_GAIN = 1e-100  # its square is still divided by
# Flags and constants, which nobody bounds, may be off by this. A logit is allowed 4 (3E + 8) u of its size where its
# own sums need half of that; the other half, 28 u at least, covers such a factor and its rounding in execution.
EXACT = 16 * UNIT
LARGEST_BETA = 1e100  # logits stay far from overflow
# What build writes whatever the target; the rest of the configuration follows from the target and is compared with it.
PROVED: dict[str, Any] = {
    "activation": "tanh",
    "readout_activation": None,
    "encoder_activation": None,
    "ffn_layers": 1,
    "ffn_skip": False,
    "readout": True,
    "readout_skip": False,
    "encoder_skip": False,
    "residual": True,
    "layer_norm": False,
    "cls": True,
    "hard": False,
    "share_key_value": False,
    "streams": (),
}
NEAR = 1e-9  # and by this share of the tensor's largest entry (of 1 at least) when their effect is added to the bound


@dataclass
class Reading:
    """What was read from the tensors: the bound, its parts, every bundle of units, and what does not fit."""

    bound: float
    parts: dict[str, float]
    bundles: dict[str, list[UnitBundle]] = field(default_factory=dict)  # block name -> the bundles of its outputs
    violations: list[str] = field(default_factory=list)  # structure that breaks the proof
    notes: list[str] = field(default_factory=list)  # weights that differ and are bounded


def layout_of(network: Transformer, target: Target, T: int, domain: Any) -> Layout:
    """The layout that a stored network claims to have, from its configuration and target."""
    config = network.config
    expect_fields(config, PROVED, "a network made by build")
    expect_float64(network.named_parameters())
    if network.stack:
        raise InfoFlowError(f"expected one network, got model axes {network.stack}; certify network.select(i).")
    if not all(0.0 < beta <= LARGEST_BETA for beta in config.betas):
        raise InfoFlowError(
            f"expected scales (beta) between 0 and {LARGEST_BETA:g} in the configuration of a network made by build, "
            f"got {config.betas}; build the network again."
        )
    if config.positions != "none" and config.length != T:
        raise InfoFlowError(f"expected T={config.length}, the length of the position table, got T={T}.")
    arch = Architecture(config.heads, config.embed, config.widths, config.positions, config.mask)
    return lay_out(target, T, arch, domain, network.header.get("factors"))


def gain_of(network: Transformer) -> float:
    """How large the file says scores are stored. Any number will do: the rules are measured against it."""
    gain = network.header.get("slot_gain")
    if type(gain) is not float or not LEAST_GAIN <= gain <= 1.0:
        raise InfoFlowError(f"expected slot_gain from {LEAST_GAIN} to 1 in the header, got {shown(gain)}; build again.")
    return gain


def read(network: Transformer, target: Target, T: int, domain: Any, weight_bound: float | None) -> Reading:
    """Bound and violations of the stored tensors for sequences of length T in the box."""
    layout = layout_of(network, target, T, domain)
    wiring = wire(layout, weight_bound, gain_of(network))
    reader = _Reader(network, wiring, weight_bound)
    expected = write(layout, _blank_plan(wiring, network), weight_bound)
    expect_config(network.config, expected.config, "a network made by build")
    violations = _structure(network, expected, wiring)
    if not violations:
        wiring = reader.wiring = with_stored_errors(wiring, network, expected)
    betas = network.config.betas
    arrived = propagate(wiring, T, betas, reader, True)
    block = read_out(wiring, arrived)
    added = reader(layout.layers - 1, block, arrived.excess)[0]
    bound = output_error(wiring, arrived, added)
    soft = _softmax_part(wiring, T, betas, block.outputs)
    reading = Reading(bound, {"softmax": soft, "feed-forward and rounding": max(bound - soft, 0.0)}, reader.bundles)
    reading.violations = reader.violations + violations
    return reading


def _softmax_part(wiring: Wiring, T: int, betas: tuple[float, ...], outputs: int) -> float:
    return output_error(wiring, propagate(wiring, T, betas, no_errors, False), np.zeros(outputs))


class _Units(NamedTuple):
    """The stored units that feed one output, and its constant."""

    hidden: np.ndarray
    biases: np.ndarray
    weights: np.ndarray
    constant: float


class _Reader:
    """Errors of the stored blocks, in the form `propagate` asks for."""

    def __init__(self, network: Transformer, wiring: Wiring, weight_bound: float | None) -> None:
        self.network, self.wiring, self.weight_bound = network, wiring, weight_bound
        self.bundles: dict[str, list[UnitBundle]] = {}
        self.violations: list[str] = []

    def __call__(self, index: int, block: Block, excess: np.ndarray) -> np.ndarray:
        name, stored = self._stored(index)
        hidden, biases, outer, constants = stored
        layout = self.wiring.layout
        inputs = np.arange(block.inputs) if index == -1 else coordinates(layout, index)
        last = index == layout.layers - 1
        outputs = np.arange(block.outputs) if last else coordinates(layout, index + 1)
        errors = np.zeros((2, block.outputs))
        reach = self._reach(index, hidden.shape[1], inputs, excess)
        reach_cls = reach.copy()
        if index >= 0:
            reach_cls[inputs[: len(layout.states[index].basis)]] = 0.0  # the CLS has no features
        bundles: list[UnitBundle] = []
        for j in range(block.outputs):
            if outputs[j] >= outer.shape[0]:
                continue  # augmented positions are not the encoder's
            used = np.flatnonzero(outer[outputs[j]])
            pieces = block.of(j)
            if not pieces:
                self._exact_output(name, outputs[j], outer, constants, block.constants.get(j, 0.0), hidden, biases)
                continue
            units = _Units(hidden[used], biases[used], outer[outputs[j], used], float(constants[outputs[j]]))
            wanted = block.constants.get(j, 0.0)
            if any(is_flag(self.wiring, index, piece) for piece in pieces):
                self._flag_output(name, int(outputs[j]), units, wanted, inputs, pieces)
                continue
            errors[:, j] = self._rule_output(pieces, units, wanted, inputs, (reach, reach_cls), excess, bundles)
            if 0 <= index < layout.layers - 1 and j < len(layout.states[index + 1].basis) and errors[1, j] > 0.0:
                self.violations.append(
                    f"{name}.maps.1.weight[{outputs[j]},:] moves the CLS off 0 in {layout.states[index + 1].names[j]}"
                )
        self._silent_outputs(name, outer, constants, outputs)
        self.bundles[name] = bundles
        return errors

    def _stored(self, index: int) -> tuple[str, tuple[np.ndarray, ...]]:
        network, layers = self.network, self.wiring.layout.layers
        name = "encoder" if index == -1 else "readout" if index == layers - 1 else f"ffns.{index}"
        first, second = linear_maps(network.get_submodule(name))
        tensors = (first.weight, first.bias, second.weight, second.bias)
        return name, tuple(t.detach().cpu().double().numpy() for t in tensors)

    def _reach(self, index: int, size: int, inputs: np.ndarray, excess: np.ndarray) -> np.ndarray:
        """sup of |every coordinate| a hidden unit may see, padding included (0 there)."""
        result = np.zeros(size)
        if index == -1:
            form = self.wiring.form
            made: np.ndarray = np.abs(form.centre) + form.half
            return made
        result[inputs] = coordinate_bounds(self.wiring, index) + excess
        return result

    def _rule_output(
        self,
        pieces: list[Piece],
        units: _Units,
        wanted: float,
        inputs: np.ndarray,
        reaches: tuple[np.ndarray, np.ndarray],
        excess: np.ndarray,
        bundles: list[UnitBundle],
    ) -> tuple[float, float]:
        """(error, error at the CLS) of one output: its units shared out over its pieces, each a bundle."""
        hidden, biases, weights, constant = units
        reach, reach_cls = reaches
        families = [_Family.of(family) for family in _families(pieces)]
        assigned, rests, coefficients = _assign(families, hidden, biases, inputs, reach)
        error = float(np.abs(weights) @ (rests @ reach))
        still = assigned < 0
        error_cls = float(np.abs(weights) @ (rests @ reach_cls))
        total = [constant, *(weights[still] * np.tanh(biases[still])).tolist()]
        for f, family in enumerate(families):
            mine = assigned == f
            bundle = family.bundle(coefficients[f][mine], biases[mine], weights[mine], excess)
            bundles.append(bundle)
            error += bundle_error(bundle)
            error_cls += bundle_at_zero(bundle)
            total.extend((bundle.outputs * math.tanh(bundle.bias)).tolist())
        offset = abs(math.fsum(total) - wanted)
        width, size = hidden.shape[0], int(np.count_nonzero(hidden, axis=1).max(initial=0))  # zeros add exact zeros
        amplitude = float(np.abs(weights).sum()) + abs(constant)
        rounding = UNIT * amplitude * (4.0 * (size + 4) + 6.0 + width)
        odd = all(piece.power == 1 for piece in pieces)
        rounding_cls = 0.0 if odd else rounding  # odd units at 0 add exact zeros
        return error + offset + rounding, error_cls + offset + rounding_cls

    def _exact_output(
        self,
        name: str,
        row: int,
        outer: np.ndarray,
        constants: np.ndarray,
        wanted: float,
        hidden: np.ndarray,
        biases: np.ndarray,
    ) -> None:
        """Constants and directions that must be exactly 0: units without inputs may add up to the constant."""
        used = np.flatnonzero(outer[row])
        moving = [i for i in used if hidden[i].any()]
        for i in moving:
            self.violations.append(f"{name}.maps.1.weight[{row},{i}] is {outer[row, i]:.6g} and must be 0")
        value = constants[row] + float(outer[row, used] @ np.tanh(biases[used]))
        if not moving and abs(value - wanted) > EXACT * max(abs(wanted), 1.0):
            self.violations.append(f"{name}.maps.1.bias[{row}] gives {value:.17g} and must give {wanted:.17g}")

    def _flag_output(
        self,
        name: str,
        row: int,
        units: _Units,
        constant_wanted: float,
        inputs: np.ndarray,
        pieces: list[Piece],
    ) -> None:
        """The CLS flag takes two values; both must come out exactly."""
        hidden, biases, weights, constant = units
        direction = np.zeros(hidden.shape[1])
        direction[inputs] = pieces[0].factors[0]
        column = int(np.abs(direction).argmax())
        unwanted = [int(i) for i in np.flatnonzero(np.delete(hidden, column, axis=1).any(axis=1))]
        for y in (0.0, 1.0):
            wanted = constant_wanted + sum(piece.gain for piece in pieces) * y
            value = constant + float(weights @ np.tanh(biases + hidden[:, column] * y))
            if unwanted or abs(value - wanted) > EXACT:
                self.violations.append(f"{name}.maps.1.weight[{row},:] gives the flag {value:.17g} for {wanted:.17g}")

    def _silent_outputs(self, name: str, outer: np.ndarray, constants: np.ndarray, outputs: np.ndarray) -> None:
        """Padding must stay 0."""
        for row in np.setdiff1d(np.arange(outer.shape[0]), outputs):
            for i in np.flatnonzero(outer[row]):
                self.violations.append(f"{name}.maps.1.weight[{row},{i}] is {outer[row, i]:.6g} and must be 0")
            if constants[row]:
                self.violations.append(f"{name}.maps.1.bias[{row}] is {constants[row]:.6g} and must be 0")


def coordinate_bounds(wiring: Wiring, layer: int) -> np.ndarray:
    """Nominal sup of every direction of a layer, after its attention, over tokens and CLS."""
    state = wiring.layout.states[layer]
    before = state_bounds(wiring, layer)
    result = before.copy()
    for head in wiring.heads[layer]:
        fetched = np.abs(head.value) @ before
        for k, j in enumerate(head.writes):
            fresh = j not in state.slots.values() and j >= len(state.basis) and j not in (state.one, state.flag)
            result[j] = fetched[k] if fresh else before[j] + fetched[k]
    return result


def _families(pieces: list[Piece]) -> list[list[Piece]]:
    """Pieces of one power that share a factor belong together: x1^2, x1 x2 and x2^2 have units in one plane."""
    families: list[list[Piece]] = []
    for piece in pieces:
        touching = [f for f in families if any(_share(piece, other) for other in f)]
        families = [f for f in families if all(f is not t for t in touching)]
        families.append([*(p for f in touching for p in f), piece])
    return families


def _share(a: Piece, b: Piece) -> bool:
    return a.power == b.power and any(np.array_equal(f, g) for f in a.factors for g in b.factors)


@dataclass(frozen=True)
class _Family:
    """Distinct factors as variables, with shifts and radii, and the monomials wanted in them."""

    rows: np.ndarray
    shifts: np.ndarray
    radii: tuple[float, ...]
    monomials: dict[tuple[int, ...], float]
    power: int

    @classmethod
    def of(cls, pieces: list[Piece]) -> "_Family":
        rows: list[np.ndarray] = []
        shifts, radii = [], []
        for piece in pieces:
            for factor, shift, radius in zip(piece.factors, piece.shifts, piece.radii, strict=True):
                if not any(np.array_equal(factor, row) for row in rows):
                    rows.append(factor)
                    shifts.append(shift)
                    radii.append(radius)
        monomials: dict[tuple[int, ...], float] = {}
        for piece in pieces:
            exponents = tuple(sum(bool(np.array_equal(f, row)) for f in piece.factors) for row in rows)
            monomials[exponents] = monomials.get(exponents, 0.0) + piece.gain
        return cls(np.array(rows), np.array(shifts), tuple(radii), monomials, pieces[0].power)

    def bundle(self, slopes: np.ndarray, biases: np.ndarray, weights: np.ndarray, excess: np.ndarray) -> UnitBundle:
        radii = tuple(
            float(r + np.abs(row) @ excess) * (1.0 + 1e-9) for r, row in zip(self.radii, self.rows, strict=True)
        )
        return UnitBundle(slopes, biases + slopes @ self.shifts, weights, self.monomials, radii, rule_bias(self.power))


def _assign(
    families: list[_Family], hidden: np.ndarray, biases: np.ndarray, inputs: np.ndarray, reach: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """For every unit the family whose variables span it best (bias and distance together), what is left over of its
    weights, and its coordinates in each family's variables. Units without inputs belong to none."""
    costs, rests, coordinates_ = [], [], []
    for family in families:
        full = np.zeros((len(family.rows), hidden.shape[1]))
        full[:, inputs] = family.rows
        c = hidden @ np.linalg.pinv(full)
        c[np.abs(c) < 1e-14 * np.abs(c).max(initial=1.0)] = 0.0
        rests.append(np.abs(hidden - c @ full))
        coordinates_.append(c)
        costs.append(rests[-1] @ reach + np.abs(biases + c @ family.shifts - rule_bias(family.power)))
    assigned = np.array(costs).argmin(axis=0)
    rest = np.array(rests)[assigned, np.arange(len(biases))]
    assigned[~hidden.any(axis=1)] = -1
    return assigned, rest, coordinates_


def _structure(network: Transformer, expected: Transformer, wiring: Wiring) -> list[str]:
    """Attention, encoder, positions and CLS against the wiring, entry by entry."""
    violations = []
    wanted_tensors = expected.state_dict()
    for name, tensor in network.state_dict().items():
        block = name.startswith(("ffns", "readout")) or (name.startswith("encoder") and wiring.encoder is not None)
        if block:
            continue
        wanted = wanted_tensors[name]
        off = ~((tensor.double() - wanted).abs() <= _allowed(name, wanted, wiring))
        for place in torch.nonzero(off).tolist():
            index = ",".join(map(str, place))
            violations.append(
                f"{name}[{index}] is {tensor[tuple(place)].item():.17g}, the construction has "
                f"{wanted[tuple(place)].item():.17g}"
            )
    return violations


def _allowed(name: str, wanted: torch.Tensor, wiring: Wiring) -> torch.Tensor:
    """How far entries of a tensor may be off. The CLS, the output maps and the constant direction, whose errors nobody
    counts, must agree to SAME."""
    strict = SAME * wanted.abs()
    if name == "cls_token" or name.endswith(".output"):
        return strict
    allowed = torch.full_like(wanted, NEAR * max(float(wanted.abs().max()), 1.0))
    one = wiring.layout.states[0].one
    if one is not None and not name.startswith("attentions"):
        column = int(coordinates(wiring.layout, 0)[one])
        axis = wanted.ndim - 1 if name == "position" else 0
        if column < wanted.shape[axis]:
            allowed.select(axis, column).copy_(strict.select(axis, column))
    return allowed


def with_stored_errors(wiring: Wiring, network: Transformer, expected: Transformer) -> Wiring:
    """The wiring with what small differences of stored entries do: to embeddings, to scores, to fetched values.

    Stored numbers are at most b = coordinate bounds + 1, the 1 far above any excess a bound below eps allows. A logit
    (over beta) moves by at most l = sum_k (|dq| b)(|k| b) + (|q| b)(|dk| b) + (|dq| b)(|dk| b), so the softmax average
    of the scores by 2 l/kappa. A message is read back as sum_k (q_k z) v_k/kappa, a read as v/unit. Where winners are
    read, the scores that choose them and the values keep separate accounts.
    """
    layout = wiring.layout
    heads = []
    for layer, jobs in enumerate(wiring.heads):
        reach = np.ones(layout.sizes[layer])
        reach[coordinates(layout, layer)] += coordinate_bounds(wiring, layer)
        stored, wanted = (_attention_arrays(net, layer) for net in (network, expected))
        changed = []
        for head in jobs:
            h = head.job.head
            q, k, _ = (np.abs(w[h]) @ reach for w in wanted)
            dq, dk, dv = (np.abs(s[h] - w[h]) @ reach for s, w in zip(stored, wanted, strict=True))
            logit = float((dq * k + q * dk + dq * dk).sum())
            back = float((q + dq).max() * dv.sum()) / head.fetched if head.job.message is not None else 0.0
            read = float(dv.max()) / min(head.units) if head.units else 0.0
            winner = wiring.form.terms[head.job.term].reads is not None and (
                head.job.message is None or head.job.message.shift != 0
            )
            defect = head.defect + 2.0 * logit / head.kappa + (0.0 if winner else back + read)
            value_defect = head.value_defect + read  # asked of winners alone
            changed.append(replace(head, defect=defect, value_defect=value_defect, value_error=float(dv.max())))
        heads.append(tuple(changed))
    return replace(wiring, heads=tuple(heads), embedding_error=_embedding_error(wiring, network, expected))


def _attention_arrays(network: Transformer, layer: int) -> tuple[np.ndarray, ...]:
    attention = network.attentions[layer]
    assert isinstance(attention, AttentionLayer)
    assert attention.value is not None
    return tuple(t.detach().cpu().double().numpy() for t in (attention.query, attention.key, attention.value))


def _embedding_error(wiring: Wiring, network: Transformer, expected: Transformer) -> float:
    """|dW| sup|x| + |db| of a linear encoder (another is read as a block), and the position table's difference."""
    total = 0.0
    if wiring.encoder is None:
        far = np.abs(wiring.form.centre) + wiring.form.half
        (stored,), (wanted,) = (linear_maps(net.get_submodule("encoder")) for net in (network, expected))
        dW, db = (
            (a - b).detach().abs().cpu().double().numpy() for a, b in zip(_pair(stored), _pair(wanted), strict=True)
        )
        total += float((dW @ far + db).max(initial=0.0))
    if network.position is not None:
        assert expected.position is not None
        total += float((network.position.double() - expected.position).abs().max())
    return total


def _pair(linear: Linear) -> tuple[torch.Tensor, torch.Tensor]:
    return linear.weight.double(), linear.bias.double()


def _blank_plan(wiring: Wiring, network: Transformer) -> Budget:
    """A budget with the stored shapes and no rules: enough to write what is not a feed-forward block."""
    layers = wiring.layout.layers
    empty = tuple(Block(1, outer_polynomial(wiring.form).outputs) for _ in range(layers))
    encoder = None if wiring.encoder is None else Block(wiring.form.dim, 1)
    width = 0 if encoder is None else network.config.encoder_width
    return Budget(network.config.betas, network.config.widths, width, math.inf, {}, wiring, empty, encoder)
