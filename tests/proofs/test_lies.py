"""Files of trained networks that lie: fields and sizes at which a bound once spoke of another network, or of none."""

import math

import numpy as np
import pytest
import torch

import infoflow as iflow
from infoflow import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig
from infoflow.proofs.accuracy import TokenLaw, largest_error
from infoflow.proofs.gaps import gap, on_edge
from infoflow.proofs.reduce import gamma, reduce
from infoflow.proofs.tabled import Tabled, tabled

from .networks import random_network

MAXIMA = "sum_of_maxima:D=1,d=2"


def scaled(**factors: float) -> Transformer:
    """Tensors multiplied by what is said of them, underscores for dots."""
    network = random_network(0)
    with torch.no_grad():
        for name, factor in factors.items():
            network.get_parameter(name.replace("__", ".")).mul_(factor)
    return network


def test_a_skip_around_no_encoder_is_no_skip() -> None:
    """encoder none, encoder_skip true: tokens enter once, the bound spoke of a network where they enter twice."""
    network = random_network(3, h=1, encoder="none", encoder_skip=True)
    with pytest.raises(InfoFlowError, match="a skip in its encoder"):
        reduce(network)
    found = iflow.certify(network, MAXIMA, T=8, seconds=0.2)
    assert found.bound is None
    assert "a skip in its encoder" in found.why_not[0]


def test_products_that_underflow_are_not_lost() -> None:
    """W_O W_V is below float64, what the network computes is not: its encoder is large."""
    network = scaled(
        encoder__maps__0__weight=1e20, encoder__maps__0__bias=1e20, attentions__0__key=1e-20,
        attentions__0__value=1e-163, attentions__0__output=1e-163, readout__maps__0__weight=1e306,
        cls_token=1e-306, attentions__0__query=1e306,
    )  # fmt: skip
    with pytest.raises(InfoFlowError, match="products stay below"):
        iflow.certify(network, MAXIMA, T=8, seconds=0.0)


def test_values_that_overflow_on_their_way_are_refused() -> None:
    """The run has infinite values, which a tiny output matrix hides from the product of both."""
    network = scaled(
        encoder__maps__0__weight=1e160, attentions__0__value=1e160, attentions__0__output=1e-300,
        attentions__0__key=1e-160,
    )  # fmt: skip
    with pytest.raises(InfoFlowError, match="products stay below"):
        iflow.certify(network, MAXIMA, T=8, seconds=0.0)


def test_a_read_out_too_large_for_a_linear_program_is_refused() -> None:
    network = scaled(readout__maps__0__weight=1e98, readout__maps__1__weight=1e200)
    with pytest.raises(InfoFlowError, match="products stay below"):
        iflow.certify(network, MAXIMA, T=8, seconds=0.2)


def test_more_tokens_than_float64_can_add_have_no_bound() -> None:
    """gamma_n = n u / (1 - n u) is negative beyond n u = 1, and so was the bound."""
    assert gamma(2**54) == math.inf
    found = iflow.certify(random_network(0), MAXIMA, T=2**53, seconds=0.2)
    assert found.bound is None


def test_more_tokens_than_positions_are_refused_without_an_attack() -> None:
    config = TransformerConfig(1, (1, 1), (2, 2), (4, 4), positions="additive", length=2)
    network = Transformer(config).double()
    with pytest.raises(InfoFlowError, match="at most 2 tokens"):
        iflow.certify(network, "sum_of_maxima:D=1,d=1", T=3, seconds=0.0)


def test_a_direction_with_a_tiny_entry_keeps_its_gap() -> None:
    """q_1 / r_1 is no number of float64: the edge's slope was infinite, the chain behind it lost, the gap 0."""
    widths = np.ones(3)
    for tiny in (1e-310, 5e-324, 1e-300, -1e-310):
        r, q = np.array([1.0, 0.5, tiny]), np.array([0.3, 0.4, -1.0])
        plain = gap(np.array([1.0, 0.5, 0.0]), q, 7.0, widths)
        assert plain <= gap(r, q, 7.0, widths) <= plain * (1 + 1e-9)
    assert on_edge(0.5, 2.0, math.nan, 1.0, 7.0) == 2.0


