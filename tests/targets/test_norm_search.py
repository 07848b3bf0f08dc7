"""Triangle-center without enumeration, against enumeration of all increasing triples."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infoflow.errors import InfoFlowError
from infoflow.targets import NormOfSum, norm_search, triangle_center
from infoflow.targets.norm_search import smallest_triples


def enumerated(X: np.ndarray, distinct: bool) -> tuple[np.ndarray, np.ndarray]:
    T = X.shape[1]
    every = itertools.combinations if distinct else itertools.combinations_with_replacement
    triples = np.array(list(every(range(T), 3)))
    values = NormOfSum(3, X.shape[2])(X[:, triples])
    first = values.argmin(1)
    return triples[first], values[np.arange(len(X)), first]


LAWS = ["integers", "tenths", "line", "scales", "normal"]


def tokens(law: str, rng: np.random.Generator, T: int, d: int) -> np.ndarray:
    if law == "integers":  # ties everywhere
        return rng.integers(-3, 4, (4, T, d)).astype(float)
    if law == "tenths":  # sums that cancel: their rounding, hence their score, depends on the order of summation
        return rng.integers(-4, 5, (4, T, d)) / 10
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
    st.sampled_from(LAWS),
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


def test_tokens_whose_squares_overflow_are_refused() -> None:
    for size in (1e160, 1.7e308):
        with pytest.raises(InfoFlowError, match="overflows"):
            triangle_center()(np.array([[size, 0.0], [-size, 0.0], [0.0, 1.0]]))
    assert triangle_center()(np.array([[1e150, 0.0], [-1e150, 0.0], [0.0, 1.0]])) == 1.0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> object:
    """The search compiled afresh; with a compiler at hand it must come out, and agree."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        found = norm_search.verified_library.__wrapped__()
    assert found is not None
    return found


@given(st.integers(0, 2**32 - 1), st.integers(3, 12), st.integers(1, 3), st.booleans(), st.sampled_from(LAWS))
def test_the_native_search_is_the_array_search(
    library: object, seed: int, T: int, d: int, distinct: bool, law: str
) -> None:
    X = tokens(law, np.random.default_rng(seed), T, d)
    assert np.array_equal(norm_search.run_in_c(library, X, distinct), enumerated(X, distinct)[0])


def test_the_native_search_on_numbers_whose_squares_vanish(library: object) -> None:
    X = np.full((1, 5, 2), 5e-324)
    assert norm_search.run_in_c(library, X, False).tolist() == [[0, 0, 0]]
    assert norm_search.run_in_c(library, X, True).tolist() == [[0, 1, 2]]


def test_without_a_compiler_everything_works_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    F = triangle_center()
    X = F.sample(1100, 64, seed=3)  # enough to ask for the compiled search
    expected = F(X)
    monkeypatch.setattr(norm_search, "verified_library", norm_search.verified_library.__wrapped__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert norm_search.verified_library() is None
    assert np.array_equal(F(X), expected)
    assert np.array_equal(F(torch.tensor(X)).numpy(), expected)


def test_a_broken_library_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Wrong:
        @staticmethod
        def smallest_triples(*arguments: object) -> None:
            return None

    assert not norm_search.agrees(Wrong)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "norm_search.c"
    source.write_text("this is not C")
    monkeypatch.setattr(norm_search, "SOURCE", source)
    assert norm_search.verified_library.__wrapped__() is None
    assert not list((tmp_path / "infoflow").glob("*"))  # nothing half-made is left
    (tmp_path / "infoflow").chmod(0o777)
    assert norm_search.verified_library.__wrapped__() is None
