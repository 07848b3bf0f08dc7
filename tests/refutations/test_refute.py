"""`refute`: collisions of one-layer models, proofs, refusals, and no false positives."""

import math
import time

import numpy as np
import pytest
import torch
from torch import nn

import infoflow
from infoflow.construct.builders import build
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig
from infoflow.refutations import Adapter, Collision, NoCollision, refute
from infoflow.refutations.continuation import climb
from infoflow.refutations.problem import TwinProblem, problem_of
from infoflow.refutations.proof import LATE, Proof, prove
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import TreeScore
from infoflow.targets.target import Extremum, KthLargest, Target

MIN_PAIR = Target((Extremum(TreeScore.bilinear(np.eye(3), 2.0, 2.0), "min"),), Polynomial.identity(1), 3)
SECOND = Target((KthLargest(2, np.array([1.0])),), Polynomial.identity(1), 1, domain=(0.0, 1.0))


def one_layer(dim=3, heads=1, n=6, seed=0, **options) -> Transformer:
    fields = {"encoder": "mlp", "encoder_width": 16, "activation": "gelu", **options}
    model = Transformer(TransformerConfig(dim=dim, heads=(heads,), head_dims=(n,), widths=(16,), **fields))
    model.initialise(torch.Generator().manual_seed(seed))
    return model


def trained(target: Target, T: int, steps: int = 150, **options) -> Transformer:
    model = one_layer(target.dim, **options)
    generator = torch.Generator().manual_seed(1)
    low, high = target.domain
    first = [torch.zeros_like(p) for p in model.parameters()]
    second = [torch.zeros_like(p) for p in model.parameters()]
    for step in range(1, steps + 1):  # Adam by hand: torch.optim imports the compiler, slower than this whole file
        X = low + (high - low) * torch.rand(64, T, target.dim, generator=generator)
        slopes = torch.autograd.grad((model(X) - target(X)).square().mean(), list(model.parameters()))
        with torch.no_grad():
            for p, g, m, v in zip(model.parameters(), slopes, first, second, strict=True):
                m.lerp_(g, 0.1)
                v.lerp_(g * g, 0.001)
                p -= 5e-3 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
    return model


def check(found: Collision, model: Transformer, target: Target) -> None:
    """Everything a Collision claims, recomputed from Y and Z."""
    assert found
    double = model.double()
    pair = torch.from_numpy(np.stack([found.Y, found.Z]))
    low, high = target.domain
    assert bool(((pair >= low) & (pair <= high)).all())
    R = double.represent(pair).detach()
    assert float((R[0] - R[1]).norm()) <= 1e-10
    assert found.state_distance <= 1e-10
    F = target(pair)
    assert float(F[0] - F[1]) == pytest.approx(found.gap)
    y = double(pair).detach()
    assert float((y - F).abs().max()) >= found.gap / 2 - 1e-6


def refute_to(gap: float, model: Transformer, target: Target, T: int) -> Collision | NoCollision:
    """A gap that is there to be found, on a slow machine in more time."""
    for seconds in (4, 16, 64):
        found = refute(model, target, T, seconds=seconds)
        if found and found.gap >= gap:
            break
    return found


def proof_of(pair: np.ndarray, model: Transformer, target: Target, deadline: float = math.inf) -> Proof:
    """The proof alone, with its own clock."""
    problem = problem_of(model, target, pair.shape[1])
    theta = torch.from_numpy(np.arcsin(np.clip(pair, -1, 1))).flatten(1)
    slopes = problem.pairs(theta).jacobian(theta.flatten()[None])[1][0].numpy()
    return prove(model, target, pair, (problem.low, problem.high), slopes, deadline)


@pytest.mark.parametrize("heads", [1, 2])
def test_trained_min_pair_collides_and_the_twins_are_proved(heads):
    model = trained(MIN_PAIR, 8, heads=heads)
    found = refute_to(1, model, MIN_PAIR, 8)
    check(found, model, MIN_PAIR)
    assert found.gap >= 1
    proof = proof_of(np.stack([found.Y, found.Z]), model, MIN_PAIR)
    assert proof.error == pytest.approx(found.gap / 2, abs=1e-6)  # the exact twins are near Y and Z, not these
    assert "Krawczyk" in proof.reason
    assert found.width_bound(0.1) == pytest.approx((found.gap - 0.2) / (math.sqrt(6 * heads) * found.state_distance))


