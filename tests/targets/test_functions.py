"""Any function as a target: values, active sets, estimates that are called estimates, refusals in one sentence."""

import json

import numpy as np
import pytest
import torch

import infoflow as iflow
from infoflow.cli import main
from infoflow.errors import InfoFlowError
from infoflow.targets import (
    closest_pair,
    function,
    kth_largest,
    pairwise_max,
    recall,
    star,
    sum_of_maxima,
    triangle_center,
    value_at_argmax,
)
from infoflow.targets.estimates import estimate
from infoflow.targets.named import target_of
from infoflow.train.recipe import Recipe


def spread(X, d=3):
    """The sum of the widths of the box around the tokens."""
    return (X.amax(-2) - X.amin(-2)).sum(-1)


@pytest.mark.parametrize("F", [pairwise_max(2, 3), triangle_center(), recall(), sum_of_maxima(3, 2), kth_largest(2)])
def test_values_and_active_sets_are_those_of_the_target_itself(F):
    G = function(F, F.dim, outputs=F.outputs, sampler=F.sampler, domain=F.domain)
    X = F.sample(20, 7)
    assert np.array_equal(G(X), F(X))
    assert np.array_equal(G.active(X), F.active(X))
    assert np.allclose(G.gradient(X), F.gradient(X))
    tensor = torch.from_numpy(X)
    assert torch.equal(G(tensor), F(tensor))
    assert G.winners(X)[0].shape == (20, 7)


def test_several_outputs():
    F = value_at_argmax(3)
    G = function(F, 3, outputs=2)
    X = F.sample((2, 5), 6)
    assert np.array_equal(G(X), F(X))
    assert np.array_equal(G.active(X), F.active(X))


@pytest.mark.parametrize(
    ("F", "dimension", "trees", "active"),
    [
        (function(lambda X: X[..., 0].amax(-1), 2), 1, 1, 1),
        (function(sum_of_maxima(4, 3), 3, sampler="normal"), 1, 4, 4),
        (function(pairwise_max(1, 3), 3, sampler="normal"), 2, 1, 2),
        (function(pairwise_max(2, 4), 4, sampler="normal"), 2, 2, 4),
        (function(closest_pair(), 2), 2, 1, 2),
        (function(triangle_center(), 2, sampler="clamped_normal"), 3, 1, 3),
        (function(star(), 4, sampler="normal"), 3, 1, 3),
        (function(kth_largest(2), 1), 2, 1, 1),
        (function(kth_largest(3), 1), 3, 1, 1),
        (function(lambda X: X[..., 0, 0] * X[..., 3, 1], 2), 2, 1, 2),
    ],
)
@pytest.mark.parametrize("T", [16, 200])
def test_what_is_compared_is_estimated_on_samples(F, dimension, trees, active, T):
    found = estimate(F, T)
    assert (found.dimension, found.trees, found.active) == (dimension, trees, active)
    count = F.comparison(T)
    assert count.estimated
    assert count.basis.startswith("estimated on 33 samples")
    assert count.ordered == trees * (T**dimension - 1)
    assert count.lower is None


def test_a_function_of_every_token_compares_nothing():
    F = function(lambda X: X.tanh().mean((-1, -2)), 2)
    count = F.comparison(64)
    assert count.ordered is None
    assert "every token has a derivative" in count.basis
    assert F.active(F.sample(3, 9)).all()
    constant = function(lambda X: 0 * X.sum((-1, -2)), 2)
    assert constant.comparison(8).ordered == 0


def test_a_function_of_one_length_is_looked_at_there():
    F = function(lambda X: X.reshape(*X.shape[:-2], 40, 2)[..., 0].amax(-1), 2)
    assert estimate(F, 40).length == 40
    with pytest.raises(InfoFlowError, match="it failed"):
        F.comparison(10)


