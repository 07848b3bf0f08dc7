import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.construct.softmax_attention import intervals
from infoflow.construct.softmax_attention.expression import evaluate, parse
from infoflow.construct.softmax_attention.intervals import Interval
from infoflow.errors import InfoFlowError

CASES = {
    "sin(2*x11)+x11*x12": lambda x, y: np.sin(2 * x) + x * y,
    "-x11^2 - -x12": lambda x, y: -(x**2) + y,
    "2 - 3 - 4": lambda x, y: -5.0 + 0 * x,
    "exp(x11)/(2+cos(x12))": lambda x, y: np.exp(x) / (2 + np.cos(y)),
    "abs(x11-x12)*tanh(3*x11)": lambda x, y: np.abs(x - y) * np.tanh(3 * x),
    "sqrt(2+x11)*log(3-x12)+1e-1*pi": lambda x, y: np.sqrt(2 + x) * np.log(3 - y) + 0.1 * np.pi,
    "(x11+x1_2)**-2 + 7": lambda x, y: (x + y) ** -2.0 + 7,
    "x11*x11*x12": lambda x, y: x * x * y,
}


@pytest.mark.parametrize("text", CASES)
def test_values(text):
    X = np.random.default_rng(0).uniform(-1, 1, (100, 1, 2))
    np.testing.assert_allclose(parse(text, 1, 2)(X), CASES[text](X[:, 0, 0], X[:, 0, 1]), rtol=1e-12)


@pytest.mark.parametrize("text", [text for text in CASES if "**" not in text])
def test_gradients_and_their_bounds(text):
    """The tree's derivative is the finite difference; the interval bound dominates it everywhere."""
    f = parse(text, 1, 2)
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 1, 2))
    bounds = f.partial_bounds(1.0)
    low, high = f.range_bounds(1.0)
    assert low <= f(X).min()
    assert f(X).max() <= high
    for place, tree in f.gradient.items():
        slope = evaluate(tree, X)
        step = np.zeros((1, 2))
        step[place] = 1e-6
        difference = (f(X + step) - f(X - step)) / 2e-6
        smooth = np.abs(X[:, 0, 0] - X[:, 0, 1]) > 1e-5
        np.testing.assert_allclose(slope[smooth], difference[smooth], atol=1e-7)
        assert np.abs(slope).max() <= bounds[place] <= 1.3 * np.abs(slope).max() + 0.1


def test_no_finite_gradient_is_said_to_be_infinite():
    assert np.isinf(parse("1/x11", 1, 1).partial_bounds(1.0)).all()
    assert np.isinf(parse("sqrt(x11)", 1, 1).partial_bounds(1.0)).all()
    assert np.isinf(parse("log(1+x11)", 1, 1).range_bounds(1.0)).any()


@settings(max_examples=200)
@given(
    st.sampled_from(["sin", "cos", "exp", "log", "sqrt", "tanh", "absolute", "reciprocal"]),
    st.floats(-20, 20),
    st.floats(0, 10),
    st.floats(0, 1),
)
def test_intervals_contain_every_value(name, low, width, part):
    function = {"absolute": np.abs, "reciprocal": np.reciprocal}.get(name) or getattr(np, name)
    box = Interval(np.array(low), np.array(low + width))
    with np.errstate(all="ignore"):
        value = function(np.float64(low + part * width))
        image = getattr(intervals, name)(box)
    assert np.isnan(value) or image.low <= value <= image.high


@pytest.mark.parametrize(
    ("name", "at"), [("reciprocal", 5e-324), ("reciprocal", -5e-324), ("exp", 1000.0), ("exp", -1000.0)]
)
def test_intervals_at_the_ends_of_the_floats(name, at):
    """Overflow leaves a bound that is a number, below the true value, which is finite."""
    with np.errstate(all="ignore"):
        image = getattr(intervals, name)(Interval(np.array(at), np.array(at)))
        squared = intervals.integer_power(Interval(np.array(1e200), np.array(2e200)), 2)
    assert image.low <= image.high
    assert image.low < np.inf
    assert image.high > -np.inf
    assert 1e308 < squared.low < squared.high == np.inf


