import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.book.statements.exact_products import exact_product, padded, positive_head
from infoflow.errors import InfoFlowError

F64 = torch.float64


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_products_are_exact(seed, n, d, signed):
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(3, d, generator=generator, dtype=F64)
    B = torch.randn(n, n, generator=generator, dtype=F64)
    B = B if signed else 10 ** (3 * B.clamp(-4, 1))
    net = exact_product(A, B)
    X = 2 * torch.rand(4, d, n, generator=generator, dtype=F64) - 1
    assert len(net.heads) == (1 if bool((B > 0).all()) else 2)
    assert (net.explicit(X) - net.target(X)).abs().max() <= net.certificate.bound
    assert torch.allclose(net.explicit(X), net.fast(X), rtol=0, atol=1e-12 + net.certificate.parts["rounding"])
    assert net.attack(seed) <= net.certificate.bound


def test_relative_accuracy_over_fifteen_orders_of_magnitude():
    B = 10 ** torch.linspace(-12, 3, 16, dtype=F64).reshape(4, 4)
    net = exact_product(torch.eye(4, dtype=F64), B)
    X = torch.eye(4, dtype=F64)
    assert ((net.explicit(X)[:, :4] - B) / B).abs().max() < 1e-12


def test_a_zero_entry_breaks_the_printed_head_and_its_footnote():
    """B+ - B- has zeros, ln 0 = -inf, and 0 times inf is nan; adding c to both repairs it."""
    B = torch.tensor([[1.0, -2.0], [0.0, 3.0]], dtype=F64)
    X = torch.ones(1, 2, dtype=F64)
    A = torch.eye(1, dtype=F64)
    printed = positive_head(A, B.clamp(min=0), 10.0)(padded(X)) - positive_head(A, (-B).clamp(min=0), 10.0)(padded(X))
    assert printed.isnan().any()
    net = exact_product(A, B)
    assert (net.explicit(X) - net.target(X)).abs().max() < 1e-12


def test_wrong_input():
    eye = torch.eye(2, dtype=F64)
    with pytest.raises(InfoFlowError, match="square B"):
        exact_product(eye, torch.ones(2, 3))
    with pytest.raises(InfoFlowError, match="finite numbers in B"):
        exact_product(eye, eye * torch.inf)
    with pytest.raises(InfoFlowError, match="positive eps"):
        exact_product(eye, eye, eps=0.0)
    with pytest.raises(InfoFlowError, match="within 1"):
        exact_product(eye, eye).fast(2 * eye)
    with pytest.raises(InfoFlowError, match="shape"):
        exact_product(eye, eye).fast(torch.zeros(3, 2, dtype=F64))
