"""The formulas behind the head-count slides: memorisation by one uniform head, and the levels of the ReLU read-out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from infoflow.verdicts.bounds import head_count_exponent


def relu(z):
    return np.maximum(z, 0.0)


def test_corollary_condition_is_not_enough_by_itself():
    """50 (D1^2 + D2^2) <= T holds with equality at T = 250, D = (1, 2); a proof by exponents also needs k > gamma."""
    assert 50 * (1**2 + 2**2) <= 250
    assert 14 < head_count_exponent(250, 1, 2, 2) < 15


def test_no_statement_below_zero():
    assert head_count_exponent(16, 1, 4, 2) <= 0


def test_memorisation_by_uniform_attention():
    """P(x, s) = e_s (x) x / sqrt d, W_Q = W_K = 0, W_V = W_O = I, c_1 = 0: the CLS holds concat(x) / (T sqrt d)."""
    rng = np.random.default_rng(0)
    T, d = 7, 3
    X = rng.uniform(0, 1, (T, d))
    embedded = np.array([np.kron(np.eye(T)[s], X[s]) / np.sqrt(d) for s in range(T)])
    assert np.linalg.norm(embedded, axis=1).max() <= 1 + 1e-12
    state = embedded.mean(axis=0)
    np.testing.assert_allclose(state * T * np.sqrt(d), X.ravel(), rtol=0, atol=1e-15)


def test_relu_encoder_makes_the_product_from_a_one_hot_code():
    X = np.random.default_rng(1).uniform(0, 1, (5, 2))
    for s in range(5):
        code = np.eye(5)[s]
        made = relu(X[s][None, :] + code[:, None] - 1).ravel()
        np.testing.assert_allclose(made, np.kron(code, X[s]), atol=1e-15)


def test_additive_codes_with_linear_values_lose_the_order():
    """Exchanging two tokens changes nothing when the embedding is x + p(s) and the values are linear."""
    rng = np.random.default_rng(2)
    X, code = rng.uniform(0, 1, (4, 2)), rng.standard_normal((4, 2))
    swapped = X[[1, 0, 2, 3]]
    np.testing.assert_allclose((X + code).mean(axis=0), (swapped + code).mean(axis=0))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.integers(1, 40))
def test_levels_of_the_read_out_give_the_minimum(values, N):
    """s_j(z) = relu(j - N z) - relu(j - 1 - N z): the mean over j of relu(1 - sum_t s_j(z_t)) is min z up to 1/N."""
    z = np.array(values)[:, None]
    j = np.arange(1, N + 1)
    levels = relu(j - N * z) - relu(j - 1 - N * z)
    found = relu(1 - levels.sum(axis=0)).mean()
    assert abs(found - min(values)) <= 1 / N + 1e-9
