"""What random reads leave untold: nothing of a mean, little of an easy pair, nearly all of the closest pair.

And what is forecast of functions of one's own, whose parts nobody told.
"""

import numpy as np
import torch

import infoflow as iflow
from infoflow import targets
from infoflow.architecture import Architecture
from infoflow.forecasts.model import Model
from infoflow.forecasts.quantities import find_floors
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


def test_directed_reads_find_the_one_direction_that_counts() -> None:
    """The mean of a smooth function of one projection of six-dimensional tokens."""
    F = iflow.targets.function(lambda X: torch.tanh(2 * X.sum(-1)).mean(-1), 6, name="one direction", sampler="normal")
    assert untold(F, 8, False) < 0.2 * untold(F, 8, False, directed=False)


def test_a_constant_leaves_nothing() -> None:
    constant = iflow.targets.function(lambda X: torch.zeros_like(X[..., 0, 0]), 2, name="zero")
    assert untold(constant, 4, False) == 0.0


def test_a_function_may_ask_for_the_last_token() -> None:
    """One head finds it by its position, if the network has a position code, and no head without."""
    F = iflow.targets.function(lambda X: X[..., -1, 0], 2, name="last", sampler="normal")
    bare = Architecture.parse("heads=1 embed=6 width=16")
    assert find_floors(F, bare.with_(positions="additive"), 8, False).floor < 0.05
    assert find_floors(F, bare, 8, False).floor > 0.5


def test_a_floor_behind_several_layers_has_no_say_where_parts_are_not_known() -> None:
    """A floor of 0.1 and a regression that says 0.01: the floor has seven tenths of the say, but for the last cell."""
    known = {"floor": -np.ones(3), "one layer": np.array([1.0, 0.0, 0.0]), "mlp encoder": np.zeros(3),
             "parts not known": np.array([1.0, 0.0, 1.0])}  # fmt: skip
    np.testing.assert_allclose(Model._believed(np.full(3, -2.0), known), [-1.3, -1.3, -2.0])
