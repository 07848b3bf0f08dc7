"""build: networks within their certificate of their target, weights at most 1, shapes, refusals, files."""

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import infoflow as iflow
from infoflow import targets as it
from infoflow.certificates.attack import starts
from infoflow.compiler.compile import largest_weight
from infoflow.flow.layout import Refused
from infoflow.targets import Edge, Extremum, Polynomial, PositionSum, Target, TreeScore, factor


def inputs(target, T, domain, seed=0, batch=48):
    low, high = np.broadcast_to(domain[0], target.dim), np.broadcast_to(domain[1], target.dim)
    unit = np.concatenate([starts(np.random.default_rng(seed), batch, T, target.dim, r) for r in range(2)])
    return low + (high - low) * unit


def worst(network, target, X):
    return float(np.abs(network(torch.from_numpy(X)).numpy() - target(X)).max())


def check(target, T, eps, domain=None, weight_bound=1, **options):
    network = iflow.build(target, T, eps, domain=domain, weight_bound=weight_bound, **options)
    X = inputs(target, T, target.domain if domain is None else domain)
    assert worst(network, target, X) <= network.certificate.bound <= eps
    if weight_bound is not None:
        assert largest_weight(network) <= 1.0
        assert float(network.embed(torch.from_numpy(X)).norm(dim=-1).max()) <= 1.0 + 1e-12
    return network


CASES = [
    (it.min_pair(), 8, 0.1, {}),
    (it.pairwise_max(4, 4), 16, 0.01, {}),
    (it.pairwise_max(4, 4), 8, 0.05, {"arch": "heads=1,1,1,1,1 embed=13"}),
    (it.pairwise_max(2, 3), 8, 0.1, {"rule": "plain"}),
    (it.pairwise_max(2, 3), 8, 0.05, {"weight_bound": None}),
    (it.pairwise_max(2, 3), 8, 0.05, {"domain": (0.0, 0.5)}),
    (it.pairwise_max(2, 3), 8, 0.05, {"domain": (5.0, 6.0)}),
    (it.pairwise_max(2, 3), 8, 0.05, {"domain": ((-1.0, 0.0, 2.0), (1.0, 3.0, 2.5))}),
    (it.star(), 8, 0.05, {}),
    (it.star(4, 2), 8, 0.05, {"arch": "heads=1,1,1,1 embed=12"}),
    (it.chain(5, 2), 8, 0.1, {}),
    (it.sum_of_maxima(), 16, 0.01, {}),
    (it.d_retrieval(3, 2), 16, 0.01, {}),
    (it.d_retrieval(2, 2, sets=((0, 1), (2, 5))), 8, 0.05, {}),
    (it.d_retrieval(2, 1, sets=((0, 1), (2,))), 4, 0.05, {"arch": "heads=2 embed=6 positions=augmented"}),
    (it.position_sum(), 10, 0.01, {}),
    (it.position_sum((0, 4), 3), 6, 0.05, {"arch": "heads=1 embed=6 positions=augmented"}),
    (it.max_plus_min(), 6, 0.05, {}),
    (it.kth_largest(1), 6, 0.05, {}),
    (it.Target.sum(Extremum(it.NormOfSum(2, 2), "min")), 6, 0.1, {}),
    (it.min_pair(), 1, 0.1, {}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].spelling or 'norm'} {c[3]}")
def test_networks_stay_within_their_certificates(case):
    target, T, eps, options = case
    check(target, T, eps, **options)


def random_tree(rng, k, d, T):
    edges = []
    for v in range(1, k):
        parent = int(rng.integers(v))
        A = rng.standard_normal((d, d)) if rng.random() < 0.7 else np.outer(*rng.standard_normal((2, d)))
        left, right = factor(A)
        edges.append(Edge(parent, v, left, right) if rng.random() < 0.5 else Edge(v, parent, right, left))
    unary = [Polynomial.linear(rng.standard_normal((1, d))) if rng.random() < 0.5 or k == 1 else None for _ in range(k)]
    if rng.random() < 0.3:
        unary[0] = Polynomial.quadratic(rng.standard_normal((d, d)), rng.standard_normal(d), 0.5)
    sets = None
    if rng.random() < 0.3:
        sets = tuple(None if rng.random() < 0.5 else tuple({int(t) for t in rng.integers(0, T, 3)}) for _ in range(k))
    return Extremum(TreeScore(tuple(unary), tuple(edges), d), "max" if rng.random() < 0.5 else "min", sets)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 7]), st.sampled_from([0.5, 0.1]))
