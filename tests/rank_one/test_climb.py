"""Weights that climb: the derivatives are right, nothing gets worse, and one linear program beats many draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.construct.rank_one import contexts as cx
from infoflow.construct.rank_one.climb import Neighbours, climb
from infoflow.construct.rank_one.scales import MovableHead, auto_search
from infoflow.construct.rank_one.search import MovableLine


def some_contexts(V: int, d: int, n: int, N: int, seed: int, mask: cx.Mask = "none") -> cx.Contexts:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, V, size=(N, n))
    if "padding" in mask:
        tokens[np.arange(n) >= rng.integers(1, n + 1, size=(N, 1))] = -1
    return cx.contexts_of(rng.normal(size=(V, d)), tokens, mask)


def weights(contexts: cx.Contexts, kind: str, seed: int) -> MovableHead | MovableLine:
    rng = np.random.default_rng(seed)
    key, query, readout = rng.normal(size=(3, contexts.vocabulary.shape[1]))
    query *= 2 / (np.abs(contexts.vocabulary @ key).max() * np.abs(contexts.vocabulary @ query).max())  # logits up to 2
    if kind == "head":
        return MovableHead(contexts, key, query)
    return MovableLine(contexts, (key, query, readout, np.array([rng.normal()])))


@settings(max_examples=25)
@given(st.sampled_from(["head", "line"]), st.sampled_from(cx.MASKS), st.integers(1, 4), st.integers(0, 10**6))
def test_derivatives_equal_differences(kind: str, mask: cx.Mask, d: int, seed: int) -> None:
    contexts = some_contexts(6, d, 4, 8, seed, mask)
    here = weights(contexts, kind, seed)
    y = np.random.default_rng(seed).normal(size=here.extremes()[0].shape[1])
    step = 1e-6
    slope = (here.moved(step * y).ids - here.moved(-step * y).ids) / (2 * step)
    exact = here.jacobian(np.arange(contexts.size)) @ y
    assert np.abs(slope - exact).max() <= 1e-6 * (1 + np.abs(exact).max() + here.size)


@pytest.mark.parametrize("kind", ["head", "line"])
def test_moves_within_the_extremes_do_not_grow_the_size(kind: str) -> None:
    here = weights(some_contexts(5, 2, 3, 6, 0), kind, 0)
    rows, room = here.extremes()
    rng, tried = np.random.default_rng(0), 0
    for y in 1e-6 * rng.normal(size=(200, rows.shape[1])):
        if (rows @ y <= room).all():
            tried += 1
            assert here.moved(y).size <= here.size + 1e-9
    assert tried > 20


@settings(max_examples=20)
@given(st.sampled_from(["head", "line"]), st.sampled_from(cx.MASKS), st.integers(1, 3), st.integers(0, 10**6))
def test_nothing_gets_worse(kind: str, mask: cx.Mask, d: int, seed: int) -> None:
    here = weights(some_contexts(6, d, 3, 8, seed, mask), kind, seed)
    there = climb(here)
    before, after = (Neighbours.of(w.groups, w.ids).smallest / w.size for w in (here, there))
    assert after >= before


def test_one_token_alone_or_tied_ids_stay_where_they_are() -> None:
    alone = weights(some_contexts(1, 2, 1, 1, 0), "head", 0)
    assert climb(alone) is alone
    tied = MovableHead(cx.contexts_of(np.eye(3) + 1, np.array([[0, 1], [0, 2]])), np.array([1.0, 0, 0]), np.zeros(3))
    assert Neighbours.of(tied.groups, tied.ids).smallest == 0
    assert climb(tied) is tied


@pytest.mark.parametrize("kind", ["head", "line"])
def test_one_program_beats_two_hundred_draws(kind: str) -> None:
    contexts = some_contexts(100, 8, 6, 200, 0)
    gaps = []
    for seed in range(200):
        here = weights(contexts, kind, seed)
        gaps.append(Neighbours.of(here.groups, here.ids).smallest / here.size)
    best = climb(weights(contexts, kind, int(np.argmax(gaps))))
    assert Neighbours.of(best.groups, best.ids).smallest / best.size > 1.5 * max(gaps)


def test_pruned_search_finds_what_the_full_one_does() -> None:
    """Candidates dropped after their first block could not have been the best."""
    contexts = some_contexts(60, 4, 5, 2000, 3)
    from infoflow.construct.rank_one import scales

    p, q = contexts.vocabulary[:, 0], contexts.vocabulary[:, 1]
    whole = scales._gap_above(contexts, p, q, -1.0)
    assert whole == Neighbours.of(contexts.query, MovableHead(contexts, np.eye(4)[0], np.eye(4)[1]).ids).smallest
    assert scales._gap_above(contexts, p, q, whole * 2) <= whole * 2
    assert auto_search(contexts, 2, 0).gap > whole / float(np.abs(p).max())
