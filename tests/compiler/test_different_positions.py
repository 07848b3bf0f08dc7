"""Pairs of different positions and the second largest value: networks that leave out a token's own position."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import infoflow as iflow
from infoflow import targets as it
from infoflow.certificates.attack import starts
from infoflow.compiler.compile import largest_weight
from infoflow.compiler.propagation import self_leak
from infoflow.compiler.verification import read
from infoflow.compiler.wiring import wire
from infoflow.flow.layout import Refused, lay_out
from infoflow.nn import Transformer
from infoflow.targets import Edge, Extremum, KthLargest, Polynomial, Target, TreeScore, factor


def inputs(target, T, seed=0, batch=24):
    unit = np.concatenate([starts(np.random.default_rng(seed), batch, T, target.dim, r) for r in range(2)])
    return target.domain[0] + (target.domain[1] - target.domain[0]) * unit


def errors(network, target, X):
    return np.abs(network(torch.from_numpy(X)).numpy() - target(X))


def brute_force(term, X):
    """The best score over ordered pairs of different positions, one input (T, d) at a time."""
    best = {"max": max, "min": min}[term.kind]
    sets = term.choices(len(X))
    pairs = [(s, t) for s, t in permutations(range(len(X)), 2) if s in sets[0] and t in sets[1]]
    return best(float(term.score(X[list(pair)])) for pair in pairs)


@pytest.mark.parametrize("T", [2, 3, 9])
@pytest.mark.parametrize("d", [1, 3])
def test_the_second_largest_is_built_with_two_heads(T, d):
    target = it.kth_largest(2, d)
    network = iflow.build(target, T, 0.02)
    assert (network.config.heads, network.config.embed) == ((1, 1), (T + 3, 2))
    X = inputs(target, T)
    found = network(torch.from_numpy(X)).numpy()
    assert np.abs(found - np.sort(X[..., 0], axis=1)[:, -2]).max() <= network.certificate.bound <= 0.02
    assert largest_weight(network) <= 1.0
    assert float(network.embed(torch.from_numpy(X)).norm(dim=-1).max()) <= 1.0 + 1e-12


def random_pair(rng, d, T):
    """A pair score with and without unary parts, position sets (that leave two positions at least), max or min."""
    left, right = factor(rng.standard_normal((d, d)) if rng.random() < 0.7 else np.eye(d))
    unary = [Polynomial.linear(rng.standard_normal((1, d))) if rng.random() < 0.5 else None for _ in range(2)]
    if rng.random() < 0.3:
        unary[1] = Polynomial.quadratic(rng.standard_normal((d, d)), rng.standard_normal(d), 0.5)
    sets = None
    if rng.random() < 0.4:
        sets = tuple(None if rng.random() < 0.5 else tuple(rng.permutation(T)[:2].tolist()) for _ in range(2))
    score = TreeScore(tuple(unary), (Edge(0, 1, left, right),), d)
    return Extremum(score, "max" if rng.random() < 0.5 else "min", sets, distinct=True)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3, 6]), st.sampled_from(["additive", "augmented"]))
def test_pairs_of_different_positions_stay_within_their_certificates(seed, T, positions):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    terms = [random_pair(rng, d, T) for _ in range(int(rng.integers(1, 3)))]
    if rng.random() < 0.3:
        terms.append(KthLargest(2, rng.standard_normal(d)))
    low = float(rng.uniform(-2, 2))
    target = Target.sum(*terms, domain=(low, low + float(rng.uniform(0.3, 2))))
    X = inputs(target, T, seed % 7, 12)
    pairs = [term for term in terms if isinstance(term, Extremum)]
    assert np.allclose(target.term_values(X)[:, : len(pairs)], [[brute_force(p, x) for p in pairs] for x in X])
    layout = lay_out(target, T)
    roomy = tuple(E + 4 * h for E, h in zip(layout.embed, layout.heads, strict=True))
    arch = iflow.Architecture(layout.heads, roomy, positions=positions)
    network = iflow.build(target, T, 0.2 * (1.0 + float(np.abs(target(X)).max())), arch=arch)
    assert errors(network, target, X).max() <= network.certificate.bound <= network.header["eps"]
    assert largest_weight(network) <= 1.0


@pytest.mark.parametrize("spelling", ["kth_largest:k=2", "closest_pair:d=2"])
def test_certificates_are_read_back_and_attacked(spelling, tmp_path):
    network = iflow.load(iflow.build(spelling, 6, 0.1).save(tmp_path / "f.safetensors"))
    certificate = iflow.certify(network, seconds=0.5)
    assert certificate.holds
    assert 0.0 < certificate.attacked <= certificate.bound <= 0.1
    assert certificate.bound == pytest.approx(iflow.build(spelling, 6, 0.1).certificate.bound, rel=1e-6)


@pytest.mark.parametrize("spelling", ["kth_largest:k=2", "closest_pair:d=2"])
@pytest.mark.parametrize("T", [2, 5])
@pytest.mark.parametrize("beta", [3.0, 20.0, 40.0])
def test_a_hot_network_has_the_bound_it_deserves(spelling, T, beta):
    """With a small beta a token's own score leaks through the penalty; the bound must grow as the error does."""
    network = iflow.build(spelling, T, 0.05)
    hot = Transformer(replace(network.config, scales=(beta, 1000.0))).double().requires_grad_(False)
    hot.load_state_dict(network.state_dict())
    hot.header = network.header
    target = it.parse(spelling)
    assert errors(hot, target, inputs(target, T)).max() <= read(hot, target, T, target.domain, 1).bound


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.floats(0.01, 30.0))
def test_what_a_left_out_score_moves(seed, T, beta):
    """|average over all with the penalty - average over the others| <= q r, the inequality of `self_leak`."""
    rng = np.random.default_rng(seed)
    layout = lay_out(it.kth_largest(2), T)
    head, term = wire(layout, 1, 1.0).heads[0][0], layout.form.terms[0]
    spread = term.spread(head.job.message)
    scores = rng.uniform(-spread / 2, spread / 2, T)
    if seed % 2:  # the worst case: the token itself far above the others
        scores[1:], scores[0] = -spread / 2, spread / 2
    weights = np.exp(beta * head.kappa * (scores - head.penalty * (np.arange(T) == 0)))
    others = np.where(np.arange(T) == 0, 0.0, weights)
    moved = abs(float(weights @ scores / weights.sum() - others @ scores / others.sum()))
    assert moved <= self_leak(term, head, beta, 0.0) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("target", "arch", "reason"),
    [
        ("kth_largest:k=2", "heads=1,1 embed=11,2", "no position code"),
        ("kth_largest:k=2", "heads=1,1 embed=10,2 positions=additive", "needs 11"),
        ("kth_largest:k=2", "heads=1,1 embed=11,2 positions=additive mask=causal", "sees no other position"),
        ("kth_largest:k=2", "heads=1 embed=16 positions=additive", "needs 2 layers"),
        ("kth_largest:k=3", "heads=1,1 embed=16 positions=additive", "3-th largest"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_reason(target, arch, reason):
    with pytest.raises(Refused, match=reason):
        iflow.build(target, 8, 0.1, arch=arch)
    assert iflow.predict(target, arch, 8, eps=0.1).verdict != "constructed"


def test_long_sequences_are_refused_by_the_compiler_and_not_by_the_framework():
    for T in (1025, 10**9):
        found = iflow.predict("kth_largest:k=2", "heads=1,1 embed=4,2 positions=additive", T)
        assert (found.verdict, found.flow.exponent) == ("open", 0)
        assert any("more than 1024" in reason for reason in found.reasons)
    assert iflow.plan("closest_pair", 5000).kind == "estimate"


def test_different_positions_are_left_out_in_the_first_layer_only():
    pairs = Target.sum(*(Extremum(TreeScore.bilinear(np.eye(2)), distinct=True) for _ in range(2)))
    with pytest.raises(Refused, match="the first"):
        lay_out(pairs, 8, iflow.Architecture((1, 1, 1), (40, 40, 40), positions="additive"))
    assert lay_out(pairs, 8).heads == (2, 2)
    with pytest.raises(Refused, match="3 different positions"):
        lay_out(Target.sum(Extremum(it.star(3, 2).terms[0].score, distinct=True)), 8)


@pytest.mark.parametrize("target", [it.kth_largest(2, 2), it.closest_pair()], ids=lambda t: t.spelling)
@pytest.mark.parametrize("positions", ["none", "additive"])
def test_the_flow_reaches_what_decides(target, positions):
    arch = f"heads=1,1 embed=16,4 positions={positions}"
    for seed in range(20):
        flow = iflow.trace(target, arch, target.sample(1, 9, seed=seed)[0])
        assert flow.learns
        assert len(flow.members(10, 2)) == 2
        assert not flow.note
    assert iflow.predict(target, arch, 9).flow.exponent == 0
    assert iflow.plan(target, 9).kind == "layout"
