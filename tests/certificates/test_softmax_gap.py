"""The sharp constant W((T-1)/e): never exceeded, attained, and smaller than log T."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.certificates.rules import lambert_w, softmax_gap, worst_scores


def soft(rho: np.ndarray, beta: float) -> float:
    p = np.exp(beta * (rho - rho.max()))
    return float(p @ rho / p.sum())


@pytest.mark.parametrize(
    ("T", "value"), [(1, 0.0), (2, 0.27846), (4, 0.60355), (16, 1.38346), (64, 2.30713), (1024, 4.43987)]
)
def test_values_of_the_constant(T, value):
    assert softmax_gap(T) == pytest.approx(value, abs=5e-6)


@given(
    st.lists(st.floats(-3, 3, allow_subnormal=False), min_size=1, max_size=40),
    st.floats(0.01, 1e4),
)
def test_gap_bounds_every_score_vector(scores, beta):
    rho = np.array(scores)
    gap = rho.max() - soft(rho, beta)
    assert -1e-12 <= gap <= softmax_gap(len(rho), beta) + 1e-12


@pytest.mark.parametrize("T", [2, 3, 17, 1000])
@pytest.mark.parametrize("beta", [0.5, 30.0])
def test_gap_is_attained(T, beta):
    rho = np.array(worst_scores(T, beta))
    assert rho.max() - soft(rho, beta) == pytest.approx(softmax_gap(T, beta), rel=1e-12)


@given(st.floats(1e-9, 1e12))
def test_lambert_w_is_an_upper_bound_and_tight(y):
    w = lambert_w(y)
    assert w * math.exp(w) >= y * (1 - 1e-13)
    assert w * math.exp(w) <= y * (1 + 1e-9)


@pytest.mark.parametrize("y", [1e-9, 0.3, 1.0, 25.0, 781612.7870420014, 1e12])
def test_lambert_w_is_rounded_upwards_by_little(y):
    """W in 60 digits: the value lies above it, by 1e-14 and the last of Newton's steps. At 781612.787 one step more or
    less is 2e-15."""
    with localcontext() as digits:
        digits.prec = 60
        exact = Decimal(lambert_w(y))
        for _ in range(6):
            exact -= (exact - Decimal(y) * (-exact).exp()) / (1 + exact)
        above = Decimal(lambert_w(y)) / exact - 1
    assert 0 < above < Decimal("1.15e-14")
