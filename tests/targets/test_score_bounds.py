import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.errors import InfoFlowError
from infoflow.targets import CallableScore, NormOfSum, Polynomial, TreeScore, lipschitz, score_bound, score_range
from infoflow.targets.score import polynomial_range

brute = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("brute.py"))))


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([(-1.0, 1.0), (0.0, 1.0), (-3.0, 0.5), (1.0, 2.0)])
)
def test_ranges_and_slopes_hold_at_random_and_corner_tokens(seed: int, k: int, domain: tuple[float, float]) -> None:
    rng = np.random.default_rng(seed)
    for score in (brute.integer_tree(rng, k, 2), NormOfSum(k, 2)):
        inside = rng.uniform(*domain, (100, k, 2))
        corners = rng.choice(domain, (100, k, 2))
        tokens = np.concatenate([inside, corners])
        low, high = score_range(score, domain)
        values = score(tokens)
        assert low <= values.min()
        assert values.max() <= high
        assert score_bound(score, domain) == max(abs(low), abs(high))
        slopes = np.linalg.norm(score.gradient(tokens), axis=-1).max(0)
        assert (slopes <= np.array(lipschitz(score, domain))).all()


def test_sharp_cases() -> None:
    assert score_range(NormOfSum(3, 2), (-1.0, 1.0)) == (0.0, pytest.approx(18.0))
    assert score_range(TreeScore.bilinear(np.eye(3), 2.0, 2.0), (-1.0, 1.0)) == (pytest.approx(-4), pytest.approx(8))
    assert lipschitz(NormOfSum(3, 2), (-1.0, 1.0)) == pytest.approx((6 * 2**0.5,) * 3)
    square = Polynomial(np.array([[2]]), np.array([[1.0]]))
    lower, upper = polynomial_range(square, (-1.0, 2.0))
    assert (lower[0], upper[0]) == (pytest.approx(0, abs=1e-10), pytest.approx(4))


def test_a_general_score_needs_its_constant() -> None:
    free = CallableScore(lambda x: x[..., 0, 0], 1, 1)
    with pytest.raises(InfoFlowError, match="lipschitz"):
        lipschitz(free, (0.0, 1.0))
    with pytest.raises(InfoFlowError, match="not known"):
        score_range(free, (0.0, 1.0))
    assert lipschitz(CallableScore(free.function, 2, 1, lipschitz=3.0), (0.0, 1.0)) == (3.0, 3.0)
    with pytest.raises(InfoFlowError, match="low < high"):
        lipschitz(NormOfSum(1, 1), (1.0, 1.0))


def test_slopes_are_the_bounds_of_derivatives():
    rng = np.random.default_rng(0)
    for _ in range(20):
        d, m = rng.integers(1, 4), rng.integers(1, 6)
        p = Polynomial(rng.integers(0, 4, (m, d)), rng.normal(size=(2, m)))
        radius = rng.uniform(0, 2, d)
        expected = [p.derivative(i).bound(radius) for i in range(d)]
        np.testing.assert_allclose(p.slopes(radius), expected, rtol=1e-12)
