"""A table as ReLU units: exact values at the knots, the O(log m) form is the same function, rounding is bounded."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.construct.rank_one import lookup as lk


def exact(solved: lk.Lookup, t: float, axis: int) -> Fraction:
    value = Fraction(float(solved.start[axis]))
    for knot, c in zip(solved.knots[:-1].tolist(), solved.coefficients[:, axis].tolist(), strict=True):
        value += Fraction(c) * max(Fraction(t) - Fraction(knot), Fraction(0))
    return value


@settings(max_examples=40)
@given(st.integers(1, 30), st.integers(1, 3), st.integers(0, 10**6), st.sampled_from([1.0, 1e-6, 1e-30, 1e6]))
def test_stored_coefficients_reach_the_targets(m: int, d: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    knots = lk.grid(np.sort(rng.normal(size=m)) * scale)
    if len(np.unique(knots)) < m:
        return
    targets = rng.normal(size=(m, d)) * 10
    solved = lk.solve(knots, targets)
    for axis in range(d):
        for j in range(m):
            value = exact(solved, float(knots[j]), axis)
            assert float(value) == pytest.approx(solved.values[j, axis], abs=1e-13)  # the claim about itself
            steps = np.diff(knots)
            worst = 1.0 if j == 0 else float(max(1.0, steps[j - 1] / steps[max(j - 2, 0)]))
            assert abs(float(value - Fraction(float(targets[j, axis])))) <= 1e-13 * worst


def test_small_rounding_does_not_accumulate() -> None:
    """The compensated solve: after 3 000 knots the error at the last is still one rounding."""
    rng = np.random.default_rng(0)
    knots = np.sort(rng.random(3000))
    targets = rng.integers(1, 100, size=(3000, 1)).astype(float)
    solved = lk.solve(knots, targets)
    compensated = abs(float(exact(solved, float(knots[-1]), 0) - Fraction(float(targets[-1, 0]))))
    slopes = np.diff(targets[:, 0]) / np.diff(knots)
    naive = np.diff(slopes, prepend=0.0)
    reached = Fraction(float(targets[0, 0])) + sum(
        Fraction(float(c)) * (Fraction(float(knots[-1])) - Fraction(float(k)))
        for c, k in zip(naive, knots[:-1], strict=True)
    )
    assert compensated < 1e-11
    assert abs(float(reached - Fraction(float(targets[-1, 0])))) > 10 * compensated


@given(st.integers(0, 10**6))
def test_the_fast_form_is_the_same_function(seed: int) -> None:
    rng = np.random.default_rng(seed)
    knots = np.sort(rng.normal(size=12))
    solved = lk.solve(knots, rng.normal(size=(12, 2)))
    t = np.r_[rng.normal(size=20) * 2, knots, knots[0] - 5, knots[-1] + 5]
    dense = solved.start + np.maximum(t[:, None] - knots[None, :-1], 0) @ solved.coefficients
    assert np.abs(solved(t) - dense).max() <= 1e-9 * max(1.0, np.abs(dense).max())
    again = lk.read_back(solved.knots, solved.start, solved.coefficients)
    assert np.array_equal(again.values, solved.values)
    assert np.array_equal(again.slopes, solved.slopes)


@settings(max_examples=25)
@given(st.integers(2, 60), st.integers(0, 10**6))
def test_the_rounding_bound_holds_against_exact_arithmetic(m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    knots = np.sort(rng.normal(size=m))
    solved = lk.solve(knots, rng.integers(1, 50, size=(m, 1)).astype(float))
    error = 0.0
    order = rng.permutation(m - 1)  # any order of summation
    for t in knots:
        total = float(solved.start[0])
        for j in order:
            total += solved.coefficients[j, 0] * max(t - knots[j], 0.0)
        error = max(error, abs(float(Fraction(total) - exact(solved, float(t), 0))))
    assert error <= lk.rounding_bound(solved, 0.0, float(knots[-1]))
