"""Substituted heads really are what the mode says; everything else is untouched."""

import pytest
import torch
from models import FAMILIES, Plain, hugging_face, language, network

from infoflow.errors import InfoFlowError
from infoflow.nn import hardmax
from infoflow.probes import Keep, measure_references, record, substitute
from infoflow.probes.adapters import heads_of
from infoflow.probes.substitute import MODES, everywhere


def last(output):
    return output if isinstance(output, torch.Tensor) else output[0]


def kept(model, inputs):
    keep = Keep()
    record(model, inputs).feed(keep)
    return keep.steps


def models():
    return [
        *((hugging_face(f), language()) for f in FAMILIES),
        (network(), torch.randn(3, 6, 3)),
        (Plain().eval(), torch.randn(3, 5, 8)),
    ]


@pytest.mark.parametrize("number", range(6))
def test_no_assignment_changes_nothing(number):
    model, inputs = models()[number]
    call = (lambda m: m(inputs)) if isinstance(inputs, torch.Tensor) else (lambda m: m(**inputs))
    with torch.no_grad():
        wanted = last(call(model))
        got = last(call(substitute(model, {})))
        shown = slice(0, 2)  # the third language document is padded, where the library is free
        torch.testing.assert_close(got[shown], wanted[shown], rtol=1e-4, atol=1e-5)
        forced = last(call(substitute(model, everywhere(heads_of(model), "hardmax"))))
        assert not torch.allclose(forced[shown], wanted[shown], atol=1e-3)
        torch.testing.assert_close(last(call(model)), wanted)  # the original is as it was


def edited(model, inputs, assignment, references=None):
    """Steps of a model whose first layer is edited; deeper inputs differ, the first layer's do not."""
    from infoflow.probes.substitute import Substitute

    stage = Substitute(model, references)
    stage.assign(assignment)
    keep = Keep()
    for steps in record(model, inputs).passes(stage.edit):
        with torch.no_grad():
            steps(keep)
    return keep.steps


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_each_mode_on_one_head_of_the_first_layer(family):
    model, inputs = hugging_face(family), language()
    plain = kept(model, inputs)[0]
    other = {**language(), "input_ids": torch.flip(language()["input_ids"], [0])}
    references = measure_references(record(model, other))
    for mode in MODES:
        step = edited(model, inputs, {(0, 2): mode}, references)[0]
        torch.testing.assert_close(step.weights[:, [0, 1, 3]], plain.weights[:, [0, 1, 3]])
        pattern, shown = step.weights[:, 2], plain.shown()[:, 2]
        if mode == "hardmax":
            assert torch.equal(pattern, hardmax(plain.scores[:, 2]))
        elif mode == "uniform":
            torch.testing.assert_close(pattern, shown / shown.sum(-1, keepdim=True))
        elif mode.startswith("top"):
            k = int(mode[3:])
            assert (pattern > 0).sum(-1).max() <= k
            mass = plain.weights[:, 2].topk(min(k, 9), -1).values.sum(-1)
            torch.testing.assert_close(pattern.amax(-1), plain.weights[:, 2].amax(-1) / mass)
        elif mode == "position":
            mean = references.pattern(0)[2] * shown
            torch.testing.assert_close(pattern, mean / mean.sum(-1, keepdim=True))
        else:
            assert not pattern.any()


def test_mean_and_deleted_outputs():
    model, X = network(), torch.randn(4, 6, 3)
    references = measure_references(record(model, torch.randn(8, 6, 3)))
    steps = kept(model, X)
    deleted = edited(model, X, everywhere((2, 3), "deleted", 0))
    torch.testing.assert_close(deleted[0].after, deleted[0].before)
    mean = edited(model, X, {(0, 1): "mean"}, references)[0]
    head = model.attentions[0].output[:, 4:]
    wanted = steps[0].after + (references.output(0)[1] - (steps[0].weights @ steps[0].v)[:, 1]) @ head.T
    torch.testing.assert_close(mean.after, wanted)


def test_references_are_means_over_documents():
    model = network()
    X = torch.randn(6, 5, 3)
    steps = kept(model, X)
    references = measure_references(record(model, [X[:2], X[2:]]))
    torch.testing.assert_close(references.pattern(0)[:, :5], steps[0].weights.mean(0)[:, :5])
    outputs = (steps[0].weights @ steps[0].v)[:, :, :5].mean((0, 2))
    torch.testing.assert_close(references.output(0), outputs)


def test_position_means_of_documents_of_other_lengths():
    """A longer input than any seen: rows without a reference are uniform, and every row still sums to 1."""
    model = hugging_face("llama")
    references = measure_references(record(model, language(padded=False)))
    longer = language(T=14, padded=False)
    step = edited(model, longer, everywhere((4, 4, 4), "position"), references)[0]
    torch.testing.assert_close(step.weights.sum(-1), torch.ones(3, 4, 14))
    torch.testing.assert_close(step.weights[0, 0, 12, :13], torch.full((13,), 1 / 13))


def test_a_substitute_can_be_substituted_again():
    model, inputs = hugging_face("bert"), language(padded=False)
    once = substitute(model, {(0, 0): "uniform"})
    twice = substitute(once, {})
    with torch.no_grad():
        torch.testing.assert_close(last(twice(**inputs)), last(model(**inputs)), rtol=1e-4, atol=1e-5)


def test_refusals():
    with pytest.raises(InfoFlowError, match="unknown mode 'hard'; did you mean 'hardmax'"):
        substitute(network(), {(0, 0): "hard"})
    with pytest.raises(InfoFlowError, match="references"):
        substitute(network(), {(0, 0): "position"})
    with pytest.raises(InfoFlowError, match="layer 1, head 3"):
        substitute(network(), {(0, 2): "uniform"})
    with pytest.raises(InfoFlowError, match="unknown mode"):
        substitute(network(), {(0, 0): "top0"})
    model = substitute(hugging_face("bert"), {}).train()
    with pytest.raises(InfoFlowError, match="evaluation mode"):
        model(**language())
