"""Every row of the list of corrections to the rank-1 paper: the printed statement at its counterexample, then the
repair."""

import math

import numpy as np
import pytest
import torch

from infoflow.book.statements import boltzmann as bz
from infoflow.construct.rank_one import contexts as cx
from infoflow.construct.rank_one import equivariant as eq
from infoflow.construct.rank_one import hardmax as hm
from infoflow.construct.rank_one import positions as ps
from infoflow.construct.rank_one import scales
from infoflow.construct.rank_one.context_map import ContextMap
from infoflow.construct.rank_one.memorize import memorize, parameter_counts
from infoflow.construct.rank_one.network import rank_one_config
from infoflow.construct.rank_one.projection import key_quality, query_quality
from infoflow.construct.rank_one.separation import Separation, separation
from infoflow.errors import InfoFlowError


def relu(x: np.ndarray | float) -> np.ndarray:
    return np.maximum(x, 0.0)


def test_lemma_1_needs_different_multisets() -> None:
    a, b = np.array([0.0, 10.0]), np.array([10.0, 0.0])
    assert bz.boltz(a) == bz.boltz(b)  # a != b as vectors, separated by 10 > 2 log 2 + 3, gap 0
    assert not bz.separation(a, b).hypothesis
    assert bz.separation(a, np.array([10.0, -10.0])).hypothesis


def test_114_has_its_indices_exchanged() -> None:
    """For a decreasing vector i > j gives a_i - a_j < 0, so the printed hypothesis holds for no vector at all."""
    a = np.array([10.0, 0.0])
    assert not a[1] - a[0] > 2 * math.log(2) + 3
    assert a[0] - a[1] > 2 * math.log(2) + 3


def test_lemma_6_bounds_boltz_b_minus_boltz_a() -> None:
    a, b = np.array([10.0, 0.0]), np.array([10.0, -1.0])
    statement = bz.last_entry(a, b, 9.0)
    assert statement.hypothesis
    assert bz.boltz(a) - bz.boltz(b) < 0  # the text's difference is negative
    assert statement.left > statement.right > 0


def test_120_is_an_equality_at_the_last_entry() -> None:
    a = np.array([10.0, 0.0])  # k + 1 = n: a and its truncation are the same vector
    k = 1
    assert bz.boltz(a) == bz.boltz(a[: k + 1])
    assert bz.separation(a, np.array([10.0, -10.0]), "proof").holds  # the bound does not suffer


def test_theorem_1_needs_four_tokens() -> None:
    assert hm.context_gap(hm.separating_layer(2), 6, 2)[1] > 0
    assert hm.context_gap(hm.separating_layer(3), 6, 3)[1] > 0
    assert hm.hardmax_collision(2, 4).verify(hm.random_layer(2, 5, np.random.default_rng(0))) < 1e-14


def test_41_uses_u_dot_u_prime() -> None:
    made = ContextMap.fit(np.random.default_rng(0).normal(size=(3, 2, 2)), head_size=3)
    m = made.head.matrices()
    u, u_prime = m["W_K"] @ made.head.key / (made.head.key @ made.head.key), m["W_Q"][:, 0] / made.head.query[0]
    x, y = made.contexts.vocabulary[:2]
    score = (m["W_K"] @ x) @ (m["W_Q"] @ y)
    exact = (x @ made.head.key) * (y @ made.head.query)
    assert score == pytest.approx((u @ u_prime) * exact)
    assert score != pytest.approx((u_prime @ u_prime) * exact)  # as printed


def forms(V: int, n: int, d: int, eps: float, r_min: float, r_max: float) -> dict[str, float]:
    """log of (42) as printed, (42) repaired, (8) and (47)."""
    L = math.log(n)
    delta = 2 * L + 3
    volume = (V + 1) ** 4 * math.pi * d * delta
    gap = 2 * math.log(L) - 2 * volume * r_max**2 / (8 * eps * r_min)
    printed = math.log(eps / (4 * r_max)) + gap - math.log(volume * r_max)
    exponent = -volume * r_max**2 / (4 * eps * r_min)
    return {
        "42 printed": printed,
        "42": printed + math.log(8 * eps * r_min),
        "8": math.log(2 * L**2 * eps**2 * r_min / (r_max**2 * volume)) + exponent,
        "47": math.log(eps * r_min * L / (r_max**2 * volume)) + exponent,
    }


def test_42_lost_a_factor_and_47_differs_from_8() -> None:
    eps, n = 0.3, 5
    f = forms(4, n, 2, eps, 0.5, 2.0)
    assert f["42"] == pytest.approx(f["8"])
    assert f["42 printed"] != pytest.approx(f["8"])
    assert math.exp(f["8"] - f["47"]) == pytest.approx(2 * eps * math.log(n), rel=1e-6)


