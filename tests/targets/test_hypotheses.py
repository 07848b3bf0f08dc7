import numpy as np
import pytest

from infoflow.targets import Extremum, Polynomial, Target, TreeScore, d_retrieval, pairwise_max, sum_of_maxima


def quadratic(z: list[float], scale: float = 1.0, kind: str = "min") -> Extremum:
    point = np.array(z)
    d = len(z)
    p = Polynomial.quadratic(scale * np.eye(d) / d, -2 * scale * point / d, scale * float(point @ point) / d)
    return Extremum(TreeScore((p,), (), d), kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(("D", "d"), [(1, 1), (4, 4), (6, 2), (3, 20)])
def test_d_retrieval_satisfies_them(D: int, d: int) -> None:
    assert d_retrieval(D=D, d=d).head_count_hypotheses(64) == (True, ())


def test_linear_features_do_not_and_the_reason_says_why() -> None:
    holds, reasons = sum_of_maxima().head_count_hypotheses()
    assert not holds
    assert any("f_1 is linear" in reason for reason in reasons)


def test_position_sets_must_hold_a_quarter_of_the_sequence() -> None:
    F = d_retrieval(D=2, sets=(tuple(range(16)), tuple(range(15))))
    assert F.head_count_hypotheses()[0]
    holds, reasons = F.head_count_hypotheses(64)
    assert not holds
    assert reasons == ("S_2 has 15 positions, fewer than T/4 = 16",)


@pytest.mark.parametrize(
    ("F", "reason"),
    [
        (Target.sum(quadratic([0.5]), quadratic([0.5]), domain=(0.0, 1.0)), "share their minimiser"),
        (Target.sum(quadratic([1.5]), domain=(0.0, 1.0)), "outside the open cube"),
        (Target.sum(quadratic([0.5], scale=9.0), domain=(0.0, 1.0)), "values in [0,1]"),
        (Target.sum(quadratic([0.5], kind="max"), domain=(0.0, 1.0)), "positive definite"),
        (Target.sum(quadratic([0.5]), domain=(-1.0, 1.0)), "[0,1]^d"),
        (Target((quadratic([0.5]),), Polynomial.linear([[0.0]]), 1, domain=(0.0, 1.0)), "every coordinate"),
        (pairwise_max(), "single tokens"),
    ],
)
def test_each_hypothesis_is_checked(F: Target, reason: str) -> None:
    holds, reasons = F.head_count_hypotheses()
    assert not holds
    assert any(reason in text for text in reasons)
