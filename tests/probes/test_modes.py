"""Labels against planted heads; the boundaries of every score."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models import hugging_face, language, network

from infoflow.probes import head_modes, record
from infoflow.probes.modes import LABELS, LEAD, SCORES, THRESHOLDS, _standing_out, label, nearest
from infoflow.probes.planted import KINDS, Planted, accuracy, lead, precision_recall


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("T", "moved", "noise", "relative", "least"),
    [(16, 0.0, 0.0, False, 0.99), (24, 0.3, 1.0, False, 0.95), (24, 0.3, 1.0, True, 0.95)],
)
def test_planted_heads_are_labelled(causal, T, moved, noise, relative, least):
    kinds = tuple(k for k in KINDS if not (causal and k == "next"))
    planted = Planted(16, T, 4, moved, noise, relative, causal, kinds=kinds)
    labels = [mode.label for mode in head_modes(planted)]
    assert accuracy(labels, planted.truth) >= least


def test_noise_decides_what_a_top_head_is():
    """Its truth changes only when the noise parts its keys; the lead of a pair is E tanh(|N(0, 2 s^2)| / 2)."""
    drawn = np.random.default_rng(1).normal(size=100_000)
    for s in (0.5, 1.0, 4.0):
        assert lead(2, s) == pytest.approx(np.tanh(np.abs(np.sqrt(2) * s * drawn) / 2).mean(), abs=0.02)
    assert lead(3, 0.0) == 0
    assert lead(2, 1.0) < LEAD < lead(2, 2.0)
    one_logit, own = (Planted(T=16, noise=1.0, relative=r, kinds=("top", "max")) for r in (False, True))
    assert one_logit.truth == one_logit.planted_as
    assert "max" in own.truth[:4]
    assert own.planted_as[:4] == ["top"] * 4


def standing_out(pattern: list[float], expected: list[float] | None = None) -> tuple[float, float]:
    p = torch.tensor(pattern, dtype=torch.float64)
    m = torch.zeros_like(p) if expected is None else torch.tensor(expected, dtype=torch.float64)
    one, top = _standing_out(p[None], m[None])
    return float(one), float(top)


@pytest.mark.parametrize(
    ("pattern", "expected", "wanted"),
    [
        ([1.0], [1.0], (0, 0)),  # one key is no choice
        ([0.8, 0.2], None, (0.6, 0.6)),
        ([0.5, 0.3, 0.2], None, (0.2, 0.2)),
        ([1.0] + [0.0] * 9, None, (1, 1)),
        ([0.25] * 4 + [0.0] * 6, None, (0, 1)),  # a tie
        ([0.2] * 5 + [0.0] * 5, None, (0, 0)),  # the fifth key is as heavy as the others
        ([0.1] * 10, None, (0, 0)),
        ([0.6, 0.4] + [0.0] * 8, [0.64] + [0.04] * 9, (0, 0.4)),  # position foretold the first key, not the second
        ([1.0] + [0.0] * 9, [0.5] + [0.5 / 9] * 9, (1, 1)),  # a hardmax that often falls on one place is still one
    ],
)
def test_mass_that_stands_out(pattern, expected, wanted):
    assert standing_out(pattern, expected) == pytest.approx(wanted, abs=0.01)


@given(st.lists(st.floats(0.001, 1), min_size=10, max_size=20), st.floats(0, 0.9))
def test_a_share_of_uniform_mass_only_scales_what_stands_out(weights, moved):
    p = np.array(weights) / np.sum(weights)
    mixed = (1 - moved) * p + moved / len(p)
    np.testing.assert_allclose(standing_out(list(mixed)), (1 - moved) * np.array(standing_out(list(p))), atol=1e-12)


def test_one_document_says_nothing_about_position():
    modes = head_modes(record(network(), torch.randn(1, 12, 3)))
    assert all(mode.scores["position"] == 0 for mode in modes)


@given(st.integers(0, 2**31), st.sampled_from([1, 2, 3, 5]), st.integers(1, 6))
def test_scores_lie_in_the_unit_interval(seed, documents, T):
    generator = torch.Generator().manual_seed(seed)
    model = network()
    modes = head_modes(record(model, torch.randn(documents, T, 3, generator=generator)))
    for mode in modes:
        assert set(mode.scores) == set(SCORES)
        assert all(0 <= value <= 1 for value in mode.scores.values())
        assert mode.label in LABELS
        assert 0 <= mode.stability <= 1


def test_uniform_heads_are_global_and_never_position():
    model = network()
    for layer in model.attentions:
        torch.nn.init.zeros_(layer.query)
    modes = head_modes(record(model, torch.randn(12, 8, 3)))
    assert {mode.label for mode in modes} == {"global"}
    assert all(abs(mode.scores["global"] - 1) < 1e-6 and mode.scores["position"] == 0 for mode in modes)


def test_label_rule_at_its_thresholds():
    zero = {name: np.zeros(1) for name in SCORES}
    for name, bar in THRESHOLDS.items():
        assert label({**zero, name: np.array([bar])})[0] == name
        assert label({**zero, name: np.array([bar - 1e-9])})[0] == "mixed"
    content = {**zero, "top": np.array([0.8])}
    assert label({**content, "max": np.array([LEAD * 0.8])})[0] == "max"
    assert label({**content, "max": np.array([LEAD * 0.8 - 1e-9])})[0] == "top"
    assert label({**zero, "max": np.ones(1)})[0] == "mixed"  # cannot be: max is at most top
    both = {**zero, "position": np.array([0.9])}
    assert label({**both, "global": np.array([0.8])})[0] == "global"  # flat: position explains nothing of weight
    assert label({**both, "previous": np.array([0.5])})[0] == "previous"
    assert label({**both, "sink": np.array([0.5])})[0] == "sink"


def test_the_nearest_mode_of_a_mixed_head():
    scores = dict.fromkeys(SCORES, 0.0) | {"global": 0.6, "top": 0.5, "sink": 0.49}
    assert nearest(scores) == "sink"


def test_padding_and_batches_do_not_matter():
    """The same documents in one batch or in three give the same scores; padded rows never count."""
    model, inputs = hugging_face("bert"), language(documents=6)
    one = head_modes(record(model, inputs))
    cut = [{name: value[i : i + 2] for name, value in inputs.items()} for i in (0, 2, 4)]
    for a, b in zip(one, head_modes(record(model, cut)), strict=True):
        assert a.label == b.label
        np.testing.assert_allclose(list(a.scores.values()), list(b.scores.values()), atol=1e-5)


def test_precision_and_recall():
    table = precision_recall(["a", "a", "b"], ["a", "b", "b"])
    assert table == {
        "a": {"precision": 0.5, "recall": 1.0, "support": 1.0},
        "b": {"precision": 1.0, "recall": 0.5, "support": 2.0},
    }
