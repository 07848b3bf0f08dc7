"""The attack beside a proved bound: it finds what a fine grid finds, and counts tokens as the network does."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from infoflow import targets
from infoflow.certificates.attack import Region, starts
from infoflow.proofs.attack import MANY, _best, _climbed, _counts, _error_of_averages, attack_trained
from infoflow.proofs.reduce import reduce
from infoflow.targets.score import TreeScore
from infoflow.targets.target import Extremum, Target

from .networks import random_network

BOX = -np.ones(1), np.ones(1)


@pytest.mark.parametrize("T", [2, 3, 9])
def test_one_round_of_climbs_finds_what_a_grid_finds(T: int) -> None:
    """Sequences of three numbers at most, every count of them: the climbs are not below the best of the grid."""
    for seed in range(3):
        network, target = random_network(seed, h=2, d=1, scale=2.0), targets.sum_of_maxima(D=1, d=1, seed=seed)
        K, rng = min(T, 3), np.random.default_rng(seed)
        error = _error_of_averages(reduce(network), target)
        tokens, counts = 2 * starts(rng, MANY, K, 1, 0) - 1, _counts(rng, MANY, K, T)
        signs, rates = np.resize([1.0, -1.0], MANY), 10.0 ** rng.uniform(-2.5, -0.5, (MANY, 1, 1))
        found = _best(_climbed(error, tokens, counts, signs, BOX, rates, math.inf))[0].value
        grid = np.array(list(product(np.linspace(-1, 1, 41), repeat=K)))[:, :, None]
        tried = []
        for often in np.unique(counts, axis=0):
            logs = torch.from_numpy(np.broadcast_to(np.log(often), grid.shape[:2]).copy())
            tried.append(float(error(torch.from_numpy(grid), logs).abs().max()))
        assert found >= max(tried) * (1 - 1e-3)


def test_counts_are_of_all_tokens() -> None:
    rng = np.random.default_rng(0)
    for K, T in ((1, 1), (1, 7), (4, 4), (5, 6), (6, 10**6)):
        counts = _counts(rng, 50, K, T)
        assert (counts.sum(1) == T).all()
        assert counts.min() >= 1
    assert len(np.unique(_counts(rng, 50, 5, 100), axis=0)) > 20


@pytest.mark.parametrize("T", [1, 4, 30])
def test_the_error_that_is_told_is_the_networks_own(T: int) -> None:
    """Also with two outputs, a minimum and a weight of each sign."""
    terms = (Extremum(TreeScore.linear([1.0, 0.5])), Extremum(TreeScore.linear([0.3, -1.0]), "min"))
    target = Target(terms, targets.Polynomial.affine_map([[1.0, -2.0], [0.5, 0.0]], [0.1, 3.0]), 2)
    network = random_network(5, outputs=2)
    found = attack_trained(network, 2, target, Region(T, -np.ones(2), np.ones(2)), 0.1, 0, reduce(network))
    assert found is not None
    assert found.worst.shape == (T, 2)
    X = torch.from_numpy(found.worst[None])
    with torch.no_grad():
        assert float((network(X) - target(X)).abs().max()) == pytest.approx(found.error, rel=1e-12)
