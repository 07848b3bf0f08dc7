"""Theorem 4, part 2 (arXiv:2605.17930v1): what its proof prints, where that fails when executed, and what holds."""

from dataclasses import replace

import numpy as np
import torch

import infoflow as iflow
from infoflow import targets as it
from infoflow.nn import Transformer, attention


def test_item_3_prints_the_wrong_factor():
    """Printed: x(t)'v(t) -> (1/9) min. The first block of the state is x/3, so x(t)'v(t) -> (1/3) min."""
    X = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (1, 9, 3)))
    v = attention(X / 3, -X / 3, X / 3, scale=1e6).values
    lowest = (X @ X.mT).amin(-1)
    assert torch.allclose((X * v).sum(-1), lowest / 3, atol=1e-4)
    assert not torch.allclose((X * v).sum(-1), lowest / 9, atol=1e-2)
    assert torch.allclose((X / 3 * v).sum(-1), lowest / 9, atol=1e-4)


def test_a_fixed_temperature_cannot_concentrate():
    """With beta = 1/sqrt(n) and weights at most 1 the scores are bounded and the same network fails."""
    network = iflow.build(it.min_pair(), 64, 0.1)
    warm = Transformer(replace(network.config, scales=())).double().requires_grad_(False)
    warm.load_state_dict(network.state_dict())
    X = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (50, 64, 3)))
    truth = it.min_pair()(X)
    assert float((network(X) - truth).abs().max()) < 0.1
    assert float((warm(X) - truth).abs().min()) > 1.0


def test_all_pairs_count_and_the_cls_is_no_key():
    """s = t is a legal pair; the CLS is never a key."""
    X = torch.tensor([[[1.0, -1.0, 0.5]]], dtype=torch.float64)  # one token: min is 2 (1 + |x|^2)
    network = iflow.build(it.min_pair(), 1, 0.05)
    assert abs(float(network(X)) - 2 * (1 + 2.25)) <= network.certificate.bound
