"""Labels against planted heads; the boundaries of every score."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models import hugging_face, language, network

from infoflow.probes import head_modes, record
from infoflow.probes.modes import LABELS, SCORES, THRESHOLDS, label
from infoflow.probes.planted import KINDS, Planted, accuracy, precision_recall


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("moved", "noise", "relative", "least"),
    [(0.0, 0.0, False, 0.99), (0.3, 1.0, False, 0.95), (0.3, 1.0, True, 0.95)],
)
def test_planted_heads_are_labelled(causal, moved, noise, relative, least):
    kinds = tuple(k for k in KINDS if not (causal and k == "next") and not (relative and k == "top"))
    planted = Planted(copies=4, documents=16, moved=moved, noise=noise, relative=relative, causal=causal, kinds=kinds)
    labels = [mode.label for mode in head_modes(planted)]
    assert accuracy(labels, planted.truth) >= least


def test_content_heads_follow_the_tokens_and_position_heads_do_not():
    """Shuffle the tokens: the token a max head looks at stays the same, the place a position head looks at does."""
    plain, shuffled = (Planted(documents=4, kinds=("max", "previous"), shuffled=s) for s in (False, True))
    seen = {False: [], True: []}
    plain.feed(lambda step: seen[False].append(step))
    shuffled.feed(lambda step: seen[True].append(step))
    for number, (a, b) in enumerate(zip(seen[False], seen[True], strict=True)):
        order = shuffled._tokens(a.document)[1]
        moved = torch.from_numpy(order)
        same_place = (a.weights.argmax(-1) == b.weights.argmax(-1))[..., 1:].float().mean()
        followed = (moved[b.weights.argmax(-1)] == a.weights.argmax(-1)[..., moved])[..., 1:].float().mean()
        assert (followed == 1 and same_place < 0.2) if number % 2 == 0 else same_place == 1
    assert [m.label for m in head_modes(shuffled)] == shuffled.truth


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
    both = {**zero, "position": np.array([0.9])}
    assert label({**both, "global": np.array([0.8])})[0] == "global"  # flat: position explains nothing of weight
    assert label({**both, "previous": np.array([0.5])})[0] == "previous"
    assert label({**both, "sink": np.array([0.5])})[0] == "sink"


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
