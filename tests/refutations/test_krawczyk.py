"""The Krawczyk step proves zeros that exist and nothing else."""

import math

import numpy as np
import pytest

from infoflow.refutations.balls import Balls, exact
from infoflow.refutations.proof import _certified, _free_coordinates, krawczyk, newton
from infoflow.targets import sum_of_maxima

flint = pytest.importorskip("flint")


@pytest.fixture(autouse=True)
def precision():
    with flint.ctx.workprec(256):
        yield


def square_minus(c: float):
    """g(z) = (z_1^2 - c, z_1 z_2 - 1)."""

    def system(z, slopes=True):
        a, b = z.entries()
        value = flint.arb_mat(1, 2, [a * a - flint.arb(c), a * b - 1])
        zero = flint.arb(0)
        return Balls(value, (flint.arb_mat(1, 2, [2 * a, b]), flint.arb_mat(1, 2, [zero, a])))

    return system


def column(*values: float):
    return flint.arb_mat(len(values), 1, [flint.arb(v) for v in values])


def test_finds_and_proves_the_zero():
    z0 = newton(square_minus(2.0), column(1.4, 0.7))
    box = krawczyk(square_minus(2.0), z0, 1e-25)
    assert box is not None
    assert box[0, 0].contains(flint.arb(2).sqrt())
    assert float(box[1, 0]) == pytest.approx(1 / math.sqrt(2))


@pytest.mark.parametrize("tamper", ["goal", "centre", "slope", "radius"])
def test_tampered_step_fails(tamper):
    z0 = newton(square_minus(2.0), column(1.4, 0.7))
    system, radius = square_minus(2.0), 1e-25
    if tamper == "goal":
        system = square_minus(2.0 + 1e-12)
    if tamper == "centre":
        z0 = z0 + column(1e-20, 0.0)
    if tamper == "slope":  # a Jacobian that disagrees with the function on the box
        honest = system

        def system(z, slopes=True):
            R = honest(z)
            wide = flint.arb(1, 0.0 if z[0, 0].is_exact() else 3.0)
            return Balls(R.value, tuple(s * wide for s in R.slopes))

    if tamper == "radius":
        radius = 2.0
    assert krawczyk(system, z0, radius) is None


def test_no_zero_no_proof():
    assert newton(square_minus(-1.0), column(0.9, 0.7)) is None


def test_singular_system_is_refused():
    assert newton(square_minus(0.0), column(0.0, 1.0)) is None
    assert krawczyk(square_minus(0.0), column(0.0, 1.0), 1e-25) is None


@pytest.mark.parametrize("outside", [1.0 + 1e-9, -1.0 - 1e-9, 1.5])
def test_twins_outside_the_domain_prove_nothing(outside):
    """The target's error outside its domain is nobody's business: the gap there is real and the proof is refused."""
    target = sum_of_maxima(1, 1)
    inside = [exact(np.array([[0.9], [0.1]])), exact(np.array([[0.2], [0.1]]))]
    inside = inside if target(np.array([[[0.9], [0.1]]])) > target(np.array([[[0.2], [0.1]]])) else inside[::-1]
    error, reason = _certified(target, inside, (-1.0, 1.0), lambda: None)
    assert error is not None
    assert reason is None
    for k in (0, 1):
        twins = list(inside)
        twins[k] = exact(np.array([[0.9 if k == 0 else 0.2], [outside]]))
        assert _certified(target, twins, (-1.0, 1.0), lambda: None) == (None, "the twins are not inside the domain")


def test_free_coordinates_are_independent_and_a_singular_state_is_said():
    """Two numbers of a state in three coordinates: those that move it, unless one hardly does."""
    pair = np.full((2, 3, 1), 0.5)
    moving = np.zeros((2, 6))
    moving[0, 1], moving[1, 4] = 1.0, 0.5
    assert sorted(_free_coordinates(moving, 2, pair, (0.0, 1.0))) == [1, 4]
    moving[1, 4] = 1e-15
    assert "singular" in _free_coordinates(moving, 2, pair, (0.0, 1.0))
    moving[1, 4] = 1e-13
    assert sorted(_free_coordinates(moving, 2, pair, (0.0, 1.0))) == [1, 4]


def test_free_coordinates_keep_off_both_faces():
    moving, box = np.eye(4), (-2.0, -1.0)
    pair = np.array([[[-2.0], [-1.5]], [[-1.0], [-1.25]]])
    assert sorted(_free_coordinates(moving, 2, pair, box)) == [1, 3]
    assert "only 2 coordinates" in _free_coordinates(moving, 3, pair, box)
