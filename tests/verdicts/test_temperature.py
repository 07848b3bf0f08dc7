"""Softmax averages in place of extrema: exact in the limit, the published numbers at finite beta."""

import numpy as np
import pytest

import infoflow as iflow
from infoflow import targets
from infoflow.errors import InfoFlowError
from infoflow.verdicts.temperature import _averages, affine_nmse, temperature


def soft(F, X, beta):
    return F.outer(np.concatenate([_averages(term, X)(beta) for term in F.terms], axis=-1))[..., 0]


@pytest.mark.parametrize(
    "F",
    [
        targets.pairwise_max(D=2, d=2),
        targets.chain(length=4, d=2),
        targets.star(k=3, d=2),
        targets.triangle_center(),
        targets.max_plus_min(),
        targets.d_retrieval(D=2, d=2),
    ],
    ids=lambda F: F.spelling,
)
def test_soft_values_tend_to_the_target_from_inside(F):
    X = F.sample(20, 7, seed=1)
    np.testing.assert_allclose(soft(F, X, 1e9), F(X), rtol=0, atol=1e-6)


def test_softmax_of_a_maximum_is_below_it_by_at_most_log_T_over_beta():
    F = targets.sum_of_maxima(D=1, d=2)
    X = F.sample(50, 16, seed=3)
    for beta in (0.1, 1.0, 10.0):
        gap = F(X) - soft(F, X, beta)
        assert (gap >= -1e-12).all()
        assert (gap <= np.log(16) / beta).all()


def test_eq6_at_beta_one():
    """NMSE about .002 at beta = 1, 3.7 standard deviations of the score."""
    found = temperature(targets.pairwise_max(D=4, d=4), 64, samples=96)
    assert found.nmse_at_beta_1 == pytest.approx(0.002, abs=0.001)
    assert found.score_std == pytest.approx(3.7, abs=0.3)
    assert list(found.beta) == sorted(found.beta)
    assert found.logit_std[0] == pytest.approx(found.beta[0] * found.score_std)


@pytest.mark.parametrize(("T", "beta", "expected"), [(13, 16, 0.010), (59, 256, 0.019)])
def test_pair_min(T, beta, expected):
    F = targets.Target.sum(targets.Extremum(targets.NormOfSum(2, 2), "min"), sampler="clamped_normal")
    X = F.sample(2000, T, seed=0)
    assert affine_nmse(soft(F, X, beta)[:, None], F(X)[:, None]) == pytest.approx(expected, abs=0.004)


def test_position_sets_limit_the_average():
    scores = targets.TreeScore.bilinear(np.eye(2))
    F = targets.Target.sum(targets.Extremum(scores, sets=((0, 1), (4,))))
    X = F.sample(10, 6, seed=0)
    moved = X.copy()
    moved[:, 2:4] += 5.0
    np.testing.assert_array_equal(soft(F, X, 2.0), soft(F, moved, 2.0))


def test_no_softmax_average_of_the_second_largest():
    with pytest.raises(InfoFlowError, match="k-th largest"):
        iflow.predict(targets.kth_largest(), iflow.Architecture(1, 4), T=8, with_temperature=True)
    with pytest.raises(InfoFlowError, match="tuples"):
        temperature(targets.triangle_center(), 500)


def test_predict_carries_it():
    found = iflow.predict(targets.max_plus_min(), iflow.Architecture(2, 2), T=8, with_temperature=True)
    assert set(found.to_json()["temperature"]) >= {"beta", "logit_std", "nmse_at"}
    assert "temperature" in str(found)
