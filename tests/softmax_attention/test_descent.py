import pytest
import torch

from infoflow.construct.softmax_attention.descent import Bounds, in_context_gd
from infoflow.construct.softmax_attention.descent_layer import (
    explicit_prediction,
    explicit_rounding,
    explicit_step,
    state,
    step_heads,
)
from infoflow.construct.softmax_attention.gradient_heads import one_variable
from infoflow.construct.softmax_attention.losses import NAMED, Loss
from infoflow.construct.softmax_attention.trajectory import A_PRIORI, DescentProblem
from infoflow.errors import InfoFlowError

F64 = torch.float64


def problem(d=3, n=20, seed=0, labels=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(d, n, generator=generator, dtype=F64) / d**0.5
    y = torch.randn(d, generator=generator, dtype=F64) @ x + 0.3 * torch.randn(n, generator=generator, dtype=F64)
    return DescentProblem(x, torch.sign(y) if labels else y, torch.zeros(d, dtype=F64))


def data_for(name, **sizes):
    return problem(labels=name == "logistic", **sizes)


@pytest.mark.parametrize(("name", "limit"), [("squared", 1e-8), ("logistic", 1e-3), ("logcosh", 1e-3), ("huber", 5e-3)])
def test_a_hundred_steps_track_gradient_descent(name, limit):
    data = data_for(name, d=5, n=40)
    net = in_context_gd(name, 5, 40, 0.5, 100, data=data)
    run = net.run(data)
    assert net.domain.source.startswith(A_PRIORI)
    assert run.deviation <= limit
    assert run.deviation <= net.certificate.bound
    checked = net.check(net.certificate)
    assert checked.attacked is None  # there is no other input than the data: a run is no attack
    assert checked.measured["deviation on the data"] == run.deviation
    assert net.heads_per_step == 2 * 5
    assert net.heads == 1000


@pytest.mark.parametrize("kind", ["hard", "relu"])
@pytest.mark.parametrize("name", NAMED)
def test_the_other_heads_stay_below_their_bound(kind, name):
    data = data_for(name)
    net = in_context_gd(name, 3, 20, 0.5, 20, kind, data=data, knots=8)
    run = net.run(data)
    assert run.deviation <= net.certificate.bound
    assert run.deviation < 0.6
    assert net.heads_per_step == 2 * 3 * (8 if kind == "relu" else 1)


@pytest.mark.parametrize("kind", ["soft", "hard", "relu"])
@pytest.mark.parametrize("name", NAMED)
def test_the_error_of_a_gradient_coordinate_pointwise(kind, name):
    loss, reach, entry = NAMED[name], 4.0, 1.5
    heads = one_variable(loss, kind, 256, reach, entry, None, knots=15)
    generator = torch.Generator().manual_seed(0)
    s = (2 * torch.rand(4000, generator=generator, dtype=F64) - 1) * (4.0 if loss.form == "margin" else 3.0)
    s[:40] = torch.linspace(-2.05, 2.05, 40, dtype=F64)  # the kinks of Huber's loss
    s[40:80] = (1 if loss.form == "margin" else 0.75) * torch.tensor([-4.0, 4.0], dtype=F64).repeat(20)  # both ends
    y = torch.sign(torch.randn(4000, generator=generator, dtype=F64))
    x = (2 * torch.rand(1, 4000, generator=generator, dtype=F64) - 1) * entry
    x[0, ::2] = entry
    error = (heads.coordinates(s, y, x) - loss.slopes(s, y) * x).abs().max()
    assert error <= heads.error
    assert heads.error <= {"soft": 20, "hard": 40, "relu": 60}[kind] * error + 1e-11


@pytest.mark.parametrize("kind", ["soft", "hard", "relu"])
@pytest.mark.parametrize("name", NAMED)
def test_the_matrices_make_the_same_step(kind, name):
    data = data_for(name, seed=1)
    net = in_context_gd(name, 3, 20, 0.5, 3, kind, data=data, ridge=0.1, knots=4, p=128)
    x_u = torch.tensor([0.1, -0.2, 0.3], dtype=F64)
    start = S = state(data, data.w0, x_u)
    assert len(step_heads(net, 21)) == net.heads_per_step
    path = net.run(data).path
    for t in range(3):
        S = explicit_step(net, S)
        gap = (S[4:7, 0] - path[t + 1]).abs().max()
        assert gap <= (t + 1) * (1e-12 + explicit_rounding(net))
        assert gap < 1e-8
    assert torch.equal(S[[0, 1, 2, 3, 7]], start[[0, 1, 2, 3, 7]])
    assert (S[4:7] - S[4:7, :1]).abs().max() < 1e-9
    read = explicit_prediction(net, S)
    assert abs(read[3, -1] - net.predict(data, x_u)) < 1e-8
    assert torch.equal(read[3, :-1], data.y)
    assert abs(net.predict(data, x_u) - net.run(data).w @ x_u) <= net.prediction_error


def test_ridge_regression_reaches_its_closed_form():
    data = problem()
    net = in_context_gd("squared", 3, 20, 0.5, 400, data=data, ridge=0.1)
    closed = torch.linalg.solve(data.x @ data.x.mT / 20 + 0.1 * torch.eye(3, dtype=F64), data.x @ data.y / 20)
    assert (net.run(data).w - closed).norm() < 1e-8
    assert net.heads_per_step == 7


def test_a_users_own_loss():
    def pseudo(r):
        return torch.sqrt(1 + r**2) - 1

    blind = Loss("pseudo-huber", "residual", pseudo, lambda r: r / torch.sqrt(1 + r**2))
    data = problem()
    net = in_context_gd(blind, 3, 20, 0.5, 50, data=data)
    assert net.certificate.bound is None
    assert "read off a run" in net.domain.source
    assert net.run(data).deviation < 1e-2


def test_general_losses_by_ridge_polynomials():
    def value(s, y):
        return torch.nn.functional.softplus(-s * y)

    loss = Loss("soft margin", "general", value, lambda s, y: -y * torch.sigmoid(-s * y), curvature=0.25, convex=True)
    data = problem(2, 12)
    data = DescentProblem(data.x, data.y.clamp(-1, 1), data.w0)
    coarse, fine = (
        in_context_gd(loss, 2, 12, 0.5, 30, data=data, directions=J, lipschitz=(0.25, 2.0)) for J in (5, 13)
    )
    assert fine.heads_per_step == 2 * 2 * 13
    assert fine.run(data).deviation < coarse.run(data).deviation / 5
    for net in (coarse, fine):
        assert net.run(data).deviation <= net.certificate.bound
    one = fine.gradient(data, data.w0)
    S = explicit_step(fine, state(data, data.w0))
    assert torch.allclose(S[3:5, 0], data.w0 - 0.5 * one, rtol=0, atol=1e-12 + explicit_rounding(fine))
    assert in_context_gd(loss, 2, 12, 0.5, 3, data=data).certificate.bound is None


def test_inputs_outside_the_domain_are_refused():
    data = problem()
    net = in_context_gd("squared", 3, 20, 0.5, 5, bounds=Bounds(arguments=0.5, entry=3.0))
    assert net.certificate.bound is None
    with pytest.raises(InfoFlowError, match="domain of the table"):
        net.run(data)
    with pytest.raises(InfoFlowError, match="entries of x within"):
        net.run(DescentProblem(10 * data.x, data.y, data.w0))
    with pytest.raises(InfoFlowError, match="shape"):
        net.run(problem(2, 20))
    with pytest.raises(InfoFlowError, match="built with data"):
        net.check(net.certificate)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "hinge"}, "unknown loss"),
        ({"heads": "sof"}, "did you mean 'soft'"),
        ({"eta": 0.0}, "eta > 0"),
        ({"steps": 0}, "steps >= 1"),
        ({"tau": -0.1}, "tau .* above 0"),
        ({"p": 20}, "p >= n"),
        ({"ridge": -1.0}, "ridge >= 0"),
        ({"loss": "logistic"}, "labels -1 or \\+1"),
        ({"d": 4}, "shape \\(4, 20\\)"),
        ({"data": None}, "either data or bounds"),
        ({"p": 24}, "anchors at c"),
    ],
)
def test_wrong_input(change, message):
    call = {"loss": "squared", "d": 3, "n": 20, "eta": 0.5, "steps": 5, "data": problem()} | change
    with pytest.raises(InfoFlowError, match=message):
        in_context_gd(**call)


