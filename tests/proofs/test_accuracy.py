"""Accuracy on finite vocabularies: every share encloses the truth that brute force over all sequences gives."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from infoflow import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig
from infoflow.proofs import tabled as tables
from infoflow.proofs.accuracy import TokenLaw, certify_accuracy, children, largest_error, listed, prove
from infoflow.proofs.tabled import hull, least, tabled
from infoflow.proofs.trained import certify_trained


def network(seed: int, size: int = 5, classes: int | None = None, scale: float = 1.0, h: int = 2) -> Transformer:
    config = TransformerConfig(size, (h,), (4,), (8,), outputs=classes or size, encoder="table", activation="gelu")
    made = Transformer(config).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return made


def sequences(size: int, T: int) -> np.ndarray:
    return np.array(list(product(range(size), repeat=T)))


@pytest.mark.parametrize("seed", range(6))
def test_every_depth_encloses_the_truth_and_the_last_is_exact(seed: int) -> None:
    size, T = 5, 3
    made = network(seed, scale=[0.3, 1.0, 3.0][seed % 3])
    net, law = tabled(made), TokenLaw(size, T)
    every = sequences(size, T)
    with torch.no_grad():
        answers = made(torch.from_numpy(every)).numpy().argmax(1)
    truth = float((answers == every.max(1)).mean())
    shares = [prove(net, law, 1e9, depth) for depth in range(1, T + 1)]
    rights = [share.right for share in shares]
    assert rights == sorted(rights)
    assert all(share.right <= truth + 1e-15 and truth <= share.at_most + 1e-15 for share in shares)
    assert rights[-1] == pytest.approx(truth, abs=1e-15)
    assert prove(net, law, 1e9).right == pytest.approx(truth, abs=1e-15)
    assert listed(net, law).right == pytest.approx(truth, abs=1e-15)


@pytest.mark.parametrize("sharp", [0.2, 0.6, 3.0])
def test_a_network_that_is_mostly_right(sharp: float) -> None:
    """Token v weighs e^(sharp v) and votes for v: right unless smaller tokens outnumber the largest one."""
    size, T = 6, 4
    net = tables.Tabled(
        sharp * np.arange(size)[None], np.eye(size)[None], np.zeros(size), np.eye(size), np.zeros(size), "gelu"
    )
    every = sequences(size, T)
    votes = np.stack([(every == v).sum(1) * math.exp(sharp * v) for v in range(size)], 1)
    truth = float((votes.argmax(1) == every.max(1)).mean())
    shares = [prove(net, TokenLaw(size, T), 1e9, depth) for depth in (1, 2, 3, 4)]
    assert all(share.right <= truth + 1e-15 and truth <= share.at_most + 1e-15 for share in shares)
    assert shares[0].right > 0.0
    assert shares[-1].right == pytest.approx(truth, abs=1e-15)
    adaptive = prove(net, TokenLaw(size, T), 1e9)
    assert adaptive.right == pytest.approx(truth, abs=1e-15)
    assert sharp < 1.0 or adaptive.groups < math.comb(size + T - 1, T) / 5  # far fewer than there are multisets


def test_a_product_law() -> None:
    size, T = 4, 3
    made, rng = network(1, size), np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(size))
    every = sequences(size, T)
    with torch.no_grad():
        good = made(torch.from_numpy(every)).numpy().argmax(1) == every.max(1)
    truth = float((np.prod(weights[every], 1) * good).sum())
    share = prove(tabled(made), TokenLaw(size, T, weights), 1e9)
    assert share.right == pytest.approx(truth, abs=1e-9)
    assert share.right <= truth
    with pytest.raises(InfoFlowError, match="4 probabilities"):
        TokenLaw(4, 3, np.ones(3))


@pytest.mark.parametrize("seed", range(4))
def test_the_bounds_hold_for_every_sequence_of_a_group(seed: int) -> None:
    """Linear functions are exact at the points of the hull; lower bounds of sums of units hold."""
    size, T = 5, 4
    net = tabled(network(seed, size))
    every = sequences(size, T)
    groups = children(np.array([4]), np.array([1]), 3, 4)
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(len(groups), 3, 8))
    found = least(net, groups, weights, np.zeros((len(groups), 3)))
    counts = np.stack([(every == v).sum(1) for v in range(size)], 1)
    z = net.start + sum(averages(net, every, k) for k in range(2))
    values = tables.ACTS["gelu"].value(z)
    for g in range(len(groups)):
        second, often = int(groups.tokens[g, 1]), int(groups.counts[g, 1])
        mine = (counts[:, 4] == 1) & (counts[:, second] == often) & (counts[:, second + 1 : 4].sum(1) == 0)
        assert mine.sum() == TokenLaw(size, T).mass(groups.tokens[g], groups.counts[g], int(groups.free[g]), second)
        assert (values[mine] @ weights[g].T >= found[g] - 1e-12).all()
        points, allowed = hull(net, groups, 0)
        direction = rng.normal(size=8)
        top = (points[g] @ direction)[allowed[g]].max()
        assert (averages(net, every[mine], 0) @ direction).max() == pytest.approx(top)


def averages(net: tables.Tabled, every: np.ndarray, k: int) -> np.ndarray:
    weights = np.exp(net.scores[k][every])
    found: np.ndarray = np.einsum("nt,ntu->nu", weights / weights.sum(1, keepdims=True), net.vectors[k][every])
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_error_of_a_regression(seed: int) -> None:
    size, T = 5, 3
    made, values = network(seed, size, classes=1), np.random.default_rng(seed).normal(size=size)
    every = sequences(size, T)
    with torch.no_grad():
        truth = np.abs(made(torch.from_numpy(every)).numpy() - values[every].max(1)).max()
    for seconds in (0.0, 1e9):
        bound, met, _ = largest_error(tabled(made), values, values, T, seconds)
        assert met <= truth + 1e-12 <= bound + 2e-12
    assert bound == pytest.approx(truth, abs=1e-6)


def test_the_certificate_states_the_accuracy_and_checks_it() -> None:
    made = network(0, 6)
    made.header = {"task": "task:largest_token,symbols=6,length=3"}
    certificate = certify_trained(made, seconds=5.0)
    assert certificate.holds
    assert certificate.claim.least
    assert certificate.bound is not None
    assert certificate.attacked is not None
    assert certificate.bound <= certificate.attacked
    assert "6^3" in str(certificate.claim)
    config = TransformerConfig(4, (1,), (4,), (4,), outputs=4, encoder="table", positions="additive", length=3)
    with pytest.raises(InfoFlowError, match="positions"):
        certify_accuracy(Transformer(config), 3)


def test_a_broken_hull_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were only half of the points looked at, some group would be called right that is not."""
    whole = tables.hull

    def half(*given: object) -> tuple[np.ndarray, np.ndarray]:
        points, allowed = whole(*given)  # type: ignore[arg-type]
        allowed[:, 1:] &= False
        allowed[:, 0] = True
        return points, allowed

    monkeypatch.setattr(tables, "hull", half)
    with pytest.raises(AssertionError):
        test_a_network_that_is_mostly_right(0.2)


def test_extreme_scores_do_not_overflow() -> None:
    made = network(0, 4)
    with torch.no_grad():
        made.attentions[0].key *= 1e3
    share = prove(tabled(made), TokenLaw(4, 3), 1e9)
    assert math.isfinite(share.right)
    assert share.right <= listed(tabled(made), TokenLaw(4, 3)).right <= share.at_most


def test_what_cancels_in_a_score_is_rounded_all_the_same() -> None:
    """Two equal entries of the CLS with queries of +-1e9: the same scores, and a run knows them to 1e9 u at best."""
    plain = network(0, 5, classes=3)
    state = plain.state_dict()
    state["cls_token"][1] = state["cls_token"][0]
    before = tabled(plain)
    state["attentions.0.query"][..., 0] += 1e9
    state["attentions.0.query"][..., 1] -= 1e9
    after = tabled(plain)
    assert np.allclose(before.scores, after.scores, atol=1e-4)
    assert after.slack > 1e3 * before.slack
    state["attentions.0.query"][..., 0] = 1e200
    with pytest.raises(InfoFlowError, match="float64 overflows"):
        tabled(plain)
