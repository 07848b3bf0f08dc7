"""Proved bounds: the numbers, the geometry, and the pigeonhole argument carried out on random models."""

from fractions import Fraction
from itertools import product
from math import cos, exp, inf, log, pi, sin

import numpy as np
import pytest

from infoflow import Architecture, targets
from infoflow.flow.counting import ceil_root
from infoflow.verdicts import bounds
from infoflow.verdicts.caps import MARGIN, cap_angle, chord, ring_angle
from infoflow.verdicts.pigeonhole import LARGEST, STEPS, log_width, width_of


def test_exponents():
    assert bounds.theorem_4_exponent(64, 2, 6) == Fraction(46, 15)
    informal = Fraction(64 - 2 * 2, 2 * (6 + 1) + 1) - 1
    assert informal == 3
    assert bounds.theorem_4_exponent(64, 1, 6) == Fraction(64 - 2, 8) - 1 == Fraction(27, 4)
    assert bounds.theorem_5_exponent(8, 2, 6) == 0
    assert bounds.theorem_5_exponent(64, 2, 4) == Fraction(58, 5)
    assert bounds.head_count_exponent(64, 1, 4, 2) == 2
    assert float(bounds.head_count_exponent(250, 1, 2, 2)) == pytest.approx(14.1, abs=0.05)


def test_theorem_5_own_formula():
    assert exp(bounds.theorem_5_log_width(64, 2, 4, 1e-4)) == pytest.approx(1.047e5, rel=1e-3)
    assert bounds.theorem_5_log_width(64, 2, 4, 1e-3) == -inf  # N = 0
    assert bounds.theorem_5_log_width(64, 2, 4, 1 / (64 * 63)) == -inf  # eps < 1/(64 m) is strict
    assert width_of(bounds.theorem_5_log_width(64, 2, 4, 5e-4)) is None
    assert bounds.theorem_5_log_width(2, 2, 1, 1e-6) > -inf  # m = 1, N = 62500: 9 * 62500 > 16
    assert bounds.theorem_5_log_width(2, 2, 3, 1 / 72) > -inf  # N = 4: 3^4 * 4 > 4^4
    assert bounds.theorem_5_log_width(2, 2, 4, 1 / 72) == -inf  # 3^5 * 4 < 4^5
    assert exp(bounds.theorem_5_log_width(64, 2, 4, 1e-4, 2.0)) == pytest.approx(1.047e5 / 4, rel=1e-3)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 4), (1, 5), (2, 3), (3, 40), (1, 60)])
def test_theorem_5_pigeonhole_condition_is_the_exact_one(m, n):
    """(N^{m/(n+1)}/4 + 1)^{n+1} < N^m, decided with integers: 3^{n+1} N^m > 4^{n+1}."""
    eps = 1 / (65 * m)
    N = int(1 / (16 * m * eps))
    assert (bounds.theorem_5_log_width(m + 1, 2, n, eps) > -inf) == (3 ** (n + 1) * N**m > 4 ** (n + 1))


def centres(H, d):
    """The arrangement `cap_angle` speaks of."""
    count, rho = H + 1, cap_angle(H, d)
    points = np.zeros((count, d))
    if count <= d:
        gram = np.full((count, count), cos(2 * pi / 5)) + (1 - cos(2 * pi / 5)) * np.eye(count)
        points[:, :count] = np.linalg.cholesky(gram)
    elif d >= 3 and ring_angle(count) > pi / (2 * H + 3):
        angles, radius = 2 * pi * np.arange(count) / count, (pi - 3 * rho / MARGIN) / 2
        points[:, 0], points[:, 1], points[:, 2] = (
            sin(radius) * np.cos(angles),
            sin(radius) * np.sin(angles),
            cos(radius),
        )
    else:
        angles = 2 * pi / (2 * H + 3) * np.arange(count)
        points[:, 0], points[:, 1] = np.cos(angles), np.sin(angles)
    return points