def test_a_function_of_the_prediction_and_the_label_cannot_be_a_gradient():
    """Theorem 4.2's network sees (w.x, y); at w = 0, y = 1 three inputs look alike and need -1, 0, +1."""
    x = torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]], dtype=F64)
    y, w = torch.ones(3, dtype=F64), torch.zeros(2, dtype=F64)
    seen = torch.stack([w @ x, y])
    assert torch.equal(seen[:, :1].expand(2, 3), seen)
    needed = NAMED["squared"].slopes(w @ x, y) * x[0]
    assert (needed.max() - needed.min()) / 2 >= 1  # any single answer errs by at least 1
    heads = one_variable(NAMED["squared"], "soft", 128, 3.0, 1.0, None)
    assert torch.allclose(heads.coordinates(w @ x, y, x)[0], needed, atol=1e-10)


def test_the_printed_range_bound_is_too_small():
    """B_R B_1^2 = 1 for B_R = B_1 = 1, but |a w.x + b y + c| reaches 3."""
    assert abs(1 * 1.0 + 1 * 1.0 + 1) > 1


def test_a_sum_of_relus_without_coefficients_is_never_negative():
    """(G.66) has no outer coefficients; the gradient of the squared loss is negative at r = -1."""
    z = torch.linspace(-3, 3, 61, dtype=F64)
    printed = sum(torch.relu(a * z + c) for a, c in ((1, 0), (-1, 0), (2, 1)))
    assert printed.min() >= 0
    assert NAMED["squared"].slope(torch.tensor(-1.0)) < 0
