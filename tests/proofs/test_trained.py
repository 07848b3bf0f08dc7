"""The proved bound is never below what brute force finds, whatever the weights; and it is close where they are tame."""

import numpy as np
import pytest
import torch

from infoflow import Architecture, InfoFlowError, targets
from infoflow.nn import Transformer, TransformerConfig
from infoflow.nn.transformer import ACTIVATIONS
from infoflow.proofs import inequalities, reachable
from infoflow.proofs.bound import largest, problems, space_of
from infoflow.proofs.inequalities import bracket
from infoflow.proofs.reachable import cuts
from infoflow.proofs.reduce import reduce
from infoflow.proofs.trained import certify_trained
from infoflow.targets.score import TreeScore
from infoflow.targets.target import Extremum, KthLargest, Target

from .networks import largest_error, random_network


def proved(network: Transformer, target: Target, T: int, most: int = 60) -> float:
    """The bound without an attack of its own, after so many nodes."""
    reduced = reduce(network)
    low, high = (np.full(target.dim, end) for end in target.domain)
    bracketed = bracket(target, reduced, T, low, high)
    space = space_of(reduced, cuts(reduced, bracketed, T, low, high), low, high)
    found = largest(space, problems(reduced, bracketed), 1e9, most=most)
    return found.bound + float(reduced.rounding(1.0, T).max())


def test_the_reduced_network_is_the_network() -> None:
    for seed, options in enumerate(({}, {"residual": False}, {"share_key_value": True}, {"encoder": "none"})):
        h = 1 if "encoder" in options else 3
        network = random_network(seed, h=h, **options)  # type: ignore[arg-type]
        X = np.random.default_rng(seed).uniform(-1, 1, (20, 5, 2))
        reduced = reduce(network)
        theirs = network(torch.from_numpy(X)).detach().numpy()
        assert np.abs(reduced(reduced.averages(X))[:, 0] - theirs).max() <= reduced.rounding(1.0, X.shape[1])[0] < 1e-9


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("T", [1, 2, 7])
def test_never_below_brute_force(activation: str, T: int) -> None:
    for seed in range(2):
        network = random_network(seed, activation=activation)
        target = targets.sum_of_maxima(D=2, d=2, seed=seed)
        bound, found = proved(network, target, T), largest_error(network, target, T, seed)
        assert found <= bound


@pytest.mark.parametrize("scale", [0.0, 1e-3, 5.0, 100.0])
def test_adversarial_weights(scale: float) -> None:
    """All zero, tiny, saturated, and huge weights; heads that are equal."""
    target = targets.sum_of_maxima(D=1, d=2, seed=3)
    network = random_network(1, h=3, scale=scale)
    with torch.no_grad():
        network.attentions[0].query[1] = network.attentions[0].query[0]  # type: ignore[index, union-attr]
        network.attentions[0].key[1] = network.attentions[0].key[0]  # type: ignore[index, union-attr]
    assert largest_error(network, target, 4) <= proved(network, target, 4)


OTHERS = [
    targets.max_plus_min(),
    targets.kth_largest(k=1, d=2),
    targets.kth_largest(k=3, d=2),
    Target.sum(Extremum(TreeScore.linear([1.0, -0.5]), "min"), KthLargest(2, np.array([0.3, 1.0]))),
    Target(
        (Extremum(TreeScore.linear([1.0, 0.0])), Extremum(TreeScore.linear([0.5, 1.0]), "min")),
        targets.Polynomial.affine_map([[2.0, -1.5]], [0.7]),
        2,
    ),
    targets.value_at_argmax(d=3, margin=0.3),
]


@pytest.mark.parametrize("target", OTHERS, ids=lambda t: t.spelling or "own")
def test_other_targets(target: Target) -> None:
    for seed in range(3):
        network = random_network(seed, d=target.dim, outputs=target.outputs)
        assert largest_error(network, target, 6, seed) <= proved(network, target, 6)


