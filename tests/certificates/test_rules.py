"""Chebyshev rules: the table of bounds and measured errors, and bounds that hold on grids and at random."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.certificates.rules import (
    CENTRE,
    ORDERS,
    UNIT,
    _functional,
    circle_maximum,
    measured_rule,
    power_rule,
    rule_bias,
    taylor,
)


def product_error(rule, r):
    g = np.linspace(-r, r, 301)
    x, y = np.meshgrid(g, g)
    return float(np.abs((rule(x + y) - rule(x - y)) / 4 - x * y).max())


# K, printed bound (r = 1/3), printed measured error, neurons per product with weights <= 1
PRODUCTS = [(1, 3.5e-2, 1.5e-2, 4), (2, 1.4e-3, 5.7e-4, 12), (3, 1.2e-4, 1.5e-5, 20), (4, 1.1e-5, 2.5e-6, 36)]
PRODUCTS += [(6, 1.4e-8, 3.8e-9, 72)]
LINEARS = [(1, 1.3e-2, 1.2e-2), (3, 1.5e-4, 1.3e-4), (5, 1.7e-6, 1.4e-6), (7, 1.9e-8, 1.6e-8), (9, 2.2e-10, 1.7e-10)]


@pytest.mark.parametrize(("K", "printed", "measured", "neurons"), PRODUCTS)
def test_product_table(K, printed, measured, neurons):
    rule = power_rule(2, K)
    found = product_error(rule, 1 / 3)
    bound = rule.error(2 / 3) / 4
    assert found == pytest.approx(measured, rel=0.04)
    assert found <= bound <= printed  # the sign of even orders halves the printed bound
    assert 4 * np.ceil(np.abs(rule.coefficients) / 4).sum() == neurons


@pytest.mark.parametrize(("N", "printed", "measured"), LINEARS)
def test_linear_table(N, printed, measured):
    rule = power_rule(1, (N + 1) // 2)
    u = np.linspace(-1 / 3, 1 / 3, 2001)
    found = float(np.abs(rule(u) - u).max())
    assert found == pytest.approx(measured, rel=0.05)
    assert found <= rule.error(1 / 3) == pytest.approx(printed, rel=0.04)  # two printed digits
    assert np.abs(rule.coefficients).sum() == pytest.approx(N, rel=1e-12)


def test_product_coefficients_grow_like_four_thirds_k_squared():
    for K in (2, 4, 8, 16):
        total = np.abs(power_rule(2, K).coefficients).sum() * 2 * abs(taylor(CENTRE)[2])
        assert total == pytest.approx(4 / 3 * K**2, rel=0.5)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 4), st.floats(0.05, 1.2), st.integers(0, 2**32 - 1))
def test_bound_holds(power, extra, radius, seed):
    rule = power_rule(power, (power + 1) // 2 + extra)
    u = np.random.default_rng(seed).uniform(-radius, radius, 400)
    u[:2] = -radius, radius
    slack = 1e-15 * np.abs(rule.coefficients).sum()
    assert np.abs(rule(u) - u**power).max() <= rule.error(radius) + slack


def test_error_is_infinite_beyond_the_circle():
    assert power_rule(2, 3).error(1.6) == math.inf


@pytest.mark.parametrize("bias", [0.0, 0.13, CENTRE, 1.0])
def test_closed_form_bounds_the_circle(bias):
    radius, bound = circle_maximum(bias)
    z = bias + radius * np.exp(1j * np.linspace(0, 2 * np.pi, 20001))
    assert np.abs(np.tanh(z)).max() <= bound <= 1.2 * np.abs(np.tanh(z)).max()


def test_taylor_coefficients():
    t = taylor(0.0)
    assert t[1] == 1
    assert t[3] == pytest.approx(-1 / 3, rel=1e-15)
    assert t[5] == pytest.approx(2 / 15, rel=1e-15)
    x = 0.3
    assert float(taylor(CENTRE) @ x ** np.arange(ORDERS + 1)) == pytest.approx(math.tanh(CENTRE + x), rel=1e-14)


def test_every_power_has_its_own_bias():
    assert len({rule_bias(k) for k in range(1, 9)}) == 8


@pytest.mark.parametrize(("power", "nodes"), [(1, 3), (2, 4), (3, 5)])
def test_the_sum_of_the_defects_is_not_rounded_down(power, nodes):
    rule = power_rule(power, nodes)
    for radius in (0.1, 0.3, 0.37):
        exact = sum(Fraction(float(d)) * Fraction(radius) ** m for m, d in enumerate(rule.defects))
        assert exact <= Fraction(rule.error(radius)) <= exact * Fraction(1 + 1e-12) + Fraction(1e-20)


def test_the_circle_is_covered_at_every_bias():
    """tanh on 20,000 points of the circle, between which it cannot hide 1e-6 of its size."""
    angles = np.linspace(0, np.pi, 20001)
    for bias in np.linspace(0.0, 0.9, 46):
        radius, bound = circle_maximum(float(bias))
        sampled = np.abs(np.tanh(bias + radius * np.exp(1j * angles))).max()
        assert sampled <= bound <= 1.02 * sampled


@pytest.mark.parametrize("bias", [0.0, 0.13, CENTRE, -CENTRE, 0.8])
def test_the_bound_on_the_circle_is_its_formula_arc_by_arc(bias):
    """1 + (1 - 2 cos^2 y)+ / (sinh^2 x + cos^2 y) at the smallest |x| and the largest |y| of each of 720 arcs."""
    radius = min(0.9 * math.hypot(bias, math.pi / 2), 0.99 * math.pi / 2)
    largest = 0.0
    for k in range(720):
        ends = [k * math.pi / 720, (k + 1) * math.pi / 720]
        xs = [bias + radius * math.cos(t) for t in ends]
        x = 0.0 if min(xs) <= 0 <= max(xs) else min(map(abs, xs))
        y = radius * (1.0 if k in (359, 360) else max(map(math.sin, ends)))
        cosine = math.cos(y) ** 2
        largest = max(largest, 1 + max(1 - 2 * cosine, 0) / (math.sinh(x) ** 2 + cosine))
    assert circle_maximum(bias) == pytest.approx((radius, math.sqrt(largest) * (1 + 1e-9)), rel=1e-12, abs=0)


def test_the_slack_of_a_rule_is_a_few_roundings_of_its_sums():
    """4e-16 for each node and image, of what is added up."""
    slopes, coefficients = np.array([1.0, 0.5, 0.25]), np.array([2.0, -1.0, 0.5])
    for power, bias, images in ((1, 0.0, 1), (2, CENTRE, 2)):
        rule = measured_rule(power, bias, slopes, coefficients)
        orders = np.arange(ORDERS + 1)
        table = slopes[None] ** orders[:, None]
        moments = images * table @ coefficients * taylor(bias) - (orders == power)
        slack = images * 4e-16 * 3 * (table @ np.abs(coefficients)) * np.abs(taylor(bias))
        counted = (orders % 2 == power % 2) & (orders > 0)
        assert np.allclose((rule.defects - np.abs(moments))[counted], slack[counted], rtol=0.3, atol=0)


def test_a_degree_that_no_polynomial_has_is_no_functional():
    assert _functional([Decimal(1), Decimal(2)], 5) == [Decimal(0), Decimal(0)]
    assert _functional([Decimal(1), Decimal(3)], 1) == [Decimal("-0.5"), Decimal("0.5")]


def test_the_unit_of_rounding_is_half_an_ulp_of_one():
    assert math.ulp(1.0) / 2 == UNIT


@pytest.mark.parametrize("power", range(4, 26, 2))
def test_the_bias_of_an_even_power_is_the_best_of_its_grid(power):
    best = max(abs(taylor(i / 40)[power]) for i in range(4, 41))
    assert abs(taylor(rule_bias(power))[power]) == best