def test_random_trees_outer_maps_and_domains(seed, T, share):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    terms = [random_tree(rng, int(rng.integers(1, 5)), d, T) for _ in range(int(rng.integers(1, 4)))]
    if rng.random() < 0.3:
        terms.append(PositionSum((0,), d))
    values = sum(term.values for term in terms)
    outer = Polynomial.affine_map(rng.standard_normal((2, values)), rng.standard_normal(2))
    low = float(rng.uniform(-2, 2))
    target = Target(tuple(terms), outer, d, domain=(low, low + float(rng.uniform(0.3, 2))))
    size = 1.0 + float(np.abs(target(inputs(target, T, target.domain))).max())
    with contextlib.suppress(Refused):  # weights of at most 1 may need more than memory holds
        check(target, T, share * size, weight_bound=1 if rng.random() < 0.7 else None)


def test_polynomial_outer_maps_by_product_rules():
    terms = it.sum_of_maxima(2, 2).terms
    outer = Polynomial(np.array([[2, 0], [1, 1], [0, 1], [0, 0]]), np.array([[0.3, -0.5, 1.0, 0.2]]))
    check(Target(terms, outer, 2), 6, 0.1)
    pairs = Target(it.pairwise_max(2, 2).terms, Polynomial(np.array([[1, 1]]), np.array([[0.1]])), 2)
    check(pairs, 6, 0.3)
    cubic = Polynomial(np.array([[2, 1], [1, 0]]), np.array([[0.05, 0.3]]))
    check(Target(terms, cubic, 2), 6, 0.3, weight_bound=None)


def test_outer_network_is_applied_exactly():
    outer = it.OuterNetwork(lambda v: abs(v[..., :1] - v[..., 1:]), lipschitz=2.0, error=0.01)
    target = Target(it.pairwise_max(2, 2).terms, outer, 2)
    network = iflow.build(target, 6, 0.2)
    assert worst(network, target, inputs(target, 6, (-1, 1))) <= network.certificate.bound <= 0.2
    assert network.certificate.parts["outer network"] == 0.01
    assert iflow.certify(network, seconds=0.1).holds
    with pytest.raises(iflow.InfoFlowError, match="your own function"):
        network.save("x.safetensors")
    with pytest.raises(Refused, match="states an error"):
        iflow.build(target, 6, 0.005)


def test_causal_mask_for_symmetric_pairs():
    check(it.min_pair(), 6, 0.1, arch="heads=1,1 embed=6,6 mask=causal")


def test_padding_changes_nothing():
    target, X = it.pairwise_max(2, 2), inputs(it.pairwise_max(2, 2), 6, (-1, 1))
    small = iflow.build(target, 6, 0.05)
    large = iflow.build(target, 6, 0.05, arch="heads=3,3 embed=12,9 width=900")
    assert np.allclose(small(torch.from_numpy(X)), large(torch.from_numpy(X)), atol=1e-9)


def test_star_is_one_network_for_all_lengths():
    """max over triples has order of comparison 3, and yet heads (2,1) and one width serve every T."""
    widths = set()
    for T in (8, 1024):
        network = iflow.build(it.star(3, 3), T, 0.05)
        assert network.config.heads == (2, 1)
        widths.add((network.config.embed, network.config.widths))
        X = inputs(it.star(3, 3), T, (-1, 1), batch=6)
        assert worst(network, it.star(3, 3), X) <= 0.05
    assert widths == {((10, 2), network.config.widths)}


def test_theorem_4_has_its_stated_shape():
    network = iflow.build("min_pair", 4, 0.5)
    assert (network.config.heads, network.config.head_dims) == ((1, 1), (6, 6))


def test_refusals_reach_the_caller():
    with pytest.raises(Refused, match="3-th largest"):
        iflow.build("kth_largest:k=3", 8, 0.1)
    with pytest.raises(Refused, match="neither a tree form nor a Lipschitz"):
        iflow.build(Target.sum(Extremum(it.CallableScore(lambda x: x.sum((-1, -2)), 3, 2))), 8, 0.1)
    with pytest.raises(iflow.InfoFlowError, match="rule"):
        iflow.build("min_pair", 4, 0.1, rule="magic")


def test_a_saved_network_comes_back(tmp_path):
    network = iflow.build("pairwise_max:D=2,d=2", 6, 0.05)
    loaded = iflow.load(network.save(tmp_path / "f.safetensors"))
    X = torch.from_numpy(inputs(it.pairwise_max(2, 2), 6, (-1, 1)))
    assert torch.equal(network(X), loaded(X))
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), loaded.parameters(), strict=True))
    assert loaded.certificate.bound == network.certificate.bound
    assert loaded.header["directions"][1][0] == "term1.score(1)"
    assert iflow.certify(loaded, seconds=0.1).holds
