"""The density of retrieval targets: the rate, the recovered order, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.book.density import dense_retrieval
from infoflow.errors import InfoFlowError


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.integers(2, 4), st.integers(0, 999))
def test_the_rate_holds_for_random_functions(T, g, seed):
    """F(X) = max_j (a_j - max_t |x(t) - y_j(t)|) is 1-Lipschitz and sees the order; ties and repeats are tried."""
    rng = np.random.default_rng(seed)
    points, heights = rng.random((4, T, 1)), rng.random(4)

    def F(X):
        return (heights - np.abs(X[:, None] - points).max((-1, -2))).max(1)

    made = dense_retrieval(F, T, 1, g, 1.0)
    X = np.concatenate([rng.random((20, T, 1)), rng.integers(0, 2, size=(10, T, 1)).astype(float), points])
    assert np.abs(made(X) - F(X)).max() <= made.bound
    z = made.features(X)
    assert z.shape == (len(X), made.dimension)
    assert 0 <= z.min() <= z.max() <= 1
    assert min(map(len, made.sets)) >= T / 4


def test_features_tell_order_and_repeats_apart():
    made = dense_retrieval(lambda X: X[:, 0, 0], 8, 1, 2, 1.0)
    one, other = np.zeros((1, 8, 1)), np.zeros((1, 8, 1))
    one[0, 2], other[0, 3] = 1, 1  # the same multiset in another order
    assert np.abs(made.features(one) - made.features(other)).max() >= 1 / 2
    two = one.copy()
    two[0, 5] = 1  # one value twice
    assert np.abs(made.features(one) - made.features(two)).max() >= 1 / 2


def test_too_large_tables_are_refused():
    with pytest.raises(InfoFlowError, match="grid sequences"):
        dense_retrieval(lambda X: X[:, 0, 0], 8, 2, 4, 1.0)
    with pytest.raises(InfoFlowError, match="g"):
        dense_retrieval(lambda X: X[:, 0, 0], 8, 2, 0, 1.0)
