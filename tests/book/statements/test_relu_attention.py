import math

import pytest
import torch

from infoflow.book.statements.relu_attention import relu_attention
from infoflow.construct.softmax_attention.heads import attend
from infoflow.errors import InfoFlowError

F64 = torch.float64


def random_net(d=2, n=3, N=6, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(n, N, n, d, generator=generator, dtype=F64)
    bias = torch.randn(n, N, generator=generator, dtype=F64)
    signs = torch.sign(torch.randn(n, N, generator=generator, dtype=F64))
    return relu_attention(w, bias, signs, **options)


def points(count, d, n):
    return 2 * torch.rand(count, d, n, generator=torch.Generator().manual_seed(1), dtype=F64) - 1


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize(("d", "n", "N"), [(1, 1, 1), (2, 3, 6), (3, 2, 4)])
@pytest.mark.parametrize("beta", [10.0, 500.0])
def test_matrices_formula_and_bound(layers, d, n, N, beta):
    net = random_net(d, n, N, layers=layers, beta=beta)
    X = torch.cat([points(60, d, n), torch.zeros(1, d, n, dtype=F64)])
    out = net.explicit(X)
    assert torch.allclose(out, net.fast(X), rtol=0, atol=1e-12 + net.certificate.parts["rounding"])
    assert (out - net.target(X)).abs().max() <= net.certificate.bound
    assert net.attack(0, 1.0) <= net.certificate.bound
    assert sum(net.heads) == ((n + 1) * 2 + 2 * N if layers == 3 else n * n + 1 + 2 * N)


def test_heads_of_the_example():
    """d=2, n=3, N=6: 4 + 4 + 12 heads in three layers, 22 in two."""
    assert random_net().heads == (4, 4, 12)
    assert sum(random_net(layers=2).heads) == 22
    net = random_net(layers=2)
    assert len(net.merged_layer()) == 10
    assert len(net.last_layer()) == 12


def test_the_printed_last_layer_halves_absolute_values():
    """S = [[1,-.5,2],[.3,.7,-1]], a = [[1,1,-1],[-1,1,1]]: [.35,.6,-.5] instead of [.7,.7,-2]."""
    S = torch.tensor([[1, -0.5, 2], [0.3, 0.7, -1]], dtype=F64)
    a = torch.tensor([[1, 1, -1], [-1, 1, 1]], dtype=F64)
    n, N = 3, 2
    net = relu_attention(torch.zeros(n, N, n, 1), S.mT, a.mT, beta=200.0)  # S through the biases
    Z = torch.cat([torch.diag(S[0]), torch.diag(S[1])])
    Z = torch.cat([torch.cat([Z, torch.zeros(6, 1, dtype=F64)], 1), torch.eye(4, dtype=F64)])
    wanted = (a * torch.relu(S)).sum(0)
    printed = attend(net.last_layer(printed=True), Z)[0, :3]
    assert torch.allclose(printed, (a * S.abs()).sum(0) / 2, atol=0.02)
    assert torch.allclose(printed, torch.tensor([0.35, 0.6, -0.5], dtype=F64), atol=0.02)
    assert (attend(net.last_layer(), Z)[0, :3] - wanted).abs().max() <= net.certificate.bound
    X = torch.zeros(1, 3, dtype=F64)
    assert (net.explicit(X) - wanted).abs().max() <= net.certificate.bound


def test_without_biases_every_net_vanishes_at_zero():
    net = random_net()
    bare = relu_attention(net.w, torch.zeros_like(net.bias), net.signs)
    zero = torch.zeros(2, 3, dtype=F64)
    assert bare.explicit(zero).abs().max() < 1e-12
    one = relu_attention(torch.zeros(3, 1, 3, 2), torch.ones(3, 1), torch.ones(3, 1))
    assert (one.explicit(zero) - 1).abs().max() <= one.certificate.bound < 1e-3


def test_the_printed_layer_two_takes_the_logarithm_of_zero():
    """It applies Lemma I.1 to [0 .. 1 .. 0], whose zeros have no logarithm."""
    B = torch.zeros(3, 3, dtype=F64)
    B[:, 1] = 1
    assert torch.log(B).isinf().any()


def test_the_gap_of_the_sigmoid():
    x = torch.linspace(0, 10, 1_000_001, dtype=F64)
    assert 0.2784 < float((x * torch.sigmoid(-x)).max()) < 0.27847


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signs": torch.full((3, 6), 0.5)}, "absorb"),
        ({"layers": 1}, "2 or 3 layers"),
        ({"beta": 0.0}, "positive beta"),
        ({"bias": torch.zeros(2, 6)}, "shape"),
        ({"w": torch.full((3, 6, 3, 2), math.nan)}, "finite"),
    ],
)
def test_wrong_input(change, message):
    net = random_net()
    with pytest.raises(InfoFlowError, match=message):
        relu_attention(**({"w": net.w, "bias": net.bias, "signs": net.signs} | change))
    with pytest.raises(InfoFlowError, match="within"):
        net.fast(torch.full((2, 3), 1.5, dtype=F64))
