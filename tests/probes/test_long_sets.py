"""Long documents by halving, the cheap proxies, and which heads carry: against one source at a time and by hand."""

import numpy as np
import pytest
import torch
from models import hugging_face, language, network

import infoflow as iflow
from infoflow.probes import head_modes, record
from infoflow.probes.carriers import MODES, carried
from infoflow.probes.effects import Stage, effects
from infoflow.probes.halving import LongFlow, halving, upper
from infoflow.probes.infosets import law_of
from infoflow.probes.law import Law, apart, variances
from infoflow.probes.proxies import NAMES, attention_graphs, average_precision, judged, proxies
from infoflow.probes.record import Batch, as_batches
from infoflow.probes.rerun import Rerun, logits_at


def built(T=24, D=2):
    F = iflow.targets.pairwise_max(D=D, d=3, seed=0)
    net = iflow.build(F, T, 0.02)
    X = 2 * torch.rand(1, T, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64) - 1
    return F, net, Batch({"X": X})


def test_halving_finds_what_one_source_at_a_time_finds():
    _, net, document = built(64)
    law = law_of(net, [document], None, 0)
    with Rerun(net, document) as rerun:
        stage = Stage(rerun, document, law.draws(document, 8), variances(rerun, law))
        single = effects(stage, "content", interior=False).output
        found = halving(stage, 1e-3, audit=16, selection=16)
    assert found.output == tuple(int(s) + 1 for s in np.flatnonzero(single >= 1e-3))
    np.testing.assert_allclose(found.effect, single[list(found.members)], rtol=1e-9)
    assert found.tests < 64 + 16
    assert found.missed == 0
    assert 0 < found.most_missed < 64 * 0.2
    low, high = found.selection[1:]
    assert 0 <= low <= found.selection[0] <= high <= 64
    assert "halving" in str(found)
    assert found.figure() is not None


def test_long_documents_are_halved_and_short_ones_are_not():
    _, net, document = built()
    X = document.inputs["X"][0]
    exact, long = iflow.trace(net, X, draws=4), iflow.trace(net, X, draws=4, exact=False)
    assert isinstance(long, LongFlow)
    assert long.output == exact.output
    assert long.to_json()["members"] == list(exact.output)


def test_clopper_pearson():
    """None found among n: P(none | p) = (1 - p)^n = 0.05."""
    assert upper(0, 59) == pytest.approx(1 - 0.05 ** (1 / 59))
    assert upper(5, 5) == 1.0


def test_proxies_of_a_network_that_averages():
    """Two layers of uniform attention: rollout is even over the tokens, and so is the flow; gradients by hand."""
    model = network(activation="identity").double()
    for layer in model.attentions:
        torch.nn.init.zeros_(layer.query)
    documents = apart(as_batches(torch.randn(16, 5, 3, generator=torch.Generator().manual_seed(0)).double()))
    with Rerun(model, documents[0]) as rerun:
        law = Law(documents)
        stage = Stage(rerun, documents[0], law.draws(documents[0], 2), variances(rerun, law))
        found = proxies(stage)
        graphs = attention_graphs(stage)
        leaf = stage.base.streams[0]
    assert set(found) == set(NAMES)
    np.testing.assert_allclose(found["rollout"], found["rollout"][0] * np.ones(5))
    np.testing.assert_allclose(found["flow"], found["flow"][0] * np.ones(5), atol=1e-5)
    assert all(np.allclose(graph.sum(1), 1) for graph in graphs)
    for s in range(5):  # linear in the stream: the gradient times the token is what the token adds
        cut = leaf.clone()
        cut[0, s] = 0
        with Rerun(model, documents[0]) as rerun:
            base = rerun.run(documents[0], frozen=stage.base.weights).output
            without = rerun.run(documents[0], frozen=stage.base.weights, patched=(0, cut)).output
        assert found["gradient"][s] == pytest.approx(abs(float(base - without)), rel=1e-6)


def test_proxies_of_a_built_network_find_its_content():
    _, net, document = built()
    law = law_of(net, [document], None, 0)
    with Rerun(net, document) as rerun:
        stage = Stage(rerun, document, law.draws(document, 8), variances(rerun, law))
        content = effects(stage, "content", interior=False).output >= 1e-3
        found = {name: judged(score, content) for name, score in proxies(stage).items()}
    assert found["argmax"].recall == 1.0
    assert found["gradient"].recall == 1.0


def test_average_precision():
    wanted = np.array([True, False, True, False])
    assert average_precision(np.array([4.0, 3.0, 2.0, 1.0]), wanted) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(np.ones(4), wanted) == 0.5  # equal scores are taken together
    assert average_precision(np.ones(4), np.zeros(4, dtype=bool)) == 1.0
    assert judged(np.zeros(4), wanted).recall == 0


def test_heads_carry_by_mode():
    """Of a built network the max-position heads carry everything; with all heads barred nothing arrives."""
    _, net, document = built(16)
    law = law_of(net, [document], None, 0)
    X = torch.cat([batch.inputs["X"] for batch in law.documents])[:32]
    heads = head_modes(record(net, X))
    with Rerun(net, document) as rerun:
        stage = Stage(rerun, document, law.draws(document, 4), variances(rerun, law))
        found = carried(stage, heads, None)
        nobody = [torch.zeros(w.shape[1], dtype=torch.bool) for w in stage.base.weights]
        assert stage.joint([[s] for s in stage.sources], frozen=True, carriers=nobody)[0].max() < 1e-20
    assert found["max-position"] == pytest.approx(1.0)
    assert found["heads: max-position"] == 1.0
    assert sum(found[mode] for mode in MODES) == pytest.approx(1.0)


def test_carriers_and_proxies_of_a_causal_model():
    model, ids = hugging_face("llama"), language(documents=6, T=8, padded=False)["input_ids"]
    documents = apart(as_batches({"input_ids": ids}))
    with Rerun(model, documents[0], logits_at(-1)) as rerun:
        law = Law(documents)
        stage = Stage(rerun, documents[0], law.draws(documents[0], 2, 0), variances(rerun, law))
        shares = carried(stage, head_modes(record(model, {"input_ids": ids})), 7)
        found = proxies(stage)
    assert sum(value for name, value in shares.items() if name.startswith("heads")) == pytest.approx(1.0)
    assert all(len(score) == 8 and (score >= 0).all() for score in found.values())


def test_halving_drops_no_group_whose_members_matter_a_little():
    """A linear average: every token's effect is just above the threshold, none stands out."""
    model = network(activation="identity").double()
    for layer in model.attentions:
        torch.nn.init.zeros_(layer.query)
    documents = apart(as_batches(torch.randn(32, 12, 3, generator=torch.Generator().manual_seed(0)).double()))
    with Rerun(model, documents[0]) as rerun:
        law = Law(documents)
        stage = Stage(rerun, documents[0], law.draws(documents[0], 8, 0), variances(rerun, law))
        single = effects(stage, "content", interior=False).output
        threshold = 0.8 * float(np.median(single))
        assert set(halving(stage, threshold).members) == set(np.flatnonzero(single >= threshold))
