"""Every summand of a bound is needed: each test plays the adversary that the summand is there for."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import infoflow as iflow
from infoflow.certificates.balls import enclose
from infoflow.certificates.measured import UnitBundle, bundle_at_zero, bundle_error
from infoflow.certificates.rules import UNIT, circle_maximum, measured_rule, rule_bias, taylor
from infoflow.commands.own_code import asked_target
from infoflow.compiler.blocks import Piece
from infoflow.compiler.compile import coordinates, write
from infoflow.compiler.propagation import no_errors, propagate
from infoflow.compiler.verification import (
    _assign,
    _blank_plan,
    _Family,
    _Reader,
    _Units,
    coordinate_bounds,
    gain_of,
    layout_of,
    read,
    with_stored_errors,
)
from infoflow.compiler.wiring import wire
from infoflow.construct.rank_one import memorize as memory
from infoflow.errors import InfoFlowError
from infoflow.flow.layout import lay_out

BEYOND = 400  # orders, far more than are tabulated


def whole_series(bias, slopes, outputs, power, radius):
    """sum_m |t_m sum_i w_i s_i^m - [m = power]| radius^m over all orders but the constant, none left to an estimate."""
    orders = np.arange(1, BEYOND + 1)
    moments = taylor(bias, BEYOND)[1:] * ((slopes[None, :] * radius) ** orders[:, None] @ outputs)
    moments[power - 1] -= radius**power
    return float(np.abs(moments).sum())


@pytest.mark.parametrize("power", [1, 2])
def test_orders_beyond_the_table_are_counted(power):
    """Near the circle of convergence the orders above 160 are 1e-8 of the error: Cauchy's estimate stands for them."""
    bias = rule_bias(power)
    radius = 0.99 * circle_maximum(bias)[0]
    slopes, outputs = np.array([1.0, 0.5]), np.array([0.7, -0.2])
    bundle = UnitBundle(slopes[:, None], np.full(2, bias), outputs, {(power,): 1.0}, (radius,), bias)
    needed = whole_series(bias, slopes, outputs, power, radius)
    tabulated = needed - float(np.abs(taylor(bias, BEYOND)[161:] * radius ** np.arange(161, BEYOND + 1)).sum()) / 10
    assert tabulated < needed <= bundle_error(bundle)
    pytest.importorskip("flint")
    assert needed <= enclose(bundle).upper


def test_a_rule_counts_them_too():
    bias = rule_bias(1)
    rule = measured_rule(1, bias, np.array([1.0, 0.5]), np.array([0.7, -0.2]))
    radius = 0.99 * rule.tail_radius
    assert whole_series(bias, rule.slopes, rule.coefficients, 1, radius) <= rule.error(radius)


@pytest.mark.parametrize("T", [64, 4096])
def test_rounding_of_a_softmax_is_counted(T):
    """Weights off by (T + 16) units each, up on one half of the scores and down on the other, move a mean of scores
    +-reach by (T + 16) u reach: the allowance of a retrieval is at least that."""
    wiring = wire(lay_out(iflow.targets.sum_of_maxima(1, 1), T), 1.0, 1.0)
    exact, rounded = (propagate(wiring, T, (1.0,), no_errors, rounding) for rounding in (False, True))
    (head,) = wiring.heads[0]
    reach = wiring.form.terms[head.job.term].bound(0)
    ((low, high),) = exact.deviations.values()
    ((wide_low, wide_high),) = rounded.deviations.values()
    moved = (T + 16) * UNIT * reach
    assert wide_high - high >= moved
    assert low - wide_low >= moved