def test_edges_shorter_than_rounding_still_count() -> None:
    """The edge of r's small entry was lost in u, and with it all it changes in v: a gap of 2 came out as 1e-182."""
    rng = np.random.default_rng(0)
    for tiny in (1e-8, 1e-12, 1e-15, 1e-17, 1e-40):
        for q_tiny in (-420.0, 3.0, 40.0):
            r, q, widths = np.array([tiny, 1.0]), np.array([q_tiny, 0.5]), np.full(2, 2.0)
            edge = np.column_stack([np.full(99, -np.sign(q_tiny) * 2), np.linspace(-2, 2, 99)])
            delta = np.concatenate([rng.uniform(-2, 2, (4000, 2)), edge])
            w = 3.0 * np.exp(np.minimum(-delta @ q, 700.0))
            assert float((delta @ r * w / (1 + w)).max()) <= gap(r, q, 3.0, widths)
    assert gap(np.array([1e300]), np.ones(1), 3.0, np.array([1e100])) == math.inf


class KeyBias(torch.nn.Module):
    """The average with weights e^(1e4 x), minus nothing else: every score has the same constant, 1e4 times `bias`."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.tokens, self.first, self.last = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        self.attention = torch.nn.MultiheadAttention(1, 1, batch_first=True)
        self.double()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.ones_like(parameter) if parameter.ndim == 2 else torch.zeros_like(parameter))
            self.attention.in_proj_weight[0] = 1e4
            self.attention.in_proj_bias[1] = bias
        self.cls = torch.ones(1, dtype=torch.float64)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        e = self.tokens(X)
        cls = self.cls.expand(len(X), 1, 1)
        found: torch.Tensor = self.last(self.first(self.attention(cls, e, e, need_weights=False)[0]))[:, 0, 0]
        return found


@pytest.mark.parametrize("bias", [0.0, 1e3, 1e9, 1e13])
def test_a_bias_of_the_keys_cancels_in_the_softmax_and_not_in_float64(bias: float) -> None:
    """At 1e13 two tokens 1e-3 apart tie; no compared sequence shows it. The bound was 2.8e-5, the error 5e-4."""
    module, target = KeyBias(bias), iflow.targets.parse("kth_largest:k=1,d=1")
    described = iflow.OneLayer(
        module, module.tokens, module.cls, module.attention, module.first, module.last, "identity", residual=False
    )
    X = np.random.default_rng(0).uniform(*target.domain, (4000, 2, 1))
    X[:, 1] = np.clip(X[:, 0] + np.linspace(0, 1e-3, 4000)[:, None], *target.domain)
    error = float(np.abs(module(torch.from_numpy(X)).detach().numpy() - target(X)).max())
    found = iflow.certify(described, target, T=2, seconds=0.05)
    assert found.bound is None or error <= found.bound
    assert (found.bound is None) == (bias >= 1e13)


def test_token_vectors_that_float64_cannot_score_have_no_bound() -> None:
    network = random_network(0)
    table = np.random.default_rng(0).normal(size=(5, 2))
    found = iflow.certify(network, MAXIMA, T=1, seconds=0.1, vocabulary=1e25 * table)
    assert found.bound is None
    assert not found.holds
    with pytest.raises(InfoFlowError, match="at most 1e\\+30"):
        iflow.certify(network, MAXIMA, T=3, seconds=0.1, vocabulary=1e60 * table)


def test_a_bound_that_is_no_number_is_infinite() -> None:
    net = Tabled(
        np.zeros((1, 3)), np.full((1, 3, 2), 1e300), np.zeros(2), np.array([[1e300, -1e300]]), np.zeros(1), "relu"
    )
    with np.errstate(all="ignore"):
        assert largest_error(net, np.arange(3.0), np.zeros(3), 2, 1.0)[0] == math.inf


def test_masses_of_a_law_beyond_float64_and_their_slack() -> None:
    """Multinomial numbers beyond 1e308, and sums of so many factors that 1e-10 does not cover them."""
    law = TokenLaw(64, 400, np.ones(64))
    counts = np.full(40, 10)
    found = law.mass(np.arange(40), counts, 0, 0)
    wanted = math.lgamma(401) - 40 * math.lgamma(11) - 400 * math.log(64)
    assert math.log(found) == pytest.approx(wanted, rel=1e-11)
    assert TokenLaw(4096, 10**4, np.ones(4096)).share(1.0) < 1 - 1e-9


def test_a_length_that_nobody_can_count_is_refused() -> None:
    network = Transformer(TransformerConfig(6, (1,), (4,), (8,), outputs=6, encoder="table")).double()
    network.header["task"] = "task:largest_token,symbols=6,length=100000"
    with pytest.raises(InfoFlowError, match="lower T"):
        iflow.certify(network, seconds=0.1)
    with torch.no_grad():
        network.table.fill_(1e-200)
        network.attentions[0].value.fill_(1e-200)  # type: ignore[union-attr]
        network.readout.maps[0].weight.fill_(1e300)  # type: ignore[union-attr]
    with pytest.raises(InfoFlowError, match="products stay below"):
        tabled(network)
