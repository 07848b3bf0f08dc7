import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import infoflow as iflow
from infoflow.commands.own_code import asked_target
from infoflow.errors import InfoFlowError
from infoflow.targets import (
    NAMED,
    CallableScore,
    Edge,
    Extremum,
    KthLargest,
    NormOfSum,
    OuterNetwork,
    Polynomial,
    PositionSum,
    Target,
    TreeScore,
    arrays,
    parse,
    terms,
)
from infoflow.targets import target as target_module

brute = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("brute.py"))))


@settings(max_examples=100, deadline=None)
@given(brute.integer_extrema())
def test_tree_winners_and_values_are_those_of_brute_force_ties_included(case: tuple[Extremum, np.ndarray]) -> None:
    term, X = case
    F = Target.sum(term)
    (winners,) = F.winners(X)
    for row, sequence in enumerate(X):
        positions, value = brute.best_tuple(term, sequence)
        assert tuple(winners[row].tolist()) == positions
        assert F(X)[row] == value
    assert np.array_equal(F(torch.tensor(X)).numpy(), F(X))
    with patch.object(terms, "is_torch", lambda x: False):  # search the tensor itself, as on an accelerator
        assert np.array_equal(F.winners(torch.tensor(X))[0].numpy(), winners)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 5), st.booleans(), st.sampled_from(["max", "min"]))
def test_scores_without_structure(seed: int, k: int, T: int, distinct: bool, kind: str) -> None:
    rng = np.random.default_rng(seed)
    T = max(T, k) if distinct else T
    X = rng.integers(-2, 3, (2, T, 2)).astype(float)
    cubic = CallableScore(lambda x: (x[..., 0] ** 3).sum(-1) * x[..., 0, 1], k, 2)
    for score in (NormOfSum(k, 2), cubic):
        term = Extremum(score, kind, None, distinct)
        expected = [list(brute.best_tuple(term, sequence)[0]) for sequence in X]
        assert Target.sum(term).winners(X)[0].tolist() == expected
        with patch.object(terms, "is_torch", lambda x: False):
            assert Target.sum(term).winners(torch.tensor(X))[0].tolist() == expected


@pytest.mark.parametrize("name", NAMED)
def test_named_values_equal_brute_force_bit_for_bit_and_numpy_equals_torch(name: str) -> None:
    F = parse(name)
    X = F.sample(4, 6, seed=3)
    column = 0
    for term in F.terms:
        if isinstance(term, Extremum) and not isinstance(term.score, NormOfSum):
            expected = [brute.best_tuple(term, sequence)[1] for sequence in X]
            assert F.term_values(X)[:, column].tolist() == expected
        column += term.values
    assert np.array_equal(F(torch.tensor(X)).numpy(), F(X))
    assert F.term_values(X).shape == (4, F.values)


def test_equal_tokens_tie_wherever_they_stand() -> None:
    """A library's matrix product may round the same pair differently at different positions; ours may not."""
    rng = np.random.default_rng(0)
    F = iflow.targets.pairwise_max(D=3, d=5, seed=1)
    X = rng.standard_normal((50, 33, 5))
    doubled = np.concatenate([X, X], axis=1)
    expected = F.winners(X)
    for kind in (doubled, torch.tensor(doubled)):
        with patch.object(terms, "is_torch", lambda x: False):
            found = F.winners(kind)
        assert all(np.array_equal(np.asarray(w), single) for w, single in zip(found, expected, strict=True))


def test_zero_of_either_sign_is_a_tie() -> None:
    F = Target.sum(Extremum(TreeScore.linear([1.0])))
    X = np.array([[-0.0], [0.0]])
    assert F.winners(X)[0].tolist() == [0]
    assert F.winners(torch.tensor(X))[0].tolist() == [0]


def test_a_numbering_against_the_tree_still_gives_the_first_tuple() -> None:
    """Chain 0 - 2 - 1: reading maximisers from the root would choose t_2 before t_1."""
    x = Polynomial.linear([[1.0]])
    score = TreeScore((None, None, None), (Edge(0, 2, x, x), Edge(2, 1, x, x)), 1)
    X = np.array([[1.0], [-1.0]])  # best: all three equal to 1, or t_0 = t_1 = 1 with t_2 = 0: first is (0, 0, 0)
    assert Target.sum(Extremum(score)).winners(X)[0].tolist() == [0, 0, 0]
    assert Target.sum(Extremum(score, "min")).winners(X)[0].tolist() == [0, 0, 1]


def test_leading_axes_and_empty_batches() -> None:
    F = iflow.targets.pairwise_max(D=2, d=3)
    X = F.sample((2, 3), 5)
    assert F(X).shape == (2, 3)
    assert F.active(X).shape == (2, 3, 5)
    assert F(X[0, 0]) == F(X)[0, 0]
    assert F(X[:0]).shape == (0, 3)
    assert F.active(X[:0]).shape == (0, 3, 5)
    for name in NAMED:
        G = parse(name)
        assert G(G.sample(0, 4)).shape[0] == 0
    G = iflow.targets.position_sum()
    assert G(G.sample(4, 5)).shape == (4, 2)
    assert G.outputs == 2


def test_small_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from infoflow.targets import norm_search

    for F in (iflow.targets.chain(length=4, d=2), iflow.targets.triangle_center(), iflow.targets.kth_largest(k=3)):
        X = F.sample(7, 9, seed=5)
        whole = (F(X), F.active(X), F.winners(X))
        with monkeypatch.context() as small:
            small.setattr(arrays, "CACHE_BYTES", 500)
            small.setattr(target_module, "CHUNK_BYTES", 500)
            small.setattr(norm_search, "PAIRS", 1)
            assert np.array_equal(F(X), whole[0])
            assert np.array_equal(F.active(X), whole[1])
            assert all(np.array_equal(a, b) for a, b in zip(F.winners(X), whole[2], strict=True))


