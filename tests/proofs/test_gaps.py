"""G against brute force over pairs of tokens and over whole sequences; the sharp constant in one dimension."""

import math

import numpy as np
import pytest

from infoflow.certificates.rules import softmax_gap
from infoflow.proofs import gaps
from infoflow.proofs.gaps import gap, gap_with_margin, lambert_of_exp


def brute(r: np.ndarray, q: np.ndarray, ratio: float, widths: np.ndarray, keep: np.ndarray | None = None) -> float:
    rng = np.random.default_rng(0)
    delta = widths * rng.uniform(-1, 1, (200_000, len(r)))
    corners = rng.uniform(size=delta.shape) < 0.5
    delta[::2] = np.where(corners[::2], np.sign(delta[::2]) * widths, delta[::2])
    if keep is not None:
        delta = delta[delta @ keep >= 0.1]
    return float((delta @ r / (1.0 + np.exp(np.minimum(delta @ q, 500.0)) / ratio)).max())


@pytest.mark.parametrize("seed", range(12))
def test_the_gap_is_the_supremum_over_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, T = int(rng.integers(1, 4)), int(rng.integers(2, 200))
    r, q = rng.normal(size=d), rng.normal(scale=10.0 ** rng.uniform(-1, 1), size=d)
    if seed % 4 == 0 and d > 1:
        r[0] = 0.0
    widths = rng.uniform(0.5, 2.0, d)
    bound, found = gap(r, q, T - 1.0, widths), brute(r, q, T - 1.0, widths)
    assert found <= bound <= 1.1 * found + 1e-3


@pytest.mark.parametrize("seed", range(8))
def test_no_sequence_exceeds_it(seed: int) -> None:
    """r' x* - r' m over random sequences, for the maximum and for the k-th largest."""
    rng = np.random.default_rng(seed)
    d, T = 2, int(rng.integers(2, 9))
    a, q = rng.normal(size=d), rng.normal(scale=2.0, size=d)
    X = rng.uniform(-1, 1, (20_000, T, d))
    X[::2] = np.take_along_axis(np.sign(X[::2, :2]), rng.integers(0, 2, (10_000, T, 1)), 1)
    p = np.exp(X @ q)
    m = (p[..., None] * X).sum(1) / p.sum(1)[:, None]
    falling = -np.sort(-(X @ a), axis=1)
    widths = np.full(d, 2.0)
    for k in range(1, T + 1):
        up = gap(a, q, (T - k) / k, widths)
        down = gap(a, -q, (k - 1) / (T - k + 1), widths)
        assert (falling[:, k - 1] - m @ a).max() <= up + 1e-12
        assert (m @ a - falling[:, k - 1]).max() <= down + 1e-12


def test_one_dimension_has_the_sharp_constant() -> None:
    for T, beta in ((2, 3.0), (64, 7.0), (1024, 40.0)):
        assert gap(np.ones(1), np.array([beta]), T - 1.0, np.array([2.0])) == pytest.approx(
            softmax_gap(T, beta), rel=1e-9
        )


@pytest.mark.parametrize("seed", range(6))
def test_with_a_margin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, T = 3, int(rng.integers(2, 50))
    r, a, q = np.eye(3)[1] * (-1) ** seed, np.eye(3)[0], rng.normal(scale=4.0, size=d)
    widths = np.full(d, 2.0)
    bound, found = gap_with_margin(r, a, 0.1, q, T - 1.0, widths), brute(r, q, T - 1.0, widths, a)
    assert found <= bound <= 1.15 * found + 5e-3
    assert bound <= gap(r, q, T - 1.0, widths) * (1 + 1e-9)
    assert gap_with_margin(r, a, 5.0, q, T - 1.0, widths) == -math.inf  # no two tokens differ by that much


def test_extreme_queries() -> None:
    w = np.full(2, 2.0)
    assert gap(np.ones(2), np.zeros(2), 63.0, w) == pytest.approx(4.0 * 63 / 64)  # no attention: the mean
    assert gap(np.ones(2), np.ones(2) * 1e8, 63.0, w) < 1e-6
    assert gap(np.ones(2), np.ones(2) * -1e8, 63.0, w) == pytest.approx(4.0)  # looks away
    assert gap(np.ones(2), np.ones(2), 0.0, w) == 0.0  # one token
    assert gap(np.zeros(2), np.ones(2), 63.0, w) == 0.0


def test_lambert() -> None:
    for x in (-600.0, -5.0, -0.1, 0.0, 1.0, 5.0, 700.0, 1e6):
        y = lambert_of_exp(x)
        assert y + math.log(y) == pytest.approx(x, rel=1e-12, abs=1e-12)
        assert y + math.log(y) >= x * (1 - 1e-15) - 1e-13 * abs(x) - 1e-15


def test_a_broken_constant_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gaps.on_edge
    monkeypatch.setattr(gaps, "on_edge", lambda *edge: 0.8 * whole(*edge))
    with pytest.raises(AssertionError):
        test_the_gap_is_the_supremum_over_pairs(1)
