import math

import pytest
import torch

from infoflow.construct.softmax_attention.table_head import (
    Aliasing,
    Derivatives,
    slope_error,
    soft_range,
    table,
    table_head,
)
from infoflow.errors import InfoFlowError

F64 = torch.float64
TEMPERATURES = [0.25, 0.5, 1.0, 2.0, 12.0]


@pytest.mark.parametrize("c", TEMPERATURES)
@pytest.mark.parametrize(
    ("F", "lipschitz", "second"),
    [(torch.sin, 1.0, 1.0), (lambda z: z.abs(), 1.0, None), (torch.tanh, 1.0, 0.77), (lambda z: z**2, 12.0, 2.0)],
)
def test_the_bound_holds(c, F, lipschitz, second):
    head = table_head(F, table(F, -3.0, 3.0, 120, c), [1.0], sup=Derivatives(lipschitz, second))
    assert head.attack(0, 1.0) <= head.certificate.bound


@pytest.mark.parametrize("c", [0.25, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("corrected", [False, True])
def test_the_slope_of_the_table(c, corrected):
    second = (lambda z: -torch.sin(z)) if corrected else None
    built = table(torch.sin, -3.0, 3.0, 120, c, second)
    z = torch.linspace(-3, 3, 20_001, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(built(z).sum(), z)
    error = float((slope - torch.cos(z)).detach().abs().max())
    bound = slope_error(built.spacing, c, Derivatives(1, 1, 1, 1, 1), corrected)
    assert error <= bound
    assert bound <= 6 * error


def test_slope_of_a_kinked_function():
    built = table(lambda z: torch.where(z > 0, z**2 / 2, torch.zeros_like(z)), -1.0, 1.0, 80, 0.5)
    z = torch.linspace(-1, 1, 20_001, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(built(z).sum(), z)
    assert (slope - z.clamp(min=0)).detach().abs().max() <= slope_error(
        built.spacing, 0.5, Derivatives(1.5, 1.0), False
    )


@pytest.mark.parametrize("c", [0.5, 1.0, 2.0])
def test_aliasing_of_the_moments(c):
    """|sum s_k (k-z)^j - gaussian moment| <= deviation(j) for every z; j = 1 is (2pi/c)e^(-pi^2/c) to first order."""
    z = torch.linspace(0, 1, 1001, dtype=F64)
    k = torch.arange(-60, 61, dtype=F64)
    weights = torch.softmax(-c * (z[:, None] - k) ** 2, 1)
    alias = Aliasing(c)
    for j in range(1, 7):
        moment = (weights * (k - z[:, None]) ** j).sum(1)
        assert (moment - alias.gaussian(j)).abs().max() <= alias.deviation(j)
    first = (weights * (k - z[:, None])).sum(1).abs().max()
    assert abs(first / (2 * math.pi / c * math.exp(-(math.pi**2) / c)) - 1) < 0.02


def test_range_at_the_best_temperature_for_every_real_z():
    head = soft_range(-1.0, 1.0, 120, w=[1.0])
    far = torch.tensor([[-1e9, 1e9]], dtype=F64)
    assert torch.equal(head.fast(far), torch.tensor([-1.0, 1.0], dtype=F64))
    attacked = head.attack(0, 1.0)
    assert 0.10 < attacked / head.table.spacing < 0.11
    assert attacked <= head.certificate.bound < 0.14 * head.table.spacing


def test_explicit_and_fast_agree():
    torch.manual_seed(0)
    head = table_head(torch.sin, table(torch.sin, -3.0, 3.0, 90), [0.5, -0.25], t=0.1, n=4)
    X = torch.rand(6, 2, 4, dtype=F64)
    assert torch.allclose(head.explicit(X), head.fast(X), rtol=0, atol=1e-12 + head.table.explicit_rounding)
    assert head.certificate.bound is None


def test_wrong_input():
    head = table_head(torch.sin, table(torch.sin, -1.0, 1.0, 60), [1.0], n=2)
    with pytest.raises(InfoFlowError, match="domain of the table"):
        head.fast(torch.tensor([[0.0, 1.1]], dtype=F64))
    with pytest.raises(InfoFlowError, match="domain of the table"):
        head.fast(torch.tensor([[0.0, math.nan]], dtype=F64))
    with pytest.raises(InfoFlowError, match="anchors at c"):
        table(torch.sin, -1.0, 1.0, 10, 0.5)
    with pytest.raises(InfoFlowError, match="finite numbers in the table's values"):
        table(torch.log, -1.0, 1.0, 60, 0.5)
    with pytest.raises(InfoFlowError, match="positive sharpness c"):
        table(torch.sin, -1.0, 1.0, 60, 0.0)
    with pytest.raises(InfoFlowError, match="p >= n"):
        table_head(torch.sin, table(torch.sin, -1.0, 1.0, 60), [1.0], n=61)
