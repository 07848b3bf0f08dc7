"""Every exact number of the counting law, and each closed form against a plain loop."""

from fractions import Fraction
from math import comb, isqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.flow import counting as c

small_heads = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def loop_count(T, heads, token_sizes, cls_sizes, b, trees=1):
    """Equation (5), position by position and head by head."""
    total = 0
    for l in range(len(heads) - 1):
        for _ in range(T):
            total += trees * max(0, token_sizes[l] ** b - 1) + sum(T - 1 for _ in range(heads[l]))
    for l in range(len(heads)):
        total += trees * max(0, cls_sizes[l] ** b - 1) + sum(T - 1 for _ in range(heads[l]))
    return total


@given(st.integers(1, 12), small_heads, st.integers(1, 3), st.integers(1, 3))
def test_model_count_equals_the_loop(T, heads, b, trees):
    tokens, cls = c.token_capacity(heads, T), c.cls_capacity(heads, T)
    assert c.model_count(T, heads, tokens, cls, b, trees) == loop_count(T, heads, tokens, cls, b, trees)
    assert c.capacity_count(T, heads, b, trees) == loop_count(T, heads, tokens, cls, b, trees)


def test_an_empty_set_compares_nothing():
    """As printed, (5) charges -1 for the CLS that has not read anything yet."""
    counted = c.model_count(64, (4, 4), (5,), (0, 8), 2)
    assert counted == loop_count(64, (4, 4), (5,), (0, 8), 2) == c.attention_count((4, 4), 64) + 64 * 24 + 63


@given(small_heads, st.integers(1, 40))
def test_capacities_follow_the_update_rule(heads, T):
    """One step of max-position retrieval adds at most h sets of the old size (to the CLS: of the tokens' old size)."""
    token, cls = 1, 0
    for l, h in enumerate(heads):
        token, cls = token + h * token, cls + h * token
        assert c.token_capacity(heads, T)[l] == min(T, token)
        assert c.cls_capacity(heads, T)[l] == min(T, cls)


@given(st.integers(0, 10**12), st.integers(1, 5))
def test_integer_root_is_least(value, degree):
    m = c.ceil_root(value, degree)
    assert m**degree >= value
    assert m == 0 or (m - 1) ** degree < value


def test_integer_root_beyond_floats():
    assert c.ceil_root(10**60, 3) == 10**20
    assert c.ceil_root(10**60 + 1, 3) == 10**20 + 1


@given(st.integers(0, 4000), st.integers(1, 12), small_heads, st.integers(1, 3), st.integers(1, 2))
def test_smallest_set_equals_the_search(required, T, heads, b, trees):
    found = c.smallest_set(required, T, heads, b, trees)

    def reached(M):
        return c.model_count(T, heads, (M,) * len(heads), (M,) * len(heads), b, trees) >= required

    assert found >= 1
    assert reached(found)
    assert found == 1 or not reached(found - 1)


@given(
    st.integers(1, 3000),
    st.integers(1, 9),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=3),
    st.integers(1, 3),
)
def test_exponent_equals_the_search_over_all_breakpoints(required, T, d, layers, b):
    heads = tuple(h for h, _ in layers)
    embed = tuple(h * n for h, n in layers)
    floor = max(Fraction(0), Fraction(d, max(embed)) - 1)
    candidates = {floor} | {Fraction(k * d, total) - 1 for total in embed for k in range(1, T + 1)}
    reached = [t for t in candidates if t >= floor and c.count_at(t, T, d, heads, embed, b) >= required]
    assert c.counting_exponent(required, T, d, heads, embed, b) == min(reached, default=None)


@given(st.integers(2, 300), st.integers(1, 4), st.integers(1, 40))
def test_exponent_with_equal_embeddings_is_the_smallest_set_law(T, d, n):
    heads, embed = (2, 2), (2 * n, 2 * n)
    M = c.smallest_set(T**3 - 1, T, heads, 3)
    expected = max(Fraction(0), Fraction(M * d, 2 * n) - 1) if M <= T else None
    assert c.counting_exponent(T**3 - 1, T, d, heads, embed, 3) == expected


@pytest.mark.parametrize(
    ("heads", "embed", "lower", "ordered"),
    [((2, 2), 24, 111, 44), ((4, 4), 24, 118, 45), ((4, 4), 48, 303, 121)],
)
def test_triangle_center_turns_positive(heads, embed, lower, ordered):
    def positive(T, required):
        return (c.counting_exponent(required, T, 2, heads, (embed,) * 2, 3) or 0) > 0

    assert next(T for T in range(4, 400) if positive(T, comb(T, 3) - 3)) == lower
    assert next(T for T in range(4, 400) if positive(T, comb(T, 3) - 1)) == lower
    assert next(T for T in range(4, 400) if positive(T, T**3 - 1)) == ordered


def test_triangle_center_at_64():
    assert c.smallest_set(comb(64, 3) - 3, 64, (2, 2), 3) == 8
    assert c.counting_exponent(comb(64, 3) - 3, 64, 2, (2, 2), (24, 24), 3) == 0
    assert c.counting_exponent(64**3 - 1, 64, 2, (2, 2), (24, 24), 3) == Fraction(1, 3)


