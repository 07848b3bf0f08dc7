import math

import pytest
import torch

from infoflow.book.statements.ridge_fit import fit_ridge_relu
from infoflow.construct.softmax_attention.expression import parse
from infoflow.construct.softmax_attention.relu_networks import ReluNetwork, two_layer_attention
from infoflow.errors import InfoFlowError

F64 = torch.float64
TARGETS = [parse("x11*x12", 1, 2), parse("sin(x11+2*x12)", 1, 2)]


def random_network(outputs=2, neurons=5, n=3, d=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = [torch.randn(*shape, generator=generator, dtype=F64) for shape in ((outputs, neurons, n, d), (2, neurons))]
    return ReluNetwork(draw[0], draw[1], torch.randn(outputs, neurons, generator=generator, dtype=F64), 1.0)


def points(count, d, n, seed=0):
    return 2 * torch.rand(count, d, n, generator=torch.Generator().manual_seed(seed), dtype=F64) - 1


@pytest.mark.parametrize("shape", [(2, 1), (1, 2)])
def test_explicit_and_fast_agree(shape):
    net = two_layer_attention(random_network(), p1=20, p2=24, shape=shape)
    X = points(20, 2, 3)
    assert torch.allclose(net.explicit(X), net.fast(X), rtol=0, atol=1e-12 + net.explicit_rounding)
    assert net.explicit_rounding < 1e-7
    assert net.heads == 2 * 5 + 2
    assert net.attack(0, 1.0) <= net.certificate.bound


def test_a_target_with_its_certified_fit():
    """Both errors together: the fit's (grid and Lipschitz constants) and the attention's."""
    X = points(1000, 1, 2)
    wanted = torch.stack([torch.from_numpy(f(X.numpy())) for f in TARGETS], 1)[:, None]
    sups = []
    for J, knots, p in ((4, 8, 100), (8, 16, 1600)):
        network, certified = fit_ridge_relu(TARGETS, J=J, knots=knots, grid=301)
        assert (network(X) - wanted[:, 0]).abs().max() <= certified
        net = two_layer_attention(network, p1=p, p2=max(p, network.neurons), shape=(1, 2))
        error = (net.fast(X) - wanted).abs().max()
        assert error <= certified + net.certificate.bound
        sups.append(float(error))
    assert sups[1] < sups[0] / 4 < 0.1


def test_the_printed_bound_grows_with_p_while_the_error_falls():
    """(G.64): (|b| eps0 + b/p) (|W_O| |W_V| (1 + 4 |W_K' W_Q|) d_o n^{5/2} + n)."""
    network = random_network(outputs=2, neurons=3, n=3)
    printed, ours, attacked = [], [], []
    for p in (50, 400, 1600, 3200):
        net = two_layer_attention(network, p1=p, p2=p, shape=(2, 1), eps0=1e-4)
        head = net.second(0).head()
        size = float(torch.linalg.matrix_norm(head.W_K.mT @ head.W_Q, 2))
        b = network.reach
        printed.append((b * 1e-4 + b / p) * (float(network.eta.abs().max()) * (1 + 4 * size) * 2 * 3**2.5 + 3))
        ours.append(net.certificate.bound)
        attacked.append(net.attack(0, 0.5))
    assert printed == sorted(printed)
    assert printed[-1] > 100
    assert ours == sorted(ours, reverse=True)
    assert attacked[-1] < attacked[0] / 10
    assert all(found <= bound for found, bound in zip(attacked, ours, strict=True))


def test_three_dimensions_and_one():
    cube, certified = fit_ridge_relu([parse("x11*x21+x31", 3, 1)], J=9, knots=8, grid=41)
    X = points(500, 3, 1)
    assert (cube(X)[:, 0] - (X[:, 0, 0] * X[:, 1, 0] + X[:, 2, 0])).abs().max() <= certified
    _, certified = fit_ridge_relu([parse("exp(x11)", 1, 1)], J=1, knots=32, grid=2001)
    assert certified < 0.02


def test_wrong_input():
    network = random_network()
    with pytest.raises(InfoFlowError, match="output shape"):
        two_layer_attention(network, p1=20, p2=20, shape=(3, 1))
    with pytest.raises(InfoFlowError, match="neurons"):
        two_layer_attention(network, p1=20, p2=4, shape=(2, 1))
    with pytest.raises(InfoFlowError, match="within"):
        two_layer_attention(network, p1=20, p2=20, shape=(2, 1)).fast(2 * torch.ones(2, 3, dtype=F64))
    with pytest.raises(InfoFlowError, match="finite numbers in eta"):
        ReluNetwork(network.W, network.t, network.eta * math.nan, 1.0)
    with pytest.raises(InfoFlowError, match="certify"):
        fit_ridge_relu([parse("x11", 4, 1)], grid=201)
    with pytest.raises(InfoFlowError, match="same d x n"):
        fit_ridge_relu([parse("x11", 1, 1), parse("x11", 1, 2)])
