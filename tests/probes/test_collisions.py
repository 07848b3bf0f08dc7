"""Nearest pairs with different labels, against brute force; swaps never lose ground."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from _text_collisions import RADII, bag_of_tokens, nearest_pairs, swap_search, transfer
from infoflow.errors import InfoFlowError


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


def test_two_texts_are_one_pair_and_a_text_without_partner_is_none():
    """Texts a, b, a under labels 0, 1, 1: a and b once; a text alone under both labels is no pair at all."""
    states = unit(2)[[0, 1, 0]]
    found = nearest_pairs(states, unit(2), np.array([0, 1, 1]), ["a", "b", "a"], best=9)
    assert [(p.first, p.second) for p in found.best] == [(0, 1)]
    assert nearest_pairs(unit(2)[[0, 0]], unit(2), np.array([0, 1]), ["a", "a"]).best == []


def test_transfer_of_equal_encoders():
    states, label = unit(60), np.arange(60) % 2
    best = nearest_pairs(states, unit(2), label, best=5).best
    moved = transfer(best, states, label)
    assert moved["mean_distance"] == pytest.approx(np.mean([p.distance for p in best]), abs=1e-5)
    assert moved["mean_quantile"] < 0.1
    assert moved["nearest_there"] == moved["among_ten_nearest_there"] == 1


@given(st.integers(0, 1000))
def test_ranks_there_by_brute_force(seed):
    here, there, label = unit(30, seed), unit(30, seed + 1), np.arange(30) % 3
    best = nearest_pairs(here, unit(3), label, best=8).best
    ranks = []
    for p in best:
        far = {j: 1 - float(there[p.first] @ there[j]) for j in range(30) if label[j] != label[p.first]}
        ranks.append(sorted(far, key=far.__getitem__).index(p.second) + 1)
    moved = transfer(best, there, label)
    assert moved["nearest_there"] == pytest.approx(np.mean([r == 1 for r in ranks]))
    assert moved["among_ten_nearest_there"] == pytest.approx(np.mean([r <= 10 for r in ranks]))


def test_a_bag_of_tokens_knows_no_order_and_weighs_rare_words():
    bags = bag_of_tokens([[1, 2, 1, 9], [2, 1, 1, 9], [1, 3, 9], [4, 4, 9]])
    assert torch.equal(bags[0], bags[1])
    # word 9 is in every row and weighs 0; 1 is in three of four rows, and twice in this one, 2 is in two
    wanted = torch.tensor([2 * np.log(4 / 3), np.log(2), 0, 0, 0], dtype=torch.float32)
    torch.testing.assert_close(bags[0], wanted / wanted.norm())
    assert float(bags[2] @ bags[3]) == 0
