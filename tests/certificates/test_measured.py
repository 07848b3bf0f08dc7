"""Bounds from stored units: they agree with the rules, and they stay true when a unit is changed."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.certificates.balls import enclose
from infoflow.certificates.measured import UnitBundle, bundle_at_zero, bundle_error, group
from infoflow.certificates.rules import UNIT, circle_maximum, measured_rule, rule_bias, taylor
from infoflow.compiler.blocks import Piece, choose, units


def made(power, radii, gain, tolerance):
    choice = choose(power, gain, radii, (1.0,) * power, tolerance, 1.0, "chebyshev")
    piece = Piece(0, gain, np.eye(power), (0.0,) * power, radii, (1.0,) * power, choice)
    return choice, units(piece)


def true_error(bundle, seed=0):
    rng = np.random.default_rng(seed)
    n = len(bundle.radii)
    y = rng.uniform(-1, 1, (4000, n))
    y[: 2**n] = list(product((-1, 1), repeat=n))
    y *= bundle.radii
    wanted = sum(gain * (y ** np.array(e)).prod(1) for e, gain in bundle.monomials.items())
    value = np.tanh(y @ bundle.slopes.T + bundle.biases) @ bundle.outputs - np.tanh(bundle.bias) * bundle.outputs.sum()
    return float(np.abs(value - wanted).max())


@pytest.mark.parametrize(("power", "radii", "gain"), [(1, (0.7,), 2.3), (2, (0.5, 0.4), 0.8), (3, (0.4,) * 3, 1.0)])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_stored_units_give_the_bound_of_their_rule(power, radii, gain, tolerance):
    choice, (hidden, biases, outputs) = made(power, radii, gain, tolerance)
    bundle = UnitBundle(hidden, biases, outputs, {(1,) * power: gain}, radii, rule_bias(power))
    assert true_error(bundle) <= bundle_error(bundle)
    assert bundle_error(bundle) == pytest.approx(choice.error, rel=1e-6)
    assert len(outputs) == choice.neurons
    assert np.abs(outputs).max() <= 1.0
    assert bundle_at_zero(bundle) < 1e-10


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from(["hidden", "bias", "output"]), st.floats(-0.5, 0.5), st.integers(1, 2)
)
def test_a_changed_unit_never_escapes_the_bound(seed, where, change, power):
    rng = np.random.default_rng(seed)
    _, (hidden, biases, outputs) = made(power, (0.5, 0.3)[:power], 1.0, 1e-3)
    unit = int(rng.integers(len(outputs)))
    if where == "hidden":
        hidden[unit, int(rng.integers(power))] += change
    elif where == "bias":
        biases[unit] += change
    else:
        outputs[unit] += change
    bundle = UnitBundle(hidden, biases, outputs, {(1,) * power: 1.0}, (0.5, 0.3)[:power], rule_bias(power))
    assert true_error(bundle, seed) <= bundle_error(bundle)
    assert left_at_zero(bundle) <= bundle_at_zero(bundle)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_what_any_units_leave_at_zero_is_bounded(seed, count):
    rng = np.random.default_rng(seed)
    slopes, outputs, bias = rng.uniform(-1, 1, (count, 3)), rng.normal(size=count), rule_bias(3)
    bundle = UnitBundle(slopes, bias + rng.normal(size=count) / 10, outputs, {(1, 1, 1): 1.0}, (0.3, 0.2, 0.5), bias)
    assert 0 < left_at_zero(bundle) <= bundle_at_zero(bundle)


def left_at_zero(bundle):
    """The largest |bundle - constant| over a grid of the box where the first variable is 0."""
    rest = [np.linspace(-r, r, 21) for r in bundle.radii[1:]]
    y = np.array([(0.0, *others) for others in product(*rest)])
    value = np.tanh(y @ bundle.slopes.T + bundle.biases) @ bundle.outputs - np.tanh(bundle.bias) * bundle.outputs.sum()
    return float(np.abs(value).max())


def test_a_small_change_costs_little():
    _, (hidden, biases, outputs) = made(2, (0.5, 0.4), 1.0, 1e-3)
    base = bundle_error(UnitBundle(hidden, biases, outputs, {(1, 1): 1.0}, (0.5, 0.4), rule_bias(2)))
    hidden[3, 1] += 1e-6
    biases[5] -= 1e-6
    outputs[7] += 1e-6
    changed = bundle_error(UnitBundle(hidden, biases, outputs, {(1, 1): 1.0}, (0.5, 0.4), rule_bias(2)))
    assert base < changed < base + 1e-5


def test_units_along_one_direction_are_one_group_without_slip():
    """(1, 1/3) is no number of nine digits; the direction that is kept is the units' own."""
    slopes = np.outer([0.5, -0.25, 1.0], [1.0, 1 / 3])
    bias = rule_bias(2)
    bundle = UnitBundle(slopes, np.full(3, bias), np.ones(3), {(1, 1): 1.0}, (0.5, 0.5), bias)
    (found,), slip = group(bundle)
    assert slip < 1e-15
    assert found.direction == pytest.approx([1.0, 1 / 3], rel=1e-15)
    assert sorted(found.slopes) == pytest.approx([-0.25, 0.5, 1.0], rel=1e-15)


def test_units_of_a_rule_stay_one_group_when_rounding_decides_which_entry_is_largest():
    """(s, -s) stored one ulp off in either entry is one direction: two opposite groups would not cancel any more."""
    for tolerance in (1e-2, 1e-5):
        choice, (hidden, biases, outputs) = made(2, (0.5, 0.5), 1.0, tolerance)
        hidden[::2, 0] *= 1 + 2.0**-52
        hidden[1::2, 1] *= 1 + 2.0**-52
        bundle = UnitBundle(hidden, biases, outputs, {(1, 1): 1.0}, (0.5, 0.5), rule_bias(2))
        assert len(group(bundle)[0]) == 2
        assert true_error(bundle) <= bundle_error(bundle) == pytest.approx(choice.error, rel=1e-6)


