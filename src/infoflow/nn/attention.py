"""The one attention of this project.

    attention(q, k, v, scale, mask)[t] = sum_s p_ts v_s,   p_t = softmax_s(scale * <q_t, k_s>)

Every head anywhere (retrieval constructions, softmax-attention paper, rank-1, training, probing) goes through here.
The score matrix is shifted by its row maximum, so logits of any size are safe. `hard=True` is the limit scale -> inf:
the mean over the keys that attain the maximum exactly.

`attention_values` takes a fused kernel where it fits, else the plain function. A batch of B sequences with h heads is
B h products of perhaps ten by ten, and the library for matrix products spends most of its time in being called. The
kernels are float32, differentiable, without a mask, for short sequences and small heads: Triton on CUDA
(`triton_attention.py`), the compiled C of `attention.c` on a CPU where there are many; without a C compiler never.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow import kernels


class Attended(NamedTuple):
    """Values and weights of all queries."""

    values: Float[Tensor, "... queries n"]
    weights: Float[Tensor, "... queries keys"]


def attention(
    q: Float[Tensor, "... queries r"],
    k: Float[Tensor, "... keys r"],
    v: Float[Tensor, "... keys n"],
    scale: float | Tensor = 1.0,
    mask: Bool[Tensor, " ..."] | None = None,
    hard: bool = False,
) -> Attended:
    """Softmax attention with an explicit scale; `mask` (broadcast to queries x keys) is True where a key is visible.

    A query with no visible key gets weights 0 and value 0, never NaN.
    """
    scores = q @ k.transpose(-1, -2) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = hardmax(scores) if hard else torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = torch.where(
            mask.any(-1, keepdim=True), weights, torch.zeros((), dtype=weights.dtype, device=weights.device)
        )
    return Attended(weights @ v, weights)


def hardmax(scores: Float[Tensor, "... keys"]) -> Float[Tensor, "... keys"]:
    """Even split over the exact maximisers (the tie rule of the rank-1 paper's Theorem 1)."""
    top = (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)
    return top / top.sum(-1, keepdim=True)


LONGEST, LARGEST_HEAD = 512, 64  # of the Triton kernels
SOURCE = Path(__file__).with_name("attention.c")
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-shared", "-fPIC"]
# Measured on one core: 2.5 to 5 times the matrix products at 12 and 20 tokens, 1.5 at 64, equal at 128.
NATIVE_LARGEST_HEAD = 16  # as in the source; with 32 matrix products are faster
NATIVE_LONGEST = 64  # queries and keys
NATIVE_FEWEST = 256  # attentions in one call: a single network that answers a question compiles nothing
AGREES = 1e-5  # relative to float64


def attention_values(
    q: Float[Tensor, "... queries r"],
    k: Float[Tensor, "... keys r"],
    v: Float[Tensor, "... keys n"],
    scale: float = 1.0,
    mask: Bool[Tensor, " ..."] | None = None,
    hard: bool = False,
) -> Float[Tensor, "... queries n"]:
    """`attention(...).values` when nobody asks for the weights."""
    if q.device.type == "cuda" and mask is None and not hard and fused_fits(q, k, v):
        return fused_attention(q, k, v, scale)
    if mask is None and not hard and native_fits(q, k, v):
        return native_attention(q, k, v, scale)
    return attention(q, k, v, scale, mask, hard).values


def fused_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Attention by the Triton kernel, differentiable."""
    out: Tensor = FusedAttention.apply(q, k, v, scale)  # type: ignore[no-untyped-call]
    return out


def fused_fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the Triton kernel takes these shapes on this device."""
    rows, keys = q.shape[-2], k.shape[-2]
    small = max(rows, keys) <= LONGEST and max(q.shape[-1], v.shape[-1]) <= LARGEST_HEAD and min(rows, keys) >= 1
    same = q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and q.dtype == k.dtype == v.dtype == torch.float32
    return small and same and triton_found()


@cache
def triton_found() -> bool:
    """Whether Triton is installed."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def block(size: int) -> int:
    """The power of two at or above `size`, at least 16."""
    return max(16, 1 << (size - 1).bit_length())


def tile(whole: int, split: int) -> dict[str, int]:
    """The axis that is reduced in one block; the other so that a thread holds at most 64 scores."""
    full = block(whole)
    part = min(block(split), max(32, 4096 // full))
    return {"full": full, "part": part, "warps": max(1, full * part // 2048)}


class FusedAttention(torch.autograd.Function):
    """The Triton kernels as one differentiable function."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """The values, and the log of each softmax's sum for the backward pass."""
        from infoflow.nn import triton_attention as fused

        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        (R, n), (T, m) = q.shape[-2:], v.shape[-2:]
        N = q.shape[:-2].numel()
        out, lse = q.new_empty(*q.shape[:-1], m), q.new_empty(*q.shape[:-1])
        size = tile(T, R)
        grid = (N, -(-R // size["part"]))
        fused.attention_forward[grid](
            q, k, v, out, lse, R, T, scale, n=n, m=m, BK=size["full"], BQ=size["part"], num_warps=size["warps"]
        )
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """The gradients by q, k and v; the weights are computed again."""
        from infoflow.nn import triton_attention as fused

        q, k, v, out, lse = ctx.saved_tensors
        (R, n), (T, m) = q.shape[-2:], v.shape[-2:]
        N, dout = q.shape[:-2].numel(), grads[0].contiguous()
        common = (q, k, v, lse, dout, (dout * out).sum(-1))
        dq = dk = dv = None
        if ctx.needs_input_grad[0]:
            dq, size = torch.empty_like(q), tile(T, R)
            fused.attention_backward_queries[(N, -(-R // size["part"]))](
                *common, dq, R, T, ctx.scale, n=n, m=m, BK=size["full"], BQ=size["part"], num_warps=2 * size["warps"]
            )
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            dk, dv, size = torch.empty_like(k), torch.empty_like(v), tile(R, T)
            fused.attention_backward_keys[(N, -(-T // size["part"]))](
                *common, dk, dv, R, T, ctx.scale, n=n, m=m, BK=size["part"], BQ=size["full"],
                num_warps=2 * size["warps"],
            )  # fmt: skip
        return dq, dk, dv, None


def native_fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the compiled C takes these tensors and is worth it."""
    same = q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and q.ndim >= 3
    plain = all(x.device.type == "cpu" and x.dtype == torch.float32 for x in (q, k, v))
    small = min(q.shape[-2:] + v.shape) >= 1 and max(q.shape[-1], v.shape[-1]) <= NATIVE_LARGEST_HEAD
    short = max(q.shape[-2], k.shape[-2]) <= NATIVE_LONGEST and q.shape[:-2].numel() >= NATIVE_FEWEST
    return same and plain and small and short and not torch.compiler.is_compiling() and native_found()


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
        _call(native_library().attention_forward, [q, k, v, out, tops, inverses], [q, k, v, out], scale)
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
        _call(native_library().attention_backward, tensors, [q, k, v, out], ctx.scale)
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
def native_library() -> Any:
    """Compiled once for each user and processor (`infoflow.kernels`)."""
    made = kernels.library(SOURCE, FLAGS)
    made.attention_forward.restype = made.attention_backward.restype = ctypes.c_int
    return made


@cache
def native_found() -> bool:
    """Whether there is a native_library, and it agrees with PyTorch."""
    try:
        native_library()
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
