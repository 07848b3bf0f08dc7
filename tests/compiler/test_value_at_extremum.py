"""Values read at an extremum: exact values, margins, networks whose claim speaks of inputs with a clear winner."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import infoflow as iflow
from infoflow import targets as it
from infoflow.certificates.attack import Region, attack, starts
from infoflow.compiler.compile import counted_share, largest_weight
from infoflow.compiler.verification import read
from infoflow.flow.layout import lay_out
from infoflow.nn import Transformer
from infoflow.targets import Edge, Extremum, Polynomial, Target, TreeScore, ValueAtExtremum, factor


def inputs(target, T, seed=0, batch=96):
    unit = np.concatenate([starts(np.random.default_rng(seed), batch, T, target.dim, r) for r in range(2)])
    return target.domain[0] + (target.domain[1] - target.domain[0]) * unit


def errors(network, target, X):
    off = np.abs(network(torch.from_numpy(X)).numpy() - target(X))
    return off.reshape(len(X), -1).max(1)


def test_values_and_leads_by_brute_force():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (50, 7, 3))
    F = it.value_at_argmax(3)
    for x, value, slack in zip(X, F(X), F.slack(X), strict=True):
        order = np.argsort(-x[:, 0])
        assert np.array_equal(value, x[order[0], 1:])
        assert slack == pytest.approx(x[order[0], 0] - x[order[1], 0] - 0.1, abs=1e-12)
    N = it.after_match(3)
    for x, value, slack in zip(X, N(X), N.slack(X), strict=True):
        away = ((x[:-1] - x[-1]) ** 2).sum(1)
        order = np.argsort(away)
        assert np.array_equal(value, x[order[0] + 1])
        assert slack == pytest.approx(away[order[1]] - away[order[0]] - 0.1, abs=1e-12)
    R = it.recall(2)
    for x, value, slack in zip(X, R(X), R.slack(X), strict=True):
        match = x[:-1, :2] @ x[-1, :2]
        order = np.argsort(-match)
        assert value == x[order[0], 2]
        assert slack == pytest.approx(match[order[0]] - match[order[1]] - 0.1, abs=1e-12)
    assert np.array_equal(F.slack(torch.from_numpy(X)).numpy(), F.slack(X))


def test_the_token_that_is_read_is_active_and_no_other():
    for F, place in ((it.value_at_argmax(3), 0), (it.recall(2, 2), 0), (it.after_match(2), 2)):
        X = F.sample(20, 6)
        assert (F.active(X).sum(1) == 1).all()
        assert all(active[w[place]] for active, w in zip(F.active(X), F.winners(X)[0], strict=True))


@pytest.mark.parametrize("T", [1, 2, 9])
@pytest.mark.parametrize("margin", [0.5, 0.01])
def test_the_largest_coordinate_s_token_is_read_by_one_head(T, margin):
    target = it.value_at_argmax(3, margin)
    network = iflow.build(target, T, 0.02)
    assert (network.config.heads, network.config.embed) == ((1,), (3,))
    X = inputs(target, T)
    counted = target.slack(X) >= 0
    assert counted.any()
    assert errors(network, target, X)[counted].max() <= network.certificate.bound <= 0.02
    assert largest_weight(network) <= 1.0
    if T > 1:  # at a tie the value jumps and no network follows
        assert errors(network, target, X).max() > 0.1


@pytest.mark.parametrize(("T", "d", "values"), [(2, 1, 1), (3, 2, 1), (8, 2, 2), (12, 3, 1)])
def test_associative_recall_is_two_heads_in_two_layers(T, d, values):
    target = it.recall(d, values)
    network = iflow.build(target, T, 0.05)
    assert network.config.heads == (1, 1)
    X = inputs(target, T)
    counted = target.slack(X) >= 0
    assert errors(network, target, X)[counted].max(initial=0.0) <= network.certificate.bound <= 0.05
    assert largest_weight(network) <= 1.0
    assert float(network.embed(torch.from_numpy(X)).norm(dim=-1).max()) <= 1.0 + 1e-12


@pytest.mark.parametrize(("T", "d", "positions"), [(2, 1, "additive"), (3, 2, "augmented"), (9, 2, "additive")])
def test_induction_is_a_head_for_the_next_token_and_one_for_the_match_then_a_read(T, d, positions):
    target = it.after_match(d, 0.2)
    network = iflow.build(target, T, 0.05, arch=f"heads=2,1 positions={positions}")
    assert network.config.heads == (2, 1)
    X = inputs(target, T)
    X[0, -1] = X[0, 0]  # a token that was there before
    counted = target.slack(X) >= 0
    assert counted.any()
    assert errors(network, target, X)[counted].max() <= network.certificate.bound <= 0.05
    assert largest_weight(network) <= 1.0
    assert float(network.embed(torch.from_numpy(X)).norm(dim=-1).max()) <= 1.0 + 1e-12


def test_what_a_neighbour_needs():
    line = TreeScore.linear([1.0])
    last = ValueAtExtremum(Extremum(line), Polynomial.identity(1), shift=1)
    F = Target((last,), Polynomial.identity(1), 1)
    with pytest.raises(iflow.InfoFlowError, match="leave out the ends"):
        F(np.zeros((3, 1)))
    with pytest.raises(iflow.InfoFlowError, match="not every winner has a token there"):
        lay_out(F, 3)
    before = ValueAtExtremum(Extremum(line, sets=(slice(1, None),)), Polynomial.identity(1), shift=-1)
    G = Target((before,), Polynomial.identity(1), 1)
    assert G(np.array([[1.0], [2.0], [5.0], [3.0]])) == 2.0
    assert iflow.build(G, 4, 0.1, arch="heads=1,1 positions=additive mask=causal").certificate.bound <= 0.1
    for arch, why in (
        ("heads=1,1 positions=none", "no position code"),
        ("heads=2 positions=additive", "needs 2 layers"),
        ("heads=2,1 positions=additive mask=causal", "no token sees what stands behind it"),
        ("heads=1,1 positions=additive", "heads=2,1 fits"),
    ):
        with pytest.raises(iflow.InfoFlowError, match=why):
            iflow.build("after_match:d=1", 4, 0.1, arch=arch)


def random_read(rng, d, T):
    """Trees of one to three vertices, read at any of them or beside it, with sets, different positions, polynomials."""
    k = int(rng.integers(1, 4))
    edges = []
    for v in range(1, k):
        left, right = factor(rng.standard_normal((d, d)))
        edges.append(Edge(int(rng.integers(v)), v, left, right))
    unary = [Polynomial.linear(rng.standard_normal((1, d))) if k == 1 or rng.random() < 0.5 else None for _ in range(k)]
    if rng.random() < 0.3:
        unary[0] = Polynomial.quadratic(rng.standard_normal((d, d)), rng.standard_normal(d), 0.5)
    choices = [None, slice(None, -1), slice(-1, None), tuple(rng.permutation(T)[:2].tolist())]
    sets = tuple(choices[i] for i in rng.integers(0, 4, k)) if rng.random() < 0.4 else None
    distinct = k == 2 and sets is None and rng.random() < 0.5
    score = TreeScore(tuple(unary), tuple(edges), d)
    extremum = Extremum(score, "max" if rng.random() < 0.5 else "min", sets, distinct)
    value = Polynomial.affine_map(rng.standard_normal((int(rng.integers(1, 3)), d)), float(rng.standard_normal()))
    vertex, margin = int(rng.integers(k)), float(rng.uniform(0.05, 0.5))
    if not distinct and rng.random() < 0.5:
        shift = int(rng.integers(1, T)) * int(rng.choice([-1, 1]))
        allowed = list(sets or (None,) * k)
        allowed[vertex] = slice(None, -shift) if shift > 0 else slice(-shift, None)
        return ValueAtExtremum(replace(extremum, sets=tuple(allowed)), value, vertex, margin, shift=shift)
    return ValueAtExtremum(extremum, value, vertex, margin)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3, 6]))
@example(seed=782, T=6)  # an encoder's first tolerances lift its tokens above norm 1
def test_random_reads_stay_within_their_certificates_where_the_winner_is_clear(seed, T):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    terms = [random_read(rng, d, T) for _ in range(int(rng.integers(1, 3)))]
    if rng.random() < 0.3:
        terms.append(Extremum(TreeScore.bilinear(rng.standard_normal((d, d)))))
    values = sum(term.values for term in terms)
    low = float(rng.uniform(-2, 2))
    outer = Polynomial.affine_map(rng.standard_normal((2, values)), rng.standard_normal(2))
    target = Target(tuple(terms), outer, d, domain=(low, low + float(rng.uniform(0.3, 2))))
    X = inputs(target, T, seed % 7, 48)
    network = iflow.build(target, T, 0.2 * (1.0 + float(np.abs(target(X)).max())))
    counted = target.slack(X) >= 0
    reading = read(network, target, T, target.domain, 1)
    assert not reading.violations
    for bound in (network.certificate.bound, reading.bound):
        assert errors(network, target, X)[counted].max(initial=0.0) <= bound <= network.header["eps"]


HOT = [
    ("value_at_argmax:d=2", [(1.0,), (20.0,)]),
    ("recall:d=1", [(9.0, 99.0), (3.0, 1e6)]),
    ("after_match:d=1", [(2.0, 1e6), (9.0, 1e6)]),
]


@pytest.mark.parametrize(("spelling", "betas"), HOT)
def test_a_hot_network_has_the_bound_it_deserves(spelling, betas):
    """With a small beta the losers keep their weight; the bound must grow as the error does."""
    network, target = iflow.build(spelling, 4, 0.05), it.parse(spelling)
    X = inputs(target, 4)
    counted = target.slack(X) >= 0
    for scales in betas:
        hot = Transformer(replace(network.config, scales=scales)).double().requires_grad_(False)
        hot.load_state_dict(network.state_dict())
        hot.header = network.header
        bound = read(hot, target, 4, target.domain, 1).bound
        assert 0.05 < errors(hot, target, X)[counted].max() <= bound


def test_the_attack_stays_where_the_claim_speaks():
    target = it.value_at_argmax(2, 0.3)
    network = iflow.build(target, 5, 0.05)
    low, high = -np.ones(2), np.ones(2)
    found = attack(network, target, Region(5, low, high, target.slack), seconds=0.3)
    assert target.slack(found.worst[None])[0] >= 0
    assert 0.0 < found.error <= network.certificate.bound
    assert attack(network, target, Region(5, low, high), seconds=0.3).error > 0.5  # a tie, where the claim is silent


@pytest.mark.parametrize(
    "spelling", ["value_at_argmax:d=3,margin=0.2", "recall:d=2,values=2,margin=0.2", "after_match:d=1,margin=0.2"]
)
def test_certificates_say_what_they_speak_of(spelling, tmp_path):
    network = iflow.load(iflow.build(spelling, 6, 0.1).save(tmp_path / "f.safetensors"))
    certificate = iflow.certify(network, seconds=0.5)
    assert certificate.holds
    assert 0.0 < certificate.attacked <= certificate.bound <= 0.1
    assert certificate.claim.inputs.endswith("whose best score leads by at least 0.2")
    share = certificate.measured["share of sampled inputs that count"]
    target = it.parse(spelling)
    assert share == pytest.approx(float((target.slack(target.sample(20_000, 6, seed=1)) >= 0).mean()), abs=0.03)
    assert certificate.measured["float32"] < 0.2


@pytest.mark.parametrize("spelling", ["value_at_argmax:d=3", "recall:d=2", "after_match:d=2"])
def test_predict_plan_and_trace(spelling):
    target = it.parse(spelling)
    layout = lay_out(target, 8)
    arch = iflow.Architecture(layout.heads, layout.embed, positions=layout.positions)
    assert iflow.predict(target, arch, 8, eps=0.1).verdict == "constructed"
    assert iflow.plan(target, 8).kind == "layout"
    for seed in range(10):
        flow = iflow.trace(target, arch, target.sample(1, 8, seed=seed)[0])
        assert flow.learns
        assert not flow.note


@pytest.mark.parametrize("spelling", ["value_at_argmax:d=3", "recall:d=1", "after_match:d=1"])
def test_reads_are_trained(spelling):
    recipe = iflow.Recipe(samples=512, validation=256, epochs=2)
    (result,) = iflow.fit(spelling, "heads=1,1 embed=8 positions=additive", 5, seeds=1, recipe=recipe)
    assert result.best < 2.0


def test_what_a_read_needs():
    line = Extremum(TreeScore.linear([1.0]))
    with pytest.raises(iflow.InfoFlowError, match="margin to be a finite number above 0"):
        ValueAtExtremum(line, Polynomial.identity(1), margin=0.0)
    with pytest.raises(iflow.InfoFlowError, match="vertex below 1"):
        ValueAtExtremum(line, Polynomial.identity(1), vertex=1)
    with pytest.raises(iflow.InfoFlowError, match="sum over a tree"):
        ValueAtExtremum(Extremum(it.NormOfSum(3, 1)), Polynomial.identity(1))
    with pytest.raises(iflow.InfoFlowError, match="longer sequence"):
        it.recall()(np.zeros((1, 3)))


def test_a_length_nobody_can_count_to_is_answered_at_once():
    F = it.value_at_argmax(d=2, margin=0.1)
    F.check_length(10**15)
    assert counted_share(F, 10**9) == {}
    assert 0.0 < counted_share(F, 8)["share of sampled inputs that count"] < 1.0
