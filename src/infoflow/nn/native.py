"""Many small attentions on a CPU by the compiled C of `attention.c`: float32, differentiable, no mask.

A batch of B sequences with h heads is B h products of perhaps ten by ten; the library for matrix products spends most
of its time in being called. `usable` says where the C serves; without a C compiler it never does.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoflow import kernels

SOURCE = Path(__file__).with_name("attention.c")
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-shared", "-fPIC"]
# Measured on one core: 2.5 to 5 times the matrix products at 12 and 20 tokens, 1.5 at 64, equal at 128.
MOST = 16  # coordinates of a head, as in the source; with 32 matrix products are faster
LONGEST = 64  # queries and keys
FEWEST = 256  # attentions in one call: a single network that answers a question compiles nothing
AGREES = 1e-5  # relative to float64


def usable(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the compiled C takes these tensors and is worth it."""
    same = q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and q.ndim >= 3
    plain = all(x.device.type == "cpu" and x.dtype == torch.float32 for x in (q, k, v))
    small = min(q.shape[-2:] + v.shape) >= 1 and max(q.shape[-1], v.shape[-1]) <= MOST
    short = max(q.shape[-2], k.shape[-2]) <= LONGEST and q.shape[:-2].numel() >= FEWEST
    return same and plain and small and short and not torch.compiler.is_compiling() and found()


def native_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Attention by the compiled C, differentiable."""
    out: Tensor = NativeAttention.apply(q, k, v, scale)  # type: ignore[no-untyped-call]
    return out


class NativeAttention(torch.autograd.Function):
    """q (..., h, R, n), k (..., h, T, n), v (..., h, T, m) -> (..., h, R, m), also where rows stand before heads
    in memory."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """The values; each softmax's maximum and sum are kept for the backward pass."""
        q, k, v = (_plain(x) for x in (q, k, v))
        out = _like(q, v.shape[-1])
        tops, inverses = q.new_empty(q.shape[:-1]), q.new_empty(q.shape[:-1])
        _call(library().attention_forward, [q, k, v, out, tops, inverses], [q, k, v, out], scale)
        ctx.save_for_backward(q, k, v, out, tops, inverses)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """The gradients by q, k and v; the weights are computed again."""
        q, k, v, out, tops, inverses = ctx.saved_tensors
        g = grads[0] if grads[0].stride() == out.stride() else torch.empty_like(out).copy_(grads[0])
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        tensors = [q, k, v, out, g, tops, inverses, dq, dk, dv]
        _call(library().attention_backward, tensors, [q, k, v, out], ctx.scale)
        return dq, dk, dv, None


def _turned(x: Tensor) -> bool:
    """Whether rows stand before heads in memory, as a projection to all heads at once leaves them."""
    return x.ndim >= 4 and x.transpose(-3, -2).is_contiguous()


def _plain(x: Tensor) -> Tensor:
    return x if _turned(x) else x.contiguous()


def _like(q: Tensor, m: int) -> Tensor:
    """Room for (..., R, m) in the layout of q, so that joining the heads behind it copies nothing."""
    *outer, R, _ = q.shape
    if not _turned(q):
        return q.new_empty(*outer, R, m)
    return q.new_empty(*outer[:-1], R, outer[-1], m).transpose(-3, -2)


def _layout(x: Tensor) -> list[int]:
    """Steps from item to item, head to head and row to row; one head where there is no such axis."""
    rows, n = x.shape[-2:]
    heads = x.shape[-3] if x.ndim >= 4 else 1
    if _turned(x):
        return [heads * rows * n, n, heads * n]
    return [heads * rows * n, rows * n, n]


def _call(function: Any, tensors: list[Tensor], laid: list[Tensor], scale: float) -> None:
    q, k, v, _ = laid
    heads = q.shape[-3] if q.ndim >= 4 else 1
    sizes = [q.shape[:-2].numel() // heads, heads, q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]]
    layouts = [step for x in laid for step in _layout(x)]
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    numbers = ((ctypes.c_int64 * len(found))(*found) for found in (layouts, sizes))
    if function(*pointers, *numbers, ctypes.c_double(scale)):
        raise MemoryError


@cache
def library() -> Any:
    """Compiled once for each user and processor (`infoflow.kernels`)."""
    made = kernels.library(SOURCE, FLAGS)
    made.attention_forward.restype = made.attention_backward.restype = ctypes.c_int
    return made


@cache
def found() -> bool:
    """Whether there is a library, and it agrees with PyTorch."""
    try:
        library()
        with torch.inference_mode(False), torch.enable_grad():  # whoever asks first may want no gradients
            return all(_agrees(*shape) for shape in ((2, 3, 19, 5, 4, 4), (3, 1, 1, 17, 3, 7)))
    except (OSError, AttributeError):
        return False


def _agrees(items: int, heads: int, R: int, T: int, n: int, m: int) -> bool:
    """Output and gradients on a shape that fills no block of lanes, against float64."""
    generator = torch.Generator().manual_seed(T)
    shapes = ((items, R, heads, n), (items, T, heads, n), (items, T, heads, m))
    inputs = [torch.randn(shape, generator=generator).transpose(1, 2) for shape in shapes]
    weight = torch.randn(items, heads, R, m, generator=generator)
    narrow, wide = ([x.to(dtype).requires_grad_() for x in inputs] for dtype in (torch.float32, torch.float64))
    got, exact = (
        native_attention(narrow[0], narrow[1], narrow[2], 0.7),
        torch.softmax(wide[0] @ wide[1].mT * 0.7, -1) @ wide[2],
    )
    slopes = (torch.autograd.grad((y * weight).sum(), x) for y, x in ((got, narrow), (exact, wide)))
    pairs = [(got, exact), *zip(*slopes, strict=True)]
    return all(float((a - b).detach().norm()) <= AGREES * max(float(b.detach().norm()), 1.0) for a, b in pairs)
