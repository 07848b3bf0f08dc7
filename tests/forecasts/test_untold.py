"""What random reads leave untold: nothing of a mean, little of an easy pair, nearly all of the closest pair."""

import torch

import infoflow as iflow
from infoflow import targets
from infoflow.forecasts.untold import untold


def test_a_mean_is_told_by_reads_that_nobody_aimed() -> None:
    mean = iflow.targets.function(lambda X: X.mean(-2).sum(-1), 3, name="mean", sampler="normal")
    assert untold(mean, 8, False) < 1e-3


def test_the_closest_pair_is_not() -> None:
    assert untold(targets.closest_pair(3), 8, False) > 0.7
    assert untold(targets.max_plus_min(), 8, False) < 1e-2


def test_only_positions_tell_a_sum_of_positions() -> None:
    """Without them the best guess is the mean of the tokens, of which two chosen ones of eight are a quarter."""
    F = targets.position_sum((0, 1), 2)
    without, told = untold(F, 8, False), untold(F, 8, True)
    assert 0.6 < without < 0.9
    assert told < 0.3 * without


def test_units_of_the_target_do_not_count() -> None:
    one, many = (iflow.targets.function(lambda X, c=c: c * X.square().amax((-1, -2)) + c, 2, name=f"u{c}")
                 for c in (1.0, 1e6))  # fmt: skip
    assert abs(untold(one, 6, False) - untold(many, 6, False)) < 1e-6


def test_a_constant_leaves_nothing() -> None:
    constant = iflow.targets.function(lambda X: torch.zeros_like(X[..., 0, 0]), 2, name="zero")
    assert untold(constant, 4, False) == 0.0
