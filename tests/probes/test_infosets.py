"""Measured information sets against networks whose sets are known."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from models import hugging_face, language, network

import infoflow as iflow
from infoflow.commands.trace import command
from infoflow.probes.effects import Stage, effects
from infoflow.probes.infosets import law_of, reader
from infoflow.probes.law import Law, Variances, apart, variances
from infoflow.probes.record import Batch, Keep, as_batches, record
from infoflow.probes.rerun import Rerun, mixed

BUILT = [
    ("pairwise_max:D=2,d=3,seed=0", 8, 0.02),
    ("star:k=3,d=2,seed=5", 7, 0.02),
    ("chain:length=3,d=2,seed=0", 6, 0.02),
    ("min_pair:d=3", 8, 0.02),
    ("closest_pair:d=2", 6, 0.003),
    ("kth_largest:k=2", 6, 0.02),
    ("max_plus_min", 7, 0.02),
    ("value_at_argmax:d=3", 7, 0.1),
    ("recall:d=2", 6, 0.1),
    ("position_sum", 6, 0.1),
]
SYMMETRIC = ("min_pair:d=3", "closest_pair:d=2")  # both tokens of the pair win, and the CLS reads half of each


def inputs_of(net, T, seed):
    """One sequence of the certified box."""
    low, high = (np.array(side) for side in net.header["domain"])
    return low + (high - low) * np.random.default_rng(seed).random((T, len(low)))


@pytest.mark.parametrize(("spelling", "T", "eps"), BUILT, ids=[b[0].split(":")[0] for b in BUILT])
def test_content_sets_of_built_networks_are_those_that_trace_predicts(spelling, T, eps):
    """Away from near ties: what the output uses from every state, and what the states of tokens hold."""
    F = iflow.targets.parse(spelling)
    net = iflow.build(F, T, eps)
    c = net.config
    arch = iflow.Architecture(heads=c.heads, embed=c.embed, positions=c.positions)
    compared = 0
    for seed in range(12):
        X = inputs_of(net, T, seed)
        flow = iflow.trace(F, arch, X)
        if near_tie(flow, net, X) or compared == 4:
            continue
        compared += 1
        found = iflow.trace(net, X, draws=12, selection=False)
        assert flow.used(T + 1, flow.layers) == tuple(int(t) + 1 for t in np.flatnonzero(flow.active))
        assert found.output == flow.used(T + 1, flow.layers)
        for layer in range(flow.layers):
            for t in range(1, T + 2):
                assert spelling in SYMMETRIC or found.members(t, layer) == flow.used(t, layer)
                if t <= T:
                    assert set(found.members(t, layer, "held")) <= set(flow.members(t, layer))
        assert set(flow.used(T + 1, flow.layers)) <= set(flow.members(T + 1, flow.layers))
        assert found.bracket.necessary == found.bracket.sufficient == tuple(s - 1 for s in found.output)
    assert compared >= 2


def near_tie(flow, net, X, most=1e-3):
    """A head of the layout shares its mass, at a position where the layout has it retrieve."""
    keep = Keep()
    record(net, torch.as_tensor(X)[None]).feed(keep)
    for layer, step in enumerate(keep.steps, 1):
        weights = step.weights[0]
        rows = [len(X)] if weights.shape[1] == 1 else range(len(X) + 1)
        for row, position in enumerate(rows):
            for head, winner in enumerate(flow.winners(position + 1, layer)):
                if winner is None:
                    continue
                alike = [t - 1 for t in flow.used(position + 1, layer)] if flow.target.spelling in SYMMETRIC else []
                kept = weights[head, row, alike if alike and position == len(X) else [winner - 1]].sum()
                if kept < 1 - most:
                    return True
    return False


def test_two_layers_hold_exactly_what_the_heads_fetched():
    F = iflow.targets.pairwise_max(D=2, d=3, seed=0)
    net = iflow.build(F, 8, 0.02)
    arch = iflow.Architecture(heads=net.config.heads, embed=net.config.embed)
    X = next(
        X for X in (inputs_of(net, 8, seed) for seed in range(20)) if not near_tie(iflow.trace(F, arch, X), net, X)
    )
    found, flow = iflow.trace(net, X, draws=12), iflow.trace(F, arch, X)
    assert all(found.members(t, 1, "held") == flow.members(t, 1) for t in range(1, 9))
    assert set(found.members(9, 2, "selection")).isdisjoint(found.output)
    assert len(found.members(9, 2, "selection")) >= 3  # a fresh draw of a loser may win
    assert "certificate" in found.threshold.origin
    assert found.area == len(found.output)


def test_effects_by_brute_force():
    """Every state put in place by hand, in a network of our own class with soft heads."""
    model = network().double()
    X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
    documents = as_batches(torch.randn(64, 5, 3, generator=torch.Generator().manual_seed(1)).double())
    document = Batch({"X": X[None]})
    with Rerun(model, document) as rerun:
        law = Law(apart(documents))
        stage = Stage(rerun, document, law.draws(document, 3), variances(rerun, law))
        found = {kind: effects(stage, kind) for kind in ("content", "free")}
        by_hand = _by_hand(model, X, stage)
    for kind, (held, used, output) in by_hand.items():
        np.testing.assert_allclose(found[kind].held.value[1], held, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(found[kind].used.value[1], used, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(found[kind].output, output, rtol=1e-9, atol=1e-15)


def _by_hand(model, X, stage):
    first, second = model.attentions

    def layer(attention, x, T, cls_only, weights):
        asked = x[T:] if cls_only else x
        v = torch.einsum("hne,te->htn", attention.value, x[:T])
        if weights is None:
            q, k = (
                torch.einsum("hne,te->htn", attention.query, asked),
                torch.einsum("hne,te->htn", attention.key, x[:T]),
            )
            weights = torch.softmax(attention.beta * q @ k.transpose(-1, -2), -1)
        return asked + (weights @ v).transpose(0, 1).flatten(1) @ attention.output.T, weights

    T = len(X)
    with torch.no_grad():

        def start(X, weights):
            return model.ffns[0](layer(first, model.embed(X), T, False, weights)[0])

        def end(x, weights):
            return model.readout(layer(second, x, T, True, weights)[0])[0]

        w1 = layer(first, model.embed(X), T, False, None)[1]
        base = start(X, None)
        w2 = layer(second, base, T, True, None)[1]
        y = end(base, None)
        result = {}
        for kind, (a, b) in {"content": (w1, w2), "free": (None, None)}.items():
            held, used, output = np.zeros((T + 1, T)), np.zeros((T + 1, T)), np.zeros(T)
            for s in range(T):
                for draw in stage.draws:
                    changed = X.clone()
                    changed[s] = draw[s]
                    x = start(changed, a)
                    output[s] += float((end(x, b) - y).square().sum()) / 2 / stage.scale.output / len(stage.draws)
                    for t in range(T + 1):
                        moved = float((x[t] - base[t]).square().sum())
                        variance = stage.scale.states[1][t]
                        held[t, s] += (moved / 2 / variance if variance else 0.0) / len(stage.draws)
                        patched = base.clone()
                        patched[t] = x[t]
                        change = float((end(patched, b) - y).square().sum())
                        used[t, s] += change / 2 / stage.scale.output / len(stage.draws)
            result[kind] = held, used, output
    return result


def test_a_mean_has_no_necessary_token_and_needs_most_of_them():
    """Redundancy: 40 tokens averaged by a linear network, each of an effect of about 1/40."""
    model = network(activation="identity").double()
    for attention in model.attentions:
        torch.nn.init.zeros_(attention.query)
    X = torch.randn(40, 3, generator=torch.Generator().manual_seed(2)).double()
    law = torch.randn(64, 40, 3, generator=torch.Generator().manual_seed(3)).double()
    found = iflow.trace(model, X, law=law, draws=16, threshold=0.2, interior=False, selection=False)
    assert found.bracket.necessary == ()
    assert len(found.bracket.sufficient) > 10
    assert found.bracket.left < 0.2
    with pytest.raises(iflow.InfoFlowError, match="interior"):
        found.members(1, 1)


def test_a_copy_makes_each_unnecessary():
    """The bracket sees what single interventions miss: y = max(x(1), x(2)) read twice and averaged is robust."""
    model = network().double()
    X = torch.zeros(4, 3).double()
    found = iflow.trace(model, X, law=torch.zeros(8, 4, 3).double() + torch.randn(8, 4, 1).double(), draws=8)
    assert set(found.bracket.necessary) <= set(found.bracket.sufficient)


def test_resampling_everything_is_one_on_average():
    """The scale: drawing all tokens again changes the output by twice its variance, on average over documents."""
    F = iflow.targets.pairwise_max(D=1, d=2, seed=0)
    net = iflow.build(F, 6, 0.05)
    values = []
    for seed in range(40):
        X = torch.as_tensor(inputs_of(net, 6, seed))[None]
        document = Batch({"X": X})
        law = law_of(net, [document], None, seed)
        with Rerun(net, document, reader(net, document)) as rerun:
            stage = Stage(rerun, document, law.draws(document, 16), variances(rerun, law))
            values.append(stage.joint([list(range(6))], frozen=False)[0][0])
    assert np.mean(values) == pytest.approx(1.0, abs=5 * np.std(values) / 40**0.5)


def test_frozen_products_share_their_weights():
    generator = torch.Generator().manual_seed(0)
    weights, v = torch.rand(1, 2, 3, 4, generator=generator), torch.rand(5, 2, 4, 6, generator=generator)
    torch.testing.assert_close(mixed(weights, v), weights.expand(5, 2, 3, 4) @ v)


@pytest.mark.parametrize("family", ["bert", "albert", "gpt2", "llama"])
def test_hugging_face_models_are_traced_and_left_as_they_were(family):
    model, ids = hugging_face(family), language(documents=6, T=7, padded=False)["input_ids"]
    with torch.no_grad():
        before = model(input_ids=ids)[0]
    found = iflow.trace(model, {"input_ids": ids[:2]}, law={"input_ids": ids}, draws=3, threshold=0.001)
    with torch.no_grad():
        torch.testing.assert_close(model(input_ids=ids)[0], before)
    causal = family in ("gpt2", "llama")
    for flow in found.flows:
        for layer in range(1, 3):
            inside = flow.inside(layer, "held")
            assert inside.diagonal().any()
            if causal:
                assert not np.triu(inside, 1).any()  # nothing of the future is in a state
                assert not flow.inside(layer)[:-1].any(0)[-1]  # the last token can only be used at its own place
    assert "2 documents" in str(found)
    json.dumps(found.to_json(), default=lambda value: value.tolist())


def test_padding_is_cut_off_and_sinks_stay():
    model = hugging_face("bert")
    batch = language(documents=5, T=9, padded=True)
    sinks = torch.zeros(5, 9, dtype=torch.bool)
    sinks[:, 0] = True
    documents = [Batch(batch, batch["attention_mask"].bool(), sinks)]
    found = iflow.trace(model, documents, draws=2, selection=False, threshold=1e-4)
    assert [flow.T for flow in found.flows] == [9, 9, 9, 9, 6]
    assert all(flow.content.output[0] == 0 for flow in found.flows)


def test_wrong_calls_are_one_sentence():
    model, X = network(), torch.randn(4, 3)
    for call, words in [
        (lambda: iflow.trace(model, X), "at least 4 documents"),
        (lambda: iflow.trace(model, torch.randn(8, 4, 3), draws=1), "draws"),
        (lambda: iflow.trace(model, torch.randn(8, 4, 3), threshold=2.0), "threshold"),
        (lambda: iflow.trace(model, "heads=1", X), "leave it out"),
        (lambda: iflow.trace("min_pair:d=3", "heads=1,1 embed=4"), "no input X"),
        (lambda: iflow.trace("min_pair:d=3", "heads=1,1 embed=4", X, draws=3), "unknown option"),
        (lambda: iflow.trace(torch.nn.Linear(2, 2), X), "attention"),
    ]:
        with pytest.raises(iflow.InfoFlowError, match=words):
            call()
    flow = iflow.trace(model, torch.randn(8, 4, 3), draws=2, selection=False)[0]
    for call in (
        lambda: flow.members(1, 2),
        lambda: flow.members(9, 1),
        lambda: flow.effect(7),
        lambda: flow.members(1, 1, "selection"),
    ):
        with pytest.raises(iflow.InfoFlowError, match="expected"):
            call()


def test_a_state_that_never_varies_has_an_empty_set():
    scale = Variances(1.0, [np.array([1.0, 0.0])], 8)
    np.testing.assert_array_equal(scale.of(0, 3), [1.0, 0.0, 0.5])
    found = iflow.trace(network(), torch.randn(8, 4, 3), draws=2)[0]
    assert found.members(5, 0, "held") == ()  # the CLS in front of the first layer


def test_the_command(tmp_path):
    path = iflow.build("min_pair:d=3", 6, 0.1).save(tmp_path / "net.safetensors")
    run = CliRunner().invoke(command, ["--model", str(path), "--draws", "4", "--out", str(tmp_path), "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert set(found["sets"]) == {"content", "selection", "held"}
    assert len(found["sets"]["held"]) == 3
    assert (tmp_path / "measured.svg").is_file()
    tokens = json.dumps(np.linspace(-1, 1, 18).reshape(6, 3).tolist())
    for words in (["--tokens", tokens], ["--documents", "3"]):
        run = CliRunner().invoke(command, ["--model", str(path), "--draws", "4", *words])
        assert run.exit_code == 0, run.output
    for words in ([], ["min_pair:d=3"], ["min_pair:d=3", "heads=1,1", "--model", str(path)]):
        run = CliRunner().invoke(command, words)
        assert isinstance(run.exception, iflow.InfoFlowError)
