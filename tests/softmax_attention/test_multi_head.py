import math
import sys
from functools import partial
from itertools import pairwise

import pytest
import torch

from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.attacks import probes_of_interval
from infoflow.construct.softmax_attention.heads import SoftmaxHead
from infoflow.construct.softmax_attention.multi_head import multi_head_truncated_linear
from infoflow.construct.softmax_attention.truncated_linear import TruncatedLinear, on_anchors
from infoflow.errors import InfoFlowError

F64 = torch.float64


@pytest.mark.parametrize("n", [3, 4, 7])
@pytest.mark.parametrize("H", [1, 2, 5])
@pytest.mark.parametrize(("a", "b"), [(1.0, 2.0), (-3.0, 1.0), (-2.0, -1.0), (0.0, 1e-3)])
@pytest.mark.parametrize("eps0", [0.5, 1e-3])
def test_the_bound_holds_at_every_head_boundary_and_outside(n, H, a, b, eps0):
    net = multi_head_truncated_linear([1.0], 0.0, a, b, n=n, H=H, eps0=eps0)
    z = probes_of_interval(a, net.spacing, net.p, a, b)
    assert (net.response(z) - z.clamp(a, b)).abs().max() <= net.certificate.bound
    heads = torch.arange(H + 1, dtype=F64)
    edges = (a + net.spacing * (heads[:, None] * net.m + torch.linspace(-1.5, 1.5, 301, dtype=F64))).reshape(-1)
    assert (net.response(edges) - edges.clamp(a, b)).abs().max() <= net.certificate.bound
    some = torch.linspace(a - (b - a), 2 * b - a, n, dtype=F64)[None]
    assert torch.allclose(net.explicit(some), net.fast(some), rtol=0, atol=1e-12 * max(-a, b) + net.explicit_rounding)


def test_explicit_shapes_and_bias_per_token():
    torch.manual_seed(0)
    net = multi_head_truncated_linear(torch.randn(2, dtype=F64), torch.randn(6), -1.0, 1.0, n=6, H=4)
    X = torch.randn(7, 2, 6, dtype=F64)
    assert net.affine(X).shape == (7, 8, 6)
    assert len(net.all_heads()) == net.heads == 4
    assert torch.allclose(net.explicit(X), net.fast(X), rtol=0, atol=1e-12 + net.explicit_rounding)
    assert (net.explicit(X) - net.target(X)).abs().max() <= net.certificate.bound


def test_gated_heads_give_every_token_its_own_weights():
    torch.manual_seed(0)
    w, t = torch.randn(5, 3, dtype=F64), torch.randn(5, dtype=F64)
    net = multi_head_truncated_linear(w, t, -1.0, 1.0, n=5, H=4, radius=3.0)
    X = (torch.rand(200, 3, 5, dtype=F64) - 0.5) * 6
    assert net.heads == 20
    error = (net.explicit(X) - net.target(X)).abs().max()
    assert error <= net.certificate.bound
    assert error < 0.06
    assert torch.allclose(net.explicit(X), net.fast(X), rtol=0, atol=1e-12 + net.explicit_rounding)
    with pytest.raises(InfoFlowError, match="within 3"):
        net.fast(2 * X)


def test_the_rate_is_one_over_n_minus_2_times_H():
    errors = [multi_head_truncated_linear([1.0], 0.0, 0.0, 2.0, n=6, H=H).attack(0, 1.0) for H in (2, 4, 8, 16, 32)]
    for coarse, fine in pairwise(errors):
        assert 1.85 < coarse / fine < 2.15


def test_the_printed_sentinels_output_zero_near_b_and_below_a():
    """a=1, b=2, n=6, H=4 with all sentinel values 0, as printed: .012 at z=1.984, 0 at z=.875 and at z=2.06."""
    net = multi_head_truncated_linear([1.0], 0.0, 1.0, 2.0, n=6, H=4, eps0=0.01)
    heads = net.all_heads()
    printed = []
    for head in heads:
        W_V = head.W_V.clone()
        W_V[0, 1] = W_V[0, -1] = 0
        printed.append(SoftmaxHead(head.W_K, head.W_Q, W_V))
    z = torch.tensor([[1.5, 1.984, 2.0, 0.875, 2.06, 1.25]], dtype=F64)
    Z = net.affine(z)
    literal = sum(head(Z) for head in printed)[0]
    assert abs(literal[0] - 1.5) <= net.certificate.bound
    assert literal[[1, 2, 3, 4]].abs().max() < 0.1
    assert (net.explicit(z) - z[0].clamp(1, 2)).abs().max() <= net.certificate.bound


def test_a_single_head_is_not_a_clipped_function():
    """Remark G.11 says a head clips to its range; it returns 0 outside it."""
    net = multi_head_truncated_linear([1.0], 0.0, 1.0, 2.0, n=6, H=4, eps0=1e-3)
    z = torch.full((1, 6), 1.9, dtype=F64)
    assert net.head(2)(net.affine(z)).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 2}, "n >= 3"),
        ({"H": 0}, "one head"),
        ({"a": 3.0}, "a < b"),
        ({"eps0": 0.0}, "eps0"),
        ({"w": [[1.0]] * 4, "H": 1, "radius": 1.0}, "H >= 2"),
        ({"w": [[1.0]] * 4}, "radius"),
        ({"w": [math.nan]}, "finite"),
        ({"t": [0.0, 0.0]}, "bias"),
    ],
)
def test_wrong_input(change, message):
    call = {"w": [1.0], "t": 0.0, "a": 0.0, "b": 1.0, "n": 4, "H": 2} | change
    with pytest.raises(InfoFlowError, match=message):
        multi_head_truncated_linear(**call)


def forty_anchors(w: list[float], t: float, a: float, b: float, eps0: float) -> TruncatedLinear:
    return on_anchors(w, t, Anchors(a, b, 40), eps0, n=3)


@pytest.mark.parametrize("make", [partial(multi_head_truncated_linear, n=5, H=4), forty_anchors])
@pytest.mark.parametrize("b", [1.0, 1e-6])
def test_every_real_number_is_every_real_number(make, b):
    """Beyond 1e308 spacings z - L_k is infinite, and 0 steps of it were NaN."""
    net = make([1.0], 0.0, -1.0, b, eps0=0.01)
    z = torch.tensor([1e17, 1e160, 1e303, sys.float_info.max], dtype=torch.float64)
    for values in (z, -z):
        assert (net.response(values) - values.clamp(-1.0, b)).abs().max() <= net.certificate.bound


def test_a_radius_without_gates_is_refused():
    """No head would ask for it, so a file could say anything there."""
    with pytest.raises(InfoFlowError, match="no radius"):
        multi_head_truncated_linear([1.0], 0.0, -1.0, 1.0, n=5, H=4, radius=-1e308)
