import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import infoflow as iflow
from infoflow import Architecture, targets
from infoflow.errors import InfoFlowError
from infoflow.verdicts.estimate import estimate_counting
from infoflow.verdicts.scale import first_positive


@pytest.mark.parametrize(
    ("heads", "embed", "count", "first"),
    [
        ((2, 2), 24, "lower", 111),
        ((2, 2), 24, "ordered", 44),
        ((4, 4), 24, "lower", 118),
        ((4, 4), 24, "ordered", 45),
        ((4, 4), 48, "lower", 303),
        ((4, 4), 48, "ordered", 121),
    ],
)
def test_triangle_center(heads, embed, count, first):
    found = iflow.scale(targets.triangle_center(), Architecture(heads, embed), [8, 4096], count)
    assert found.first_positive_T == first
    assert found.to_json()["first_positive_T"] == first


CASES = [
    targets.triangle_center(),
    targets.pairwise_max(D=2, d=3),
    targets.sum_of_maxima(D=3, d=2),
    targets.kth_largest(k=3, d=2),
    targets.min_pair(d=2),
]


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(CASES),
    st.sampled_from([(1,), (2,), (1, 1), (3, 2), (1, 2, 1)]),
    st.integers(1, 12),
    st.integers(3, 20),
    st.integers(0, 60),
    st.sampled_from(["ordered", "unordered_distinct"]),
)
def test_first_positive_equals_the_plain_search(F, heads, n, low, more, count):
    arch = Architecture(heads, tuple(n * h for h in heads))

    def positive(T):
        exponent = estimate_counting(F, arch, T, count).exponent
        return exponent is None or exponent > 0

    expected = next((T for T in range(low, low + more + 1) if positive(T)), None)
    assert first_positive(F, arch, low, low + more, count) == expected


def test_rows_agree_with_predict_and_the_table_says_when():
    arch = Architecture((3, 4), 24)
    F = targets.pairwise_max(D=4, d=4)
    found = iflow.scale(F, arch, [64, 8, 8])
    assert [row.T for row in found.rows] == [8, 64]
    assert found.rows[1].counting == iflow.predict(F, arch, 64).counting.exponent
    assert f"first at T={found.first_positive_T}" in str(found)
    assert "never" in str(iflow.scale(F, Architecture((4, 4), 24), [8, 64]))


def test_figure(tmp_path):
    from infoflow.report import style

    found = iflow.scale(targets.triangle_center(), Architecture((2, 2), 24), [8, 64, 512])
    assert style.save(found.figure(), tmp_path / "exponents", formats=("svg",))[0].is_file()


def test_wrong_calls():
    with pytest.raises(InfoFlowError, match="a list of lengths"):
        iflow.scale(targets.min_pair(), Architecture((1, 1), 6), [])
    with pytest.raises(InfoFlowError, match="T >= 3"):
        iflow.scale(targets.triangle_center(), Architecture((2, 2), 24), [2, 8])
