import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from infoflow.targets import (
    NAMED,
    CallableScore,
    Extremum,
    OuterNetwork,
    Polynomial,
    Target,
    TreeScore,
    max_plus_min,
    parse,
)

brute = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("brute.py"))))


def differentiated(F: Target, X: np.ndarray) -> np.ndarray:
    """(4) by automatic differentiation: one backward pass for each output."""
    found = np.zeros(X.shape[:-1], dtype=bool)
    for output in range(F.outputs):
        leaf = torch.tensor(X, requires_grad=True)
        value = F(leaf)
        (value if F.outputs == 1 else value[..., output]).sum().backward()
        assert leaf.grad is not None
        found |= (leaf.grad != 0).any(-1).numpy()
    return found


@pytest.mark.parametrize(
    "name", [*NAMED, "pairwise_max:D=3,d=1", "chain:length=5,d=2", "d_retrieval:D=2,d=1,sets=1..3/4..8"]
)
def test_active_sets_of_named_targets_are_those_of_autograd(name: str) -> None:
    F = parse(name)
    X = F.sample(20, 8, seed=7)
    assert np.array_equal(F.active(X), differentiated(F, X))
    assert np.array_equal(F.active(torch.tensor(X)).numpy(), F.active(X))


@settings(max_examples=80, deadline=None)
@given(brute.integer_extrema())
def test_active_sets_with_ties_repeats_and_cancelling_gradients(case: tuple[Extremum, np.ndarray]) -> None:
    term, X = case
    outer = Polynomial(np.array([[1, 1]]), np.array([[1.0]]))  # the product of two terms: its slopes can vanish
    for F in (Target.sum(term), Target((term, Extremum(term.score, "max")), outer, term.dim)):
        assert np.array_equal(F.active(X), differentiated(F, X))


def test_active_positions_are_among_the_winners() -> None:
    F = parse("pairwise_max:D=2,d=3")
    X = F.sample(30, 6)
    for row, active in enumerate(F.active(X)):
        winners = {int(t) for w in F.winners(X) for t in w[row]}
        assert set(np.flatnonzero(active).tolist()) <= winners


def test_a_token_whose_slopes_cancel_is_not_active() -> None:
    """x'(A - A')x vanishes: at t_1 = t_2 the score is flat although a tuple wins there."""
    F = Target.sum(Extremum(TreeScore.bilinear(np.array([[0.0, 1.0], [-1.0, 0.0]]))))
    X = np.array([[1.0, 2.0]])
    assert F.active(X).tolist() == [False]
    G = max_plus_min()
    assert G.active(np.array([[0.1], [0.3], [0.4], [0.2]])).tolist() == [True, False, True, False]


def test_callables_are_differentiated_by_torch_also_for_numpy_input() -> None:
    score = CallableScore(lambda x: (x[..., 0, :] * x[..., 1, :]).sum(-1) - abs(x[..., 0, 0]), 2, 2)
    F = Target((Extremum(score),), OuterNetwork(lambda z: z * z, lipschitz=1.0), 2)
    X = np.random.default_rng(0).standard_normal((10, 4, 2))
    assert np.array_equal(F.active(X), differentiated(F, X))


def test_gradient_flows_to_the_winning_tokens_only() -> None:
    F = parse("min_pair:d=2")
    X = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.1]]], requires_grad=True)
    F(X).sum().backward()
    assert X.grad is not None
    assert X.grad.tolist() == [[[-2.0, pytest.approx(0.2)], [0.0, 0.0], [2.0, 0.0]]]