def test_long_sequences_are_searched_in_blocks_of_rows() -> None:
    F = iflow.targets.pairwise_max(D=1, d=1, seed=0)
    X = np.random.default_rng(0).standard_normal((1, 6000, 1))
    a = float(F.terms[0].score.edges[0].right.affine()[0][0, 0])
    low, high = X.min(), X.max()
    expected = a * max(low * low, high * high) if a > 0 else a * low * high
    assert F(X)[0] == pytest.approx(expected, rel=1e-14)


def test_outer_maps() -> None:
    product = Polynomial(np.array([[1, 1]]), np.array([[2.0]]))
    line = TreeScore.linear([1.0])
    X = np.array([[[0.5], [2.0], [-1.0]]])
    F = Target((Extremum(line), Extremum(line, "min")), product, 1)
    assert F(X).tolist() == [2 * 2.0 * -1.0]
    G = Target((Extremum(line),), OuterNetwork(lambda z: z**2, lipschitz=4.0), 1)
    assert G(X).tolist() == [4.0]
    assert G.active(X).tolist() == [[False, True, False]]
    assert G.active(np.zeros((1, 3, 1))).tolist() == [[False, False, False]]


def test_kth_largest_counts_equal_values_in_the_order_of_positions() -> None:
    F = iflow.targets.kth_largest(k=2)
    X = np.array([[0.3], [0.7], [0.7], [0.1]])
    assert F(X) == 0.7
    assert F.winners(X)[0].tolist() == [2]
    assert F.winners(torch.tensor(X))[0].tolist() == [2]


def test_the_lines_of_the_docstring_make_a_target(tmp_path: Path) -> None:
    code = "\n".join(line[4:] for line in iflow.targets.__doc__.splitlines() if line.startswith("    "))
    assert len(code.splitlines()) == 4
    (tmp_path / "mine.py").write_text(code)
    F = asked_target(f"{tmp_path / 'mine.py'}:F")
    X = np.array([[1.0, 0.0], [2.0, 1.0], [3.0, -1.0]])
    assert F(X) == 8.0 - 1.0  # 3 * 3 - (-1) * (-1), the third token with itself, and the lowest second coordinate
    assert F.winners(X)[0].tolist() == [2, 2]


def wrong(call: str) -> str:
    return re.escape(call)


LINE = TreeScore.linear([1.0, 0.0])


@pytest.mark.parametrize(
    ("term", "X", "message"),
    [
        (Extremum(LINE), np.zeros((0, 2)), "T=0"),
        (Extremum(LINE), np.zeros((3, 3)), "(..., T, 2)"),
        (Extremum(LINE), np.zeros(2), "(..., T, 2)"),
        (Extremum(LINE), np.array([[0.0, np.nan]]), "NaN"),
        (Extremum(LINE), np.array([[0.0, np.inf]]), "NaN or infinity"),
        (Extremum(LINE), "tokens", "expected tokens"),
        (Extremum(LINE, sets=((0, 5),)), np.zeros((3, 2)), "position 6"),
        (Extremum(NormOfSum(3, 2), "min", distinct=True), np.zeros((2, 2)), "T >= 3"),
        (Extremum(NormOfSum(2, 2), sets=((0,), (0,)), distinct=True), np.zeros((2, 2)), "admit none"),
        (KthLargest(3, np.array([1.0, 0.0])), np.zeros((2, 2)), "T >= k=3"),
        (PositionSum((0, 4), 2), np.zeros((3, 2)), "position 5"),
        (Extremum(TreeScore.bilinear(np.eye(2))), np.full((1, 2), 1e200), "overflows"),
    ],
)
def test_bad_input_is_one_clear_sentence(term: object, X: object, message: str) -> None:
    F = Target.sum(term)  # type: ignore[arg-type]
    with pytest.raises(InfoFlowError, match=wrong(message)) as caught:
        F(X)
    assert "\n" not in str(caught.value)


def test_tensors_are_checked_too() -> None:
    F = Target.sum(Extremum(LINE))
    with pytest.raises(InfoFlowError, match="NaN"):
        F(torch.tensor([[0.0, float("nan")]]))
    assert F(torch.tensor([[1, 2], [3, 4]])) == 3.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Extremum(LINE, "largest"),  # type: ignore[arg-type]
        lambda: Extremum(LINE, sets=((),)),
        lambda: Extremum(LINE, sets=((-1,),)),
        lambda: Extremum(LINE, sets=((0,), (1,))),
        lambda: KthLargest(0, np.ones(2)),
        lambda: KthLargest(1, np.zeros(2)),
        lambda: PositionSum((), 2),
        lambda: Target.sum(),
        lambda: Target.sum(Extremum(LINE), domain=(1.0, 0.0)),
        lambda: Target.sum(Extremum(LINE), sampler="gauss"),
        lambda: Target((Extremum(LINE),), Polynomial.linear(np.ones((1, 2))), 2),
        lambda: Target((Extremum(LINE),), Polynomial.linear([[1.0]]), 3),
        lambda: NormOfSum(0, 2),
    ],
)
def test_targets_that_cannot_be(make: object) -> None:
    with pytest.raises(InfoFlowError):
        make()  # type: ignore[operator]