def test_scores_of_tuples():
    F = function(lambda pair: (pair[..., 0, :] - pair[..., 1, :]).square().sum(-1), 2, 2, "min", distinct=True)
    X = closest_pair().sample(10, 8)
    assert np.allclose(F(X), closest_pair()(X))
    assert np.array_equal(F.active(X), closest_pair().active(X))
    assert not F.comparison(8).estimated  # the arity says it
    assert np.allclose(F(torch.from_numpy(X)).numpy(), F(X))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: function(spread, 3, arity=2), "arity and extremum together"),
        (lambda: function(spread, 3, distinct=True), "give an arity"),
        (lambda: function(3, 3), "expected a function"),
        (lambda: function(spread, 0), "expected d"),
        (lambda: function(lambda X: X, 2)(np.zeros((3, 2))), "to map"),
        (lambda: function(lambda X: 1.0, 2)(np.zeros((3, 2))), "return a tensor, got float"),
        (lambda: function(lambda X: X.nothing(), 2)(np.zeros((3, 2))), "it failed: 'Tensor' object has no attribute"),
        (lambda: function(lambda X: X.sum((-1, -2)) / 0, 2)(np.ones((3, 2))), "overflows"),
        (lambda: target_of(lambda X: X.sum((-1, -2))), r"def <lambda>\(X, d=2\)"),
        (lambda: iflow.predict(max, "heads=1 embed=4", 8), "argument d"),
    ],
)
def test_what_is_wrong_is_one_sentence(make, words):
    with pytest.raises(InfoFlowError, match=words):
        make()


def test_every_verb_takes_a_plain_function():
    prediction = iflow.predict(spread, "heads=6 embed=18", 32)
    assert prediction.verdict == "open"
    assert prediction.counting.dimension == 1
    assert "estimated on 33 samples" in str(prediction)
    plan = iflow.plan(spread, 32)
    assert plan.kind == "estimate"
    assert "estimated on 33 samples" in str(plan)
    assert "estimated on 33 samples" in str(iflow.scale(spread, "heads=6 embed=18", [8, 16]))
    flow = iflow.trace(spread, "heads=6 embed=18", target_of(spread).sample(1, 8)[0])
    assert flow.learns
    assert 1 <= len(flow.to_json()["active"]) <= 6


def test_a_function_of_every_token_is_served_by_global_aggregation_alone():
    mean = function(lambda X: X.tanh().mean((-1, -2)), 2)
    prediction = iflow.predict(mean, "heads=1 embed=32", 16)
    assert prediction.flow.exponent == 0
    assert "every token has a derivative" in str(prediction)
    option = iflow.plan(mean, 16).options[0]
    assert (option.heads, option.embed) == ((1,), (32,))
    with pytest.raises(InfoFlowError, match="every token has a derivative"):
        iflow.scale(mean, "heads=1 embed=32", [8, 16])


def test_build_says_what_can_be_built():
    with pytest.raises(InfoFlowError, match=r"can be called but not read.*build takes extrema"):
        iflow.build(spread, 8, 0.1)


def test_functions_are_refuted():
    torch.manual_seed(0)
    network = iflow.nn.Transformer(iflow.nn.TransformerConfig.of(iflow.Architecture(1, 2, 4), 3, 1, 6)).double()
    network.initialise(torch.Generator().manual_seed(0))
    collision = iflow.refute(network, target_of(spread), T=6, seconds=1)
    assert collision
    assert collision.gap > 0.1


def test_functions_are_trained(tmp_path):
    recipe = Recipe(samples=512, validation=256, epochs=2)
    (result,) = iflow.fit(spread, "heads=2 embed=8", 5, seeds=1, recipe=recipe, store=tmp_path)
    assert result.best < 2.0
    named = function(spread, 3, name="spread")
    (first,) = iflow.fit(named, "heads=2 embed=8", 5, seeds=1, recipe=recipe, store=tmp_path)
    (again,) = iflow.fit(named, "heads=2 embed=8", 5, seeds=1, recipe=recipe, store=tmp_path)
    assert first.key == again.key != result.key


SOURCE = "def spread(X, d=3):\n    return (X.amax(-2) - X.amin(-2)).sum(-1)\n\nnumber = 3\n"


def test_a_plain_function_on_the_command_line(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(SOURCE)

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    code, out, err = call("predict", f"{file}:spread", "heads=6", "embed=18", "-T", "32", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["target"] == f"{file}:spread"
    assert json.loads(out)["counting"]["estimated"] is True
    for verb in ("scale", "predict"):
        code, out, err = call(verb, f"{file}:spread", "heads=6 embed=18", "-T", "8")
        assert (code, err) == (0, "")
        assert "estimated on 33 samples" in out
    code, out, err = call("build", f"{file}:spread", "-T", "8", "--eps", "0.1")
    assert code == 2
    assert err.count("\n") == 1
    assert "can be called but not read" in err
    code, out, err = call("predict", f"{file}:number", "heads=1 embed=3", "-T", "8")
    assert code == 2
    assert "Target or a function" in err