@settings(max_examples=200)
@given(*[st.floats(-5, 5)] * 2, *[st.floats(0, 3)] * 2, *[st.floats(0, 1)] * 2, st.integers(1, 7))
def test_sums_products_and_powers_contain_every_value(a, b, wide_a, wide_b, s, t, k):
    left, right = Interval(np.array(a), np.array(a + wide_a)), Interval(np.array(b), np.array(b + wide_b))
    x, y = a + s * wide_a, b + t * wide_b
    for image, value in ((left + right, x + y), (left * right, x * y), (intervals.integer_power(left, k), x**k)):
        assert image.low <= value <= image.high


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x11 +",
        "x11 x12",
        "x13",
        "x21",
        "x1",
        "sinn(x11)",
        "sin x11",
        "x11**0.5",
        "x11^x12",
        "x11^101",
        "__import__('os')",
        "x11.real",
        "lambda: 0",
        "(" * 200 + "x11" + ")" * 200,
        "-" * 300 + "x11",
        "x11+" * 300 + "x11",
        "1;2",
        "x11[0]",
    ],
)
def test_everything_else_is_refused_in_one_sentence(text):
    with pytest.raises(InfoFlowError) as caught:
        parse(text, 1, 2)
    assert "\n" not in str(caught.value)


def test_the_refusal_names_the_place():
    with pytest.raises(InfoFlowError, match="character 7 of 'x11 \\+ @', got '@'"):
        parse("x11 + @", 1, 2)


def test_a_long_sum_is_fine():
    f = parse("+".join(["x11"] * 240), 1, 1)
    assert f(np.full((1, 1, 1), 0.5))[0] == 120
    assert abs(f.partial_bounds(1.0)[0, 0] - 240) < 1e-6


LONG = {
    "x11" + "+1" * 498: lambda x, y: x + 498,
    "x11" + "-x12" * 249: lambda x, y: x - 249 * y,
    "*".join(["x11"] * 250): lambda x, y: x**250,
    "(x11+1)*" * 124 + "x12": lambda x, y: (x + 1) ** 124 * y,
    "tanh(" * 60 + "x11" + ")" * 60: None,
    "1-x11+1*tanh(" * 60 + "x11" + ")" * 60: None,
    "x11*(1+" * 60 + "x12" + ")" * 60: None,
    "-" * 60 + "x11": lambda x, y: x,
}


@pytest.mark.parametrize("text", LONG)
def test_whatever_is_short_enough_is_evaluated_differentiated_and_enclosed(text):
    """Within the limit of characters no chain and no nesting is too deep for Python's stack."""
    f = parse(text, 1, 2)
    X = np.random.default_rng(0).uniform(-1, 1, (50, 1, 2))
    values = f(X)
    if LONG[text] is not None:
        np.testing.assert_allclose(values, LONG[text](X[:, 0, 0], X[:, 0, 1]), rtol=1e-12, atol=1e-12)
    low, high = f.range_bounds(1.0)
    assert low <= values.min() <= values.max() <= high
    step = 1e-6
    moved = np.abs(f(X * (1 - step)) - values).max() / step  # at most the sum of the partial bounds
    assert moved <= f.partial_bounds(1.0).sum() * (1 + 1e-3) + 1e-6


def test_a_chain_is_worked_off_from_the_left():
    """To the last bit as Python does it: tables of saved networks were made so."""
    X = np.random.default_rng(1).uniform(-1, 1, (200, 1, 3))
    a, b, c = X[:, 0, 0], X[:, 0, 1], X[:, 0, 2]
    for text, value in (
        ("x11+x12+x13+x11", a + b + c + a),
        ("x11+(x12+x13)+x11", a + (b + c) + a),
        ("(x11+x12)+(x13+x11)", (a + b) + (c + a)),
        ("x11*x12*x13*x11", a * b * c * a),
        ("x11*(x12*x13)*x11", a * (b * c) * a),
        ("x11-x12-x13", a + -1.0 * b + -1.0 * c),
    ):
        assert np.array_equal(parse(text, 1, 3)(X), value)


def test_what_is_multiplied_by_itself_is_a_square():
    for text in ("x11*x11", "(x11*x12)*(x11*x12)", "x11*x12*(x11*x12)"):
        assert parse(text, 1, 2).range_bounds(1.0, boxes=1)[0] > -1e-9
