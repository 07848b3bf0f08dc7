"""Directions that keep tokens apart: (72), the search, the linear programs, the exact fallback."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.construct.rank_one import projection as pj
from infoflow.errors import InfoFlowError


def brute_force(tokens: np.ndarray, v: np.ndarray) -> bool:
    c = pj.lemma_constant(*tokens.shape)
    return all(
        abs((x - y) @ v) >= c * np.linalg.norm(x - y) * (1 - 1e-12) for x, y in itertools.combinations(tokens, 2)
    )


@given(st.integers(2, 14), st.integers(1, 5), st.integers(0, 10**6))
def test_the_window_check_equals_all_pairs(m: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.normal(size=(m, d)) * 10.0 ** rng.integers(-3, 3, size=(m, 1))
    v = rng.normal(size=d)
    if rng.random() < 0.5 and m > 2:  # a direction nearly orthogonal to one difference: on the edge of (72)
        edge = tokens[1] - tokens[0]
        v = v - (v @ edge) / (edge @ edge) * edge * (1 - rng.choice([0, 1e-3, 1e-1]))
        if not np.linalg.norm(v):
            return
    v /= np.linalg.norm(v)
    assert pj.satisfies_lemma(tokens, v) == brute_force(tokens, v)


@pytest.mark.parametrize(("m", "d"), [(2, 1), (2, 64), (30, 3), (1000, 64)])
def test_one_draw_succeeds_at_least_as_often_as_derived(m: int, d: int) -> None:
    rng = np.random.default_rng(m + d)
    tokens = rng.normal(size=(m, d))
    draws = 100
    good = 0
    for _ in range(draws):
        v = rng.normal(size=d)
        good += pj.satisfies_lemma(tokens, v / np.linalg.norm(v))
    assert good / draws >= 1 - (2 / np.pi) * (m - 1) / m - 0.1
    assert good / draws >= 0.363 - 0.1


@pytest.mark.parametrize(
    ("m", "d", "known"), [(100, 16, 2.9e-3 / 1.5), (100, 128, 0.0202), (1000, 64, 6.0e-5), (5, 1, 0.0)]
)
def test_search_reaches_the_known_quality(m: int, d: int, known: float) -> None:
    """gap/max|p| for Gaussian tokens; (100, 16) depends on the tokens drawn, hence the room."""
    tokens = np.random.default_rng(1).normal(size=(m, d))
    found = pj.find_projection(tokens, "key", draws=500)
    assert found.quality >= known
    assert found.quality == pytest.approx(float(pj.key_quality(found(tokens))), rel=1e-9)
    assert np.linalg.norm(found.vector) == pytest.approx(1)
    assert found.quality <= 2 / (m - 1) * (1 + 1e-9)


def test_polishing_only_improves_and_draws_are_seeded() -> None:
    tokens = np.random.default_rng(3).normal(size=(60, 6))
    rough = pj.find_projection(tokens, "key", draws=50, polish=False)
    assert pj.find_projection(tokens, "key", draws=50).quality > rough.quality
    assert np.array_equal(rough.vector, pj.find_projection(tokens, "key", draws=50, polish=False).vector)


def test_query_direction_finds_the_half_space() -> None:
    tokens = np.abs(np.random.default_rng(1).normal(size=(1000, 64)))
    assert 1 / pj.find_projection(tokens, "query").quality < 1.6
    spread = np.random.default_rng(2).normal(size=(200, 8))
    random = pj.find_projection(spread, "query", draws=200, polish=False)
    assert pj.find_projection(spread, "query", draws=200).quality > random.quality > 1e-3


def test_lemma_3_covers_the_tokens_and_zero() -> None:
    tokens = np.random.default_rng(5).normal(size=(200, 10)) + 1
    v = pj.find_projection(tokens, "lemma").vector
    assert pj.satisfies_lemma(np.vstack([tokens, np.zeros(10)]), v)
    with pytest.raises(InfoFlowError, match="objective"):
        pj.find_projection(tokens, "best")
