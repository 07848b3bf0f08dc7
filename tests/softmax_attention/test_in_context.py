from dataclasses import replace

import pytest
import torch

from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.in_context import in_context_truncated_linear
from infoflow.errors import InfoFlowError

F64 = torch.float64


def inputs(count, d, n, bias, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(count, 2 * d + 1, n, generator=generator, dtype=F64)
    X[:, d : 2 * d] = X[:, d : 2 * d, :1]
    if bias == "shared":
        X[:, 2 * d] = X[:, 2 * d, :1]
    return X


@pytest.mark.parametrize("bias", ["shared", "token"])
def test_one_head_serves_every_w_and_t(bias):
    net = in_context_truncated_linear(3, 5, Anchors(-1.0, 1.0, 40), eps0=1e-3, bias=bias)
    X = inputs(200, 3, 5, bias)
    assert torch.allclose(net.explicit(X), net.fast(X), rtol=0, atol=1e-12 + 10 * net.one.explicit_rounding)
    error = (net.explicit(X) - net.preactivation(X).clamp(-1, 1)).abs().max()
    assert error <= net.certificate.bound
    assert error >= 0.9 * 2 / 40
    assert net.attack(0, 1.0) <= net.certificate.bound


def test_the_printed_minus_one_halves_the_bias():
    """w.x = 0, t = 1 on [0, 2]: -1 in M2 gives .5, -2 gives 1."""
    net = in_context_truncated_linear(1, 1, Anchors(0.0, 2.0, 40), eps0=1e-3, bias="shared")
    X = torch.tensor([[[0.0], [0.0], [1.0]]], dtype=F64)
    printed = replace(net, bias_coefficient=-1.0)
    assert abs(printed.explicit(X) - 0.5) < 1e-2
    assert abs(net.explicit(X) - 1.0) < 1e-2


def test_the_printed_form_reads_the_first_bias_only():
    X = inputs(1, 2, 3, "token")
    shared = in_context_truncated_linear(2, 3, Anchors(-3.0, 3.0, 60), bias="shared")
    token = in_context_truncated_linear(2, 3, Anchors(-3.0, 3.0, 60), bias="token")
    wanted = ((X[0, :2] * X[0, 2:4, :1]).sum(0) + X[0, 4]).clamp(-3, 3)
    assert (token.explicit(X)[0] - wanted).abs().max() <= token.certificate.bound
    assert (shared.explicit(X)[0] - wanted).abs().max() > 0.2


def test_wrong_input():
    net = in_context_truncated_linear(2, 3, Anchors(0.0, 1.0, 8))
    with pytest.raises(InfoFlowError, match="rows x, w, t"):
        net.fast(torch.zeros(4, 3, dtype=F64))
    with pytest.raises(InfoFlowError, match="unknown bias"):
        in_context_truncated_linear(2, 3, Anchors(0.0, 1.0, 8), bias="each")
    with pytest.raises(InfoFlowError, match="d >= 1"):
        in_context_truncated_linear(0, 3, Anchors(0.0, 1.0, 8))