@pytest.mark.parametrize("tensor", ["query", "key"])
def test_a_small_change_of_a_logit_is_counted(tensor):
    """An entry off by 1e-10 moves a logit by that times what it multiplies; the average of the scores moves by twice
    the logit over kappa, and the defect of the head holds it."""
    network = iflow.build("pairwise_max:D=1,d=2", 5, 0.1)
    target = iflow.targets.pairwise_max(1, 2)
    layout = layout_of(network, target, 5, network.header["domain"])
    wiring = wire(layout, 1, gain_of(network))
    expected = write(layout, _blank_plan(wiring, network), 1)
    matrix = getattr(network.attentions[0], tensor)
    row, column = (int(i) for i in torch.nonzero(matrix[0])[0])
    matrix.data[0, row, column] += 1e-10
    size = np.zeros(layout.sizes[0])
    size[coordinates(layout, 0)] = coordinate_bounds(wiring, 0)
    partner = getattr(expected.attentions[0], "key" if tensor == "query" else "query")[0, row].numpy()
    logit = 1e-10 * size[column] * float(np.abs(partner) @ size)  # attained by tokens at the corners
    (before,), (after,) = wiring.heads[0], with_stored_errors(wiring, network, expected).heads[0]
    assert logit > 0
    assert after.defect - before.defect >= 2 * logit / before.kappa


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_slope_of_a_table_times_the_blur_of_its_argument_is_counted(sign):
    """Two executions read t at most 2 blur apart. With one unit the rounding of the ReLU sum covers one blur, and the
    slope the other."""
    close = np.array([[[1.0, 0.0]], [[1.0 + 1e-6, 1e-7]]])
    made = memory.memorize(close, [[1], [1000]])
    contexts, table = made.contexts, made.memory
    blur = memory._readout_error(contexts, made_head(made), table.readout)
    states = table.class_states(contexts)
    moved = states + sign * 2 * blur * table.readout / float(table.readout @ table.readout)
    error = float(np.abs(table.lookup_output(moved) - made.labels).max())
    assert error > made.certificate.parts["residual"] + made.certificate.parts["rounding"]
    assert error <= made.certificate.bound


def made_head(made):
    spread = made.spread
    output = spread.amplitude * spread.readout / float(spread.readout @ spread.readout)
    return memory.RankOneHead(spread.key, spread.query, output)


def test_a_moved_constant_moves_the_cls_too():
    """A bias of the second map is added at every place: tokens and CLS both miss by it."""
    network = iflow.build("pairwise_max:D=1,d=2", 5, 0.1)
    wiring = wire(layout_of(network, iflow.targets.pairwise_max(1, 2), 5, network.header["domain"]), 1, 1.0)

    def accounts():
        reader, found = _Reader(network, wiring, 1), {}
        propagate(wiring, 5, network.config.betas, lambda i, *rest: found.setdefault(i, reader(i, *rest)), True)
        return found[0]

    before = accounts()
    network.ffns[0].maps[1].bias.data[0] += 1e-7
    column = list(coordinates(wiring.layout, 1)).index(0)
    assert (accounts() - before)[:, column] == pytest.approx([1e-7, 1e-7], rel=1e-6, abs=0)


@pytest.mark.parametrize("power", [1, 2])
def test_an_output_of_units_is_bounded_by_the_sum_it_states(power):
    """error = bundles + |constant - wanted| + u A (4 (inputs + 4) + 6 + width), A the sum of all amplitudes. At the CLS
    the input is 0: the bundles at 0, the same constant, and that rounding unless odd units add exact zeros."""
    slope, weights, constant = 1e-7, np.array([0.5, -0.25]), 0.3
    bias = rule_bias(power)
    gain = float(taylor(bias)[power] * weights.sum() * slope**power)
    piece = Piece(0, gain, np.array([[1.0, 0.0]] * power), (0.0,) * power, (1.0,) * power, (1.0,) * power)
    wanted = constant + math.fsum(weights) * math.tanh(bias) + 1e-9
    bundles, nothing = [], np.zeros(2)
    units = _Units(np.array([[slope, 0.0]] * 2), np.full(2, bias), weights, constant)
    found = _Reader._rule_output(None, [piece], units, wanted, np.arange(2), (np.ones(2), nothing), nothing, bundles)
    rounding = UNIT * (0.75 + 0.3) * (4 * (1 + 4) + 6 + 2)
    (bundle,) = bundles
    assert found[0] - bundle_error(bundle) - 1e-9 == pytest.approx(rounding, rel=0.01, abs=0)
    assert found[1] - bundle_at_zero(bundle) - 1e-9 == pytest.approx(
        rounding if power == 2 else 0.0, rel=0.01, abs=1e-16
    )


