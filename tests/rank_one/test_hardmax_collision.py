"""Theorem 1: the weight-independent pair for n >= 4, the counterexamples for n = 2 and 3."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infoflow.construct.rank_one import hardmax as hm
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig


@given(st.integers(1, 6), st.integers(4, 12), st.integers(1, 7), st.integers(0, 10**6))
def test_no_layer_tells_the_pair_apart(d: int, n: int, heads: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pair = hm.hardmax_collision(d, n, rng.normal(size=d) if seed % 2 else None)
    assert pair.verify(hm.random_layer(d, heads, rng)) < 1e-13
    first, second = ({tuple(row) for row in X} for X in (pair.first, pair.second))
    assert first != second
    assert len(first) == len(second) == n  # no duplicates
    assert all((pair.first[k] == pair.second[k]).all() for k in pair.positions)


def test_the_projects_transformer_cannot_either() -> None:
    """Any depth-1 hard Transformer of ours; coefficients are dyadic, so ties are exact in float64."""
    config = TransformerConfig(
        dim=4, heads=(2,), head_dims=(2,), widths=(8,), cls=False, encoder="none", hard=True, readout=False
    )
    network = Transformer(config).double()
    pair = hm.hardmax_collision(4, 6)
    for seed in range(20):
        network.initialise(torch.Generator().manual_seed(seed))

        def layer(X: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                return network(torch.from_numpy(X)[None])[0].numpy()

        assert pair.verify(layer) < 1e-14


def test_softmax_does_tell_them_apart() -> None:
    pair = hm.hardmax_collision(1, 4)

    def soft(X: np.ndarray) -> np.ndarray:
        weights = np.exp(0.1 * X @ X.T)
        return X + weights / weights.sum(1, keepdims=True) @ X

    assert pair.verify(soft) > 1e-3


def test_theorem_1_is_false_for_two_and_three_tokens() -> None:
    contexts, gap = hm.context_gap(hm.separating_layer(2), 6, 2)
    assert (contexts, gap > 7e-4) == (30, True)
    contexts, gap = hm.context_gap(hm.separating_layer(3), 6, 3)
    assert (contexts, gap > 1.03e-4) == (60, True)
    with pytest.raises(InfoFlowError, match="n = 2 and n = 3"):
        hm.hardmax_collision(2, 3)


def test_the_printed_proof_forgets_the_zero_score_head() -> None:
    """d = 1, W_K = 0, everything else 1: the first outputs of (1,2,4) and (1,3,4) are 10/3 and 11/3."""
    one = np.ones((1, 1))
    layer = hm.HardmaxLayer([hm.HardmaxHead(one, one, 0 * one, one)])
    first, second = (layer(np.array(row, float)[:, None])[0, 0] for row in ([1, 2, 4], [1, 3, 4]))
    assert (first, second) == pytest.approx((10 / 3, 11 / 3))


def test_report_and_its_words() -> None:
    report = hm.run({"d": "3", "n": 5, "layers": 50}, 0)
    assert report["positions"] == [1, 4, 5]
    assert report["largest_relative_difference"] < 1e-14
    assert "positions 1, 4, 5" in hm.text(report)
    assert "no collision" in hm.text(hm.run({"n": 3}))
    for wrong, words in (
        ({"k": 3}, "unknown option"),
        ({"n": "x"}, "integer"),
        ({"d": 0}, "at least 1"),
        ({"n": 1}, "n >= 4"),
    ):
        with pytest.raises(InfoFlowError, match=words):
            hm.run(wrong)
