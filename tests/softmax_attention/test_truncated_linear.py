import math
import random

import pytest
import torch

from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.attacks import probes_of_interval
from infoflow.construct.softmax_attention.truncated_linear import (
    clipped_relu,
    hard_tanh,
    on_anchors,
    relu,
    truncated_linear,
)
from infoflow.errors import InfoFlowError

F64 = torch.float64


def dense(head, z):
    """The same head through a p x n score matrix."""
    L = head.anchors.points()
    return torch.softmax(-(head.beta / 2) * (z[:, None] - L) ** 2, 1) @ L


def test_corollary_g6_picks_p_and_beta():
    for eps, p in ((0.1, 60), (0.01, 600), (0.001, 6000)):
        head = truncated_linear([1.0], 0.0, -1.0, 2.0, eps, n=4)
        assert head.anchors.p == p
        assert head.certificate.bound <= eps * (1 + 1e-9)
        assert 0.49 * eps < head.attack(0, 1.0) <= head.certificate.bound


def test_the_bound_holds_for_3000_random_configurations():
    rng = random.Random(0)
    for trial in range(1000):
        a = rng.uniform(-5, 5) * 10 ** rng.uniform(-2, 3)
        b = a + 10 ** rng.uniform(-2, 3)
        p, eps0 = rng.choice([3, 4, 5, 8, 17, 40]), 10 ** rng.uniform(-6, math.log10(0.5))
        for grid in ("paper", "closed", "midpoint"):
            head = on_anchors([1.0], 0.0, Anchors(a, b, p, grid), eps0)
            z = probes_of_interval(head.anchors.first, head.anchors.spacing, p, a, b)
            error = (head.response(z) - z.clamp(a, b)).abs().max()
            assert error <= head.certificate.bound, (trial, a, b, p, eps0, grid)


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("grid", ["paper", "closed", "midpoint"])
def test_explicit_and_fast_agree(per_token, grid):
    torch.manual_seed(1)
    w = torch.randn(4, 3, dtype=F64) if per_token else torch.randn(3, dtype=F64)
    t = torch.randn(4, dtype=F64) if per_token else 0.3
    head = on_anchors(w, t, Anchors(-1.0, 2.0, 50, grid), 1e-3, n=4)
    X = torch.randn(5, 3, 4, dtype=F64) / 3
    assert head.affine(X).shape[-2:] == ((2 * 4 + 3) if per_token else (2 * 3 + 3), 50)
    assert torch.allclose(head.explicit(X), head.fast(X), rtol=0, atol=1e-12 + head.explicit_rounding)
    assert (head.fast(X) - head.target(X)).abs().max() <= head.certificate.bound


def test_zero_weights_and_a_bias_per_token():
    head = truncated_linear([0.0, 0.0], [0.1, 0.9, 5.0], 0.0, 1.0, 0.01, n=3)
    X = torch.randn(2, 3, dtype=F64)
    assert (head.explicit(X) - torch.tensor([0.1, 0.9, 1.0], dtype=F64)).abs().max() <= 0.01


def test_window_equals_the_dense_softmax():
    for p in (3, 9, 100):
        for c_eps in (0.5, 1e-3):
            head = on_anchors([1.0], 0.0, Anchors(-1.0, 2.0, p), c_eps)
            z = torch.linspace(-2, 3, 1001, dtype=F64)
            assert (head.response(z) - dense(head, z)).abs().max() < 1e-12


def test_float32_by_direct_differences_stays_at_half_an_anchor():
    for p in (600, 3000, 12_000):
        head = on_anchors([1.0], 0.0, Anchors(-1.0, 2.0, p), 1e-3)
        z = torch.linspace(-1, 2 - head.anchors.spacing, 50_001, dtype=torch.float32)
        error = (head.response(z).double() - z.double()).abs().max()
        assert error < 0.52 * head.anchors.spacing
        if p == 12_000:  # the expanded score loses it
            L = head.anchors.points(torch.float32)
            some = z[::50]
            scores = -(head.beta / 2) * (L**2 - 2 * some[:, None] * L)
            expanded = torch.softmax(scores, 1) @ L
            assert (expanded.double() - some.double()).abs().max() > 1.5 * head.anchors.spacing


def test_examples_h1_to_h3():
    X = torch.linspace(-3, 3, 7, dtype=F64)[None]
    for head, expected in (
        (relu([1.0], 0.5, 4.0, 0.01), (X[0] + 0.5).clamp(min=0)),
        (hard_tanh([1.0], 0.0, 0.01), X[0].clamp(-1, 1)),
        (clipped_relu([1.0], 0.0, 2.0, 0.01), X[0].clamp(0, 2)),
    ):
        assert (head.fast(X) - expected).abs().max() <= 0.01 * (1 + 1e-9)


def test_relu_saturates_beyond_the_largest_preactivation_it_was_built_for():
    head = relu([1.0], 0.0, 4.0, 0.01)
    assert abs(head.fast(torch.tensor([[9.0]], dtype=F64)) - 4.0) <= 0.011


def test_the_mean_squared_error_falls_like_one_over_p_squared():
    """Figures 2 and 4 claim MSE ~ 1/p; the weights of the theorem give sup ~ 1/p and MSE ~ 1/p^2."""
    z = torch.linspace(-1, 1, 20_011, dtype=F64)
    sizes = torch.tensor([16.0, 64.0, 256.0, 1024.0], dtype=F64)
    heads = [on_anchors([1.0], 0.0, Anchors(-1.0, 1.0, int(p), "midpoint"), 1e-3 / int(p)) for p in sizes]
    errors = torch.stack([head.response(z) - z for head in heads])
    for measure, slope in ((errors.abs().amax(1), -1.0), (errors.square().mean(1), -2.0)):
        x, y = sizes.log(), measure.log()
        fitted = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
        assert abs(fitted - slope) < 0.1