@pytest.mark.parametrize("domain", [(3.0, 4.0), (-4.0, -3.0), (-1.0, 4.0)])
def test_the_encoder_sees_the_whole_box(domain):
    target = iflow.targets.Target.sum(iflow.targets.sum_of_maxima(1, 1).terms[0], domain=domain)
    wiring = wire(lay_out(target, 4), None, 1.0)
    assert _Reader(None, wiring, None)._reach(-1, 1, np.arange(1), np.zeros(1)) == pytest.approx([4.0])


def test_a_hidden_unit_sees_what_earlier_layers_add():
    wiring = wire(lay_out(iflow.targets.pairwise_max(1, 2), 4), 1, 1.0)
    inputs = coordinates(wiring.layout, 0)
    bounds, excess = coordinate_bounds(wiring, 0), np.arange(1, len(inputs) + 1) / 8
    found = _Reader(None, wiring, 1)._reach(0, wiring.layout.sizes[0], inputs, excess)
    assert found[inputs] == pytest.approx(bounds + excess)
    assert np.delete(found, inputs) == pytest.approx(0.0)


def test_a_small_change_of_an_embedding_is_counted():
    """Row i of the encoder off by 1e-10 per entry moves coordinate i by 1e-10 sum |x|, at a corner of the box."""
    network = iflow.build("pairwise_max:D=1,d=2", 5, 0.1)
    layout = layout_of(network, iflow.targets.pairwise_max(1, 2), 5, network.header["domain"])
    wiring = wire(layout, 1, gain_of(network))
    expected = write(layout, _blank_plan(wiring, network), 1)
    (linear,) = network.encoder.maps
    linear.weight.data[0] += 1e-10
    linear.bias.data[0] += 3e-10
    assert with_stored_errors(wiring, network, expected).embedding_error == pytest.approx(5e-10, rel=1e-5, abs=0)


@pytest.mark.parametrize("spelling", ["pairwise_max:D=2,d=2", "chain:length=3,d=1", "kth_largest:k=2,d=1", "recall"])
def test_no_token_leaves_the_bounds_of_its_coordinates(spelling):
    """What every feed-forward block really sees, tokens and CLS, at corners and inside the box."""
    target, T = asked_target(spelling), 5
    network = iflow.build(spelling, T, 0.1)
    layout = layout_of(network, target, T, network.header["domain"])
    wiring = wire(layout, 1, gain_of(network))
    seen = {}
    for index, block in enumerate([*network.ffns, network.readout]):
        block.register_forward_hook(lambda _, inputs, __, index=index: seen.update({index: inputs[0]}))
    inside = np.random.default_rng(0).uniform(-1, 1, (200, T, target.dim))
    network(torch.from_numpy(np.concatenate([inside, np.sign(inside)])))
    for index, state in seen.items():
        largest = state.detach().abs().reshape(-1, state.shape[-1]).amax(0).numpy()[coordinates(layout, index)]
        assert (largest <= coordinate_bounds(wiring, index) + 0.1).all()


def padded():
    """A network with coordinates and units that nothing uses, and what reads it."""
    target, T = iflow.targets.pairwise_max(1, 2), 5
    small = iflow.build(target, T, 0.1).config
    wide = iflow.Architecture(small.heads, tuple(e + 3 for e in small.embed), tuple(w + 2 for w in small.widths))
    network = iflow.build(target, T, 0.1, arch=wide)
    return network, lambda: read(network, target, T, network.header["domain"], 1).violations


