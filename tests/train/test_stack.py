"""Stacked training is training each alone: weights, optimiser, divergence, folding."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from infoflow.architecture import Architecture
from infoflow.nn import Transformer
from infoflow.targets import pairwise_max
from infoflow.train.folded import encodable, foldable, forward, forward_encoded
from infoflow.train.loop import Training, start, train
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.stack import Stack, initial_weights

CPU = torch.device("cpu")
TINY = Recipe(samples=12, validation=5, batch=4, epochs=None, steps=200, dtype="float64", evaluate_every=20)


def run_of(arch: Architecture, T: int = 4, seed: int = 0, recipe: Recipe = TINY, d: int = 2) -> Run:
    return Run(pairwise_max(D=2, d=d, seed=0), arch, T, seed, recipe)


@st.composite
def shapes(draw: st.DrawFn) -> Architecture:
    layers = draw(st.integers(1, 3))
    heads = tuple(draw(st.integers(1, 3)) for _ in range(layers))
    embed = tuple(h * draw(st.integers(1, 3)) for h in heads)
    positions = draw(st.sampled_from(["none", "additive"]))
    return Architecture(heads, embed, draw(st.integers(1, 5)), positions=positions)


@settings(max_examples=3)
@example(Architecture((2, 1), (4, 3), 4), "gelu")  # folded
@given(shapes(), st.sampled_from(["gelu", "tanh", "relu"]))
def test_stacked_equals_separate(arch: Architecture, activation: str) -> None:
    """200 steps in float64 with different rates, decays and initial scales inside the stack: equal to 1e-12."""
    recipes = [TINY.with_(activation=activation, lr=lr, decay=decay, init_scale=scale)
               for lr, decay, scale in ((1e-2, 1e-2, 1.0), (3e-3, 0.0, 0.5))]  # fmt: skip
    runs = [run_of(arch, seed=5 + i, recipe=recipe) for i, recipe in enumerate(recipes)]
    together = train(start(runs, CPU, None))
    for row, run in enumerate(runs):
        alone = train(start([run], CPU, None))
        torch.testing.assert_close(together.stack.weights[row], alone.stack.weights[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(together.best[row], alone.best[0], rtol=1e-12, atol=1e-12)


def test_two_layers_are_folded_and_others_are_not() -> None:
    def folded(arch: Architecture) -> bool:
        return foldable(Stack([run_of(arch)], CPU, None).network.config)

    assert folded(Architecture((2, 2), (4, 4)))
    assert not folded(Architecture((2,), (4,)))
    assert not encodable(Stack([run_of(Architecture((2, 2), (4, 4)))], CPU, None).network.config)
    behind = TINY.with_(encoder="mlp", encoder_width=3)
    for arch, expected in ((Architecture((2, 2), (4, 4)), True), (Architecture((2,), (4,)), False)):
        assert encodable(Stack([run_of(arch, recipe=behind)], CPU, None).network.config) is expected
    assert not folded(Architecture((2, 2), (4, 4), positions="additive"))


@settings(max_examples=15)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.integers(1, 3),
    st.integers(1, 6),
    st.sampled_from(["gelu", "tanh", "relu", "sigmoid", "identity"]),
    st.sampled_from(["linear", "mlp"]),
)
def test_folding_is_the_same_function(
    heads: tuple[int, int], dims: tuple[int, int], d: int, T: int, activation: str, encoder: str
) -> None:
    """Outputs and the gradient of every parameter agree with `Transformer.forward`; random shapes, M = 2."""
    arch = Architecture(heads, (heads[0] * dims[0], heads[1] * dims[1]), (5, 4))
    recipe = TINY.with_(activation=activation, encoder=encoder, encoder_width=3 * (encoder == "mlp"))
    stack = Stack([run_of(arch, T, seed, recipe, d) for seed in (1, 2)], CPU, None)
    X = torch.randn(2, 3, T, d, dtype=torch.float64, generator=torch.Generator().manual_seed(T))
    parameters = list(stack.network.parameters())
    plain = stack.network(X)
    turned = X.transpose(-1, -2)
    answer = forward(stack.network, turned, None) if encoder == "linear" else forward_encoded(stack.network, turned)
    folded = answer.squeeze(-1)
    torch.testing.assert_close(folded, plain, rtol=1e-11, atol=1e-12)
    weight = torch.randn(plain.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    expected = torch.autograd.grad((plain * weight).sum(), parameters, materialize_grads=True, allow_unused=True)
    got = torch.autograd.grad((folded * weight).sum(), parameters, materialize_grads=True, allow_unused=True)
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    ("decay", "clip", "warm_up", "multiple"),
    [(0.0, None, 0, 1.0), (0.1, None, 7, 1.0), (0.1, 0.3, 0, 1.0), (0.1, None, 7, 7.3)],
)
def test_the_optimiser_is_torch_adamw(decay: float, clip: float | None, warm_up: int, multiple: float) -> None:
    """The same gradients through torch.optim.AdamW under the same cosine give the same weights; queries and keys may
    have a rate of their own, at the decay of the others (which torch multiplies by the rate)."""
    recipe = TINY.with_(steps=30, decay=decay, lr=2e-2, clip=clip, warm_up=warm_up, query_key_rate=multiple)
    run = run_of(Architecture((2, 1), (4, 2), 3), recipe=recipe)
    state = start([run], CPU, None)
    reference = Transformer(run.task.config(run.arch, run.T, run.recipe)).double()
    reference.initialise(torch.Generator().manual_seed(run.seed))
    attention = [p for layer in reference.attentions for p in (layer.query, layer.key)]
    others = [p for p in reference.parameters() if all(p is not own for own in attention)]
    optimiser = torch.optim.AdamW([
        {"params": others, "weight_decay": decay, "multiple": 1.0},
        {"params": attention, "weight_decay": decay / multiple, "multiple": multiple},
    ])  # fmt: skip
    chosen, norms = torch.arange(4).unsqueeze(0), []
    for factor in recipe.factors():
        state.stack.train_step(state.data, chosen)
        for group in optimiser.param_groups:
            group["lr"] = recipe.lr * factor * group["multiple"]
        optimiser.zero_grad()
        answer = reference(state.data.x[0, :4].transpose(-1, -2))
        (answer - state.data.y[0, :4, 0]).square().mean().backward()
        norm = torch.cat([parameter.grad.flatten() for parameter in reference.parameters()]).norm()
        norms.append(float(norm))
        for parameter in reference.parameters():
            parameter.grad *= min(1.0, (clip or torch.inf) / norm)
        optimiser.step()
    assert clip is None or min(norms) < clip < max(norms)  # some steps are clipped and some are not
    flat = torch.cat([parameter.detach().flatten() for parameter in reference.parameters()])
    torch.testing.assert_close(state.stack.weights[0], flat, rtol=1e-10, atol=1e-12)


def test_a_diverged_model_is_frozen_and_poisons_nobody() -> None:
    runs = [run_of(Architecture((1, 1), (2, 2), 3), seed=seed, recipe=TINY.with_(steps=9)) for seed in range(3)]
    alone = [train(start([run], CPU, None)) for run in runs]
    state = start(runs, CPU, None)
    state.stack.weights[1, 0] = torch.nan
    poisoned = state.stack.weights[1].clone()
    train(state)
    for row in (0, 2):
        torch.testing.assert_close(state.stack.weights[row], alone[row].stack.weights[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state.stack.weights[1], poisoned, equal_nan=True)
    assert state.diverged_at.tolist() == [-1, 9, -1]
    assert torch.isinf(state.best[1])
    assert torch.isfinite(state.best[[0, 2]]).all()


def test_a_model_that_overflows_keeps_its_last_finite_weights() -> None:
    wild = TINY.with_(lr=1e300, steps=12, samples=4, evaluate_every=1)
    runs = [run_of(Architecture((1, 1), (2, 2), 3), seed=0, recipe=recipe) for recipe in (wild, wild.with_(lr=1e-2))]
    state = train(start(runs, CPU, None))
    assert torch.isfinite(state.stack.weights).all()
    assert state.diverged_at[0] > 0
    assert state.diverged_at[1] == -1


def test_initial_weights_come_from_the_seed_alone() -> None:
    runs = [run_of(Architecture((2, 2), (4, 4)), seed=seed) for seed in (3, 9, 4)]
    together = initial_weights(runs)
    for row, run in enumerate(runs):
        assert torch.equal(together[row], initial_weights([run])[0])
    assert not torch.equal(together[0], together[1])


def test_the_network_is_in_the_units_of_the_target() -> None:
    """Its NMSE, from raw labels of the validation set, is the reported one."""
    state: Training = train(start([run_of(Architecture((2, 2), (4, 4)))], CPU, None))
    network = state.stack.networks(state.best_weights, state.data).select(0)
    X = state.data.x_validation[0].transpose(-1, -2)
    labels = state.stack.runs[0].regression()[0](X)
    error = (network(X) - labels).square().mean() / labels.var(correction=0)
    torch.testing.assert_close(error, state.best[0], rtol=1e-10, atol=0)


def test_a_model_far_above_its_best_goes_back_at_half_the_rate_and_touches_nobody() -> None:
    """Row 1 is spoiled between two looks: it returns to what it was at its best; row 0 is the model trained alone."""
    recipe = TINY.with_(steps=40, lr=1e-3, samples=8, batch=4, evaluate_every=1, rollback=5.0)
    runs = [run_of(Architecture((1, 1), (2, 2), 3), seed=seed, recipe=recipe) for seed in range(2)]
    alone = train(start([runs[0]], CPU, None))
    state = start(runs, CPU, None)
    spoiled_at = recipe.steps_per_epoch * 3 + 1  # a step after the third look

    def spoil(now: Training) -> None:
        if now.step == spoiled_at:
            now.stack.weights[1] *= 1e3
            now.stack.state.second[1] = 1e9
        if now.step == recipe.steps_per_epoch * 4:  # the look that finds it
            torch.testing.assert_close(now.stack.weights[1], now.best_weights[1])
            torch.testing.assert_close(now.stack.state.second[1], now.best_second[1])
            assert not now.stack.state.first[1].any()
            assert now.stack.state.rate.flatten().tolist() == [1.0, 0.5]

    train(state, report=spoil)
    assert state.rollbacks.tolist() == [0, 1]
    assert alone.rollbacks.tolist() == [0]
    assert state.curves["nmse"][3][1] > 5 * state.best[1]
    assert state.curves["nmse"][-1][1] < 5 * state.best[1]
    torch.testing.assert_close(state.stack.weights[0], alone.stack.weights[0], rtol=1e-12, atol=1e-12)


def test_a_model_that_overflows_goes_back_and_lives() -> None:
    wild = TINY.with_(lr=1e300, steps=12, samples=4, evaluate_every=1, rollback=10.0)
    state = train(start([run_of(Architecture((1, 1), (2, 2), 3), seed=0, recipe=wild)], CPU, None))
    assert state.rollbacks.tolist() == [12 // wild.steps_per_epoch]
    assert state.diverged_at.tolist() == [-1]
    assert torch.isfinite(state.stack.weights).all()
