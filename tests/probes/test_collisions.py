"""Nearest pairs with different labels, against brute force; swaps never lose ground."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infoflow.errors import InfoFlowError
from infoflow.probes.collisions import RADII, nearest_pairs, swap_search, transfer


def unit(n, seed=0, d=5):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return x / x.norm(dim=-1, keepdim=True)


@given(st.integers(0, 1000), st.integers(4, 30))
def test_nearest_pair_by_brute_force(seed, n):
    states, answers = unit(n, seed), unit(3, seed + 1)
    label = np.arange(n) % 3
    strings = [str(i // 2) for i in range(n)]  # neighbours are the same string
    found = nearest_pairs(states, answers, label, strings, block=7)
    pairs = [
        1 - float(states[i] @ states[j])
        for i in range(n)
        for j in range(n)
        if label[i] != label[j] and strings[i] != strings[j]
    ]
    assert found.searches == n
    assert found.best[0].distance == pytest.approx(min(pairs), abs=1e-5)
    assert list(found.rates) == list(RADII)
    p = found.best[0]
    assert p.gap == pytest.approx(1 - float(answers[label[p.first]] @ answers[label[p.second]]), abs=1e-5)


def test_one_label_is_refused():
    with pytest.raises(InfoFlowError, match="two labels"):
        nearest_pairs(unit(4), unit(1), np.zeros(4, dtype=int))


def test_swaps_keep_the_tokens_and_never_lose_ground():
    table = unit(40, 3)
    weight = torch.linspace(1, 2, 8)[:, None]  # order matters

    def encode(rows):
        pooled = torch.stack([(table[row] * weight).sum(0) for row in rows])
        return pooled / pooled.norm(dim=-1, keepdim=True)

    anchor, moving = [1, 5, 9, 2, 7, 8, 4, 3], [1, 9, 5, 2, 8, 7, 4, 3]
    found, before, after = swap_search(encode, anchor, moving, 1, 20)
    assert sorted(found) == sorted(moving)
    assert (found[0], found[-1]) == (1, 3)
    assert after < before
    assert swap_search(encode, anchor, moving, 4, 5) == (moving, before, before)  # nothing is free to move


def test_transfer_of_equal_encoders():
    states = unit(60)
    best = nearest_pairs(states, unit(2), np.arange(60) % 2, best=5).best
    moved = transfer(best, states)
    assert moved["mean_distance"] == pytest.approx(np.mean([p.distance for p in best]), abs=1e-5)
    assert moved["mean_quantile"] < 0.1
