"""The counts of comparison against plain loops, and exact numbers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.errors import InfoFlowError
from infoflow.targets import (
    CallableScore,
    Extremum,
    NormOfSum,
    Target,
    TreeScore,
    chain,
    d_retrieval,
    kth_largest,
    max_plus_min,
    min_pair,
    pairwise_max,
    position_sum,
    star,
    sum_of_maxima,
    triangle_center,
)


def loops(k: int, T: int) -> tuple[int, int, int]:
    """Leaves counted one by one: ordered tuples, sets with repetition, sets of different positions."""
    tuples = list(itertools.product(range(T), repeat=k))
    multisets = {tuple(sorted(t)) for t in tuples}
    return len(tuples), len(multisets), len({t for t in multisets if len(set(t)) == k})


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 3))
def test_closed_forms_equal_plain_loops(k: int, T: int, D: int) -> None:
    score = CallableScore(lambda x: x[..., 0].sum(-1), k, 2)
    count = Target.sum(*[Extremum(score)] * D).comparison(T)
    ordered, multisets, sets = loops(k, T)
    assert count.ordered == D * (ordered - 1)
    assert count.unordered_with_repetition == D * (multisets - 1)
    assert count.unordered_distinct == (D * (sets - 1) if k <= T else None)
    assert (count.dimension, count.order, count.decomposes) == (k, k, False)


def test_retrieval() -> None:
    count = d_retrieval(D=4).comparison(64)
    assert count.required == {
        "lower": 4 * 60,
        "ordered": 4 * 63,
        "unordered_with_repetition": 4 * 63,
        "unordered_distinct": 4 * 63,
    }
    assert (count.dimension, count.order, count.decomposes) == (1, 1, True)
    assert d_retrieval(D=4).comparison(3).lower == 0
    assert d_retrieval(D=4, d=1).comparison(64).lower == 240
    assert sum_of_maxima().comparison(64).lower == 240
    assert max_plus_min().comparison(64).lower == 2 * 62


def test_pairs_and_triples() -> None:
    pairs = pairwise_max(D=4).comparison(64)
    assert pairs.ordered == 4 * (64**2 - 1)
    assert pairs.unordered_with_repetition == 4 * (64 * 65 // 2 - 1)
    assert pairs.unordered_distinct == 4 * (64 * 63 // 2 - 1)
    assert pairs.lower == 64 * 63 // 2 - 2 * 4
    triangle = triangle_center().comparison(64)
    assert triangle.lower == math.comb(64, 3) - 3
    assert triangle.ordered == 64**3 - 1
    assert triangle.unordered_distinct == math.comb(64, 3) - 1
    assert (triangle.dimension, triangle.decomposes) == (3, False)
    assert star().comparison(64).decomposes
    assert star().comparison(64).dimension == 3
    assert chain(length=5).comparison(64).dimension == 5
    assert min_pair().comparison(4).lower == 6 - 2


def test_kth_largest_and_positions() -> None:
    second = kth_largest(k=2).comparison(4)
    assert (second.dimension, second.unordered_distinct, second.ordered) == (2, 5, 11)
    assert second.unordered_with_repetition is None
    assert second.lower is None
    assert kth_largest(k=1).comparison(4).lower == 3
    fixed = position_sum().comparison(10)
    assert set(fixed.required.values()) == {0}


def test_position_sets_and_different_positions() -> None:
    line = TreeScore.linear([1.0])
    count = Target.sum(Extremum(line, sets=((0, 1, 2),)), Extremum(line, "min", sets=((3, 4),))).comparison(6)
    assert (count.ordered, count.unordered_distinct, count.lower) == (2 + 1, 2 + 1, None)
    pair = Extremum(NormOfSum(2, 1), "min", distinct=True)
    count = Target.sum(pair).comparison(5)
    assert (count.ordered, count.unordered_with_repetition, count.unordered_distinct) == (19, None, 9)
    uneven = Target.sum(Extremum(NormOfSum(2, 1), "min", sets=((0, 1), None))).comparison(5)
    assert (uneven.ordered, uneven.unordered_distinct) == (9, None)


@pytest.mark.parametrize(
    "F",
    [
        sum_of_maxima(D=4, d=1),  # of four numbers a_i two share a sign: one token wins both
        min_pair(d=1),  # min x(s) x(t) needs only the largest and the smallest token
        Target.sum(Extremum(TreeScore.bilinear(np.eye(3)))),  # max x(s)'x(t) sits at s = t
        Target.sum(Extremum(TreeScore.linear([1.0])), Extremum(TreeScore.linear([-1.0]), "min")),  # identically zero
    ],
)
def test_no_lower_bound_is_claimed_where_fewer_tokens_decide(F: Target) -> None:
    count = F.comparison(64)
    assert count.lower is None
    assert count.basis


def test_lower_never_exceeds_the_trees_that_exist() -> None:
    for F in (d_retrieval(), pairwise_max(), triangle_center(), star(), chain(length=4), max_plus_min(), min_pair()):
        for T in range(4, 40):
            count = F.comparison(T)
            assert count.lower is not None
            assert count.unordered_distinct is not None
            assert 0 <= count.lower <= count.unordered_distinct


def test_a_million_tokens_are_a_closed_form() -> None:
    assert triangle_center().comparison(10**6).ordered == 10**18 - 1
    with pytest.raises(InfoFlowError, match="at least 1"):
        triangle_center().comparison(0)
