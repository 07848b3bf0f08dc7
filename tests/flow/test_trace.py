"""trace: layouts carried out on inputs learn their targets, for trees of any shape, ties, sets and masks."""

from dataclasses import replace

import numpy as np
import pytest

from infoflow import Architecture, targets
from infoflow.errors import InfoFlowError
from infoflow.flow.trace import trace

EXAMPLE = [[0, -1], [0.7, 0.7], [0, 1], [-0.2, -0.9]]


def test_appendix_e_by_the_layout():
    flow = trace(targets.min_pair(d=2), Architecture((1, 1), 4), EXAMPLE)
    found = flow.to_json()
    assert found["sets"] == [
        [[1], [2], [3], [4], []],
        [[1, 3], [2, 4], [1, 3], [3, 4], []],
        [[1, 3], [2, 4], [1, 3], [3, 4], [1, 3]],
    ]
    assert found["argmax"] == [[[3], [4], [1], [3], [None]], [[None], [None], [None], [None], [1]]]
    assert found["active"] == [1, 3]
    assert found["learns"] is True
    assert found["modes"] == [{"tokens": "max", "cls": "skip"}, {"tokens": "skip", "cls": "max"}]
    assert trace(targets.min_pair(d=2), Architecture((1, 1), 4), EXAMPLE, ties="last", cls_skip=False).members(
        5, 2
    ) == (
        1,
        3,
        4,
    )


@pytest.mark.parametrize(
    ("F", "heads"),
    [
        (targets.pairwise_max(D=4, d=4), (4, 4)),
        (targets.pairwise_max(D=4, d=4), (1, 1, 1, 1, 1)),
        (targets.pairwise_max(D=3, d=2, seed=5), (2, 2, 2)),
        (targets.star(), (2, 1)),
        (targets.star(k=5, d=2), (4, 1)),
        (targets.chain(length=5, d=2), (2, 2, 1)),
        (targets.chain(length=4, d=3), (2, 1, 1)),
        (targets.sum_of_maxima(), (4,)),
        (targets.max_plus_min(), (2,)),
        (targets.d_retrieval(D=3, d=2), (3,)),
        (targets.kth_largest(k=1), (1,)),
    ],
    ids=lambda value: getattr(value, "spelling", None) or str(value),
)
def test_layouts_learn_their_targets(F, heads):
    """I_F(X) inside I(T+1, L) on every random input, at lengths around the word size."""
    arch = Architecture(heads, tuple(24 * h for h in heads))
    for T in (F.arity, 7, 64, 65):
        for X in F.sample(6, T, seed=T):
            flow = trace(F, arch, X)
            assert flow.note == ""
            assert flow.learns
            assert flow.cost(T + 1, len(heads)) >= 0


def test_the_winning_tuple_is_what_the_cls_reads():
    """With one term, the CLS ends with exactly the tree of retrievals, which contains the exact winners."""
    F = targets.star(k=3, d=3)
    X = F.sample(1, 40, seed=3)[0]
    flow = trace(F, Architecture((2, 1), (20, 4)), X)
    assert set(flow.members(41, 2)) == {int(p) + 1 for p in np.ravel(F.winners(X)[0])}


def test_position_sets_are_respected():
    bilinear = targets.TreeScore.bilinear(np.random.default_rng(0).standard_normal((2, 2)))
    F = targets.Target.sum(targets.Extremum(bilinear, sets=((0, 1, 2), (5, 6))))
    arch = Architecture((1, 1), 40, positions="additive")
    for X in F.sample(20, 9, seed=1):
        flow = trace(F, arch, X)
        assert flow.note == ""
        assert flow.learns
        assert set(flow.members(10, 2)) == {int(p) + 1 for p in np.ravel(F.winners(X)[0])}


def test_causal_mask_keeps_symmetric_pairs():
    F = targets.min_pair(d=3)
    arch = Architecture((1, 1), 8, mask="causal")
    for X in F.sample(20, 17, seed=2):
        assert trace(F, arch, X).learns


def test_without_a_layout_the_flow_is_global_and_says_why():
    for F, heads in ((targets.triangle_center(), (2, 2)), (targets.pairwise_max(D=4, d=4), (3, 4))):
        flow = trace(F, Architecture(heads, 24), F.sample(1, 9)[0])
        assert flow.note.startswith("global aggregation")
        assert flow.members(10, 2) == tuple(range(1, 10))
        assert flow.learns
        assert flow.mode(10, 2) == "global"
        assert flow.exponent == flow.cost(10, 2)


def test_specific_positions():
    F = targets.position_sum()
    flow = trace(F, Architecture(1, 4, positions="additive"), F.sample(1, 8)[0])
    assert flow.members(9, 1) == (1, 2, 3)
    assert flow.mode(9, 1) == "specific"
    assert str(flow.cost(9, 1)) == "1/2"  # 3 positions * set size 1 * d 2 / E 4 - 1
    assert flow.learns


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([[1.0, 2.0, 3.0]], "shape"),
        ([[1.0], [2.0, 3.0]], "real numbers"),
        ([[1.0, float("nan")]], "finite"),
        ([[1.0, float("inf")]], "finite"),
        ([], "shape"),
        ("tokens", "real numbers"),
    ],
)
def test_wrong_tokens(X, words):
    with pytest.raises(InfoFlowError, match=words):
        trace(targets.min_pair(d=2), Architecture((1, 1), 4), X)


@pytest.mark.parametrize("T", [2, 4, 12, 13, 512])
def test_figure_for_any_length(T, tmp_path):
    from infoflow.report import style

    F = targets.pairwise_max(D=2, d=2)
    flow = trace(F, Architecture((2, 2), 8), F.sample(1, T)[0])
    (path,) = style.save(flow.figure(), tmp_path / "flow", formats=("svg",))
    assert path.stat().st_size < 3_000_000


def test_a_missed_active_set_is_not_learned():
    flow = trace(targets.min_pair(d=2), Architecture((1, 1), 4), EXAMPLE)
    missed = replace(flow, active=np.array([True, True, True, False]))
    assert flow.learns
    assert not missed.learns
    assert "missed" in str(missed)


def test_text_names_the_sets():
    text = str(trace(targets.min_pair(d=2), Architecture((1, 1), 4), EXAMPLE))
    assert "I(5,2)={1,3}" in text
    assert "learned" in text
