"""Measured information sets against a model whose sets are known."""

import numpy as np
import torch
from models import hugging_face, language, network

from infoflow import Architecture, build, predict, targets
from infoflow.probes import Keep, head_modes, record
from infoflow.probes.effective import effective_sets, framework_sizes, gradient_sizes
from infoflow.probes.modes import HeadMode


def test_pattern_sets_by_brute_force():
    model, X = network(), torch.randn(4, 6, 3)
    keep = Keep()
    record(model, X).feed(keep)
    sizes = []
    for b in range(4):
        sets = [{t} for t in range(6)] + [set()]
        per_layer = []
        for step in keep.steps:
            big = step.weights[b] >= 0.2
            rows = [6] if big.shape[1] == 1 else range(7)
            new = list(sets)
            for q, t in enumerate(rows):
                new[t] = sets[t].union(*(sets[s] for s in range(6) if big[:, q, s].any()))
            sets = new
            per_layer.append(np.mean([len(sets[t]) for t in (rows if big.shape[1] == 1 else range(6))]))
        sizes.append(per_layer)
    found = effective_sets(record(model, X), 0.2, gradients=False)
    np.testing.assert_allclose([row[0] for row in found.patterns], np.mean(sizes, 0), rtol=1e-6)


def test_gradients_of_a_causal_model_never_reach_the_future():
    """With threshold 0+ the set of a query is at most what it may see."""
    model = hugging_face("llama")
    sizes = gradient_sizes(record(model, language(documents=6, padded=False)), 1e-12)
    assert sizes.max() <= 9
    assert sizes.min() >= 1
    uniform = network()
    for layer in uniform.attentions:
        torch.nn.init.zeros_(layer.query)
    every = gradient_sizes(record(uniform, torch.randn(3, 5, 3)), 1e-9)
    assert every[1].tolist() == [5, 5, 5]  # the last CLS has seen all five tokens


def test_gradients_of_every_family_run():
    for family in ("bert", "albert", "gpt2"):
        model = hugging_face(family)
        found = effective_sets(record(model, language()), 0.1)
        assert len(found.gradients) == 3
        assert all(parameter.grad is None for parameter in model.parameters())


def test_framework_estimate():
    def head(layer, label):
        return HeadMode(layer, 0, label, {}, (0, 1), 1.0)

    assert framework_sizes([head(0, "max"), head(1, "max"), head(1, "previous")], 64) == [2, 6]
    assert framework_sizes([head(0, "max"), head(1, "global")], 64) == [2, 64]
    assert framework_sizes([head(0, "self")], 64) == [1]
    assert framework_sizes([head(0, "top")], 3) == [3]
    model, X = network(), torch.randn(6, 5, 3)
    found = effective_sets(record(model, X), modes=head_modes(record(model, X))).to_json()
    assert "estimate" in found["estimate_is"]


def test_a_built_network_uses_the_sets_that_predict_names():
    """The explicit network of a pair target: what its gradients reach is what the framework says is enough."""
    target = targets.parse("pairwise_max:D=2,d=4,seed=0")
    network = build(target, 32, 0.05)
    config = network.config
    prediction = predict(target, Architecture(heads=config.heads, embed=config.embed), 32)
    X = target.sample(32, 32, 0, kind="torch").to(next(network.parameters()))
    found = effective_sets(record(network, X), 0.2, prediction=prediction)
    assert found.predicted["kind"] == "estimate"
    tokens, cls = found.predicted["token_sets"], found.predicted["cls_sets"]
    assert 1 < found.patterns[0][0] <= tokens[0]
    assert 1 < found.gradients[1][0] <= cls[1]
