"""The ball model encloses the Transformer and the targets: values, slopes, every option."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.nn import Transformer, TransformerConfig
from infoflow.refutations.ball_model import ball_state, ball_target
from infoflow.refutations.balls import Balls, activation, constant, exact
from infoflow.refutations.problem import problem_of
from infoflow.refutations.proof import _varying
from infoflow.targets.named import min_pair
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import CallableScore, NormOfSum, TreeScore
from infoflow.targets.target import Extremum, KthLargest, PositionSum, Target

flint = pytest.importorskip("flint")


def model_of(seed: int = 0, **options) -> Transformer:
    fields = {"dim": 2, "heads": (2, 1), "head_dims": (2, 3), "widths": (5, 4), **options}
    model = Transformer(TransformerConfig(**fields)).double()
    model.initialise(torch.Generator().manual_seed(seed), scale=2.0)
    return model


VARIANTS = [
    {},
    {"activation": "gelu", "encoder": "mlp", "encoder_width": 4},
    {"activation": "relu", "encoder": "mlp", "encoder_width": 4},
    {"activation": "sigmoid", "mask": "causal"},
    {"layer_norm": True, "residual": False},
    {"positions": "additive", "length": 4},
    {"positions": "augmented", "length": 4, "position_dim": 2, "ffn_layers": 2},
    {"share_key_value": True, "scales": (30.0, 7.0)},
    {"heads": (1,), "head_dims": (3,), "widths": (4,), "activation": "identity"},
    {"heads": (2, 2), "head_dims": (2, 2), "ffn_skip": True, "streams": (5, 5)},
]


@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: ",".join(map(str, o)) or "plain")
def test_state_and_slopes_enclose_float64(options):
    model, T, d = model_of(**options), 4, 2
    X = torch.rand(1, T, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2 - 1
    units = []
    for place in range(T * d):
        unit = np.zeros(T * d)
        unit[place] = 1
        units.append(exact(unit.reshape(T, d)))
    R = ball_state(model, Balls(exact(X[0].numpy()), tuple(units)))
    value = model.represent(X)[0, 0]
    assert np.allclose([float(x) for x in R.value.entries()], value.detach().numpy(), rtol=0, atol=1e-12)
    J = torch.autograd.functional.jacobian(lambda x: model.represent(x)[0, 0], X).flatten(1)
    found = np.array([[float(x) for x in slope.entries()] for slope in R.slopes]).T
    assert np.allclose(found, J.numpy(), rtol=0, atol=1e-10)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-6, 0.2))
def test_a_box_encloses_every_point_of_it(seed, radius):
    model = model_of(seed, activation="tanh")
    generator = np.random.default_rng(seed)
    centre = generator.uniform(-1, 1, (3, 2))
    box = exact(centre) + flint.arb_mat(3, 2, [flint.arb(0, radius)] * 6)
    R = ball_state(model, constant(box, 0)).value.entries()
    for point in (centre, centre + radius * generator.choice([-1, 1], (3, 2)), centre - radius):
        inside = ball_state(model, constant(exact(point), 0)).value.entries()
        assert all(a.overlaps(b) for a, b in zip(R, inside, strict=True))


def test_relu_slope_at_its_kink_is_the_whole_interval():
    function, slope = activation("relu")
    assert slope(flint.arb(0, 1e-9)).contains(0)
    assert slope(flint.arb(0, 1e-9)).contains(1)
    assert function(flint.arb(0, 1)).contains(0.5)


TARGETS = [
    Target((Extremum(TreeScore.bilinear(np.eye(2), 2.0, 2.0), "min"),), Polynomial.identity(1), 2),
    Target.sum(Extremum(TreeScore.linear([1.0, -0.5])), Extremum(TreeScore.linear([0.3, 1.0]), "min", ((0, 2),))),
    Target((KthLargest(2, np.array([1.0, 0.0])),), Polynomial.identity(1), 2),
    Target((PositionSum((0, 3), 2),), Polynomial.identity(2), 2),
    Target((Extremum(NormOfSum(2, 2), "min", distinct=True),), Polynomial.quadratic(np.eye(1), 1.0, 2.0), 2),
]


@pytest.mark.parametrize("target", TARGETS, ids=["min_pair", "sets", "kth", "positions", "distinct"])
def test_target_encloses_float64(target):
    X = np.random.default_rng(3).uniform(-1, 1, (4, 2))
    ball = ball_target(target, exact(X).tolist())
    value = np.ravel(target(X))[0]
    assert abs(float(ball) - value) < 1e-12
    wide = exact(X) + flint.arb_mat(4, 2, [flint.arb(0, 0.01)] * 8)
    assert ball_target(target, wide.tolist()).contains(float(value))


def test_callable_score_has_no_enclosure():
    score = CallableScore(lambda tokens: tokens[..., 0].sum(-1), 2, 2)
    target = Target((Extremum(score),), Polynomial.identity(1), 2)
    assert ball_target(target, exact(np.zeros((3, 2))).tolist()) is None


def test_problem_jacobian_is_autograds():
    model = model_of()
    problem = problem_of(model, lambda X: X.sum((-1, -2)), 4)
    theta = torch.rand(3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    R, J = problem.jacobian(theta)
    for b in range(3):
        full = torch.autograd.functional.jacobian(lambda t: problem.state(problem.inputs(t[None]))[0], theta[b])
        assert torch.allclose(J[b], full)
    assert torch.allclose(R, problem.states(theta))


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "gelu"])
@pytest.mark.parametrize("radius", [1e-3, 1.0, 40.0, 1e5])
def test_wide_balls_stay_enclosures_and_finite(name, radius):
    """The series of tanh and erf give up on wide balls; the values at the ends do not."""
    function, slope = activation(name)
    torch_function = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": torch.nn.functional.gelu}[name]
    x = torch.linspace(0.5 - radius, 0.5 + radius, 201, dtype=torch.float64, requires_grad=True)
    y = torch_function(x)
    (dy,) = torch.autograd.grad(y.sum(), x)
    with flint.ctx.workprec(256):
        ball = flint.arb(0.5, radius)
        for enclosure, values in ((function(ball), y.detach()), (slope(ball), dy)):
            low, high = float(enclosure.lower()), float(enclosure.upper())
            assert np.isfinite([low, high]).all()
            assert low - 1e-12 <= float(values.min())
            assert float(values.max()) <= high + 1e-12


@pytest.mark.parametrize("options", [{}, {"streams": (5, 6)}, {"heads": (1,), "head_dims": (3,), "widths": (4,)}])
def test_one_slope_of_balls_sees_every_coordinate_that_moves(options):
    """A coordinate whose weights are 0 does not vary; all others do, as every single slope says."""
    model = model_of(**options)
    with torch.no_grad():
        layer = model.attentions[-1]
        layer.output[0] = 0.0  # the first coordinate of the update
        if model.config.layers > 1:  # what the residual carries there
            model.ffns[0].maps[-1].weight[0] = 0.0
    varying = _varying(lambda X: ball_state(model, X), (3, 2), (-1.0, 1.0))
    X = torch.rand(50, 3, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 2 - 1
    spread = model.represent(X)[:, 0].detach().std(0)
    assert varying == [i for i, s in enumerate(spread.tolist()) if s > 1e-12]
    assert 0 not in varying


def test_powers_of_a_ball_around_zero():
    """flint's ** answers nan on a ball with midpoint 0."""
    target = Target((PositionSum((0,), 1),), Polynomial.quadratic([[2.0]], constant=1.0), 1)
    with flint.ctx.workprec(128):
        ball = ball_target(target, [[flint.arb(0, 0.5)]])
    assert float(ball.lower()) <= 1.0
    assert 1.5 <= float(ball.upper()) < 1.51


def test_more_than_twenty_thousand_tuples_are_not_enclosed():
    """142^2 pairs: the answer is that there is no enclosure, at once."""
    row = [flint.arb(0.5)] * 3
    assert ball_target(min_pair(), [row] * 142, lambda: None) is None
