"""Single weights changed in every tensor: the recomputed bound covers them, or the certificate falls and says where."""

import math

import numpy as np
import pytest
import torch

import infoflow as iflow
from infoflow import targets as it
from infoflow.certificates.attack import starts
from infoflow.compiler.certification import certify
from infoflow.compiler.verification import read
from infoflow.errors import InfoFlowError

NETWORKS = {
    "pairs": (it.pairwise_max(2, 2), 5, 0.1, {}),
    "depth": (it.pairwise_max(2, 2), 5, 0.2, {"arch": "heads=1,1,1 embed=10"}),
    "features": (it.d_retrieval(2, 2, sets=((0, 1), (2, 4))), 5, 0.1, {}),
    "chain": (it.chain(4, 2), 4, 0.3, {}),
    "neighbour": (it.after_match(1), 4, 0.1, {}),
}


def made(name):
    target, T, eps, options = NETWORKS[name]
    return iflow.build(target, T, eps, **options), target, T, eps


def bound_of(network, target, T):
    return read(network, target, T, network.header["domain"], network.header["weight_bound"])


def true_error(network, target, T):
    low, high = (np.array(side) for side in network.header["domain"])
    unit = np.concatenate([starts(np.random.default_rng(s), 48, T, target.dim, s) for s in range(2)])
    X = low + (high - low) * unit
    X = X[target.slack(X) >= 0]
    return float(np.abs(network(torch.from_numpy(X)).numpy() - target(X)).max())


@pytest.mark.parametrize("name", NETWORKS)
def test_an_untouched_network_reads_as_built(name):
    network, target, T, _ = made(name)
    reading = bound_of(network, target, T)
    assert reading.violations == []
    assert reading.bound == pytest.approx(network.certificate.bound, rel=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("change", [0.3, 1e-3])
def test_a_changed_weight_is_bounded_or_named(name, change):
    network, target, T, _ = made(name)
    rng = np.random.default_rng(1)
    for tensor_name, parameter in network.named_parameters():
        places = [int(i) for i in rng.integers(parameter.numel(), size=3)]
        nonzero = torch.nonzero(parameter.flatten()).flatten()
        if len(nonzero):
            places.append(int(nonzero[int(rng.integers(len(nonzero)))]))
        for place in places:
            flat = parameter.data.view(-1)
            old = flat[place].item()
            flat[place] = old + change
            reading = bound_of(network, target, T)
            block = tensor_name.startswith(("ffns", "readout")) or (
                tensor_name.startswith("encoder") and network.config.encoder == "mlp"
            )
            index = ",".join(str(int(i)) for i in np.unravel_index(place, parameter.shape))
            if not block:
                assert any(v.startswith(f"{tensor_name}[{index}]") for v in reading.violations)
            elif not reading.violations:
                assert true_error(network, target, T) <= reading.bound
            flat[place] = old
    assert bound_of(network, target, T).violations == []


def test_a_broken_network_does_not_hold_and_says_where():
    network, *_ = made("pairs")
    network.ffns[0].maps[1].weight.data[0, 5] += 0.5
    certificate = certify(network, seconds=0.1, balls=False)
    assert not certificate.holds
    assert any("ffns.0.maps.1.weight[0,5]" in reason for reason in certificate.reasons)
    network, *_ = made("pairs")
    network.attentions[1].key.data[0, 0, 0] *= 0.5
    certificate = certify(network, seconds=0.1, balls=False)
    assert not certificate.holds
    assert certificate.bound is None
    assert any("attentions.1.key[0,0,0]" in reason for reason in certificate.reasons)


def test_a_small_deviation_is_bounded_and_holds():
    network, *_ = made("pairs")
    clean = certify(network, seconds=0.1, balls=False).bound
    network.ffns[0].maps[0].weight.data[3, 1] += 1e-7
    certificate = certify(network, seconds=0.1, balls=False)
    assert certificate.holds
    assert clean < certificate.bound < clean + 1e-3


def test_a_longer_sequence_has_a_larger_bound():
    network, target, T, _ = made("pairs")
    certificate = certify(network, target, 4 * T, seconds=0.1, balls=False)
    assert not certificate.holds  # the file was asked for 0.1
    assert "above what was asked, 0.1" in certificate.why_not[0]
    certificate = certify(network, target, 4 * T, seconds=0.1, balls=False, eps=0.2)
    assert certificate.holds
    assert certificate.bound > network.certificate.bound
    assert "every sequence of 20 tokens in [-1, 1]^2" in str(certificate.claim)


def test_another_kind_of_network_is_refused():
    from infoflow.nn import Transformer, TransformerConfig

    plain = Transformer(TransformerConfig(2, (1, 1), (4, 4), (8, 8), activation="gelu")).double()
    with pytest.raises(iflow.InfoFlowError, match="target"):
        certify(plain, seconds=0.1)
    with pytest.raises(iflow.InfoFlowError, match="activation='tanh'"):
        certify(plain, it.pairwise_max(1, 2), 4, seconds=0.1)
    with pytest.raises(iflow.InfoFlowError, match="certificate"):
        certify(object())


def low_rank(turn: np.ndarray) -> it.Target:
    """x' A y of rank 2 in dimension 3, factored with a turn of its own: A = (G L)' (G^-T R) for every invertible G."""
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 2, 3))
    edge = it.Edge(0, 1, it.Polynomial.linear(turn @ left), it.Polynomial.linear(np.linalg.inv(turn).T @ right))
    return it.Target.sum(it.Extremum(it.TreeScore((None, None), (edge,), 3)))