def test_47_is_false_for_small_data() -> None:
    """Under X -> c X ids and their gap scale by c; (8) does, (47) promises the same gap for every c."""
    base, tiny = (forms(2, 3, 1, 0.9 * c, 0.9 * c, 2.1 * c) for c in (1.0, 1e-100))
    assert tiny["8"] - base["8"] == pytest.approx(math.log(1e-100))
    assert tiny["47"] == pytest.approx(base["47"])
    X = np.array([[[1.0], [2.0]], [[1.0], [-2.0]]])
    one, small = (ContextMap.fit(X * c, "paper", seed=1) for c in (1.0, 1e-6))
    assert small.log10_gap == pytest.approx(one.log10_gap - 6, abs=1e-6 * abs(one.log10_gap))
    for made in (one, small):
        assert made.log10_gap >= scales.paper_gap(made.contexts, made.apart)


def test_value_and_key_share_v_1_not_value_and_query() -> None:
    m = ContextMap.fit(np.random.default_rng(1).normal(size=(4, 3, 3))).head.matrices()
    assert np.linalg.matrix_rank(np.vstack([m["W_V"], m["W_K"]])) == 1
    assert np.linalg.matrix_rank(np.vstack([m["W_V"], m["W_Q"]])) == 2
    assert rank_one_config(4).share_key_value


def test_the_query_direction_needs_no_pairwise_gaps() -> None:
    """v' gives two tokens the same q, violating (72), and all contexts still separate."""
    tokens = np.array([[1.0, 1.0], [2.0, 1.0], [4.0, 3.0]])
    v, w = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert key_quality(tokens @ w) == 0.0
    assert query_quality(tokens @ w) == pytest.approx(1 / 3)
    contexts = cx.contexts_of(tokens, np.array([[0, 1], [0, 2], [1, 2]]))
    beta = scales.sufficient_scale(contexts, v, w)
    from infoflow.construct.rank_one.certificate import saturated_order
    from infoflow.construct.rank_one.head import RankOneHead

    assert saturated_order(contexts, RankOneHead(v, beta * w, v)).holds


def test_8_and_16_are_zero_for_one_token_and_the_repairs_are_not() -> None:
    a, b = np.array([3.0]), np.array([-3.0])
    assert bz.gap_bound(a, b, "paper") == 0.0
    assert 0 < bz.gap_bound(a, b, "proof") < abs(bz.boltz_difference(a, b))
    contexts = cx.contexts_of(np.array([[1.0], [3.0]]), np.array([[0], [1]]))
    apart = separation(contexts.vocabulary)
    assert 10 ** scales.paper_gap(contexts, apart) == pytest.approx(apart.distance / 2)
    assert ContextMap.fit(contexts).log10_gap >= scales.paper_gap(contexts, apart) - 1e-12


def test_the_parameter_count_holds_factored_and_fails_dense() -> None:
    count = parameter_counts(4, 2, 200, 200)
    assert count["factored"] <= count["paper"] < count["dense"]
    d, s = 3, 1
    for m in range(2, 40):  # dense exceeds once nN > d^2 + d + 1 (up to the attention's own excess)
        count = parameter_counts(d, s, m, m)
        assert (count["dense"] - 4 * s * d > count["paper"] - 4 * (s + d)) == (m > d * d + d + 1)


@pytest.mark.parametrize(
    ("d", "distance", "norm"), [(1, 0.02, 4.99), (2, 0.848, 6.65), (3, 1.484, 7.92), (4, 1.98, 8.99)]
)
def test_48_is_neither_separated_nor_bounded_and_its_repair_is(d: int, distance: float, norm: float) -> None:
    tokens = np.vstack([np.full(d, 0.99 / math.sqrt(d)), np.full(d, -0.99 / math.sqrt(d))])
    r_max, eps, n = 1.0, 1.9, 2

    def moved(E: np.ndarray) -> Separation:
        return separation((tokens[:, None] + E[None]).reshape(-1, d))

    printed = moved(ps.printed_encoding(n, d, r_max))
    assert printed.distance == pytest.approx(distance, abs=6e-3)
    assert printed.largest == pytest.approx(norm, abs=6e-3)
    if d < 4:
        assert printed.distance < eps
    if d > 1:
        assert printed.largest > (2 * n + 1) * r_max
    repaired = moved(ps.corollary_encoding(n, d, r_max, eps))
    low, high = r_max + eps, (2 * n + 1) * r_max + n * eps
    assert repaired.satisfies(low * (1 - 1e-12), high * (1 + 1e-12), eps * (1 - 1e-12))
    assert (repaired.smallest, repaired.largest, repaired.distance) == pytest.approx((2.91, 8.79, 1.92), abs=6e-3)


