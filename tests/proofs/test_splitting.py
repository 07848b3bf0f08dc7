"""Forms enclose whole networks on every box, whatever the weights; split boxes never fall below brute force."""

from itertools import product

import numpy as np
import pytest
import torch

from infoflow import InfoFlowError, targets
from infoflow.nn import Transformer, TransformerConfig
from infoflow.proofs import forms, network_forms, target_forms
from infoflow.proofs.forms import AffineForm, boxes
from infoflow.proofs.splitting import errors, split
from infoflow.targets.target import Target

from .networks import largest_error

CASES = [
    {"layers": 1, "d": 2, "T": 3},
    {"layers": 2, "d": 2, "T": 2, "activation": "tanh"},
    {"layers": 2, "d": 1, "T": 4, "activation": "relu", "mask": "causal"},
    {"layers": 2, "d": 1, "T": 3, "activation": "sigmoid", "positions": "additive", "length": 3},
    {"layers": 3, "d": 1, "T": 2, "ffn_skip": True, "encoder": "mlp", "encoder_width": 5},
    {"layers": 2, "d": 2, "T": 2, "positions": "augmented", "length": 2, "position_dim": 2, "residual": False},
    {"layers": 2, "d": 2, "T": 1, "share_key_value": True},
]


def network_of(seed: int, layers: int, d: int, T: int, scale: float = 1.0, **options: object) -> Transformer:
    sizes = (2,) * layers
    config = TransformerConfig(d, sizes, sizes, (5,) * layers, **{"activation": "gelu", **options})  # type: ignore[arg-type]
    made = Transformer(config).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return made


def some_boxes(rng: np.random.Generator, n: int, count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """From the whole box to points."""
    low = rng.uniform(-1, 1, (count, n))
    wide = 10.0 ** rng.uniform(-9, 0, (count, 1)) * rng.uniform(0, 1, (count, n))
    low[0], wide[0], wide[1] = -1.0, 2.0, 0.0
    return low, np.minimum(low + wide, 1.0)


def tokens_of(low: np.ndarray, high: np.ndarray, T: int) -> AffineForm:
    return boxes(low, high).each(lambda array: array.reshape(*array.shape[:-1], T, -1))


def inside(rng: np.random.Generator, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    xi = rng.uniform(-1, 1, low.shape)
    xi = np.where(rng.random(low.shape) < 0.5, np.sign(xi), xi)
    return xi, 0.5 * (low + high) + xi * 0.5 * (high - low)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_forms_enclose_the_network(case: dict[str, object], scale: float) -> None:
    network = network_of(1, scale=scale, **case)  # type: ignore[arg-type]
    rng, T = np.random.default_rng(0), int(case["T"])  # type: ignore[call-overload]
    low, high = some_boxes(rng, T * network.config.dim)
    found = network_forms.outputs(network, tokens_of(low, high, T))
    bottom, top = found.low[:, 0], found.high[:, 0]
    for _ in range(40):
        xi, x = inside(rng, low, high)
        y = network(torch.from_numpy(x.reshape(len(x), T, -1))).detach().numpy()
        line = found.c[:, 0] + (found.a[:, :, 0] * xi.T).sum(0)
        assert (np.abs(y - line) <= found.e[:, 0]).all()
        assert ((bottom <= y) & (y <= top)).all()
    narrow = np.abs(high - low).max(1) < 1e-6
    assert narrow.any()
    assert scale > 1 or (found.e[narrow, 0] < 1e-6).all()  # and small boxes have small remainders


TARGETS = [
    targets.pairwise_max(D=2, d=1, seed=1),
    targets.sum_of_maxima(D=3, d=1, seed=1),
    targets.max_plus_min(),
    targets.closest_pair(d=1),
    targets.triangle_center(d=1),
    targets.d_retrieval(D=2, d=1),
    targets.position_sum(positions=(0, 1), d=1),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.spelling)
def test_the_bound_is_above_every_error_of_the_box(target: Target) -> None:
    """On every box, and in the search, with few boxes and with many."""
    T, rng = 3, np.random.default_rng(2)
    network = network_of(3, 2, 1, T)
    low, high = some_boxes(rng, T)
    low, high = np.maximum(low, target.domain[0]), np.maximum(high, target.domain[0])
    tops = errors(network, target, T, low, high).high.max(1)
    for _ in range(30):
        _, x = inside(rng, low, high)
        X = torch.from_numpy(x.reshape(len(x), T, -1))
        off = (network(X) - target(X).reshape(len(x), -1)[:, 0]).abs().detach().numpy()
        assert (off <= tops + 1e-12).all()
    ends = [np.full(1, end) for end in target.domain]
    found, truth = split(network, target, T, *ends, seconds=0.3), largest_error(network, target, T)
    assert truth <= found.bound
    assert found.bound <= split(network, target, T, *ends, seconds=0.0).bound


def test_splitting_closes_on_a_small_network() -> None:
    network, target = network_of(0, 2, 1, 2, scale=0.6), targets.pairwise_max(D=1, d=1)
    truth = largest_error(network, target, 2, tries=20000)
    found = split(network, target, 2, np.full(1, -1.0), np.full(1, 1.0), 5.0, truth)
    assert truth <= found.bound <= 1.02 * truth


def test_order_is_used_only_where_it_does_not_matter() -> None:
    """The causal network's worst sequence falls; looking at rising ones alone would miss it."""
    target = targets.sum_of_maxima(D=1, d=1)
    assert target_forms.symmetric(target)
    assert not target_forms.symmetric(targets.position_sum(positions=(0,), d=1))
    for seed in range(4):
        network = network_of(seed, 2, 1, 3, mask="causal", scale=2.0)
        grid = np.array(list(product(np.linspace(-1, 1, 9), repeat=3)))[:, :, None]
        with torch.no_grad():
            truth = float((network(torch.from_numpy(grid)).numpy() - target(grid)).__abs__().max())
        assert truth <= split(network, target, 3, np.full(1, -1.0), np.full(1, 1.0), 0.5).bound


def test_a_broken_remainder_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products without their remainder, and some network leaves its form."""

    def bare(self: AffineForm, other: AffineForm) -> AffineForm:
        c, a, e = self.c * other.c, self.c * other.a + other.c * self.a, np.abs(self.c) * other.e
        return AffineForm(c, a, e, c - np.abs(a).sum(0) - e, c + np.abs(a).sum(0) + e)

    monkeypatch.setattr(forms.AffineForm, "__mul__", bare)
    with pytest.raises(AssertionError):
        test_forms_enclose_the_network(CASES[0], 3.0)


def test_long_sequences_and_unknown_scores_are_refused() -> None:
    network = network_of(0, 2, 2, 4)
    ends = np.full(2, -1.0), np.full(2, 1.0)
    with pytest.raises(InfoFlowError, match="T d = 8"):
        split(network, targets.pairwise_max(D=1, d=2), 4, *ends, seconds=1.0)
    with pytest.raises(InfoFlowError, match="no extremum"):
        split(network, targets.value_at_argmax(d=2), 2, *ends, seconds=1.0)