@pytest.mark.parametrize("variable", [0, 1])
def test_units_of_one_variable_alone_are_counted(variable):
    """Units along y_1 or along y_2 make a square where y_1 y_2 is wanted: neither is taken for a unit at rest."""
    slopes, bias = np.zeros((2, 2)), rule_bias(2)
    slopes[:, variable] = 0.4, -0.4
    bundle = UnitBundle(slopes, np.full(2, bias), np.array([1.0, 1.0]), {(1, 1): 0.25}, (0.3, 0.3), bias)
    assert len(group(bundle)[0]) == 1
    assert true_error(bundle) <= bundle_error(bundle)


@pytest.mark.parametrize("share", [0.9, 0.99, 0.999])
def test_a_fan_along_one_direction_has_the_error_of_its_rule(share):
    """Near the circle of convergence Cauchy's tail is most of it."""
    radius = share * circle_maximum(0.0)[0]
    slopes, outputs = np.array([1.0, 0.5]), np.array([0.7, -0.2])
    rule = measured_rule(1, 0.0, slopes, outputs)
    bundle = UnitBundle(slopes[:, None], np.zeros(2), outputs, {(1,): 1.0}, (radius,), 0.0)
    assert rule.error(radius) == pytest.approx(bundle_error(bundle), rel=1e-9, abs=0)
    pytest.importorskip("flint")
    assert enclose(bundle).upper == pytest.approx(bundle_error(bundle), rel=0.02)
    assert enclose(bundle).lower <= bundle_error(bundle)


def test_one_variable_leaves_its_biases_alone_at_zero():
    bias = rule_bias(2)
    for moved in (0.0, 0.125, -0.125):
        biases = bias + np.array([moved, 0.0])
        bundle = UnitBundle(np.array([[1.0], [0.5]]), biases, np.array([2.0, -3.0]), {(2,): 1.0}, (0.3,), bias)
        assert bundle_at_zero(bundle) == pytest.approx(2 * abs(moved), rel=1e-12, abs=0)


def test_a_monomial_that_nobody_wants_is_counted_in_balls_too():
    """Units along y_1 alone make y_1^2 where y_1 y_2 is wanted."""
    pytest.importorskip("flint")
    bias = rule_bias(2)
    slopes = np.array([[0.4, 0.0], [-0.4, 0.0]])
    bundle = UnitBundle(slopes, np.full(2, bias), np.array([1.0, 1.0]), {(1, 1): 0.25}, (0.3, 0.2), bias)
    assert true_error(bundle) <= enclose(bundle).upper == pytest.approx(bundle_error(bundle), rel=1e-6, abs=0)


def test_what_is_left_at_zero_counts_the_orders_that_are_not_summed():
    """Near the circle of convergence 160 orders are not all; beyond it the series says nothing."""
    bias = rule_bias(2)
    radius, maximum = circle_maximum(bias)
    for share in (0.97, 1.5):
        bundle = UnitBundle(
            np.array([[0.1, 1.0]]), np.array([bias]), np.ones(1), {(1, 1): 1.0}, (0.1, share * radius), bias
        )
        if share > 1:
            assert bundle_at_zero(bundle) == np.inf
        else:
            tail = maximum * share**161 / (1 - share)
            assert bundle_at_zero(bundle) > max(left_at_zero(bundle), tail)


def test_what_is_left_at_zero_is_the_sum_of_its_four_parts():
    """Displacement, Cauchy's tail from the steepest unit, rounding and the series, written out once more."""
    bias = rule_bias(2)
    radius, maximum = circle_maximum(bias)
    slopes, outputs, reach = np.array([1.0, 0.4]), np.array([0.7, -0.2]), 0.97 * radius
    hidden = slopes[:, None] * np.array([0.5, 1.0])
    bundle = UnitBundle(hidden, np.full(2, bias), outputs, {(1, 1): 1.0}, (0.1, reach), bias)
    orders = np.arange(1, 161)
    table, t = (slopes * reach)[None] ** orders[:, None], np.abs(taylor(bias)[1:])
    tail = 0.9 * maximum * 0.97**161 / 0.03
    slack = 2 * UNIT * (2 + 8) * float((np.abs(table) @ np.abs(outputs)) @ t)
    series = float(np.abs(table @ outputs) @ t)
    displaced = group(bundle)[1]
    assert tail > 1e-3 * series
    assert bundle_at_zero(bundle) == pytest.approx(displaced + tail + slack + series, rel=1e-9, abs=0)


def test_units_that_cancel_leave_their_rounding():
    """Every order is exactly 0, so 2 u (n + 8) of the absolute sums is all that is left, however large the weights."""
    w, s = 1e10 * np.array([1.0, -1.0, 1.0, -1.0]), 0.01
    t, orders = np.abs(taylor(rule_bias(2))), np.arange(len(taylor(rule_bias(2))))
    one = UnitBundle(np.full((4, 1), s), np.full(4, rule_bias(2)), w, {(2,): 0.0}, (0.5,), rule_bias(2))
    assert bundle_error(one) == pytest.approx(2 * UNIT * (4 + 8) * 4e10 * float(t @ (0.5 * s) ** orders), rel=1e-9)
    both = UnitBundle(np.full((4, 2), s), np.full(4, rule_bias(2)), w, {(1, 1): 0.0}, (0.5, 0.4), rule_bias(2))
    left = float(t[1:] @ (0.4 * s) ** orders[1:])
    assert bundle_at_zero(both) == pytest.approx(2 * UNIT * (4 + 8) * 4e10 * left, rel=1e-9)