def test_19_maps_d_by_n_to_d_by_n() -> None:
    net = eq.approximate_equivariant(eq.FUNCTIONS["mean_product"], 1, 3, 2)
    assert net(np.full((1, 3, 1), 0.6)).shape == (1, 3, 1)
    with pytest.raises((InfoFlowError, ValueError, RuntimeError)):
        net(np.full((1, 1, 3), 0.6))  # as printed, R^{n x d}: the d x d weights do not even multiply


def test_52_belongs_to_the_unit_cube() -> None:
    """On [-1,1] as printed the error would not tend to 0: the network is 0 outside [0,1], where f need not be."""
    f, outside, inside = eq.FUNCTIONS["wave"], np.full((1, 2, 1), -0.25), np.full((1, 2, 1), 0.25 - 1e-3)
    for D in (4, 16):
        net = eq.approximate_equivariant(f, 1, 2, D)
        assert np.abs(net(outside)).max() < 1e-10
        assert np.abs(net(outside) - f(outside)).max() > 1  # as printed
        assert np.abs(net(inside) - f(inside)).max() < 2 / D


def test_54_counts_shared_faces_twice() -> None:
    """At z = 1/2 with D = 2 both closed cells [0,1/2] and [1/2,1] hold, so the printed sum is f(1/2) + f(1)."""
    f, z, grid = (lambda x: 1 + x), 0.5, np.array([0.5, 1.0])
    printed = sum(f(L) for L in grid if L - 0.5 <= z <= L)
    assert printed == f(0.5) + f(1.0)
    half_open = eq.step_function(lambda X: 1 + X, np.array([[[z]]]), 2, "corner")
    assert half_open[0, 0, 0] == f(1.0)


def test_58_starts_at_zero() -> None:
    D, delta, z = 4, 1e-6, 0.1

    def steps(first: int, last: int) -> float:
        return sum(float(relu((z - t / D) / delta) - relu((z - t / D) / delta - 1)) / D for t in range(first, last + 1))

    assert steps(1, D) == 0.0  # as printed
    assert steps(0, D - 1) == pytest.approx(0.25)
    net = eq.approximate_equivariant(lambda X: X, 1, 1, D, "corner")
    assert net(np.array([[[z]]]))[0, 0, 0] == pytest.approx(0.25)


def test_59_has_wrong_signs() -> None:
    delta = 1e-6

    def printed(z: float) -> float:
        u = (z - 1) / delta
        return float(relu(u) - relu(u - 1) - relu(-z / delta) - relu(-z / delta - 1))

    def repaired(z: float) -> float:
        u = (z - 1) / delta
        return float(-relu(u) + relu(u - 1) - relu(-z / delta) + relu(-z / delta - 1))

    assert printed(1.5) == pytest.approx(1)
    assert printed(-0.5) == pytest.approx(-999_999)
    for z, value in ((1.5, -1), (-0.5, -1), (0.5, 0)):
        assert repaired(z) == pytest.approx(value)


def test_60_is_no_token_wise_map_and_ours_is() -> None:
    """The printed F1 adds every token's penalty to every token; a feed-forward block sees one token."""

    def printed(tokens: list[float]) -> float:
        """The first token under (60): its own step, and the penalty of every token."""
        return 0.5 - sum(1.0 for z in tokens if not 0 <= z <= 1)

    assert printed([0.3, 0.6]) != printed([0.3, 7.0])  # one input token, two outputs
    net = eq.approximate_equivariant(eq.FUNCTIONS["wave"], 1, 2, 4)
    inside, outside = torch.tensor([[0.3], [0.6]]).double(), torch.tensor([[0.3], [7.0]]).double()
    one, other = net.network.embed(inside[None]), net.network.embed(outside[None])
    assert torch.equal(one[0, 0], other[0, 0])
    assert other[0, 1].item() > 1  # its own penalty, positive and large


def test_the_grid_is_not_strictly_separated() -> None:
    D, d = 4, 2
    grid = separation(np.array([[i / D, j / D] for i in range(1, D + 1) for j in range(1, D + 1)]))
    assert not grid.satisfies(math.sqrt(2) / D, math.sqrt(d), 1 / D)
    assert not grid.satisfies(1 / D, math.sqrt(d), 1 / D)  # as printed
    assert grid.satisfies(1 / (2 * D), 2 * math.sqrt(d), 1 / (2 * D))


def test_65_does_not_follow_from_64_for_any_D() -> None:
    d, n = 2, 3
    for D in (2, 10, 10**6):
        amplitude, reach = 1 / (4 * D * math.sqrt(d)), d * n * math.sqrt(d)  # (63) and (61)
        assert amplitude * reach == pytest.approx(d * n / (4 * D))
        assert amplitude * reach > 1 / (4 * D)
        assert (1 / D) / (4 * d * n * math.sqrt(d)) * reach <= 1 / (4 * D) * (1 + 1e-12)  # the repaired amplitude


