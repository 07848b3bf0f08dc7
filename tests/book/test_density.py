"""The density of retrieval targets: the rate, the recovered order, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.book.density import dense_retrieval, dimension
from infoflow.errors import InfoFlowError


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.integers(2, 4), st.integers(0, 999))
def test_the_rate_holds_for_random_functions(T, g, seed):
    """F(X) = max_j (a_j - max_t |x(t) - y_j(t)|) is 1-Lipschitz and sees the order; ties and repeats are tried."""
    rng = np.random.default_rng(seed)
    points, heights = rng.random((4, T, 1)), rng.random(4)

    def F(X):
        return (heights - np.abs(X[:, None] - points).max((-1, -2))).max(1)

    made = dense_retrieval(F, T, 1, 4.5 / g, 1.0)
    X = np.concatenate([rng.random((20, T, 1)), rng.integers(0, 2, size=(10, T, 1)).astype(float), points])
    assert np.abs(made(X) - F(X)).max() <= made.eps
    z = made.features(X)
    assert z.shape == (len(X), made.dimension)
    assert made.dimension == dimension(T, 1, 4.5 / g, 1.0)
    assert 0 <= z.min() <= z.max() <= 1
    assert min(map(len, made.sets)) >= T / 4


def test_features_tell_order_and_repeats_apart():
    made = dense_retrieval(lambda X: X[:, 0, 0], 8, 1, 2.25, 1.0)
    one, other = np.zeros((1, 8, 1)), np.zeros((1, 8, 1))
    one[0, 2], other[0, 3] = 1, 1  # the same multiset in another order
    assert np.abs(made.features(one) - made.features(other)).max() >= 1 / 2
    two = one.copy()
    two[0, 5] = 1  # one value twice
    assert np.abs(made.features(one) - made.features(two)).max() >= 1 / 2


def test_the_dimension_is_known_where_the_values_are_not():
    """Half the eps takes twice the cells a side; C(64, 16) sets at T = 64."""
    assert dimension(4, 2, 4.5, 1.0) == 4
    assert dimension(4, 2, 2.25, 1.0) == 16
    assert dimension(4, 2, 2.2, 1.0) == 36  # 4.5/2.2 is above 2
    assert dimension(64, 1, 0.01, 1.0) == 450 * math.comb(64, 16)


def test_too_large_tables_are_refused():
    with pytest.raises(InfoFlowError, match="grid sequences"):
        dense_retrieval(lambda X: X[:, 0, 0], 8, 2, 1.0, 1.0)
    with pytest.raises(InfoFlowError, match="eps"):
        dense_retrieval(lambda X: X[:, 0, 0], 8, 2, 0, 1.0)
    with pytest.raises(InfoFlowError, match="lipschitz"):
        dense_retrieval(lambda X: X[:, 0, 0], 8, 2, 1.0, 0.0)
