"""Bounds from stored units: they agree with the rules, and they stay true when a unit is changed."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.certificates.measured import Fan, fan_at_zero, fan_error
from infoflow.certificates.rules import rule_bias
from infoflow.flow.blocks import Piece, choose, units


def made(power, radii, gain, tolerance):
    choice = choose(power, gain, radii, (1.0,) * power, tolerance, 1.0, "chebyshev")
    piece = Piece(0, gain, np.eye(power), (0.0,) * power, radii, (1.0,) * power, choice)
    return choice, units(piece)


def true_error(fan, seed=0):
    rng = np.random.default_rng(seed)
    n = len(fan.radii)
    y = rng.uniform(-1, 1, (4000, n))
    y[: 2**n] = list(product((-1, 1), repeat=n))
    y *= fan.radii
    wanted = sum(gain * (y ** np.array(e)).prod(1) for e, gain in fan.monomials.items())
    value = np.tanh(y @ fan.slopes.T + fan.biases) @ fan.outputs - np.tanh(fan.bias) * fan.outputs.sum()
    return float(np.abs(value - wanted).max())


@pytest.mark.parametrize(("power", "radii", "gain"), [(1, (0.7,), 2.3), (2, (0.5, 0.4), 0.8), (3, (0.4,) * 3, 1.0)])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_stored_units_give_the_bound_of_their_rule(power, radii, gain, tolerance):
    choice, (hidden, biases, outputs) = made(power, radii, gain, tolerance)
    fan = Fan(hidden, biases, outputs, {(1,) * power: gain}, radii, rule_bias(power))
    assert true_error(fan) <= fan_error(fan)
    assert fan_error(fan) == pytest.approx(choice.error, rel=1e-6)
    assert len(outputs) == choice.neurons
    assert np.abs(outputs).max() <= 1.0
    assert fan_at_zero(fan) < 1e-10


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
    fan = Fan(hidden, biases, outputs, {(1,) * power: 1.0}, (0.5, 0.3)[:power], rule_bias(power))
    assert true_error(fan, seed) <= fan_error(fan)


def test_a_small_change_costs_little():
    _, (hidden, biases, outputs) = made(2, (0.5, 0.4), 1.0, 1e-3)
    base = fan_error(Fan(hidden, biases, outputs, {(1, 1): 1.0}, (0.5, 0.4), rule_bias(2)))
    hidden[3, 1] += 1e-6
    biases[5] -= 1e-6
    outputs[7] += 1e-6
    changed = fan_error(Fan(hidden, biases, outputs, {(1, 1): 1.0}, (0.5, 0.4), rule_bias(2)))
    assert base < changed < base + 1e-5