def test_padding_that_is_written_to_is_named():
    network, violations = padded()
    assert violations() == []
    weight = network.ffns[0].maps[1].weight.data
    row = int(torch.nonzero((weight == 0).all(1))[-1])
    weight[row, 3] = 1e-3
    assert f"ffns.0.maps.1.weight[{row},3] is 0.001 and must be 0" in violations()
    weight[row, 3] = 0.0
    network.ffns[0].maps[1].bias.data[row] = 1e-3
    assert f"ffns.0.maps.1.bias[{row}] is 0.001 and must be 0" in violations()


def test_units_without_inputs_may_add_up_to_a_constant():
    network, violations = padded()
    first, second = network.ffns[0].maps
    unit = int(torch.nonzero((second.weight == 0).all(0))[-1])
    row = int(torch.nonzero(second.bias == 1.0)[0])
    first.weight.data[unit], first.bias.data[unit] = 0.0, math.atanh(0.5)
    second.bias.data[row], second.weight.data[row, unit] = 0.5, 1.0
    assert violations() == []
    second.bias.data[row] = 1.0
    assert violations() != []


def test_the_constant_direction_of_the_embedding_is_exact():
    """Nobody counts its errors, so 1e-10 is too much there; elsewhere it is counted."""
    network, target = iflow.build("kth_largest:k=2,d=1", 5, 0.1), asked_target("kth_largest:k=2,d=1")
    bias = network.encoder.maps[0].bias.data
    one, other = int(torch.nonzero(bias)[0]), int(torch.nonzero(network.encoder.maps[0].weight)[0, 0])
    bias[other] += 1e-10
    found = read(network, target, 5, network.header["domain"], 1)
    assert found.violations == []
    assert sum(found.parts.values()) == pytest.approx(found.bound)
    bias[one] += 1e-10
    (words,) = read(network, target, 5, network.header["domain"], 1).violations
    assert words.startswith(f"encoder.maps.0.bias[{one}]")
    bias[one] -= 1e-10
    network.position.data[2, other] += 1e-10
    assert read(network, target, 5, network.header["domain"], 1).violations == []
    network.position.data[2, one] += 1e-10
    (words,) = read(network, target, 5, network.header["domain"], 1).violations
    assert words.startswith(f"position[2,{one}]")


def test_a_small_change_of_a_value_that_is_read_is_counted():
    """A value off by 1e-10 of a coordinate that reaches 1 is read back divided by the unit it was stored in."""
    network, target = iflow.build("recall", 5, 0.1), asked_target("recall")
    layout = layout_of(network, target, 5, network.header["domain"])
    wiring = wire(layout, 1, gain_of(network))
    expected = write(layout, _blank_plan(wiring, network), 1)
    at = next(i for i, heads in enumerate(wiring.heads) if any(head.units for head in heads))
    head = next(head for head in wiring.heads[at] if head.units)
    network.attentions[at].value.data[head.job.head, 0] += 1e-10
    after = next(h for h in with_stored_errors(wiring, network, expected).heads[at] if h.job.head == head.job.head)
    assert after.value_defect - head.value_defect >= 0.99e-10 / min(head.units)


@pytest.mark.parametrize(
    ("row", "words"), [(0, "moves the CLS off 0 in x[1]"), (2, "gives the flag"), (3, "must give 0")]
)
def test_a_moved_constant_of_a_deep_network_is_named(row, words):
    """Features of the CLS must be 0 and its flag 1, for later layers read them; the proof counts no error there."""
    network, target = iflow.build("pairwise_max:D=2,d=1", 4, 0.1, arch="heads=1,1,1"), iflow.targets.pairwise_max(2, 1)
    assert read(network, target, 4, network.header["domain"], 1).violations == []
    network.ffns[0].maps[1].bias.data[row] += 1e-6
    found = read(network, target, 4, network.header["domain"], 1).violations
    assert found
    assert all(words in each for each in found)
    assert row != 2 or {each[-5:] for each in found} == {"for 0", "for 1"}


