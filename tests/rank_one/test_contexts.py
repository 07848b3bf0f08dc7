"""Classes of (token, visible multiset), the checkers of Definitions 1 and 2, and every wrong input in one sentence."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.construct.rank_one import contexts as cx
from infoflow.construct.rank_one import separation as sp
from infoflow.errors import InfoFlowError


def brute_force(tokens: np.ndarray, visible: np.ndarray | None) -> dict[tuple[int, int], object]:
    """(token, visible multiset with proportional ones reduced) at every place."""
    keys = {}
    for i, row in enumerate(tokens):
        for k, token in enumerate(row):
            if token < 0:
                continue
            seen = [t for j, t in enumerate(row) if t >= 0 and (visible is None or visible[k, j])]
            counts = Counter(seen)
            divisor = math.gcd(*counts.values())
            keys[i, k] = (int(token), frozenset((t, c // divisor) for t, c in counts.items()))
    return keys


@settings(max_examples=60)
@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 5), st.sampled_from(cx.MASKS), st.integers(0, 10**6))
def test_classes_equal_brute_force(N: int, n: int, m: int, mask: cx.Mask, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vocabulary = rng.normal(size=(m, 2))
    tokens = rng.integers(0, m, size=(N, n))
    if "padding" in mask:
        tokens[np.arange(n) >= rng.integers(1, n + 1, size=(N, 1))] = -1
    found = cx.contexts_of(vocabulary, tokens, mask)
    visible = np.tri(n, dtype=bool) if "causal" in mask else None
    keys = brute_force(tokens, visible)
    label: dict[object, int] = {}
    for place, key in keys.items():
        assert label.setdefault(key, int(found.class_of[place])) == found.class_of[place]
    assert len(set(label.values())) == len(label) == found.size
    assert ((found.class_of >= 0) == (tokens >= 0)).all()
    assert (found.class_of.ravel()[found.first] == np.arange(found.size)).all()
    assert (found.proportional is None) == (found.merged == 0)


def test_sequences_of_numbers_become_tokens() -> None:
    X = np.array([[[1.0, 2.0], [3.0, 4.0]], [[3.0, 4.0], [1.0, 2.0]]])
    found = cx.read_contexts(X)
    assert (len(found.vocabulary), found.size) == (2, 2)
    assert (found.vocabulary[found.tokens] == X).all()
    ragged = cx.read_contexts([X[0], X[1][:1]], "padding")
    assert ragged.tokens[1, 1] == -1
    assert cx.read_contexts(np.array([[[0.0, 1.0]], [[-0.0, 1.0]]])).size == 1  # -0.0 is 0.0


def test_unique_rows_is_exact_where_hashes_are_weak() -> None:
    rows = np.zeros((4, 3))
    rows[1, 0], rows[2, 1], rows[3, 2] = 1.0, 1.0, 1.0
    first, inverse = cx.unique_rows(np.vstack([rows, rows]))
    assert len(first) == 4
    assert (inverse[:4] == inverse[4:]).all()


@pytest.mark.parametrize(
    ("X", "mask", "words"),
    [
        ([[[1.0], [0.0]]], "none", "zero token in sequence 1 position 2"),
        ([[[1.0], [float("nan")]]], "none", "NaN or infinity in sequence 1 position 2"),
        ([[[1.0], [1e200]]], "none", "1e.200 in sequence 1 position 2; rescale"),
        ([[[1e-200], [1.0]]], "none", "1e-200 in sequence 1 position 1; rescale"),
        ([[[1.0], [2.0]], [[1.0]]], "none", "use mask=padding"),
        ([[[1.0], [2.0]], [[1.0]]], "causal", "use mask=causal.padding"),
        ([[[1.0], [2.0]], []], "padding", "sequence 2"),
        ([], "none", "at least one sequence"),
        ([[["a"]]], "none", "numbers"),
        ([[[1.0, 2.0]], [[1.0]]], "none", "sequence 2"),
        ([[[1.0], [2.0]]], "causl", "expected mask"),
        ([[[1.0], [2.0]]], np.array([[True, True], [False, False]]), "none for sequence 1 position 2"),
        ([[[1.0], [2.0]]], np.ones((3, 3), dtype=bool), r"shape \(2, 2\)"),
    ],
)
def test_wrong_input_is_one_sentence(X: list, mask: cx.Mask, words: str) -> None:
    with pytest.raises(InfoFlowError, match=words) as caught:
        cx.read_contexts(X, mask)
    assert "\n" not in str(caught.value)


def test_proportional_multisets_are_named() -> None:
    x, y = [1.0, 0.0], [0.0, 1.0]
    found = cx.read_contexts([[x, y], [x, x, y, y]], "padding")
    assert found.merged == 2
    with pytest.raises(InfoFlowError, match="sequence 1 position 1 and sequence 2 position 1") as caught:
        found.refuse_proportional()
    assert "proportional" in str(caught.value)


@settings(max_examples=40)
@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 10**6))
def test_closest_distance_equals_all_pairs(m: int, d: int, seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(m, d))
    distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
    expected = distance[np.triu_indices(m, 1)].min()
    assert sp.closest_distance(points) == pytest.approx(expected, rel=1e-9)
    assert sp._closest_by_blocks(points, block=7) == pytest.approx(expected, rel=1e-9)


def test_definition_1_is_strict() -> None:
    apart = sp.separation(np.array([[1.0, 0.0], [0.0, 2.0]]))
    assert apart.satisfies(0.99, 2.01, 2.2)
    assert not apart.satisfies(1.0, 2.01, 2.2)
    assert not apart.satisfies(0.99, 2.0, 2.2)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_contextual_mapping_check_equals_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = cx.contexts_of(rng.normal(size=(4, 2)), rng.integers(0, 4, size=(5, 3)), "none")
    values = rng.integers(0, 12, size=(found.size, 2)) / 4.0
    ids = values[found.class_of]
    delta, r = 0.3, 10.0
    flat, label = ids.reshape(-1, 2), found.class_of.ravel()
    apart = np.linalg.norm(flat[:, None] - flat[None], axis=-1)
    expected = bool((apart[label[:, None] != label[None]] > delta).all())
    answer = sp.check_contextual_mapping(found, ids, r, delta, rng.normal(size=2))
    assert (answer is None) == expected
    assert "norm" in str(sp.check_contextual_mapping(found, ids + 100, r, delta, np.ones(2)))
