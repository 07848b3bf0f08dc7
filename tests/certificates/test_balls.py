"""Ball arithmetic encloses the supremum of stored rules over whole boxes."""

import numpy as np
import pytest

pytest.importorskip("flint")

from infoflow.certificates.balls import circle_balls, enclose, taylor_balls
from infoflow.certificates.measured import UnitBundle, bundle_error
from infoflow.certificates.rules import CENTRE, circle_maximum, rule_bias, taylor
from infoflow.compiler.blocks import Piece, choose, units


def bundle(power, radii, gain, tolerance):
    choice = choose(power, gain, radii, (1.0,) * power, tolerance, 1.0, "chebyshev")
    piece = Piece(0, gain, np.eye(power), (0.0,) * power, radii, (1.0,) * power, choice)
    hidden, biases, outputs = units(piece)
    return UnitBundle(hidden, biases, outputs, {(1,) * power: gain}, radii, rule_bias(power))


@pytest.mark.parametrize(("power", "radii"), [(1, (0.6,)), (2, (0.5, 0.4)), (3, (0.3, 0.4, 0.3))])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-5])
def test_enclosure_is_tight_around_the_float_bound(power, radii, tolerance):
    stored = bundle(power, radii, 0.9, tolerance)
    ball = enclose(stored)
    assert 0 < ball.lower <= ball.upper <= bundle_error(stored) * (1 + 1e-9)
    assert ball.upper >= bundle_error(stored) * (1 - 1e-3)


def test_a_changed_unit_moves_the_enclosure():
    stored = bundle(2, (0.5, 0.4), 0.9, 1e-5)
    stored.outputs[0] *= 0.5
    ball = enclose(stored)
    assert ball.lower > 1e-3


@pytest.mark.parametrize("bias", [0.0, CENTRE])
def test_series_and_circle_agree_with_floats(bias):
    for m, ball in enumerate(taylor_balls(bias)[:60]):
        assert abs(float(ball.mid()) - taylor(bias)[m]) <= 1e-14 * max(abs(taylor(bias)[m]), 1e-3)
    radius, maximum = circle_balls(bias)
    assert float(radius.mid()) == circle_maximum(bias)[0]
    assert float(maximum.upper()) == pytest.approx(circle_maximum(bias)[1], rel=0.05)
