import math

import pytest
import torch

from infoflow.construct.softmax_attention.bumps import centres
from infoflow.construct.softmax_attention.expression import parse
from infoflow.construct.softmax_attention.grid import VARIANTS, grid_approximator
from infoflow.construct.softmax_attention.heads import SoftmaxHead, attend
from infoflow.construct.softmax_attention.summed_range import range_head, shared_affine
from infoflow.errors import InfoFlowError

F64 = torch.float64
F = parse("sin(2*x11)+x11*x12", 1, 2)


def sequence(X):
    return torch.stack([X[:, 0] * X[:, 1], torch.sin(X[:, 0] + 2 * X[:, 1])], 1)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("g", [1, 2, 4, 7])
def test_explicit_and_fast_agree_and_the_bound_holds(variant, g):
    net = grid_approximator(F, 1, 2, g, variant)
    X = torch.cat([net.sample(200, 0), torch.zeros(1, 1, 2, dtype=F64), torch.ones(1, 1, 2, dtype=F64)])
    assert torch.allclose(net.explicit(X), net.fast(X), rtol=0, atol=1e-12 + net.explicit_rounding)
    assert net.explicit_rounding < 1e-6
    assert net.attack(0, 2.0) <= net.certificate.bound


@pytest.mark.parametrize("variant", VARIANTS)
def test_sequence_to_sequence(variant):
    net = grid_approximator(sequence, 2, 2, 3, variant, lipschitz=3.0)
    X = net.sample(30, 0)
    assert net.fast(X).shape == X.shape
    assert torch.allclose(net.explicit(X), net.fast(X), rtol=0, atol=1e-12 + net.explicit_rounding)
    assert net.attack(0, 2.0) <= net.certificate.bound


