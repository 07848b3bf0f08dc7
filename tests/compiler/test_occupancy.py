"""Occupancy networks: one-sided inequalities, all T with one network, sizes, refusals, files."""

import numpy as np
import pytest
import torch

import infoflow as iflow
from infoflow import targets as it
from infoflow.compiler.occupancy import build_occupancy
from infoflow.flow.layout import Refused


def worst(network, target, X):
    return float(np.abs(network(torch.from_numpy(X)).numpy() - target(X)).max())


def test_one_network_for_all_lengths():
    target = it.triangle_center(1)
    network = iflow.build(target, 1024, 0.5, weight_bound=None)
    assert len(network.grid.centres) == 41
    rng = np.random.default_rng(0)
    for T, batch in ((1, 20), (3, 20), (64, 4), (1024, 1)):
        for X in (rng.uniform(-1, 1, (batch, T, 1)), np.repeat(rng.uniform(-1, 1, (1, 1, 1)), min(T, 64), axis=1)):
            assert worst(network, target, X) <= network.certificate.bound <= 0.5


def test_two_dimensions_and_the_rule_named():
    target = it.triangle_center(2)
    network = iflow.build(target, 16, 6.0, weight_bound=None, rule="occupancy")
    X = np.random.default_rng(0).uniform(-1, 1, (16, 16, 2))
    assert worst(network, target, X) <= network.certificate.bound <= 6.0


def test_cyclic_callable_and_maxima():
    def score(x):  # a triangle of distances: no tree
        a, b, c = x[..., 0, :], x[..., 1, :], x[..., 2, :]
        return abs(a - b)[..., 0] + abs(b - c)[..., 0] * 0.5 - abs(c - a)[..., 0] * 0.7

    term = it.Extremum(it.CallableScore(score, 3, 1, lipschitz=1.7), "max")
    target = it.Target.sum(term)
    network = iflow.build(target, 8, 1.0, weight_bound=None)
    X = np.random.default_rng(0).uniform(-1, 1, (20, 8, 1))
    assert worst(network, target, X) <= network.certificate.bound <= 1.0
    assert network.attack(0, 0.3) <= network.certificate.bound


def test_beyond_memory_says_the_size():
    with pytest.raises(Refused, match=r"cells and \d+ tuples, .* GiB"):
        iflow.build("triangle_center:d=2", 8, 0.1)


def test_refusals():
    with pytest.raises(Refused, match="needs 21 heads, the architecture has 20"):
        build_occupancy(it.triangle_center(1), 8, 1.0, arch=iflow.Architecture(20))
    assert len(build_occupancy(it.triangle_center(1), 8, 1.0, arch=iflow.Architecture(30)).grid.centres) == 21
    with pytest.raises(Refused, match="several hidden layers; a stated width means one"):
        build_occupancy(it.triangle_center(1), 8, 1.0, arch=iflow.Architecture(30, width=10**9))
    with pytest.raises(Refused, match="take weight_bound None"):
        iflow.build(it.triangle_center(1), 8, 1.0)
    with pytest.raises(Refused, match="takes extrema"):
        build_occupancy(it.kth_largest(2), 8, 1.0)
    with pytest.raises(Refused, match="restricts positions"):
        build_occupancy(it.Target.sum(it.Extremum(it.NormOfSum(3, 1), "min", distinct=True)), 8, 1.0)
    with pytest.raises(Refused, match="eps"):
        build_occupancy(it.triangle_center(1), 8, 0.0)


def test_files_and_tampering(tmp_path):
    network = iflow.build("triangle_center:d=1", 8, 2.0, weight_bound=None)
    path = network.save(tmp_path / "o.safetensors")
    loaded = iflow.load(path)
    X = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (4, 8, 1)))
    assert torch.equal(network(X), loaded(X))
    assert iflow.certify(loaded, seconds=0.2).holds
    loaded.table0[3] -= 1.0
    certificate = iflow.certify(loaded, seconds=0.2)
    assert not certificate.holds
    assert certificate.reasons[0].startswith("table0[3]")