def test_tied_heads_are_one_head() -> None:
    """Redundant heads cost nothing: their averages are equal, and the cuts say so."""
    target = targets.sum_of_maxima(D=1, d=2, seed=0)
    network = random_network(5, h=2)
    layer = network.attentions[0]
    with torch.no_grad():
        layer.query[1], layer.key[1] = layer.query[0], layer.key[0]  # type: ignore[index, union-attr]
    reduced = reduce(network)
    low, high = np.full(2, -1.0), np.full(2, 1.0)
    found = cuts(reduced, bracket(target, reduced, 8, low, high), 8, low, high)
    joined = found.rows[:, :4] @ np.array([1.0, 0.0, -1.0, 0.0])
    assert found.limits[joined > 1].min() < 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_averages_of_sequences_satisfy_every_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(seed, h=3, scale=0.8)
    target = targets.sum_of_maxima(D=2, d=2, seed=seed)
    T = int(rng.integers(1, 6))
    reduced = reduce(network)
    low, high = np.full(2, -1.0), np.full(2, 1.0)
    found = cuts(reduced, bracket(target, reduced, T, low, high), T, low, high)
    X = rng.uniform(-1, 1, (3000, T, 2))
    X[::2] = np.sign(X[::2])
    m = reduced.averages(X)
    A = np.log(np.exp(X @ reduced.queries.T).sum(1))
    over = np.hstack([m, A]) @ found.rows.T - found.limits
    assert over.max() <= 1e-12
    assert over.max(0).max() > -0.5  # and some cut is nearly met


def test_the_brackets_hold_on_sequences() -> None:
    rng = np.random.default_rng(0)
    network = random_network(2, h=2, d=3)
    for target in (
        targets.sum_of_maxima(D=3, d=3),
        targets.value_at_argmax(d=3, margin=0.2),
        targets.kth_largest(2, 3),
    ):
        low, high = (np.full(3, end) for end in target.domain)
        X = low + (high - low) * rng.uniform(size=(4000, 5, 3))
        X = X[target.slack(X) >= 0]
        reduced = reduce(network)
        m, values = reduced.averages(X), target.term_values(X)
        for i, between in enumerate(bracket(target, reduced, 5, low, high).values):
            assert ((m @ between.lower[0].T + between.lower[1]).max(1) <= values[:, i] + 1e-12).all()
            assert ((m @ between.upper[0].T + between.upper[1]).min(1) >= values[:, i] - 1e-12).all()


def trained_like() -> tuple[Transformer, Target]:
    """x -> max over two directions by hand: sharp heads, a read-out that is nearly the identity."""
    target = targets.sum_of_maxima(D=2, d=2, seed=1)
    a = np.stack([value.upper[0][0, :2] for value in _values(target)])
    network = Transformer(TransformerConfig(2, (2,), (2,), (4,), activation="gelu")).double()
    with torch.no_grad():
        network.encoder.maps[0].weight[:2] = torch.eye(2)  # type: ignore[union-attr]
        network.cls_token[2] = 1.0  # type: ignore[index]
        layer = network.attentions[0]
        for k in range(2):
            layer.query[k, 0, 2] = 30.0
            layer.key[k, 0, :2] = torch.from_numpy(a[k])
            layer.value[k, 0, :2] = torch.from_numpy(a[k])
            layer.output[3, 2 * k] = 1.0  # the sum of both maxima
        first, last = network.readout.maps  # type: ignore[union-attr]
        first.weight[0, 3], first.weight[1, 3] = 1.0, -1.0
        last.weight[0, 0], last.weight[0, 1] = 1.0, -1.0  # gelu(z) - gelu(-z) = z
    return network, target


def _values(target: Target) -> tuple[inequalities.Between, ...]:
    reduced = reduce(random_network(0, h=1, d=2))
    return bracket(target, reduced, 4, np.full(2, -1.0), np.full(2, 1.0)).values


def test_a_good_network_has_a_close_bound() -> None:
    network, target = trained_like()
    for T in (8, 1024):
        certificate = certify_trained(network, target, T, seconds=4.0)
        assert certificate.holds
        assert certificate.attacked is not None
        assert certificate.bound is not None
        assert certificate.attacked <= certificate.bound <= 1.3 * certificate.attacked
        worst = torch.tensor([certificate.worst], dtype=torch.float64)
        assert abs((network(worst) - target(worst)).item()) == pytest.approx(certificate.attacked)