def test_67_needs_minus_two_and_still_fires_on_partial_matches() -> None:
    def bump(z: np.ndarray, L: np.ndarray, middle: float, R: float = 1.0) -> float:
        u = R * (z - L)
        return float((relu(u - 1) + middle * relu(u) + relu(u + 1)).mean())

    assert bump(np.array([10.0]), np.array([0.0]), -1.0) == 10.0  # as printed: unbounded
    assert bump(np.array([10.0]), np.array([0.0]), -2.0) == 0.0
    assert bump(np.array([0.0, 5.0]), np.zeros(2), -2.0) == 0.5  # one of two coordinates matches: fires anyway
    net = eq.approximate_equivariant(lambda X: X * (X.mean(1, keepdims=True) > 0.8), 1, 2, 2)
    assert np.abs(net(np.array([[[0.3], [0.9]]]))).max() < 1e-12  # the table on t knows the whole context


def test_f2_may_be_negative() -> None:
    net = eq.approximate_equivariant(eq.FUNCTIONS["wave"], 1, 2, 8)
    assert net(np.array([[[0.8], [0.2]]]))[0, 0, 0] < -0.5  # printed: F2 >= 0
    X = np.random.default_rng(0).random((200, 2, 1))
    assert np.abs(net(X)).max() <= net.bound * (1 + 1e-12) <= 1  # repaired: within max|f|, on ramps too


def test_a_cell_of_sequences_has_volume_D_to_minus_dn() -> None:
    D, d, n = 3, 1, 2
    X = np.random.default_rng(0).random((20_000, n, d))
    share = (np.floor(X * D) == 1).all((1, 2)).mean()
    assert share == pytest.approx(D ** -(d * n), rel=0.1)
    assert share != pytest.approx(D**-d, rel=0.1)


def test_71_speaks_of_the_network_not_of_the_ideal_quantiser() -> None:
    """On a ramp F1 is not its limit: the certificate of error has to include the strips."""
    net = eq.approximate_equivariant(eq.FUNCTIONS["mean_product"], 1, 2, 4)
    on_ramp = np.full((1, 2, 1), 0.25 + net.delta / 2)
    e = net.network.embed(torch.from_numpy(on_ramp)).detach().numpy()
    assert e[0, 0, 0] == pytest.approx(0.375)  # neither 0.25 nor 0.5
    assert net.strip_measure() == 2 * 6 * net.delta


def test_132_masks_are_n_by_n() -> None:
    X = np.random.default_rng(0).normal(size=(2, 3, 2))
    with pytest.raises(InfoFlowError, match=r"\(3, 3\)"):
        cx.read_contexts(X, np.ones((2, 3), dtype=bool))
    made = memorize(X, [[1, 2, 3], [4, 5, 6]], mask=np.tri(3, dtype=bool))
    assert made.memory.network.config.mask == "causal"
    band = np.eye(3, dtype=bool) | np.eye(3, k=-1, dtype=bool)
    made = memorize(X, [[1, 2, 3], [4, 5, 6]], mask=band)
    out = made.memory.network(torch.from_numpy(X), visible=torch.from_numpy(band)).detach().numpy()
    assert (np.rint(out) == np.array([[1, 2, 3], [4, 5, 6]])[..., None]).all()


@pytest.mark.parametrize(("n", "ratio"), [(20, 1.002), (21, 0.980), (55, 0.686), (1000, 0.352)])
def test_appendix_c_constant_fails_from_21_visible_keys(n: int, ratio: float) -> None:
    """a = (x, -x) and its prefix b = (x), 2 x = 2 log n + 3: the prefix case is new."""
    x = math.log(n) + 1.5
    a, b = np.array([x, -x]), np.array([x])
    gap = abs(bz.boltz_difference(a, b))
    assert gap / (math.log(n) ** 2 * math.exp(-2 * x)) == pytest.approx(ratio, abs=1e-3)
    assert gap > 0.9 * (2 * math.log(n) + 3) * math.exp(-2 * x)


def test_the_masked_bound_survives_an_attack_on_prefixes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        n = int(rng.integers(2, 40))
        delta = 2 * math.log(n) + 3 + 1e-6
        ladder = -np.cumsum(delta * (1 + rng.choice([1e-9, 0.3], size=n)))
        ladder -= ladder.mean()
        a, b = ladder, ladder[: int(rng.integers(1, n))]
        assert bz.separation(a, b, "masked").hypothesis
        assert bz.separation(a, b, "masked").holds