@pytest.mark.parametrize(("E", "first"), [(24, 4888), (48, 13825)])
def test_printed_triangle_law_turns_positive_much_later(E, first):
    """The printed exponent is T^(2/3) / (6 L E) - 1 with 6 L instead of (6 L)^(1/3): positive when T^2 > (6 L E)^3."""
    threshold = (6 * 2 * E) ** 3
    assert isqrt(threshold) + 1 == first
    assert first**2 > threshold >= (first - 1) ** 2


def test_star_needs_no_such_set_yet_counting_demands_one():
    """Proposition 2 as printed: max over triples of x1'Ax2 + x3'Bx2 runs with sets of 3; the count asks for 8..102."""
    lengths = (64, 128, 1024)
    assert [c.smallest_set(comb(T, 3) - 1, T, (2, 1), 3) for T in lengths] == [8, 14, 56]
    assert [c.smallest_set(T**3 - 1, T, (2, 1), 3) for T in lengths] == [16, 26, 102]


def test_smallest_head_count_depends_on_the_count_used():
    """Proposition 1: h1 >= D follows from the ordered count only."""

    def least(required):
        return next(h for h in range(1, 9) if c.capacity_count(64, (h, h), 2) >= required)

    D, T = 4, 64
    assert least(D * (T**2 - 1)) == 4
    assert least(D * (comb(T, 2) - 1)) == 2
    assert least(comb(T, 2) - 2 * D) == 1


def printed_47(T, h1, h2):
    return T * (h1 + 1) ** 2 - T + h1 * T * (T - 1) + h1**2 + (h1 + 1) ** 2 * (h2 + 1) ** 2 - 2 + 2 * (T - 1)


def repaired_47(T, h1, h2):
    inner = T * ((h1 + 1) ** 2 - 1) + h1**2 - 1 + ((h1 + 1) * (h2 + 1) - 1) ** 2 - 1
    return inner + h1 * T * (T - 1) + (h1 + h2) * (T - 1)


def test_printed_47_is_below_what_it_bounds():
    """Sets of sizes h1 + 1, h1, (h1+1)(h2+1) - 1 count 706 at T = 10, h = (3, 3); the printed bound says 701. Those 15
    positions need T >= 15 to be possible: there the chain breaks for sets that exist."""
    assert c.model_count(10, (3, 3), (4,), (3, 15), 2) == repaired_47(10, 3, 3) == 706
    assert printed_47(10, 3, 3) == 701
    assert c.capacity_count(10, (3, 3), 2) == 581
    assert printed_47(15, 3, 3) < c.capacity_count(15, (3, 3), 2) == repaired_47(15, 3, 3)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 80))
def test_repaired_47_holds(h1, h2, T):
    assert c.capacity_count(T, (h1, h2), 2) <= repaired_47(T, h1, h2)
    if (h1 + 1) * (h2 + 1) - 1 <= T:
        assert c.capacity_count(T, (h1, h2), 2) == repaired_47(T, h1, h2)


def test_equation_5_contradicts_section_6():
    """One head with global aggregation counts 126 < 240 = D (T - D), yet Section 6 uses it; D trees repair it."""
    assert c.model_count(64, (1,), (), (64,), 1) == 126
    assert c.model_count(64, (1,), (), (64,), 1) < 4 * (64 - 4) == 240
    assert c.model_count(64, (1,), (), (64,), 1, internal_trees=4) >= 240


@given(st.integers(1, 20), st.integers(20, 90))
def test_one_layer_count(s, T):
    assert c.one_layer_count(s, T) == s * T - 1


@given(st.integers(1, 8), st.integers(0, 400))
def test_one_layer_forces_D_heads_only_for_long_sequences(D, extra):
    """s T - 1 >= D (T - D) forces s >= D exactly when T >= D^2 (D > 1): with s = D - 1 it fails from there on."""
    T = max(D, 1) + extra
    enough_with_fewer = D > 1 and (D - 1) * T - 1 >= D * (T - D)
    assert enough_with_fewer == (D > 1 and T < D * D)


def test_mode_costs():
    assert c.mode_cost("max", 64, 2, 8, size=27) == Fraction(23, 4)
    assert c.mode_cost("global", 64, 2, 8) == 15
    assert c.mode_cost("specific", 64, 2, 8, positions=3, source=5) == Fraction(11, 4)
    assert c.mode_cost("max", 64, 2, 8, size=4) == 0
    assert c.mode_cost("skip", 64, 2, 8) == 0


def test_a_million_tokens_are_no_loop():
    T = 10**6
    M = c.smallest_set(T**3 - 1, T, (4, 4), 3)
    assert M**3 * (T + 2) + c.attention_count((4, 4), T) >= T**3 - 1
    assert c.counting_exponent(T**3 - 1, T, 2, (4, 4), (24, 48), 3) > 0