def test_the_common_state_moves_to_where_the_gap_is_largest():
    """State x1 + x2 = c, target max(x1, x2): the gap at c is 1 - |c|/2 at most, so every pair must end at c = 0."""
    largest = Target.sum(Extremum(TreeScore.linear([1.0]), "max"))
    problem = problem_of(Adapter(lambda X: X.sum(-2)), largest, 2)
    theta = torch.tensor([[0.9, 0.4], [-0.7, -0.2], [0.3, -0.1]], dtype=torch.float64)
    ends = climb(problem.pairs(theta), theta.repeat(1, 2), math.inf, torch.Generator().manual_seed(0))
    assert ends.value.min() > 0.99
    assert problem.states(ends.theta[:, :2]).abs().max() < 0.02


def test_a_rejected_step_asks_for_no_new_jacobian(monkeypatch):
    problem = problem_of(one_layer(), MIN_PAIR, 8)
    theta = torch.rand(4, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pair, steps, points = problem.pairs(theta), [], []
    jacobian = TwinProblem.jacobian

    def counted(self, at):
        points.extend(row.tobytes() for row in at.numpy())
        return jacobian(self, at)

    monkeypatch.setattr(TwinProblem, "jacobian", counted)
    deadline = time.monotonic() + 2
    climb(pair, theta.repeat(1, 2), deadline, torch.Generator().manual_seed(0), lambda runs: steps.append(len(points)))
    assert len(steps) > 2
    assert len(set(points)) == len(points)


def test_a_stage_without_time_is_left_out_and_the_result_says_so():
    model = one_layer()
    pair = np.random.default_rng(0).uniform(-1, 1, (2, 8, 3))
    assert proof_of(pair, model, MIN_PAIR, deadline=0.0) == Proof(None, None, LATE)  # long past
    nothing = refute(model, MIN_PAIR, 8, seconds=1e-9)
    assert isinstance(nothing, NoCollision)
    assert nothing.reason.endswith("before the time was up")


def test_random_model_with_two_heads_and_positions():
    model = one_layer(heads=2, n=4, positions="additive", length=16)
    found = refute_to(4, model, MIN_PAIR, 16)
    check(found, model, MIN_PAIR)
    assert found.gap >= 4


def test_second_largest():
    model = trained(SECOND, 8, n=2)
    found = refute_to(0.1, model, SECOND, 8)
    check(found, model, SECOND)
    assert found.gap >= 0.1


def test_as_many_states_as_inputs_is_no_certificate():
    found = refute(one_layer(1, n=8), SECOND, 8, seconds=2)
    assert isinstance(found, NoCollision)
    assert not found
    assert "rank 8" in found.reason
    assert str(found).startswith("no certificate")
    assert refute(one_layer(1, n=1), SECOND, 2, seconds=2).to_json()["collision"] in (True, False)


def test_a_state_that_holds_the_target_is_not_refuted():
    """State = (target itself, one mean): the gap found is what a soft minimum leaves, never more than its error."""
    beta = 200.0

    def state(X):
        S = (2 * (1 + X @ X.mT)).flatten(-2)
        return torch.stack([-torch.logsumexp(-beta * S, -1) / beta, X.mean((-1, -2))], -1)

    found = refute(Adapter(state), MIN_PAIR, 4, seconds=3)
    assert (found.gap if found else 0.0) <= math.log(16) / beta + 1e-9


def test_constant_target_is_not_refuted():
    found = refute(Adapter(lambda X: X.sum(-2), dim=2), lambda X: X.sum((-1, -2)), 5, seconds=2)
    assert isinstance(found, NoCollision)
    assert "constant state" in found.reason


def test_any_module_through_the_adapter():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    adapter = Adapter(lambda X: encoder(X).mean(-2), lambda X: X[..., 0].amax(-1), dim=2)
    found = refute(adapter, None, 6, seconds=2)
    assert found.gap > 0.5
    assert found.certified_error is None
    assert "Transformer only" in found.proof
    assert found.arithmetic == "float64"
    assert "numerical" in str(found)


HOSTILE = {
    "state(X) of shape": Adapter(lambda X: X.sum(), lambda X: X.sum((-1, -2))),
    "target(X) of shape": Adapter(lambda X: X.sum(-2), lambda X: X),
    "it failed": Adapter(lambda X: X @ X, lambda X: X.sum((-1, -2))),
    "float64, got": Adapter(lambda X: X.sum(-2).float(), lambda X: X.sum((-1, -2))),
    "differentiable": Adapter(lambda X: X.detach().sum(-2), lambda X: X.sum((-1, -2))),
    "deterministic": Adapter(lambda X: X.sum(-2) + torch.rand(1).double(), lambda X: X.sum((-1, -2))),
    "mixes the batch": Adapter(lambda X: X.sum(-2) - X.sum(-2).mean(0), lambda X: X.sum((-1, -2))),
    "finite": Adapter(lambda X: X.sum(-2) / 0, lambda X: X.sum((-1, -2))),
    "a function X": Adapter(lambda X: X.sum(-2)),
}


@pytest.mark.parametrize("reason", HOSTILE)
def test_hostile_adapters_are_refused_in_one_sentence(reason):
    with pytest.raises(InfoFlowError) as caught:
        refute(HOSTILE[reason], None, 4, seconds=1)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("T", [0, -1, 2.5, True])
def test_wrong_length(T):
    with pytest.raises(InfoFlowError):
        refute(one_layer(), MIN_PAIR, T)


def test_wrong_models_and_targets():
    for model, target in (
        (nn.Linear(2, 2), MIN_PAIR),
        (one_layer(2), MIN_PAIR),
        (one_layer(hard=True), MIN_PAIR),
        (one_layer(cls=False, outputs=6), MIN_PAIR),
        (one_layer(), None),
        (object(), MIN_PAIR),
    ):
        with pytest.raises(InfoFlowError):
            refute(model, target, 8)


def test_verb_is_exported():
    assert infoflow.refute is refute


@pytest.mark.parametrize("b", [12.0, 30.0])
def test_power_sums_leave_no_large_gap(b):
    """Uniform attention, values u^j, u = e^{b(x-1)}, j = 1, 2: e_2/e_1 lies in [u_2/T, C(T,2) u_2], u_2 the second
    largest, so two inputs of one state have second largest values within log(T C(T,2))/b: theorems give no gap here."""

    def state(X):
        return torch.stack([torch.exp(j * b * (X[..., 0] - 1)).mean(-1) for j in (1, 2)], -1)

    found = refute(Adapter(state, domain=(0.0, 1.0)), SECOND, 8, seconds=3)
    assert 0 < found.gap <= math.log(8 * 28) / b


@pytest.mark.parametrize("eps", [0.5, 0.1])
def test_nothing_above_twice_eps_on_a_built_network(eps):
    net = build(MIN_PAIR, 6, eps)
    found = refute(net, MIN_PAIR, 6, seconds=3)
    if found:
        assert found.gap <= 2 * eps
        assert (found.certified_error or 0.0) <= net.header["certificate"]["bound"]


def test_a_linear_encoder_has_a_smaller_core():
    """Rank d h < E: the state's Jacobian is singular, the attended means still give the proof."""
    model = Transformer(TransformerConfig(dim=3, heads=(2,), head_dims=(6,), widths=(8,)))
    model.initialise(torch.Generator().manual_seed(0))
    found = refute(model, MIN_PAIR, 8, seconds=4)
    check(found, model, MIN_PAIR)
    assert proof_of(np.stack([found.Y, found.Z]), model, MIN_PAIR).error is not None
    assert found.sigma_min > 1e-12


def test_a_constant_state_is_proved_without_a_search_for_twins():
    model = Transformer(TransformerConfig(dim=1, heads=(1,), head_dims=(2,), widths=(2,)))  # all weights 0
    found = refute(model, SECOND, 4, seconds=3)
    assert found.state_distance < 1e-70
    assert found.certified_error == pytest.approx(0.5, abs=0.01)
