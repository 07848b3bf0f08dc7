import math
import random

import pytest
import torch

from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.summed_range import summed_range
from infoflow.errors import InfoFlowError

F64 = torch.float64


def test_the_bound_holds_in_600_cases():
    rng = random.Random(0)
    torch.manual_seed(0)
    for case in range(600):
        d, n = rng.randint(1, 3), rng.randint(1, 4)
        a = rng.uniform(-3, 3)
        b = a + 10 ** rng.uniform(-1, 1)
        w, t = torch.randn(d, dtype=F64), torch.randn(n, dtype=F64)
        anchors = Anchors(a, b, rng.choice([3, 4, 8, 30]) + n, rng.choice(["paper", "closed", "midpoint"]))
        head = summed_range(w, t, anchors, eps0=10 ** rng.uniform(-5, math.log10(0.5)))
        X = torch.randn(20, d, n, dtype=F64) * (b - a)
        expected = ((w @ X) + t).clamp(a, b).sum(-1)
        assert (head.fast(X)[:, 0, 0] - expected).abs().max() <= head.certificate.bound, case


def test_explicit_and_fast_agree_and_other_columns_are_zero():
    torch.manual_seed(0)
    head = summed_range(
        torch.randn(3, dtype=F64) / 4, torch.randn(5, dtype=F64) / 4, Anchors(0.0, 1.0, 12), n_out=7, column=4
    )
    X = torch.rand(30, 3, 5, dtype=F64)
    out = head.explicit(X)
    assert out.shape == (30, 1, 7)
    assert torch.allclose(out, head.fast(X), rtol=0, atol=1e-12 + head.explicit_rounding)
    assert torch.equal(out[..., [0, 1, 2, 3, 5, 6]], torch.zeros(30, 1, 6, dtype=F64))
    assert 0 < head.attack(0, 1.0) <= head.certificate.bound


def test_zero_weights_need_no_division_by_their_norm():
    """(G.43) divides by |w|^2; here w = 0 is as good as any."""
    head = summed_range([0.0], [0.25, 0.5], Anchors(0.0, 1.0, 64))
    assert abs(head.explicit(torch.ones(1, 2, dtype=F64))[0, 0] - 0.75) <= head.certificate.bound


def test_wrong_input():
    with pytest.raises(InfoFlowError, match="column"):
        summed_range([1.0], [0.0], Anchors(0.0, 1.0, 4), column=1)
    with pytest.raises(InfoFlowError, match="p >= n"):
        summed_range([1.0], [0.0] * 9, Anchors(0.0, 1.0, 4))
