"""The C attention of the CPU against float64 PyTorch; the fallback without it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infoflow.train.folded import NativeAttend, TokenLayer, attend, native_found, native_usable, reference


@pytest.fixture(autouse=True)
def _library() -> None:
    if not native_found():
        pytest.skip("no C compiler here, or one whose code disagrees")


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 16), st.integers(1, 40), st.integers(1, 3))
def test_output_and_gradient(M: int, B: int, d: int, T: int, h: int) -> None:
    generator = torch.Generator().manual_seed(1000 * T + d)
    X, A = torch.randn(M, B, d, T, generator=generator), torch.randn(M, h, d + 1, d, generator=generator) / d
    weight = torch.randn(M, B * T, d * (h + 1), generator=generator)
    wide, narrow = A.double().requires_grad_(), A.clone().requires_grad_()
    exact, got = attend(X.double(), wide), NativeAttend.apply(X, narrow)
    assert float((exact - got).detach().norm()) <= 1e-6 * float(exact.detach().norm())
    (slope,) = torch.autograd.grad((exact * weight).sum(), wide)
    (mine,) = torch.autograd.grad((got * weight).sum(), narrow)
    # Of one token the slope is zero: what is left is the rounding of sums of terms as large as the weight.
    allowed = 1e-5 * max(float(slope.norm()), 1.0) if T > 1 else 3e-6 * float(weight.norm())
    assert float((slope - mine).norm()) <= allowed


def test_sharp_and_extreme_scores() -> None:
    """Scores of thousands and ties: the softmax stays the softmax; the smallest weights vanish, nothing overflows."""
    X = torch.tensor([[[[1.0, -1.0, 1.0, 0.5]]]])
    for size in (0.0, 1.0, 3e3, -3e3, 1e30):
        A = torch.tensor([[[[size], [0.0]]]])
        torch.testing.assert_close(NativeAttend.apply(X, A), attend(X, A), rtol=1e-6, atol=1e-6)


def test_nan_stays_in_its_model() -> None:
    X, A = torch.randn(2, 3, 4, 9), torch.randn(2, 2, 5, 4)
    clean = NativeAttend.apply(X, A)
    A = A.clone()
    A[0, 1, 2, 3] = torch.nan
    A.requires_grad_()
    out = NativeAttend.apply(X, A)
    assert torch.isnan(out[0]).any()
    torch.testing.assert_close(out[1].detach(), clean[1], rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(out.sum(), A)
    assert torch.isnan(gradient[0]).any()
    assert torch.isfinite(gradient[1]).all()


def test_float64_never_takes_it() -> None:
    X = torch.randn(1, 1, 4, 5)
    assert native_usable(X, 4)
    assert not native_usable(X.double(), 4)
    assert not native_usable(X, 17)
    A, G, g, U = torch.randn(1, 1, 5, 4), torch.randn(1, 8, 3), torch.randn(1, 3), torch.randn(1, 1, 2, 3)
    wide = [value.double() for value in (X, A, G, g, U)]
    torch.testing.assert_close(
        reference(X, TokenLayer(A, G, g, U, 0.5, "gelu")).double(),
        reference(wide[0], TokenLayer(*wide[1:], 0.5, "gelu")),
        rtol=1e-5,
        atol=1e-6,
    )
