"""The shape of a target: exact degrees, jumps, tokens and directions that count, and what their order carries."""

import numpy as np
import pytest
import torch

import infoflow as iflow
from infoflow import targets
from infoflow.forecasts.shape import shape

CASES = {  # the mean degree of the Hermite expansion, tokens and directions that count, what another order leaves
    "mean": (lambda X: X.mean(-2).sum(-1), 1.0, 6.0, 1.0, 0.0),
    "first": (lambda X: X[..., 0, 0], 1.0, 1.0, 1.0, 5 / 6),
    "product of three": (lambda X: X[..., 0, 0] * X[..., 0, 1] * X[..., 0, 2], 3.0, 1.0, 3.0, 5 / 6),
}


@pytest.mark.parametrize("name", CASES)
def test_what_can_be_computed_by_hand(name: str) -> None:
    """Six normal tokens: another order leaves the first one where it is once in six times."""
    F, degree, tokens, directions, order = CASES[name]
    found = shape(iflow.targets.function(F, 3, name=name, sampler="normal"), 6)
    np.testing.assert_allclose(found.degree, degree, rtol=0.3)
    np.testing.assert_allclose([found.tokens, found.directions], [tokens, directions], rtol=0.05)
    np.testing.assert_allclose(found.order, order, atol=0.08)


def test_a_jump_grows_like_the_step_and_a_smooth_function_like_its_square() -> None:
    smooth = iflow.targets.function(lambda X: X.mean(-2).sum(-1), 2, name="smooth", sampler="normal")
    jump = iflow.targets.function(lambda X: (X[..., 0] > 0).to(X).mean(-1), 2, name="jump", sampler="normal")
    np.testing.assert_allclose(shape(smooth, 8).growth, 2 * np.log10(3), atol=0.05)
    np.testing.assert_allclose(shape(jump, 8).growth, np.log10(3), atol=0.05)


def test_pairs_count_two_tokens_and_no_order() -> None:
    found = shape(targets.closest_pair(3), 12)
    np.testing.assert_allclose(found.tokens, 2.0, rtol=1e-6)
    assert found.order < 1e-9


def test_units_do_not_count_and_a_constant_has_a_shape() -> None:
    one, many = (iflow.targets.function(lambda X, c=c: c * X.square().amax((-1, -2)) + c, 2, name=f"s{c}")
                 for c in (1.0, 1e6))  # fmt: skip
    assert shape(one, 6).degree == pytest.approx(shape(many, 6).degree, rel=1e-6)
    constant = iflow.targets.function(lambda X: torch.zeros_like(X[..., 0, 0]), 2, name="nothing")
    assert shape(constant, 4).tokens == 1.0


def test_several_outputs_are_added_up() -> None:
    """Of two outputs in different directions both count."""
    F = iflow.targets.function(lambda X: X[..., 0, :2], 3, outputs=2, name="two", sampler="normal")
    np.testing.assert_allclose(shape(F, 5).directions, 2.0, rtol=0.05)
