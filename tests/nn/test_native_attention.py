"""Many small attentions by the compiled C: values and gradients of the plain function, whatever shape and layout."""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from infoflow.nn.attention import (
    NATIVE_FEWEST,
    NATIVE_LARGEST_HEAD,
    attention,
    attention_values,
    native_attention,
    native_fits,
    native_found,
)


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler here")


def drawn(shape: tuple[int, ...], seed: int, turned: bool) -> Tensor:
    """(items, heads, rows, n), in memory with rows before heads if `turned`."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return x.transpose(1, 2).contiguous().transpose(1, 2) if turned else x


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.tuples(st.integers(1, 37), st.integers(1, 37)),
    st.tuples(st.integers(1, NATIVE_LARGEST_HEAD), st.integers(1, NATIVE_LARGEST_HEAD)),
    st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    st.sampled_from([0.3, 1.0, 40.0]),
)
def test_values_and_gradients_are_those_of_the_plain_function(
    outer: tuple[int, int], rows: tuple[int, int], dims: tuple[int, int], turned: tuple[bool, ...], scale: float
) -> None:
    (R, T), (n, m) = rows, dims
    shapes = [(*outer, R, n), (*outer, T, n), (*outer, T, m), (*outer, R, m)]
    q, k, v, weight = (drawn(shape, i, turned[i]) for i, shape in enumerate(shapes))
    narrow, wide = ([x.to(kind).requires_grad_() for x in (q, k, v)] for kind in (torch.float32, torch.float64))
    got, exact = native_attention(*narrow, scale), attention(*wide, scale).values
    slopes = [torch.autograd.grad((y * weight).sum(), x) for y, x in ((got, narrow), (exact, wide))]
    for a, b in [(got, exact), *zip(*slopes, strict=True)]:
        assert a.shape == b.shape
        assert float((a - b).detach().norm()) <= 2e-5 * scale * max(float(b.detach().norm()), 1.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_stays_in_its_own_head(bad: float) -> None:
    q, k, v = (drawn((2, 2, 5, 3), i, True).clone() for i in range(3))
    clean = native_attention(q, k, v, 1.0)
    k[1, 0, 2, 1] = bad
    out = native_attention(q, k, v, 1.0)
    assert out[1, 0].isnan().any()
    torch.testing.assert_close(out[0], clean[0], rtol=0, atol=0)
    torch.testing.assert_close(out[1, 1], clean[1, 1], rtol=0, atol=0)


def test_scores_of_any_size_are_safe() -> None:
    q, k, v = (drawn((1, 1, 20, 2), i, False) for i in range(3))
    torch.testing.assert_close(native_attention(q, k, v, 1e6), attention(q, k, v, 1e6).values)


def test_it_serves_where_there_are_many_small_ones_and_nowhere_else() -> None:
    q = torch.randn(NATIVE_FEWEST, 1, 4, 3)
    assert native_fits(q, q, q)
    assert "NativeAttention" in type(attention_values(q.requires_grad_(), q, q).grad_fn).__name__
    assert not native_fits(q[1:], q[1:], q[1:])
    assert not native_fits(q.double(), q.double(), q.double())
    wide, long = q.expand(-1, -1, -1, 3).repeat(1, 1, 1, 6), q.repeat(1, 1, 17, 1)
    assert not native_fits(wide, wide, wide)
    assert not native_fits(q, long, long)
    assert not native_fits(q, q.transpose(0, 1), q)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_first_who_asks_may_want_no_gradients(mode: Callable[[], AbstractContextManager[None]]) -> None:
    native_found.cache_clear()
    with mode():
        assert native_found()