def printed(a, b, p, eps0, z):
    """Theorem 3.4 as printed: beta in W_Q and in W_K, scores -(beta^2/dL)(z - L_k)^2."""
    spacing = (b - a) / p
    beta = 2 * math.log((p - 2) / eps0) / spacing**2
    L = a + spacing * torch.arange(p, dtype=F64)
    k = torch.arange(p, dtype=F64)
    scores = -(beta**2) * k * (L + L[0] - 2 * z[:, None])
    return torch.softmax(scores, 1) @ L, spacing + max(abs(a), abs(b)) * eps0


def test_the_printed_head_fails_on_wide_intervals():
    z = torch.tensor([0.0, 500.0, 1000.0], dtype=F64)
    out, bound = printed(0.0, 1000.0, 10, 0.01, z)
    assert torch.allclose(out, torch.tensor([448.7, 450.1, 451.6], dtype=F64), atol=0.1)
    assert (out - z).abs().max() > 500 > bound
    head = on_anchors([1.0], 0.0, Anchors(0.0, 1000.0, 10), 0.01)
    assert (head.response(z) - z).abs().max() <= head.certificate.bound < bound * 1.01
    out, bound = printed(0.0, 100.0, 10, 0.1, torch.tensor([100.0], dtype=F64))
    assert abs(out - 100) > bound


def test_the_printed_temperature_with_n_for_p_is_too_low():
    """ln(n-2) is not even defined at n = 2; ln(n-1) with n = 2, p = 8, eps0 = .01 errs by .0196 at an anchor."""
    p, eps0 = 8, 0.01
    L = torch.arange(p, dtype=F64) / p
    beta = 2 * math.log((2 - 1) / eps0) * p**2
    weights = torch.softmax(-(beta / 2) * (L[4] - L) ** 2, 0)
    assert 0.0195 < 1 - weights[4] < 0.0197
    proper = on_anchors([1.0], 0.0, Anchors(0.0, 1.0, p), eps0)
    assert 1 - torch.softmax(-(proper.beta / 2) * (L[4] - L) ** 2, 0)[4] < eps0


def test_two_anchors_admit_beta_zero_and_fail():
    """p = 2 makes ln(p-2) = ln 0, so beta = 0 satisfies the printed condition: error .75 (b-a) > .5 (b-a)."""
    L = torch.tensor([0.0, 0.5], dtype=F64)
    assert abs(torch.softmax(0 * L, 0) @ L - 1.0) == 0.75
    with pytest.raises(InfoFlowError, match="p >= 3"):
        on_anchors([1.0], 0.0, Anchors(0.0, 1.0, 2))


def test_a_row_map_that_is_not_constant_splits_the_output_at_midpoints():
    """G = identity, z = .4375 between the anchors .375 and .5: two rows carry half each, not one row the value."""
    head = on_anchors([1.0], 0.0, Anchors(0.0, 1.0, 8), 0.01)
    L = head.anchors.points()
    rows = torch.softmax(-(head.beta / 2) * (0.4375 - L) ** 2, 0) * L
    assert abs(rows[3] - 0.1875) < 1e-3
    assert abs(rows[4] - 0.25) < 1e-3
    assert rows.max() < 0.4375 - 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": 2.0}, "a < b"),
        ({"n": 5}, "p >= n"),
        ({"eps0": 0.7}, "eps0"),
        ({"w": [math.inf]}, "finite"),
        ({"t": [0.0, math.nan], "n": 2}, "finite"),
        ({"w": [[1.0]], "n": 2}, "shape"),
        ({"t": [0.0, 1.0], "n": 3}, "bias"),
        ({"grid": "uniform"}, "unknown anchor grid"),
    ],
)
def test_wrong_input(change, message):
    call = {"w": [1.0], "t": 0.0, "a": 0.0, "b": 1.0, "p": 4, "grid": "paper"} | change
    with pytest.raises(InfoFlowError, match=message):
        on_anchors(anchors=Anchors(*(call.pop(name) for name in ("a", "b", "p", "grid"))), **call)


@pytest.mark.parametrize(("eps", "message"), [(-1.0, "positive"), (math.nan, "positive"), (1e-16, "raise eps")])
def test_wrong_errors(eps, message):
    with pytest.raises(InfoFlowError, match=message):
        truncated_linear([1.0], 0.0, 0.0, 1.0, eps)


def test_wrong_shapes_and_sizes_of_x():
    head = on_anchors([1.0, 1.0], 0.0, Anchors(0.0, 1.0, 8), n=3)
    with pytest.raises(InfoFlowError, match="2 rows"):
        head.fast(torch.zeros(3, 3, dtype=F64))
    with pytest.raises(InfoFlowError, match="3 tokens"):
        head.explicit(torch.zeros(2, 4, dtype=F64))
    with pytest.raises(InfoFlowError, match="use fast"):
        on_anchors([1.0], 0.0, Anchors(0.0, 1.0, 10_000)).explicit(torch.zeros(1, 1, dtype=F64))


def test_an_absurd_number_of_anchors_is_probed_at_its_ends():
    """A damaged file named a p beyond int64: the attack ended in a traceback."""
    points = probes_of_interval(0.0, 1.0, 2**70, 0.0, 1.0)
    assert points.isfinite().all()
    assert points.max() >= 2.0**69
