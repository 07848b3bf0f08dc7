"""Triangle-center without enumeration, against enumeration of all increasing triples."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infoflow.targets import NormOfSum, triangle_center
from infoflow.targets.norm_search import smallest_triples


def enumerated(X: np.ndarray, distinct: bool) -> tuple[np.ndarray, np.ndarray]:
    T = X.shape[1]
    every = itertools.combinations if distinct else itertools.combinations_with_replacement
    triples = np.array(list(every(range(T), 3)))
    values = NormOfSum(3, X.shape[2])(X[:, triples])
    first = values.argmin(1)
    return triples[first], values[np.arange(len(X)), first]


def tokens(law: str, rng: np.random.Generator, T: int, d: int) -> np.ndarray:
    if law == "integers":  # ties everywhere
        return rng.integers(-3, 4, (4, T, d)).astype(float)
    if law == "line":  # collinear tokens, equal first coordinates
        return rng.standard_normal((4, 1, d)) * rng.integers(-2, 3, (4, T, 1)) * [0.0, 1.0, 1.0][:d]
    if law == "scales":
        return rng.standard_normal((4, T, d)) * 10.0 ** rng.integers(-12, 13, (4, T, 1))
    return rng.standard_normal((4, T, d))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from(["integers", "line", "scales", "normal"]),
)
def test_the_first_best_triple_bit_for_bit(seed: int, T: int, d: int, distinct: bool, law: str) -> None:
    distinct = distinct and T >= 3
    X = tokens(law, np.random.default_rng(seed), T, d)
    winners = smallest_triples(NormOfSum(3, d), X, distinct)
    expected, values = enumerated(X, distinct)
    assert np.array_equal(winners, expected)
    assert np.array_equal(NormOfSum(3, d)(np.take_along_axis(X, winners[..., None], 1)), values)
    assert np.array_equal(smallest_triples(NormOfSum(3, d), torch.tensor(X), distinct).numpy(), winners)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sixty_four_tokens_of_the_papers_law(dtype: torch.dtype) -> None:
    F = triangle_center()
    X = F.sample(40, 64, seed=2, kind="torch", dtype=dtype)
    assert np.array_equal(F.winners(X)[0].numpy(), enumerated(X.numpy(), False)[0])


@pytest.mark.parametrize("X", [np.zeros((1, 20, 2)), np.ones((2, 7, 2)), np.full((1, 5, 2), 5e-324)])
def test_all_tokens_equal(X: np.ndarray) -> None:
    assert smallest_triples(NormOfSum(3, 2), X, False).tolist() == [[0, 0, 0]] * len(X)
    assert smallest_triples(NormOfSum(3, 2), X, True).tolist() == [[0, 1, 2]] * len(X)
