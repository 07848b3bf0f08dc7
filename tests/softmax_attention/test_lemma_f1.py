import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.construct.softmax_attention.lemma_f1 import beta_pair, beta_unique, error_pair, error_unique
from infoflow.errors import InfoFlowError


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


@given(
    st.lists(st.floats(-5, 0), min_size=1, max_size=40),
    st.floats(0.01, 3),
    st.floats(1e-6, 0.5),
)
def test_unique_leader(rest, gap, eps):
    scores = np.array([gap, *rest])
    beta = beta_unique(gap - max(rest), len(scores), eps)
    distance = np.abs(softmax(beta * scores) - np.eye(len(scores))[0])
    assert distance.max() <= eps * (1 + 1e-9)
    assert distance.sum() <= 2 * eps * (1 + 1e-9)
    assert math.isclose(distance.max(), error_unique(scores, beta), rel_tol=1e-6, abs_tol=1e-14)


@given(st.lists(st.floats(-5, 0), min_size=1, max_size=40), st.floats(0, 2), st.floats(1e-6, 0.5))
def test_two_leaders_tied_or_not(rest, delta, eps):
    scores = np.array([1 + delta, 1, *rest])
    beta = beta_pair(1 + delta - max(rest), len(scores), eps)
    first = 1 / (1 + math.exp(-beta * delta))
    expected = np.array([first, 1 - first] + [0] * len(rest))
    distance = np.abs(softmax(beta * scores) - expected).max()
    assert distance <= eps * (1 + 1e-9)
    assert math.isclose(distance, error_pair(scores, beta), rel_tol=1e-6, abs_tol=1e-14)


def test_the_bound_is_attained_when_all_runners_up_tie():
    scores = np.array([1.0] + [0.0] * 999)
    assert error_unique(scores, beta_unique(1.0, 1000, 1e-4)) / 1e-4 > 0.999


def test_guards():
    assert beta_unique(1.0, 1, 0.1) == 0
    assert beta_pair(1.0, 2, 0.1) == 0
    with pytest.raises(InfoFlowError, match="positive"):
        beta_unique(0.0, 5, 0.1)
    with pytest.raises(InfoFlowError, match="eps"):
        beta_pair(1.0, 5, 0.0)
    with pytest.raises(InfoFlowError, match="leaders"):
        beta_pair(1.0, 1, 0.1)


def test_an_error_of_eps_moves_a_read_value_by_the_spread_not_by_the_largest_value():
    """(G.13) claims max|V| eps; 49 tied runners-up of value 1 against a leader of value -1 give nearly 2 eps."""
    eps, values = 0.01, np.array([-1.0] + [1.0] * 49)
    scores = np.array([1.0] + [0.0] * 49)
    read = values @ softmax(beta_unique(1.0, 50, eps) * scores)
    assert abs(read + 1) > 1.9 * eps * np.abs(values).max()
    assert abs(read + 1) <= (values.max() - values.min()) * eps