@pytest.mark.parametrize(("H", "d"), [(H, d) for H in range(1, 9) for d in (2, 3, 4, 6)])
def test_caps_are_disjoint_and_never_opposed(H, d):
    points, rho = centres(H, d), cap_angle(H, d)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1.0)
    angles = np.arccos(np.clip(points @ points.T, -1, 1))[np.triu_indices(H + 1, 1)]
    assert angles.min() > 2 * rho
    assert angles.max() + 2 * rho <= pi - rho
    assert rho <= pi / 5
    worst = 2 + 2 * cos(angles.max() + 2 * rho)  # |w + w'|^2 of the farthest two points
    assert worst >= chord(rho) ** 2 - 1e-12


def test_log_width_never_rises_with_eps_or_weight_bound_and_uses_long_sequences():
    values = [log_width(0.38, 62, 1, 6, eps) for eps in np.geomspace(1e-7, 1e-2, 60)]
    finite = [v for v in values if v > 0]
    assert finite == sorted(finite, reverse=True)
    assert values[-1] < 0
    assert log_width(0.38, 62, 1, 6, 1e-5, 2.0) < log_width(0.38, 62, 1, 6, 1e-5, 1.0)
    by_length = [log_width(0.38, free, 1, 6, 1e-4) for free in (10, 60, 300, 1000, 10**6)]
    assert by_length == sorted(by_length)


@pytest.mark.parametrize(("H", "n", "B"), [(1, 1, 1.0), (1, 3, 1.0), (2, 2, 1.5), (3, 1, 0.7)])
@pytest.mark.parametrize(("span", "free", "eps"), [(0.4, 30, 1e-3), (1.0, 40, 1e-3), (0.2, 25, 3e-4)])
def test_log_width_is_the_derived_formula(H, n, B, span, free, eps):
    """The best (s - 2) eps c / (4 m E^(5/2) B^4), c = floor(N^(m/(H(n+1)))) by integers, over every grid: at most
    that, and less only by the floor and by the grids that are not tried."""
    best = 0.0
    for s in STEPS:
        for N in range(2, int(span / (s * eps)) + 1):
            for m in range(1, min(free, int(span / (s * eps) / N)) + 1):
                c = ceil_root(N**m + 1, H * (n + 1)) - 1
                best = max(best, (s - 2) * eps * c / (4 * m * (H * n) ** 2.5 * B**4))
    found = exp(log_width(span, free, H, n, eps, B))
    assert found <= best * (1 + 1e-12)
    assert found >= 0.9 * best


def test_a_huge_bound_is_still_a_number():
    assert width_of(log_width(0.5, 10**4, 1, 1, 1e-7)) == LARGEST
    assert width_of(0.0) is None
    assert width_of(-inf) is None


