"""Attacks find what is there: known largest errors, outputs that are no number, slopes that a promise forbids."""

import numpy as np
import pytest
import torch

from infoflow.certificates.attack import (
    MEMORY,
    Region,
    _worst,
    attack,
    batch_of,
    fits,
    precision_errors,
    starts,
    steeper,
)

LOW, HIGH = np.array([-2.0, 1.0]), np.array([0.0, 4.0])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_error_is_climbed_to(sign):
    """The error sign 3 / (1 + |x - peak|^2) of the second output is largest at one inner point that no start meets."""
    peak = torch.tensor([-0.37, 2.71], dtype=torch.float64)

    def network(X):
        error = sign * 3.0 / (1.0 + ((X - peak) ** 2).sum((1, 2)))
        return torch.stack([0.1 * error, error], 1)

    found = attack(network, lambda X: torch.zeros(len(X), 2, dtype=torch.float64), Region(3, LOW, HIGH), seconds=0.4)
    assert 2.999 < found.error <= 3.0
    assert np.abs(found.worst - peak.numpy()).max() < 0.03
    assert ((found.worst >= LOW) & (found.worst <= HIGH)).all()


def test_only_inputs_of_the_claim_count_and_no_number_is_infinitely_wrong():
    errors = torch.tensor([[1.0, -2.0], [0.0, 9.0], [3.0, 0.5]], dtype=torch.float64)
    X = torch.arange(3.0, dtype=torch.float64)[:, None, None]
    everywhere = torch.tensor([0.0, 1.0, 2.0])
    assert _worst(errors, X, everywhere) == (9.0, np.array([[1.0]]), 3)
    assert _worst(errors, X, torch.tensor([0.0, -1e-9, 2.0])) == (3.0, np.array([[2.0]]), 2)
    errors[0, 0] = torch.nan
    assert _worst(errors, X, everywhere) == (np.inf, np.array([[0.0]]), 3)


def test_starts_are_of_six_kinds_inside_the_unit_box():
    made = starts(np.random.default_rng(0), 12, 5, 2, 1)
    assert made.shape == (12, 5, 2)
    assert ((made >= 0) & (made <= 1)).all()
    corners = [bool(np.isin(each, (0.0, 1.0)).all()) for each in made]
    tied = [bool((each == each[:1]).all()) for each in made]
    assert corners == [False, True, False, True, False, True] * 2
    assert tied == [False, False, True, False, False, False] * 2
    near = [float(np.ptp(each, axis=0).max()) < 0.2 for each in made]
    assert near[4]
    assert near[10]
    for each in (made[5], made[11]):  # one token opposite to all others
        assert (each[1:] == each[1]).all()
        assert (each[0] == 1 - each[1]).all()


def test_batches_fit_in_memory():
    assert batch_of(1, 2) == 64
    assert batch_of(2, 10**6) == 1
    assert batch_of(3, 20, 10**9) == MEMORY // (48 * 3 * 20 * 20) == 18641
    most = int((MEMORY / 48) ** 0.5)
    assert fits(1, most, 48)
    assert not fits(1, most + 1, 48)
    assert not fits(2, most, 48)


def test_lower_precision_is_measured_against_the_truth():
    network = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    network.weight.data[:] = 1 / 3
    found = precision_errors(network, lambda X: X / 3, np.array([[1.0], [2.0]]))
    assert found["float32"] == pytest.approx(2 * abs(float(np.float32(1 / 3)) - 1 / 3), rel=0.5)
    assert found["bfloat16"] == pytest.approx(2 * abs(float(torch.tensor(1 / 3).bfloat16()) - 1 / 3), rel=0.5)


def slope(function, constant, points=None, **options):
    points = np.random.default_rng(1).uniform(size=(64, 2)) if points is None else points
    return steeper(function, points, constant, np.random.default_rng(0), **options)


def test_a_slope_above_the_stated_one_is_found_and_none_below():
    assert slope(lambda x: 3 * x[:, :1], 3.0) is None
    assert slope(lambda x: 3 * x[:, :1], 2.99) == "a slope of 3 where at most 2.99 was stated"
    assert slope(lambda x: torch.as_tensor(3 * x[:, :1]).requires_grad_(), 2.99) is not None


