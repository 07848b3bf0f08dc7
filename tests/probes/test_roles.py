"""Induction, duplicate-token and copying heads: planted, found, and told from their look-alikes."""

import numpy as np
import pytest
import torch
from models import hugging_face

from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig
from infoflow.probes import Batch, head_modes, record
from infoflow.probes.copying import copying
from infoflow.probes.planted import REPEATED_KINDS, Planted, accuracy
from infoflow.probes.texts import Encoding, batches_of, repeated

OTHERS = ("max", "previous", "self", "sink", "global", "position")
V = 24


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("T", "moved", "noise"), [(16, 0.0, 0.0), (32, 0.3, 1.0)])
def test_repeats_of_random_periods_show_induction_and_duplicate_heads(causal, T, moved, noise):
    planted = Planted(16, T, 4, moved, noise, causal=causal, kinds=(*REPEATED_KINDS, *OTHERS), repeats="random", seed=3)
    assert accuracy([mode.label for mode in head_modes(planted)], planted.truth) == 1.0


def test_a_fixed_period_cannot_tell_them_from_a_fixed_way_back():
    """Nothing in the patterns does: the label says what is known, and stays `position`."""
    planted = Planted(16, 24, 2, causal=True, kinds=REPEATED_KINDS, repeats="fixed")
    assert {mode.label for mode in head_modes(planted)} == {"position"}


def test_nothing_repeats_nothing_is_said():
    planted = Planted(12, 24, 2, causal=True, kinds=("max", "previous", "global"))
    assert all(mode.scores[name] == 0 for mode in head_modes(planted) for name in REPEATED_KINDS)


def test_keys_of_both_kinds_by_hand():
    """1 2 1 2 2 behind a start: the second 1 has the key 2 behind the first 1, and the first 1 itself."""
    from infoflow.probes.modes import _earlier
    from infoflow.probes.tap import Step

    flat = torch.zeros(1, 1, 6, 1)
    weights = torch.full((1, 1, 6, 6), 1 / 6)
    visible = torch.ones(6, 6, dtype=torch.bool).tril()[None, None]
    ids = torch.tensor([[9, 1, 2, 1, 2, 2]])
    step = Step(0, 0, flat[0], flat[0], flat, flat, flat, weights, 1.0, visible, ids=ids)
    behind, same = _earlier(step)
    assert behind[0].nonzero().tolist() == [[3, 2], [4, 3], [5, 3]]  # [5, 5] is the query itself
    assert same[0].nonzero().tolist() == [[3, 1], [4, 2], [5, 2], [5, 4]]


def test_repeated_documents_and_a_model():
    encoding = Encoding(lambda text: [], (1,), (), 0)
    rows = repeated(list(range(3, 50)), encoding, 6, 24, seed=0)
    periods = set()
    for row in rows:
        assert row[0] == 1
        assert len(row) == 24
        body = row[1:]
        period = next(p for p in range(1, 24) if body[p:] == body[:-p])
        periods.add(period)
        assert 23 // 4 <= period <= 23 // 2
    assert len(periods) > 1
    modes = head_modes(record(hugging_face("gpt2"), batches_of(rows, encoding, 3)))
    assert all(0 <= mode.scores["induction"] <= 1 for mode in modes)
    with pytest.raises(InfoFlowError, match="room for 8"):
        repeated([3, 4], encoding, 1, 8, seed=0)


def planted_copying(turned: bool) -> tuple[Transformer, torch.Tensor]:
    """One layer over 24 words, logits of a word its coordinate of the state: heads that write the word they see, its
    negative, a bit of every word, nothing; the words perhaps hidden by a rotation of the stream."""
    config = TransformerConfig(
        dim=V, heads=(4,), head_dims=(V,), widths=(V,), outputs=V, streams=(V,), encoder="table", cls=False,
        activation="identity", mask="causal", scales=(4.0,),
    )  # fmt: skip
    model = Transformer(config).double()
    generator = torch.Generator().manual_seed(0)
    eye = torch.eye(V, dtype=torch.float64)
    R = torch.linalg.qr(torch.randn(V, V, generator=generator, dtype=torch.float64))[0] if turned else eye
    mixing = torch.linalg.qr(torch.randn(V, V, generator=generator, dtype=torch.float64))[0]
    mixing -= eye * mixing.trace() / V  # on average neither the word nor its negative
    layer = model.attentions[0]
    with torch.no_grad():
        model.table.copy_(R)
        for head, write in enumerate((eye, -eye, mixing, 0 * eye)):
            layer.query[head] = torch.randn(V, V, generator=generator, dtype=torch.float64)
            layer.key[head] = torch.randn(V, V, generator=generator, dtype=torch.float64)
            layer.value[head] = eye
            layer.output[:, head * V : (head + 1) * V] = 0.5 * R.T @ write @ R
        model.readout.maps[0].weight.copy_(R)
        model.readout.maps[1].weight.copy_(eye)
    return model, torch.randint(V, (48, 12), generator=generator)


@pytest.mark.parametrize("turned", [False, True])
def test_copying_heads_by_intervention(turned):
    model, ids = planted_copying(turned)
    found = copying(model, ids)
    assert [head.label for head in found] == ["copying", "suppressing", None, None]
    np.testing.assert_allclose(found[0].score, -found[1].score, rtol=0.5)
    assert found[3].score == 0


def test_copying_on_a_model_of_transformers():
    model = hugging_face("llama")
    ids = torch.randint(3, 50, (3, 8), generator=torch.Generator().manual_seed(0))
    found = copying(model, Batch({"input_ids": ids}), draws=2)
    assert len(found) == 12
    assert all(head.low <= head.score <= head.high for head in found)
    assert {"layer", "head", "score", "interval", "label"} == set(found[0].to_json())
    with pytest.raises(InfoFlowError, match="2 documents"):
        copying(model, Batch({"input_ids": ids[:1]}))