def collision(values, weights, m, N, c, V):
    """Two grid sequences in the same cells. values (H, m, N, n) in [-V, V], weights (H, m, N) in (0, 1]."""
    seen = {}
    half = -(-c // 2)
    for z in product(range(N), repeat=m):
        where = np.arange(m), np.array(z)
        sums = (weights[:, *where, None] * values[:, *where, :]).sum(1)  # (H, n)
        mass = weights[:, *where].sum(1)
        cell = (
            tuple(np.minimum((sums + m * V) / (2 * m * V) * c, c - 1).astype(int).ravel()),
            tuple(np.minimum(mass / m * half, half - 1).astype(int)),
        )
        if cell in seen:
            return seen[cell], z
        seen[cell] = z
    return None


@pytest.mark.parametrize("seed", range(12))
def test_pigeonhole_on_random_models(seed):
    """The argument of `pigeonhole`, step by step: cells collide, the averages of the refilled sequences are within
    4 m V / c, and a read-out with weights <= 1 moves by at most p B^3 E^2 times that."""
    rng = np.random.default_rng(seed)
    H, n, m, N = [(1, 1, 5, 4), (1, 2, 6, 3), (2, 1, 6, 4)][seed % 3]
    E, B = H * n, 1.0
    V = B * E**0.5
    c = int(np.floor(N ** (m / (H * (n + 1))) + 1e-12))
    assert (c**n * -(-c // 2)) ** H < N**m
    weights = rng.uniform(0, 1, (H, m, N)) ** rng.integers(1, 9)
    values = V * np.sign(rng.standard_normal((H, m, N, n))) * rng.uniform(0, 1, (H, m, N, n)) ** 0.3
    first, second = collision(values, weights, m, N, c, V)
    differ = [j for j in range(m) if first[j] != second[j]]
    refill_value, refill_weight = rng.uniform(-V, V, (H, n)), rng.uniform(0, 1, H)
    fixed_weight = np.array([1.0 + 5 * rng.random(), 1.0][:H] + [1.0] * (H - 2))
    fixed_value = rng.uniform(-V, V, (H, n))

    def average(z):
        total = fixed_weight[:, None] * fixed_value + (m - len(differ)) * refill_weight[:, None] * refill_value
        mass = fixed_weight + (m - len(differ)) * refill_weight
        for j in differ:
            total = total + weights[:, j, z[j], None] * values[:, j, z[j]]
            mass = mass + weights[:, j, z[j]]
        return (total / mass[:, None]).ravel()

    gap = np.abs(average(first) - average(second)).max()
    assert gap <= 4 * m * V / c + 1e-12
    p = 7
    output, inner = rng.choice([-B, B], (E, E)), rng.choice([-B, B], (p, E))
    outer, bias = rng.choice([-B, B], p), rng.uniform(-B, B, p)

    def readout(A):
        return outer @ np.tanh(inner @ (output @ A) + bias)

    assert abs(readout(average(first)) - readout(average(second))) <= p * B**3 * E**2 * gap + 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_theorem_4_step_by_step(seed):
    """Caps, heaviest tokens, grid, collision, refill: two inputs of the real target, H + 1 of whose T tokens are fixed
    and whose free sums share every cell, differ by at least one step."""
    rng = np.random.default_rng(seed)
    H, d, n = [(1, 3, 1), (2, 3, 1), (1, 2, 2)][seed % 3]
    F, N, m = targets.min_pair(d=d), 4, 5
    T, V, rho = m + H + 1, 1.0, cap_angle(H, d)
    keys, values = rng.standard_normal((H, d)), rng.standard_normal((H, n, d))
    code = rng.standard_normal((H, T))

    def weight(x, t):  # (H,): depends on content and position
        return np.exp(3 * keys @ x + code[:, t])

    def value(x, t):  # (H, n) in [-V, V]
        return V * np.tanh(values @ x + t)

    antipodes = -centres(H, d)
    caps = [_cap(centre, rho, rng) for centre in antipodes]
    points = np.vstack(caps)
    free, heavy = list(range(T)), []
    for i in range(H):
        scores = np.array([[weight(x, t)[i] for t in free] for x in points])
        best, where = np.unravel_index(scores.argmax(), scores.shape)
        heavy.append((free.pop(int(where)), points[best], int(best) // len(caps[0])))
    hit = {cap for _, _, cap in heavy}
    chosen = next(cap for cap in range(H + 1) if cap not in hit)
    centre = antipodes[chosen]
    fixed = {t: x for t, x, _ in heavy} | {free.pop(): -centre}
    assert len(free) == m == T - H - 1
    length = chord(rho)
    step = length**2 / (m * N)
    grid = [[_at_distance(centre, caps[chosen], (j * N + i) * step) for i in range(N)] for j in range(m)]
    norm = np.array([weight(fixed[heavy[i][0]], heavy[i][0])[i] for i in range(H)])
    w = np.array([[weight(x, free[j]) / norm for x in row] for j, row in enumerate(grid)]).transpose(2, 0, 1)
    v = np.array([[value(x, free[j]) for x in row] for j, row in enumerate(grid)]).transpose(2, 0, 1, 3)
    c = int(np.floor(N ** (m / (H * (n + 1))) + 1e-12))
    w = np.minimum(w, 1.0)  # the caps are sampled: the true maximum over a cap is a little larger than the found one
    first, second = collision(v, w, m, N, c, V)
    differ = [j for j in range(m) if first[j] != second[j]]

    def sequence(z):
        X = np.empty((T, d))
        for t, x in fixed.items():
            X[t] = x
        for j, t in enumerate(free):
            X[t] = grid[j][z[j]] if j in differ else heavy[0][1]
        return X

    gap = abs(F(sequence(first)) - F(sequence(second)))
    assert gap >= step - 1e-9
    assert np.abs(sequence(first)).max() <= 1 + 1e-12


def _cap(centre, rho, rng, count=60):
    """Random points of the closed cap, the centre among them, all within the angle rho."""
    side = rng.standard_normal((count, len(centre)))
    side -= (side @ centre)[:, None] * centre
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    angles = rho * np.concatenate([[0.0], rng.random(count - 1)])
    return np.cos(angles)[:, None] * centre + np.sin(angles)[:, None] * side


def _at_distance(centre, cap, squared):
    """A point of the sphere at this squared distance from the centre, towards a point of the cap."""
    side = cap[1] - (cap[1] @ centre) * centre
    angle = 2 * np.arcsin(np.sqrt(squared) / 2)
    return np.cos(angle) * centre + np.sin(angle) * side / np.linalg.norm(side)


def test_free_positions_of_each_bound():
    """T - H - 1, T - k and min |S_i| - h - D + 1 positions are free."""
    eps, T = 1e-6, 40
    span = chord(cap_angle(2, 3)) ** 2
    found = bounds.depth_separation(targets.min_pair(), Architecture(2, 4), T, eps, 1.0)
    assert found.width_at_eps == width_of(log_width(span, T - 3, 2, 2, eps))
    found = bounds.kth_largest(targets.kth_largest(k=3), Architecture(1, 2), T, eps, 1.0)
    assert found.width_at_eps == width_of(log_width(0.5, T - 3, 1, 2, eps))
    F = targets.d_retrieval(D=3, d=2)
    found = bounds.head_count(F, Architecture(1, 1), T, eps, 1.0)
    assert found.width_at_eps == width_of(log_width(bounds._separated_squares(F), T - 1 - 3 + 1, 1, 1, eps))


def test_depth_separation_at_several_eps():
    F, arch = targets.min_pair(), Architecture(1, 6)

    def width(eps, T=64, **options):
        (found,), _ = bounds.lower_bounds(F, arch, T, eps, **options)
        assert found.exponent == bounds.theorem_4_exponent(T, 1, 6)
        return found.width_at_eps

    assert width(1e-2) is None
    assert width(1e-3) is None
    assert width(1e-4) > 1e3
    assert width(1e-6) > width(1e-5) > width(1e-4)
    assert width(1e-4, weight_bound=10.0) is None
    assert width(1e-4, T=128) > width(1e-4)


@pytest.mark.parametrize(
    "F",
    [
        targets.pairwise_max(D=1, d=3),
        targets.triangle_center(d=3),
        targets.Target.sum(targets.Extremum(targets.TreeScore.bilinear(np.eye(3)), "max")),
        targets.Target.sum(targets.Extremum(targets.TreeScore.bilinear(np.eye(3)), "min"), domain=(0.0, 1.0)),
        targets.sum_of_maxima(D=1),
    ],
    ids=["A", "cyclic", "max", "positive orthant", "linear"],
)
def test_depth_separation_is_silent_elsewhere(F):
    assert bounds.depth_separation(F, Architecture(1, 6), 64, 1e-6, 1.0) == ""


def test_depth_separation_knows_equal_forms():
    same = targets.Target.sum(targets.Extremum(targets.NormOfSum(2, 3), "min"))
    flipped = targets.Target.sum(targets.Extremum(targets.TreeScore.bilinear(-2 * np.eye(3)), "max"))
    expected = bounds.depth_separation(targets.min_pair(), Architecture(1, 6), 64, 1e-5, 1.0).width_at_eps
    for F in (same, flipped):
        assert bounds.depth_separation(F, Architecture(1, 6), 64, 1e-5, 1.0).width_at_eps == pytest.approx(expected)


def test_kth_largest_bound():
    (found,), silent = bounds.lower_bounds(targets.kth_largest(k=2), Architecture(1, 4), 64, 1e-4)
    assert silent == []
    assert found.exponent == Fraction(58, 5)
    assert found.theorem_width == pytest.approx(1.047e5, rel=1e-3)
    assert found.width_at_eps > found.theorem_width  # the whole range is used, and a finer step
    (empty,), _ = bounds.lower_bounds(targets.kth_largest(k=2), Architecture(1, 4), 64, 1e-3)
    assert empty.width_at_eps is None
    assert empty.theorem_width is None


@pytest.mark.parametrize(
    ("k", "arch", "word"),
    [(1, Architecture(1, 4), None), (2, Architecture(2, 4), "one head"), (2, Architecture(1, 70), "exponent")],
)
def test_kth_largest_is_silent(k, arch, word):
    found, silent = bounds.lower_bounds(targets.kth_largest(k=k), arch, 64, 1e-6)
    assert found == []
    assert word is None or any(word in reason for reason in silent)


def test_bounds_need_one_layer_and_bounded_weights():
    F = targets.min_pair()
    assert bounds.lower_bounds(F, Architecture((1, 1), 6), 64, 1e-6)[0] == []
    assert bounds.lower_bounds(F, Architecture(1, 6), 64, 1e-6, None)[0] == []


def test_head_count_bound():
    F = targets.d_retrieval(D=4, d=4)
    (found,), _ = bounds.lower_bounds(F, Architecture(1, 2), 64, 1e-6)
    assert found.exponent == 2
    assert found.width_at_eps > 1
    assert bounds.lower_bounds(F, Architecture(4, 8), 64, 1e-6)[0] == []
    found, silent = bounds.lower_bounds(targets.sum_of_maxima(), Architecture(1, 2), 64, 1e-6)
    assert found == []
    assert any("head-count" in reason for reason in silent)


def test_head_count_span_is_the_geometry():
    """F = 3 min |x|^2 - 2 min 5 |x - 1|^2 on [0,1]: L = 1/2 less a billionth, the span is min(3, 10) L^2."""
    square = [targets.Polynomial.quadratic(np.eye(1)), targets.Polynomial.quadratic(5 * np.eye(1), [-10.0], 5.0)]
    terms = tuple(targets.Extremum(targets.TreeScore((q,), (), 1), "min") for q in square)
    F = targets.Target(terms, targets.Polynomial.linear([[3.0, -2.0]]), 1, domain=(0.0, 1.0))
    assert bounds._separated_squares(F) == pytest.approx(3 * (0.5 * (1 - 1e-9)) ** 2, rel=1e-12, abs=0)
    assert bounds._separated_squares(targets.sum_of_maxima()) is None


@pytest.mark.parametrize("seed", range(8))
def test_head_count_balls_are_disjoint_and_inside(seed):
    """One ball of radius L around every z_i: no token lies in two of them, so L is at most half the least distance (a
    whole one would put z_j into the ball of z_i). Every distance up to L occurs, so L is at most half the side."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 1, size=(3, 2))
    squares = [targets.Polynomial.quadratic(np.eye(2), -2 * z, float(z @ z)) for z in points]
    terms = tuple(targets.Extremum(targets.TreeScore((q,), (), 2), "min") for q in squares)
    F = targets.Target(terms, targets.Polynomial.linear([[1.0, 1.0, 1.0]]), 2, domain=(0.0, 1.0))
    L = bounds._separated_squares(F) ** 0.5
    nearest = min(np.linalg.norm(a - b) for i, a in enumerate(points) for b in points[:i])
    assert nearest > 2 * L
    assert L <= 0.5
    assert pytest.approx(min(nearest / 2, 0.5)) == L
    for i, z in enumerate(points):  # a token of one ball is nearer to its own centre than L to any other
        X = z + L * (lambda v: v / np.linalg.norm(v, axis=1, keepdims=True))(rng.normal(size=(200, 2)))
        others = np.delete(points, i, axis=0)
        assert (np.linalg.norm(X[:, None] - others, axis=2) > L).all()


def test_head_count_knows_spheres_from_ellipsoids():
    """c |x - z|^2 alone has every distance around z; a quadratic that is 10% flatter along one axis is refused."""

    def of(*curvatures, kind="min"):
        term = targets.Extremum(targets.TreeScore((targets.Polynomial.quadratic(np.diag(curvatures)),), (), 2), kind)
        return list(bounds._spheres(term))

    ((c, z),) = of(1.5, 1.5)
    assert (c, z.tolist()) == (pytest.approx(1.5), [0.0, 0.0])
    assert of(1.0, 0.9) == of(1.0, -1.0) == of(1.5, 1.5, kind="max") == of(-1.5, -1.5) == []
    assert len(of(-1.5, -1.5, kind="max")) == 1


@pytest.mark.parametrize(
    ("F", "arch", "first"),
    [
        (targets.min_pair(3), Architecture(1, 6), 11),  # (T - 2)/8 > 1
        (targets.kth_largest(2, 1), Architecture(1, 3), 6),  # (T - 1)/4 > 1
        (targets.d_retrieval(D=4, d=4), Architecture(1, 2), 33),  # (T/4 - 4)/4 > 1
    ],
)
def test_a_theorem_speaks_from_the_first_positive_exponent_on(F, arch, first):
    silent, reasons = bounds.lower_bounds(F, arch, first - 1, 1e-6)
    assert silent == []
    assert "exponent is 0" in " ".join(reasons)
    (found,), _ = bounds.lower_bounds(F, arch, first, 1e-6)
    assert 0 < found.exponent < 1


def test_depth_separation_lives_on_the_sphere_inside_the_box():
    """|x(s) + x(t)|^2 on the sphere of radius 2 spans four times what it does on the unit sphere."""
    eps, cap = 1e-6, chord(cap_angle(1, 3)) ** 2
    for low, high, radius in ((-1.0, 1.0, 1.0), (-2.0, 3.0, 2.0), (-3.0, 2.0, 2.0)):
        F = targets.Target.sum(*targets.min_pair(3).terms, domain=(low, high))
        c = bounds._inner_product_scale(F)
        (found,), _ = bounds.lower_bounds(F, Architecture(1, 6), 64, eps)
        assert found.width_at_eps == pytest.approx(width_of(log_width(c / 2 * radius**2 * cap, 62, 1, 6, eps)))


def test_a_curved_factor_is_no_inner_product():
    """x (y + y^2) has the linear part of x y on both sides; the theorem speaks of x y alone."""
    x, curved = targets.Polynomial.linear([[1.0]]), targets.Polynomial.quadratic([[1.0]], [1.0])
    for left, right, known in ((x, x, True), (x, curved, False), (curved, x, False)):
        score = targets.TreeScore((None, None), (targets.Edge(0, 1, left, right),), 1)
        F = targets.Target.sum(targets.Extremum(score, "min"))
        assert (bounds._inner_product_scale(F) is not None) == known


def test_theorem_5_scales_with_what_it_retrieves():
    """The k-th largest of 3 x with error 3 eps is that of x with error eps."""
    arch = Architecture((1,), (1,))
    widths = [
        bounds.kth_largest(targets.Target.sum(targets.KthLargest(2, [c]), domain=(0.0, 1.0)), arch, 40, c * 1e-4, 1.0)
        for c in (1.0, 3.0, 0.25)
    ]
    assert widths[0].theorem_width > 1
    for each in widths[1:]:
        assert each.theorem_width == pytest.approx(widths[0].theorem_width, rel=1e-9)


def test_a_form_is_an_inner_product_up_to_a_trillionth():
    for off, known in ((0.5e-12, True), (1.5e-12, False)):
        matrix = np.eye(2) + off * np.array([[0.0, 1.0], [0.0, 0.0]])
        F = targets.Target.sum(targets.Extremum(targets.TreeScore.bilinear(matrix), "min"))
        assert (bounds._inner_product_scale(F) is not None) == known


def test_three_cells_are_enough_for_a_bound_where_weights_are_small():
    """Two free positions of three points, one head of one number: c = floor(3^(2/2)); B = 1/1000 makes it count."""
    found = log_width(6.1 * 2.05 * 0.1, free=2, heads=1, head_dim=1, eps=0.1, weight_bound=1e-3, steps=(2.05,))
    wanted = log(0.05) + log(0.1) + log(3 - 1) - log(4 * 2) - 4 * log(1e-3)
    assert found == pytest.approx(wanted, abs=1e-8)
