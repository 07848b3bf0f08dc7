"""Recordings equal what the library itself computes, for every family; the stream survives the disk."""

import json

import pytest
import torch
from models import FAMILIES, Plain, eager, hugging_face, language, network
from torch import nn

from infoflow.errors import InfoFlowError
from infoflow.nn import States
from infoflow.probes import Keep, load, record
from infoflow.probes.adapters import heads_of


def kept(model, inputs):
    keep = Keep()
    record(model, inputs).feed(keep)
    return keep.steps


@pytest.mark.parametrize("family", FAMILIES)
def test_patterns_and_states_are_the_librarys_own(family):
    model, inputs = hugging_face(family), language()
    implementation = model.config._attn_implementation
    wanted = eager(model, inputs)
    steps = kept(model, inputs)
    shown = inputs["attention_mask"].bool()
    assert [step.layer for step in steps] == [0, 1, 2]
    assert heads_of(model) == (4, 4, 4)
    for step, pattern, state in zip(steps, wanted.attentions, wanted.hidden_states, strict=False):
        torch.testing.assert_close(step.before[shown], state[shown])
        rows = shown[:, None, :].expand(pattern.shape[:3])
        torch.testing.assert_close(step.weights[rows], pattern[rows])
        torch.testing.assert_close(torch.softmax(step.scores, -1)[rows], pattern[rows])
    assert model.config._attn_implementation == implementation  # left as it was found


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_pre_norm_state_behind_attention(family):
    """after - before is the projected head outputs: attention adds to the stream and nothing else does."""
    model, inputs = hugging_face(family), language(padded=False)
    for layer, step in enumerate(kept(model, inputs)):
        joined = (step.weights @ step.v).transpose(1, 2).flatten(-2)
        block = model.transformer.h[layer] if family == "gpt2" else model.model.layers[layer]
        project = block.attn.c_proj if family == "gpt2" else block.self_attn.o_proj
        torch.testing.assert_close(step.after - step.before, project(joined), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_post_norm_state_behind_attention(family):
    model, inputs = hugging_face(family), language(padded=False)
    for layer, step in enumerate(kept(model, inputs)):
        joined = (step.weights @ step.v).transpose(1, 2).flatten(-2)
        if family == "bert":
            part = model.encoder.layer[layer].attention.output
            wanted = part.LayerNorm(part.dense(joined) + step.before)
        else:
            part = model.albert.encoder.albert_layer_groups[0].albert_layers[0].attention
            wanted = part.LayerNorm(part.dense(joined) + step.before)
        torch.testing.assert_close(step.after, wanted)


def test_own_transformer_states():
    model, X = network(), torch.randn(5, 7, 3)
    states = States()
    model(X, states=states)
    steps = kept(model, X)
    for step, before, after, weights in zip(steps, states.inputs, states.attended, states.weights, strict=True):
        assert torch.equal(step.before, before)
        assert torch.equal(step.after, after)
        assert torch.equal(step.weights, weights)
        assert torch.equal(step.tokens, X)
    assert steps[0].counted().sum() == 5 * 7  # the CLS row is no token
    assert steps[1].counted().sum() == 5  # in the last layer the CLS alone asks
    assert "attend" not in model.attentions[0].__dict__


def test_stack_is_refused():
    from infoflow.nn import Transformer

    with pytest.raises(InfoFlowError, match="stack"):
        record(Transformer(network().config, stack=(2,)), torch.zeros(1, 2, 3))


def test_multihead_attention_of_torch():
    model, X = Plain(), torch.randn(2, 5, 8)
    steps = kept(model.eval(), X)
    assert torch.equal(steps[0].before, X)
    torch.testing.assert_close(steps[1].after, model(X))
    _, pattern = model.layers[0](X, X, X, average_attn_weights=False)
    torch.testing.assert_close(steps[0].weights, pattern)
    torch.testing.assert_close(steps[0].after, steps[1].before)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_encoder_layers_of_torch(norm_first, batch_first):
    """Masks, padding and the fused fast path: the recorded pass returns what the module returns."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, norm_first=norm_first, batch_first=batch_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    X = torch.randn(3, 5, 8)
    steps = []
    wanted = model(X)
    recording = record(model, X)
    for steps_of in recording.passes():
        torch.testing.assert_close(steps_of(steps.append), wanted)
    assert [step.layer for step in steps] == [0, 1]
    if batch_first:
        first = model.layers[0]
        attended = first.self_attn(*(first.norm1(X),) * 3)[0] if norm_first else first.self_attn(X, X, X)[0]
        state = X + attended if norm_first else first.norm1(X + attended)
        torch.testing.assert_close(steps[0].after, state)


class Masked(nn.Module):
    """One nn.MultiheadAttention under a mask, called `calls` times."""

    def __init__(self, kind, calls=1):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.MultiheadAttention(8, 2, batch_first=True)])
        self.kind, self.calls = kind, calls

    def forward(self, x):
        hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
        padding = torch.zeros(len(x), 5, dtype=torch.bool)
        padding[:, 4] = True
        soft = torch.zeros(2 * len(x), 5, 5).masked_fill(hidden, -torch.inf)
        masks = {"causal": (hidden, None), "additive": (soft, None), "both": (hidden, padding)}
        mask, padded = masks[self.kind]
        return sum(self.layers[0](x, x, x, attn_mask=mask, key_padding_mask=padded)[0] for _ in range(self.calls))


@pytest.mark.parametrize("kind", ["causal", "additive", "both"])
def test_multihead_masks(kind):
    model, X = Masked(kind).eval(), torch.randn(2, 5, 8)
    wanted = model(X)
    for steps_of in record(model, X).passes():
        torch.testing.assert_close(steps_of(), wanted)
    assert kept(model, X)[0].shown().sum() == 2 * 2 * (14 if kind == "both" else 15)


def test_a_module_called_twice_is_refused_and_left_as_it_was():
    model, X = Masked("causal", calls=2).eval(), torch.randn(2, 5, 8)
    wanted = model(X)
    with pytest.raises(InfoFlowError, match="expected heads"):
        kept(model, X)
    torch.testing.assert_close(model(X), wanted)
    assert "forward" not in model.layers[0].__dict__


def test_saved_and_loaded(tmp_path):
    model, inputs = hugging_face("llama"), language()
    live = kept(model, inputs)
    record(model, inputs).save(tmp_path / "r")
    loaded, keep = load(tmp_path / "r"), Keep()
    loaded.feed(keep)
    assert loaded.heads == (4, 4, 4)
    for a, b in zip(live, keep.steps, strict=True):
        assert (a.layer, a.document, a.scale) == (b.layer, b.document, b.scale)
        for name in ("before", "after", "q", "k", "v", "weights", "visible", "asked"):
            assert torch.equal(getattr(a, name), getattr(b, name))


def test_damaged_recordings_are_refused(tmp_path):
    path = record(network(), torch.randn(2, 4, 3)).save(tmp_path / "r")
    with pytest.raises(InfoFlowError, match=r"recording\.json"):
        load(tmp_path)
    step = path / "step-000001.safetensors"
    step.write_bytes(step.read_bytes()[:-40])
    with pytest.raises(InfoFlowError):
        load(path).feed(Keep())
    header = json.loads((path / "recording.json").read_text())
    (path / "recording.json").write_text(json.dumps({**header, "format": 2}))
    with pytest.raises(InfoFlowError, match="format 1"):
        load(path)


def test_memory_is_one_layer_of_one_batch():
    """No step outlives its callback: the tap holds nothing behind the pass."""
    import weakref

    seen = []
    recording = record(hugging_face("gpt2"), [language(), language()])

    def consume(step):
        assert sum(ref() is not None for ref in seen) == 0
        seen.append(weakref.ref(step.weights))

    recording.feed(consume)
    assert len(seen) == 6


def test_empty_and_unknown_inputs():
    with pytest.raises(InfoFlowError, match="at least one document"):
        record(network(), [])
    with pytest.raises(InfoFlowError, match="tensor"):
        record(network(), ["text"])
    with pytest.raises(InfoFlowError, match="MultiheadAttention"):
        record(nn.Linear(2, 2), torch.zeros(1, 2))
