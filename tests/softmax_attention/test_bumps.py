import math

import pytest
import torch

from infoflow.construct.softmax_attention.bumps import ReluBumps, centres
from infoflow.errors import InfoFlowError

F64 = torch.float64


def f(x):
    return torch.sin(2 * x[..., 0]) + x[..., 0] * x[..., -1]


def points(N, count=4000, B=1.0):
    torch.manual_seed(0)
    return B * (2 * torch.rand(count, N, dtype=F64) - 1)


@pytest.mark.parametrize(("N", "g"), [(1, 1), (1, 7), (2, 4), (3, 3)])
def test_explicit_network_equals_the_single_cell(N, g):
    net = ReluBumps(f, N, g, 0.1, B=1.5)
    x = torch.cat([points(N, 500, 1.5), centres(1.5, g)[:, None].expand(g, N), torch.full((1, N), 1.5, dtype=F64)])
    assert torch.allclose(net.explicit(x), net.fast(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("g", [4, 8, 16, 32])
@pytest.mark.parametrize("delta", [0.02, 0.3])
def test_the_lp_bound_holds(g, delta):
    net = ReluBumps(f, 2, g, delta)
    x = points(2)
    for p in (1.0, 2.0, 4.0):
        measured = (4 * (net.fast(x) - f(x)).abs().pow(p).mean()) ** (1 / p)
        assert measured <= net.bound(4 / g, 2.0, p)


def test_the_sup_error_does_not_fall_with_g():
    """The network is 0 on every face, so no sup-norm statement can hold."""
    for g in (4, 16, 64):
        face = torch.tensor([[1 - 2 / g, 0.9]], dtype=F64)
        assert ReluBumps(f, 2, g, 0.02).fast(face) == 0
        assert f(face) > 0.8


def test_the_printed_value_on_the_shell_is_wrong():
    """'R_v in [N-1, N) on the shell' fails: N = 3, all |u| = .98, delta = .2 gives R_v = .3."""
    u, delta = torch.full((3,), 0.98, dtype=F64), 0.2
    phi = ((u + 1) / delta).clamp(0, 1) + ((1 - u) / delta).clamp(0, 1) - 1
    assert math.isclose(phi.sum(), 0.3, abs_tol=1e-9)


def test_the_printed_measure_of_the_shells_lacks_a_factor():
    """(2B)^N (1 - (1-delta)^N), not B^N (...): N = 2, B = 1, delta = .2 covers 1.44 of 4, more than .36."""
    x = points(2, 100_000)
    net = ReluBumps(lambda x: torch.ones_like(x[..., 0]), 2, 5, 0.2)
    shells = 4 * (net.fast(x) < 1).double().mean()
    assert abs(shells - 4 * (1 - 0.8**2)) < 0.02
    assert shells > 3 * (1 - 0.8**2)


def test_wrong_input():
    for change, message in (({"g": 0}, "cell"), ({"delta": 1.0}, "delta"), ({"B": 0.0}, "positive finite B")):
        with pytest.raises(InfoFlowError, match=message):
            ReluBumps(**({"f": f, "N": 2, "g": 4, "delta": 0.1, "B": 1.0} | change))
    with pytest.raises(InfoFlowError, match="use fast"):
        ReluBumps(f, 4, 20, 0.1).layers()