def test_the_norm_of_a_step_is_the_stated_one():
    """x_1 + x_2 has slope 2 in the largest entry and sqrt 2 in the Euclidean norm."""
    both = lambda x: x.sum(1)  # noqa: E731
    assert slope(both, 2.0) is None
    assert slope(both, 1.9) is not None
    assert slope(both, 1.415, euclidean=True) is None
    assert slope(both, 1.38, euclidean=True) is not None


def test_steps_are_as_long_as_the_points_are_spread():
    """sin(1e12 x) shows its slope in steps below 1e-12 alone."""
    points = 1e-12 * np.random.default_rng(1).uniform(size=(64, 1))
    assert slope(lambda x: np.sin(1e12 * x), 9e11, points) is not None
    assert slope(lambda x: np.sin(1e12 * x), 1e12 * (1 + 1e-6), points) is None


def test_rounds_climb_to_a_narrow_slope_and_stay_in_the_box():
    inside = []

    def narrow(x):
        inside.append(bool(((x >= 0) & (x <= 1)).all()))
        return np.tanh(40 * (x[:, 0] - 0.83))

    edge = np.random.default_rng(3).uniform(size=(256, 1))
    assert slope(narrow, 39.0, edge, box=(0.0, 1.0), rounds=8) is not None
    assert slope(narrow, 40.0, edge, box=(0.0, 1.0), rounds=8) is None
    assert all(inside)


def test_without_climbing_no_gradient_is_asked_for():
    for climb in (False, True):
        asked = []

        def network(X, asked=asked):
            asked.append(X.requires_grad)
            return X.sum((1, 2))

        region = Region(2, np.zeros(1), np.ones(1))
        attack(network, lambda X: 0 * X.sum((1, 2)), region, seconds=0.0, batch=6, climb=climb)
        assert any(asked) == climb


def test_clusters_have_four_sizes_in_turn():
    drawn = [starts(np.random.default_rng(0), 12, 3, 2, round_number) for round_number in range(5)]
    assert np.array_equal(drawn[0], drawn[4])
    assert not np.array_equal(drawn[0], drawn[3])


def test_every_step_goes_a_rate_of_half_the_box_along_the_sign_of_the_gradient():
    """Of a linear error all gradients are one, so Adam's means cancel: 0.3, then 0.3 * 0.93 of half the box."""
    slope, seen = torch.tensor([1e-3, -50.0], dtype=torch.float64), []

    class Enough(Exception):
        pass

    def network(X):
        if len(seen) == 3:
            raise Enough
        seen.append(X.detach().clone())
        return (X * slope).sum((1, 2))

    with pytest.raises(Enough):
        attack(network, lambda X: 0 * X.sum((1, 2)), Region(2, LOW, HIGH), seconds=60.0, batch=12)
    half = torch.from_numpy(HIGH - LOW) / 2
    assert ((seen[0].numpy() >= LOW) & (seen[0].numpy() <= HIGH)).all()
    for before, after, rate in zip(seen, seen[1:], (0.3, 0.3 * 0.93), strict=False):
        gone = np.clip((before + rate * half * slope.sign()).numpy(), LOW, HIGH)
        assert np.abs(after.numpy() - gone).max() < 1e-8


def test_clusters_are_as_wide_as_their_round_says():
    for round_number, width in enumerate((1e-1, 1e-2, 1e-3, 1e-4, 1e-1)):
        made = starts(np.random.default_rng(0), 60, 40, 2, round_number)
        clusters = [each for each in made if 0 < np.ptp(each, axis=0).max() < 1 and not np.isin(each, (0, 1)).all()]
        tight = [np.median(np.abs(each - np.median(each, axis=0))) / 0.6745 for each in clusters]
        assert 0.7 * width < np.sort(tight)[len(tight) // 4] < 1.4 * width


def test_steps_are_from_a_tenth_to_a_hundred_thousandth_of_the_range():
    """Shorter ones drown in the rounding of the values; longer ones leave the points."""
    points, seen = np.random.default_rng(1).uniform(size=(4000, 3)), []

    def flat(x):
        seen.append(x)
        return 0 * x

    assert slope(flat, 1.0, points, rounds=1) is None
    lengths = np.abs(seen[1] - seen[0]).max(1)
    assert 0.09 < lengths.max() <= 0.1
    assert 4e-6 < np.quantile(lengths, 0.1) < 1e-5