def test_a_small_change_of_a_maximum_that_is_read_is_counted():
    """A value off by 1e-10, key and query untouched: the maximum is read back divided by the unit it was stored in."""
    network, target = iflow.build("pairwise_max:D=1,d=1", 4, 0.1), iflow.targets.pairwise_max(1, 1)
    layout = layout_of(network, target, 4, network.header["domain"])
    wiring = wire(layout, 1, gain_of(network))
    expected = write(layout, _blank_plan(wiring, network), 1)
    (head,) = wiring.heads[-1]
    network.attentions[-1].value.data[head.job.head, 0] += 1e-10
    (after,) = with_stored_errors(wiring, network, expected).heads[-1]
    assert after.defect - head.defect >= 0.99e-10 / min(head.units)


def test_the_cls_may_be_off_by_four_roundings_and_no_more():
    network, target = iflow.build("value_at_argmax", 3, 0.1), asked_target("value_at_argmax")
    place = int(network.cls_token.abs().argmax())
    for roundings, named in ((4, False), (6, True)):
        changed = network.cls_token.data.clone()
        changed[place] *= 1 + roundings * UNIT
        kept, network.cls_token.data = network.cls_token.data, changed
        assert bool(read(network, target, 3, network.header["domain"], 1).violations) == named
        network.cls_token.data = kept


def test_the_least_gain_is_a_gain():
    assert gain_of(SimpleNamespace(header={"slot_gain": 1e-100})) == 1e-100
    with pytest.raises(InfoFlowError, match="slot_gain from 1e-100 to 1"):
        gain_of(SimpleNamespace(header={"slot_gain": math.nextafter(1e-100, 0.0)}))


def test_the_largest_scale_is_a_scale():
    network, target = iflow.build("min_pair", 4, 0.1), asked_target("min_pair")
    for beta in (1e100, math.nextafter(1e100, math.inf)):
        network.config = replace(network.config, scales=(beta,) * network.config.layers)
        if beta == 1e100:
            assert layout_of(network, target, 4, network.header["domain"]).layers == network.config.layers
        else:
            with pytest.raises(InfoFlowError, match=r"between 0 and 1e\+100"):
                layout_of(network, target, 4, network.header["domain"])


def test_a_coordinate_at_the_edge_of_rounding_is_kept():
    family = _Family(np.eye(2), np.zeros(2), (1.0, 1.0), {(1, 1): 1.0}, 2)
    hidden = np.array([[1.0, 1e-14], [1.0, 0.9e-14]])
    _, rests, (c,) = _assign([family], hidden, np.zeros(2), np.arange(2), np.ones(2))
    assert c.tolist() == [[1.0, 1e-14], [1.0, 0.0]]
    assert rests.tolist() == [[0.0, 0.0], [0.0, 0.9e-14]]


def test_features_beside_an_augmented_position_are_read_back():
    """The encoder's map has fewer rows than layer 1 has directions: the positions are not its own."""
    target = iflow.targets.d_retrieval(2, 1, sets=[[0, 1], [1, 2]])
    network = iflow.build(target, 3, 0.2, arch="heads=2 embed=12 positions=augmented")
    found = read(network, target, 3, network.header["domain"], 1)
    assert found.violations == []
    assert found.bound <= 0.2


@pytest.mark.parametrize("name", ["recall", "after_match"])
def test_a_changed_value_moves_scores_except_where_it_is_what_is_read(name):
    """Messages carry scores of later layers; winners and neighbours carry what is read, which is counted as a value."""
    network, target = iflow.build(name, 5, 0.2), asked_target(name)
    layout = layout_of(network, target, 5, network.header["domain"])
    wiring = wire(layout, 1, gain_of(network))
    expected = write(layout, _blank_plan(wiring, network), 1)
    for attention in network.attentions:
        attention.value.data += 1e-10
    after = with_stored_errors(wiring, network, expected)
    seen = set()
    for before, changed in zip(sum(wiring.heads, ()), sum(after.heads, ()), strict=True):
        message = before.job.message
        read = message is None or message.shift != 0
        seen.add(read)
        assert (changed.defect > before.defect) != read
        assert (changed.value_defect > before.value_defect) == bool(before.units)
    assert seen == {True, False}
