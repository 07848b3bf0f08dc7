"""Corollary 1 of the head-count paper: heads, costs, and the dimensions that are excluded."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.errors import InfoFlowError
from infoflow.verdicts.intrinsic import intrinsic


@given(st.integers(1, 8), st.integers(1, 20_000), st.integers(1, 8), st.fractions(Fraction(1, 4), 9))
def test_cost_falls_with_heads_to_the_rate_of_the_blocks(D: int, T: int, head_dim: int, gamma: Fraction) -> None:
    found = intrinsic(D, T, head_dim, gamma)
    costs = [found.exponent(h) for h in range(1, D + 3)]
    assert costs == sorted(costs, reverse=True)
    assert costs[found.heads - 1 :] == [gamma] * 3
    assert all(cost >= gamma for cost in costs)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 10_000), st.integers(1, 6), st.fractions(0, 40))
def test_exclusion_is_mutual_and_a_contradiction(D: int, other: int, T: int, n: int, gamma: Fraction) -> None:
    """Neither of two targets excludes the other's dimension alone; where one does, the smaller head count would have to
    cost more than eps^-gamma and no more than it."""
    one, two = intrinsic(D, T, n, gamma), intrinsic(other, T, n, gamma)
    assert one.excludes(other) == two.excludes(D)
    assert not one.excludes(D)
    if one.excludes(other):
        small, large = sorted((one, two), key=lambda found: found.D)
        assert small.exponent(small.D) == gamma < large.exponent(small.D)


def test_the_printed_condition_is_not_enough_for_every_rate() -> None:
    """T = 250, D = 1 and 2, heads of size 2: k = (62.5 - 1 - 2 + 1)/4 - 1 = 113/8."""
    assert intrinsic(2, 250).exponent(1) == Fraction(113, 8)
    assert intrinsic(2, 250).excluded() == (1,)
    assert intrinsic(2, 249).excluded() == ()  # below 50 (1 + 4)
    assert intrinsic(2, 250, gamma=14).excludes(1)
    assert not intrinsic(2, 250, gamma=15).excludes(1)
    with pytest.raises(InfoFlowError):
        intrinsic(0, 10)
