"""One head that remembers, one head of exponentials: both beat the head count, at their own price."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.construct.single_head_plans import exponential_head
from infoflow.construct.single_heads import memory_head
from infoflow.errors import InfoFlowError
from infoflow.targets.named import d_retrieval, kth_largest, pairwise_max, sum_of_maxima
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import TreeScore
from infoflow.targets.target import Extremum, Target


def samples(T: int, target: Target, count: int = 1500) -> np.ndarray:
    """Random, clustered, corner and constant sequences of the domain."""
    generator = np.random.default_rng(0)
    low, high = target.domain
    free = generator.uniform(low, high, (count, T, target.dim))
    near = generator.uniform(low, high, (count, 1, target.dim)) + 0.03 * generator.normal(size=free.shape)
    corners = generator.choice([low, high], size=(200, T, target.dim))
    same = np.repeat(generator.uniform(low, high, (200, 1, target.dim)), T, 1)
    return np.concatenate([free, np.clip(near, low, high), corners, same])


def test_memory_recovers_every_token():
    head = memory_head(d_retrieval(D=2, d=3), 7, 0.5)
    X = torch.rand(200, 7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert float((head.recall(head.remember(X)) - X).abs().max()) <= 4e-16
    assert head.attention.config.head_dims == (21,)


def test_additive_positions_lose_the_order():
    """The same uniform head over x + p_s: a permuted sequence has the same state."""
    X = np.random.default_rng(0).uniform(size=(5, 2))
    P = np.random.default_rng(1).uniform(size=(5, 2))
    assert np.allclose((X + P).mean(0), (X[::-1] + P).mean(0))
    head = memory_head(d_retrieval(D=1, d=2), 5, 1.0)
    pair = torch.from_numpy(np.stack([X, X[::-1]]))
    R = head.remember(pair)
    assert float((R[0] - R[1]).abs().max()) > 1e-3


@pytest.mark.parametrize("eps", [0.2, 0.1, 0.05, 0.02])
def test_memory_head_reads_two_minima(eps):
    target = d_retrieval(D=2, d=1)
    head = memory_head(target, 8, eps)
    assert head.bound <= eps
    X = torch.from_numpy(samples(8, target))
    assert float((head(X) - target(X)).abs().max()) <= head.bound + 1e-12
    assert len(head.readout) == 5
    assert head.parameters_bottleneck < head.parameters_merged <= head.parameters


def test_memory_head_size_laws():
    """Hats of a quadratic cost eps^-1/2: merged eps^-(1 + 1/2), with the bottleneck eps^-1."""
    eps = np.array([1e-2, 1e-3, 1e-4])
    heads = [_counts(e) for e in eps]
    merged, bottleneck = (np.polyfit(np.log(1 / eps), np.log(column), 1)[0] for column in zip(*heads, strict=True))
    assert merged == pytest.approx(1.5, abs=0.1)
    assert bottleneck == pytest.approx(1.0, abs=0.1)


def _counts(eps: float) -> tuple[int, int]:
    from dataclasses import replace

    small = memory_head(d_retrieval(D=2, d=1), 2, 0.02)  # counts are formulas: no need to build the large ones
    levels, knots = round(small.levels * 0.02 / eps), round(small.knots * math.sqrt(0.02 / eps))
    large = replace(small, levels=levels, knots=knots)
    return large.parameters_merged, large.parameters_bottleneck


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 5), st.floats(0.1, 1.0), st.integers(0, 50))
def test_memory_head_property(D, d, T, eps, seed):
    for target in (d_retrieval(D=D, d=d, seed=seed), sum_of_maxima(D=D, d=d, seed=seed)):
        head = memory_head(target, T, eps)
        X = torch.from_numpy(samples(T, target, 100))
        assert float((head(X) - target(X)).abs().max()) <= head.bound + 1e-12
        assert head.bound <= eps


def test_memory_head_with_position_sets():
    target = d_retrieval(D=2, d=2, sets=[[0, 1], [2, 3, 4]])
    head = memory_head(target, 5, 0.1)
    X = torch.from_numpy(samples(5, target, 300))
    assert float((head(X) - target(X)).abs().max()) <= head.bound + 1e-12
    with pytest.raises(InfoFlowError, match="all positions"):
        exponential_head(target, 5, 0.1)


@pytest.mark.parametrize(
    ("eps", "units", "printed"), [(0.2, 40, 0.077), (0.1, 80, 0.042), (0.05, 160, 0.021), (0.02, 400, 0.0082)]
)
def test_exponential_head_with_the_units_of_the_note(eps, units, printed):
    target = d_retrieval(D=4, d=4)
    head = exponential_head(target, 64, eps, units)
    X = samples(64, target, 400)
    error = float(np.abs(head(X) - target(X)).max())
    assert error <= head.bound <= printed
    assert head.head_dim == 4
    lean = exponential_head(target, 64, eps)
    assert lean.units < units
    assert float(np.abs(lean(X) - target(X)).max()) <= lean.bound <= eps


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 9), st.floats(0.02, 1.0), st.integers(0, 50))
def test_exponential_head_property(D, d, T, eps, seed):
    for target in (d_retrieval(D=D, d=d, seed=seed), sum_of_maxima(D=D, d=d, seed=seed)):
        head = exponential_head(target, T, eps)
        X = samples(T, target, 100)
        assert float(np.abs(head(X) - target(X)).max()) <= head.bound + 1e-12
        assert head.bound <= eps


def test_plain_float64_underflows_where_log_space_does_not():
    target = d_retrieval(D=4, d=4)
    head = exponential_head(target, 64, 0.02, 400)
    assert head.beta > 745
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=4)))
    farthest = corners[head.terms[0](corners).argmax()]
    X = np.broadcast_to(farthest, (1, 64, 4))
    u = head.log_state(X)
    assert np.exp(u).min() == 0.0
    assert float(np.abs(head(X) - target(X)).max()) <= head.bound
    assert head.largest_log_weight > 709  # no float64 holds such a weight


def test_refusals():
    mixed = Polynomial.quadratic(np.array([[1.0, 1.0], [1.0, 1.0]]))
    for target in (
        pairwise_max(D=1, d=2),
        kth_largest(k=2),
        Target((Extremum(TreeScore((mixed,), (), 2)),), Polynomial.identity(1), 2),
        Target((Extremum(TreeScore.linear([1.0])),), Polynomial.quadratic(np.eye(1)), 1),
    ):
        for build in (memory_head, exponential_head):
            with pytest.raises(InfoFlowError):
                build(target, 4, 0.1)
    for eps in (0.0, -1.0, math.inf, math.nan, 1e-9):
        for build in (memory_head, exponential_head):
            with pytest.raises(InfoFlowError):
                build(d_retrieval(D=1, d=1), 4, eps)