@pytest.mark.parametrize("turn", [-np.eye(2), np.array([[0.6, -0.8], [0.8, 0.6]]), np.array([[0.0, 2.0], [1.0, 0.3]])])
def test_another_factorisation_of_the_same_form_is_certified(turn):
    """Signs and rotations of a singular value decomposition differ between libraries; the product does not."""
    network = iflow.build(low_rank(turn), 5, 0.1)
    reading = bound_of(network, low_rank(np.eye(2)), 5)
    assert reading.violations == []
    assert reading.bound == pytest.approx(network.certificate.bound, rel=1e-6)
    assert network.header["factors"]
    network.header["factors"] = []  # without the witness the tensors are those of another factorisation
    assert bound_of(network, low_rank(np.eye(2)), 5).violations


def test_a_witness_is_not_trusted():
    network = iflow.build(low_rank(np.eye(2)), 5, 0.1)
    network.header["factors"][0]["phi"][0][0] += 1e-3  # no longer a factorisation of the target's form
    network.attentions[0].key.data[0, 0, 0] += 1e-3
    assert bound_of(network, low_rank(np.eye(2)), 5).violations


@pytest.mark.parametrize(
    "factors",
    [7, "psi", [{}], [{"term": 1, "child": 2, "psi": [[1, 2]], "phi": [[1, 2, 3]]}],
     [{"term": 1, "child": 2, "psi": [[float("nan")] * 3], "phi": [[1, 2, 3]]}],
     [{"term": float("inf"), "child": 2, "psi": [[1.0] * 3], "phi": [[1.0] * 3]}]],
)  # fmt: skip
def test_hostile_witnesses_are_refused_in_one_sentence(factors):
    network = iflow.build(low_rank(np.eye(2)), 5, 0.1)
    network.header["factors"] = factors
    with pytest.raises(iflow.InfoFlowError, match="factors as rows"):
        bound_of(network, low_rank(np.eye(2)), 5)


@pytest.mark.parametrize("name", NETWORKS)
def test_rounding_of_another_library_is_bounded(name):
    """Every entry that is not 0 off by 1e-12 of itself: bounded, not refused; the bound grows by about that much."""
    network, target, T, _ = made(name)
    clean = bound_of(network, target, T).bound
    rng = np.random.default_rng(0)
    for tensor_name, parameter in network.named_parameters():
        if tensor_name.startswith("attentions") and not tensor_name.endswith("output"):
            parameter.data *= 1 + 1e-12 * torch.from_numpy(rng.uniform(-1, 1, parameter.shape))
    reading = bound_of(network, target, T)
    assert reading.violations == []
    assert clean < reading.bound < clean + 1e-8
    assert true_error(network, target, T) <= reading.bound


@pytest.mark.parametrize("gain", [0.0, -0.25, 2.0, math.nan, "0.25", None, True])
def test_a_gain_out_of_range_is_refused(gain):
    network = iflow.build("min_pair", 4, 0.1)
    network.header["slot_gain"] = gain
    with pytest.raises(InfoFlowError, match="slot_gain"):
        certify(network, seconds=0.1)


def test_another_gain_than_the_tensors_have_does_not_hold():
    network = iflow.build("min_pair", 4, 0.1)
    assert certify(network, seconds=0.1).holds
    network.header["slot_gain"] *= 0.99
    assert not certify(network, seconds=0.1).holds


@pytest.mark.parametrize("arch", [None, "heads=1,1 embed=40"])
@pytest.mark.parametrize("bound", [1, None])
def test_the_smallest_eps_still_holds_when_it_is_read_back(bound, arch):
    """Where rounding takes most of eps: what build accepts, certify accepts, and below that build refuses."""
    served = 0
    for eps in (4e-10, 8.05e-10, 1.2e-9, 2e-9, 4e-9):
        try:
            network = iflow.build("min_pair", 4, eps, arch=arch, weight_bound=bound)
        except InfoFlowError:
            continue
        served += 1
        assert read(network, it.min_pair(), 4, network.header["domain"], bound).bound <= eps
    assert 0 < served < 5


@pytest.mark.parametrize("bound", [1, None])
@pytest.mark.parametrize("eps", [1.0, 4.0, 100.0])
def test_the_largest_eps_still_holds_when_it_is_read_back(bound, eps):
    """Where almost any rule would do, none is taken so near its circle of convergence that reading finds no bound."""
    network = iflow.build("pairwise_max:D=1,d=1", 4, eps, weight_bound=bound)
    assert certify(network, seconds=0.0, balls=False).holds


def test_a_constant_off_by_more_than_rounding_is_named():
    network, target, T, _ = made("chain")
    assert bound_of(network, target, T).violations == []
    found = 0
    for layer, ffn in enumerate(network.ffns):
        bias = ffn.maps[1].bias.data
        for row in torch.nonzero(bias == 1.0).flatten().tolist():
            bias[row] += 1e-13
            assert any(f"ffns.{layer}.maps.1" in v for v in bound_of(network, target, T).violations)
            bias[row], found = 1.0, found + 1
    assert found