def test_the_bound_only_falls_with_time() -> None:
    network, target = random_network(3, h=2), targets.sum_of_maxima(D=2, d=2, seed=3)
    reduced = reduce(network)
    low, high = np.full(2, -1.0), np.full(2, 1.0)
    bracketed = bracket(target, reduced, 8, low, high)
    space = space_of(reduced, cuts(reduced, bracketed, 8, low, high), low, high)
    bounds = [largest(space, problems(reduced, bracketed), 1e9, most=n).bound for n in (2, 4, 8, 16, 32)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < bounds[0]


def test_a_broken_constant_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the gap, and the same network's bound falls below what brute force finds."""
    network, target = trained_like()
    found = certify_trained(network, target, 8, seconds=2.0).attacked
    assert found is not None
    whole = inequalities.gap
    monkeypatch.setattr(inequalities, "gap", lambda *given: 0.5 * whole(*given))
    monkeypatch.setattr(reachable, "gap", lambda *given: 0.5 * whole(*given))
    assert proved(network, target, 8) < found
    assert not certify_trained(network, target, 8, seconds=2.0).holds


def test_what_is_not_covered_is_refused_by_name() -> None:
    with pytest.raises(InfoFlowError, match="2 layers"):
        reduce(Transformer(TransformerConfig(2, (1, 1), (2, 2), (4, 4))))
    with pytest.raises(InfoFlowError, match="positions"):
        reduce(Transformer(TransformerConfig(2, (1,), (2,), (4,), positions="additive", length=4)))
    network = random_network(0, d=3)
    for target, word in ((targets.pairwise_max(D=1, d=3), "2 tokens"), (targets.d_retrieval(D=1, d=3), "not linear")):
        certificate = certify_trained(network, target, 4, seconds=0.1)
        assert certificate.bound is None
        assert not certificate.holds
        assert certificate.attacked is not None  # the attack is told all the same
        (why,) = certificate.why_not
        assert word in why
        assert "no bound is known" in why
    with pytest.raises(InfoFlowError, match="dimension 3"):
        certify_trained(network, targets.sum_of_maxima(D=1, d=2), 4)


def offset_network(offset: float, sharpness: float = 1e4) -> Transformer:
    """The average with weights e^(sharpness x), its scores moved by sharpness times `offset`: all tokens alike."""
    made = TransformerConfig.of(Architecture((1,), (2,), 1), 1, 1, 0, activation="identity")
    network = Transformer(made).double().requires_grad_(False)
    for parameter in network.parameters():
        parameter.zero_()
    stored = network.state_dict()
    stored["encoder.maps.0.weight"][:] = 1.0
    stored["encoder.maps.0.bias"][1] = offset
    stored["cls_token"][0] = 1.0
    stored["attentions.0.query"][0, 0, 0] = sharpness
    stored["attentions.0.key"][0, 0, 1] = 1.0
    stored["attentions.0.value"][0, 0, 0] = 1.0
    stored["attentions.0.output"][0, 0] = 1.0
    stored["readout.maps.0.weight"][0, 0] = 1.0
    stored["readout.maps.0.bias"][0] = -1.0
    stored["readout.maps.1.weight"][0, 0] = 1.0
    return network


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e8, 1e10, 1e13, 1e60, 1e200])
def test_a_constant_in_all_scores_cancels_in_the_softmax_and_not_in_float64(offset: float) -> None:
    """At 1e13 scores are multiples of 16: two tokens 1e-3 apart tie. The bound was 4e-5, the error of a run 9e-4."""
    network, target = offset_network(offset), targets.parse("kth_largest:k=1,d=1")
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (4000, 2, 1))
    X[:, 1] = X[:, 0] + rng.uniform(0, 1e-3, (4000, 1))
    error = np.abs(network(torch.from_numpy(X)).numpy() - target(X))
    if offset == 1e200:
        with pytest.raises(InfoFlowError, match="float64 overflows"):
            certify_trained(network, target, 2, seconds=0.05)
        return
    found = certify_trained(network, target, 2, seconds=0.05)
    assert found.bound is None or float(error.max()) <= found.bound
    assert (found.bound is None) == (offset >= 1e10)
    assert found.holds == (found.bound is not None)
    assert offset > 0 or found.bound < 4e-5
