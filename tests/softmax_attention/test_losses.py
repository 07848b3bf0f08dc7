import numpy as np
import pytest
import torch
from numpy.polynomial import Polynomial

from infoflow.construct.softmax_attention.losses import NAMED, Loss, find
from infoflow.errors import InfoFlowError

F64 = torch.float64


@pytest.mark.parametrize("name", NAMED)
def test_slopes_are_derivatives_of_values(name):
    loss = NAMED[name]
    r = torch.linspace(-6, 6, 1001, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss.value(r).sum(), r)
    assert torch.allclose(slope, loss.slope(r.detach()), atol=1e-9)
    bend = torch.autograd.grad(loss.slope(r).sum(), r)[0] if name != "squared" else torch.ones_like(r)
    assert bend.abs().max() <= loss.curvature + 1e-9
    assert slope.abs().max() <= loss.sup(6.0).first + 1e-9
    if loss.second is not None:
        assert torch.allclose(bend.detach(), loss.second(r.detach()), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "rule", "interval"), [("logistic", [0, 1, -1], (0, 1)), ("logcosh", [1, 0, -1], (-1, 1))]
)
def test_higher_derivatives_are_polynomials_within_their_bounds(name, rule, interval):
    """sigma' = sigma(1 - sigma) and tanh' = 1 - tanh^2: each derivative is a polynomial in the function itself."""
    sup = NAMED[name].sup(6.0)
    polynomial, rule = Polynomial([0, 1]), Polynomial(rule)
    for bound in (sup.second, sup.third, sup.fourth, sup.fifth):
        polynomial = polynomial.deriv() * rule
        largest = abs(polynomial(np.linspace(*interval, 20_001))).max()
        assert 0.999 * bound <= largest <= bound * (1 + 1e-9)


def test_forms():
    s, y = torch.tensor([0.3], dtype=F64), torch.tensor([-1.0], dtype=F64)
    assert torch.allclose(NAMED["squared"].slopes(s, y), s - y)
    assert torch.allclose(NAMED["logistic"].slopes(s, y), torch.sigmoid(s))
    general = Loss("own", "general", lambda s, y: (s * y) ** 2, lambda s, y: 2 * s * y**2)
    assert find(general) is general
    assert torch.allclose(general.slopes(s, y), 2 * s)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("square", "did you mean 'squared'"),
        (3, "expected a loss name or a Loss, got int"),
        (Loss("a", "ridge", torch.sin, torch.cos), "unknown loss form"),
        (Loss("b", "general", torch.sin, torch.cos), "take 2 argument"),
        (Loss("c", "residual", lambda s, y: s, torch.cos), "take 1 argument"),
        (Loss("d", "residual", torch.sin, torch.sin), "derivative of value"),
        (Loss("e", "residual", torch.log, torch.reciprocal), "finite"),
    ],
)
def test_a_loss_without_its_form_is_refused(loss, message):
    with pytest.raises(InfoFlowError, match=message):
        find(loss)