@pytest.mark.parametrize("variant", ["two-layer", "one-layer-softmax"])
def test_the_papers_heads_and_ours_give_the_same_output(variant):
    ours = grid_approximator(sequence, 2, 2, 3, variant)
    paper = grid_approximator(sequence, 2, 2, 3, variant, paper_heads=True)
    second = 4 if variant == "two-layer" else 0
    assert len(ours.first_layer()) == 12
    assert len(paper.first_layer()) == 324
    assert ours.heads == {"built": 12 + second, "factored": 16, "paper": 328}
    assert paper.heads["built"] == 324 + second
    X = ours.sample(10, 1)
    assert torch.allclose(ours.explicit(X), paper.explicit(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", ["two-layer", "one-layer-softmax"])
def test_sup_on_the_cores(variant):
    for g in (2, 4, 8):
        net = grid_approximator(F, 1, 2, g, variant)
        X = net.sample(2000, 0)
        u = (X * g + g) % 2 - 1  # position in the cell, in [-1, 1]
        core = X[(u.abs() <= 1 - net.delta).all(-1).all(-1)]
        assert net.error(core).max() <= net.core_bound


def test_the_quadratic_score_converges_in_sup_norm_and_bumps_do_not():
    sups = [grid_approximator(F, 1, 2, g, "quadratic").sup() for g in (4, 16, 64)]
    assert sups[0] > 3 * sups[1] > 9 * sups[2]
    assert min(grid_approximator(F, 1, 2, g, "two-layer").sup() for g in (4, 16, 64)) > 1.5


@pytest.mark.parametrize("variant", VARIANTS)
def test_lazy_evaluation_calls_f_near_x_only(variant):
    net = grid_approximator(F, 1, 2, 6, variant)
    lazy = grid_approximator(F, 1, 2, 6, variant, lazy=True)
    X = net.sample(500, 0)
    u = (X * 6 + 6) % 2 - 1
    core = X[(u.abs() <= 1 - net.delta).all(-1).all(-1)]
    assert (net.fast(core) - lazy.fast(core)).abs().max() <= net.modulus.oscillation * 2e-3

    def large(X):
        return X.flatten(1).sum(1)

    many = grid_approximator(large, 10, 5, 4, variant, lipschitz=50.0, lazy=True)
    Y = many.sample(20, 0)
    assert many.cells == 4**50
    vast = grid_approximator(large, 100, 20, 10, variant, lipschitz=2000.0, lazy=True)  # 10^2000 cells
    assert vast.fast(vast.sample(3, 0)).shape == (3,)
    assert (vast.certificate.bound is None) == (variant != "quadratic")
    assert many.fast(Y).shape == (20,)
    if variant == "quadratic":
        assert many.error(Y).max() <= many.certificate.bound


def test_the_bound_is_null_without_a_modulus():
    assert grid_approximator(sequence, 2, 2, 2).certificate.bound is None
    assert grid_approximator(parse("1/(x11+1.5)", 1, 1), 1, 1, 4).certificate.bound is not None
    blind = grid_approximator(parse("1/x11", 1, 1), 1, 1, 4, "quadratic")
    assert blind.certificate.bound is None
    assert "gradient" in blind.certificate.assumptions[0]


def test_constants_and_one_cell():
    for variant in VARIANTS:
        net = grid_approximator(parse("3", 1, 1), 1, 1, 1, variant)
        assert abs(net.fast(torch.zeros(1, 1, dtype=F64)) - 3) < 1e-12


def literal_rows(net, X, plus_one):
    """Layer 1 with the paper's biases t = -+ g v/(delta B), or with the lost 1/delta put back; 'plus_one'."""
    grid, levels = net.anchors, centres(net.B, net.g)
    cells = net._levels(torch.arange(net.cells)).reshape(-1, net.d, net.n)
    heads = []
    for v in range(net.cells):
        for sign in (1.0, -1.0):
            t = (float(plus_one) - sign * net.g * levels[cells[v, 0]] / net.B) / net.delta
            W_O = torch.zeros(grid.p, net.cells, dtype=F64)
            W_O[: net.n, v] = 1
            w = torch.tensor([sign * net.g / (net.delta * net.B)], dtype=F64)
            heads.append(range_head(w, t, grid, net.first_c, W_O))
    return attend(heads, shared_affine(X, grid))[..., 0, :]


def test_the_printed_bumps_are_holes():
    """(G.45)'s arguments lose 1/delta: at X = v the own R_v is about N/2 or 0, never the largest."""
    net = grid_approximator(F, 1, 2, 4)
    v = torch.tensor([[[0.25, 0.75]]], dtype=F64)
    own = int(torch.nonzero((centres(1.0, 4)[net._levels(torch.arange(16))] == v[0, 0]).all(1)))
    printed = literal_rows(net, v, plus_one=False)[0]
    assert printed[own] < printed.max() - 0.5
    away = literal_rows(net, torch.tensor([[[0.5, 0.0]]], dtype=F64), plus_one=False)[0]
    assert (away - 2).abs().max() < 1e-2  # every cell ties at N
    repaired = literal_rows(net, v, plus_one=True)[0]
    assert repaired.argmax() == own
    assert abs(repaired[own] - 4) < 1e-2


def test_the_printed_layer_two_sums_where_it_should_average():
    """(G.50) multiplies by 1_G: f = 1, g = 4, N = 2 gives 16."""
    one = parse("1", 1, 2)
    net = grid_approximator(one, 1, 2, 4)
    X = net.sample(5, 0)
    rows = attend(net.first_layer(), shared_affine(X, net.anchors))
    Z = torch.cat([rows, net.table.expand(5, 1, 16)], -2)
    (head,) = net.second_layer()
    printed = SoftmaxHead(head.W_K, head.W_Q, head.W_V, torch.ones(16, 1, dtype=F64))(Z)
    assert torch.allclose(printed, torch.full_like(printed, 16.0))
    averaged = SoftmaxHead(head.W_K, head.W_Q, head.W_V, torch.full((16, 1), 1 / 16, dtype=F64))(Z)
    assert torch.allclose(averaged[..., 0, 0], net.fast(X))


def test_keeping_the_minus_one_breaks_layer_two():
    """With R in [0, N] a column v' with R_v' = 0 is uniform and reads the mean of f."""
    net = grid_approximator(F, 1, 2, 4)
    X = torch.tensor([[[0.75, 0.75]]], dtype=F64)
    rows = attend(net.first_layer(), shared_affine(X, net.anchors))[..., 0, :] - 2  # N = 2: the "-1" per coordinate
    weights = torch.softmax(net.beta * rows[0, 0] * rows[0], 0)
    assert abs(rows[0, 0]) < 1e-2
    assert abs(weights @ net.table[0] - net.fast(X)[0]) > 0.5


def test_all_cells_along_a_coordinate_tie_on_a_face():
    net = grid_approximator(F, 1, 2, 4)
    face = torch.tensor([[[0.5, 0.25]]], dtype=F64)
    weights = net.coordinate_weights(face)[0, 0]
    assert torch.allclose(weights, torch.full((4,), 0.25, dtype=F64), atol=1e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variant": "quadratik"}, "did you mean 'quadratic'"),
        ({"g": 0}, "cell"),
        ({"g": 60_000}, "lazy"),
        ({"B": -1.0}, "positive finite B"),
        ({"delta": 0.0}, "delta"),
        ({"f": lambda X: X.sum()}, "return"),
        ({"f": parse("x11", 1, 1)}, "1 x 2 input"),
        ({"f": parse("log(x11-2)", 1, 2)}, "finite"),
        ({"lipschitz": math.nan}, "Lipschitz"),
        ({"d": 0}, "d >= 1"),
    ],
)
def test_wrong_input(change, message):
    with pytest.raises(InfoFlowError, match=message):
        grid_approximator(**({"f": F, "d": 1, "n": 2, "g": 4} | change))


def test_inputs_outside_the_domain_are_refused():
    net = grid_approximator(F, 1, 2, 4)
    with pytest.raises(InfoFlowError, match="within"):
        net.fast(torch.full((1, 2), 1.01, dtype=F64))
    with pytest.raises(InfoFlowError, match="within"):
        net.fast(torch.full((1, 2), math.nan, dtype=F64))
    with pytest.raises(InfoFlowError, match="shape"):
        net.fast(torch.zeros(2, 1, dtype=F64))
    with pytest.raises(InfoFlowError, match="use fast"):
        grid_approximator(F, 1, 2, 100).explicit(torch.zeros(1, 2, dtype=F64))
