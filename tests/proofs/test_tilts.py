"""Tilted gaps: never below what pairs and whole sequences attain, equal to the plain gap without a tilt."""

import numpy as np
import pytest

from infoflow.proofs import tilts as module
from infoflow.proofs.gaps import gap
from infoflow.proofs.tilts import tilted_gap, tilts


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    rng = np.random.default_rng(seed)
    d, T = int(rng.integers(1, 4)), int(rng.integers(1, 30))
    r, tilt = rng.normal(size=d), rng.normal(size=d) * 10.0 ** rng.uniform(-1, 1)
    q = rng.normal(size=d) * 10.0 ** rng.uniform(-1, 1.5)
    q = 3.0 * r + 0.3 * q if seed % 3 == 0 else q * (rng.random(d) < 0.7)
    low = rng.uniform(-2, 0, d)
    return r, tilt, q, low, low + rng.uniform(0.1, 3, d), T


def over(r: np.ndarray, tilt: np.ndarray, q: np.ndarray, X: np.ndarray) -> np.ndarray:
    """r' x* - (r + tilt)' m of every sequence."""
    scores = X @ q
    p = np.exp(scores - scores.max(1, keepdims=True))
    m = np.einsum("nt,ntd->nd", p / p.sum(1, keepdims=True), X)
    found: np.ndarray = (X @ r).max(1) - m @ (r + tilt)
    return found


@pytest.mark.parametrize("seed", range(24))
def test_never_below_a_sequence(seed: int) -> None:
    r, tilt, q, low, high, T = drawn(seed)
    rng = np.random.default_rng(seed)
    shares = rng.uniform(size=(6000, T, len(r)))
    shares[::2] = shares[::2] > 0.5
    shares[1::4, 1:] = shares[1::4, 1:2]  # one token apart from a crowd
    shares[2::4, 1:] = shares[2::4, 1:2]
    assert over(r, tilt, q, low + (high - low) * shares).max() <= tilted_gap(r, tilt, q, T - 1.0, low, high)


@pytest.mark.parametrize("seed", range(6))
def test_without_a_tilt_it_is_the_gap(seed: int) -> None:
    r, _, q, low, high, T = drawn(seed)
    plain = gap(r, q, T - 1.0, high - low)
    assert tilted_gap(r, 0.0 * r, q, T - 1.0, low, high) == pytest.approx(plain, rel=1e-2, abs=1e-6)


def test_it_is_attained_by_two_tokens() -> None:
    """Close to what a search over a winner and a crowd finds, so nothing is given away."""
    r, tilt, q, T = np.array([1.0, -0.4]), np.array([0.0, 0.8]), np.array([4.0, 1.0]), 9
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 21)] * 4), -1).reshape(-1, 2, 2)
    X = np.concatenate([grid[:, :1], np.repeat(grid[:, 1:], T - 1, 1)], 1)
    found = tilted_gap(r, tilt, q, T - 1.0, np.full(2, -1.0), np.full(2, 1.0))
    assert over(r, tilt, q, X).max() <= found <= over(r, tilt, q, X).max() + 0.02


def test_tilts_are_of_both_signs_and_none_in_one_dimension() -> None:
    assert tilts(np.array([2.0])) == []
    found = np.array(tilts(np.array([1.0, -3.0])))
    assert np.allclose(found.sum(0), 0.0)
    assert len(found) == 2 * (4 + 4)


def test_a_broken_tilt_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = module._on_intervals
    monkeypatch.setattr(module, "_on_intervals", lambda *given: 0.9 * whole(*given))
    with pytest.raises(AssertionError):
        test_it_is_attained_by_two_tokens()
