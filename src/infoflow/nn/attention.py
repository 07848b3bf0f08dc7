"""The one attention of this project.

    attention(q, k, v, scale, mask)[t] = sum_s p_ts v_s,   p_t = softmax_s(scale * <q_t, k_s>)

Every head anywhere (retrieval constructions, softmax-attention paper, rank-1, training, probing) goes through here.
The score matrix is shifted by its row maximum, so logits of any size are safe. `hard=True` is the limit scale -> inf:
the mean over the keys that attain the maximum exactly.

`attention_values` takes a fused kernel where it fits (float32, short, small heads; Triton on CUDA, C on a CPU where
there are many), else the plain function.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.nn import native


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


LONGEST, LARGEST_HEAD = 512, 64


def attention_values(
    q: Float[Tensor, "... queries r"],
    k: Float[Tensor, "... keys r"],
    v: Float[Tensor, "... keys n"],
    scale: float = 1.0,
    mask: Bool[Tensor, " ..."] | None = None,
    hard: bool = False,
) -> Float[Tensor, "... queries n"]:
    """`attention(...).values` when nobody asks for the weights."""
    if q.device.type == "cuda" and mask is None and not hard and fits(q, k, v):
        return fused_attention(q, k, v, scale)
    if mask is None and not hard and native.usable(q, k, v):
        return native.native_attention(q, k, v, scale)
    return attention(q, k, v, scale, mask, hard).values


def fused_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Attention by the Triton kernel, differentiable."""
    out: Tensor = FusedAttention.apply(q, k, v, scale)  # type: ignore[no-untyped-call]
    return out


def fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel takes these shapes on this device."""
    rows, keys = q.shape[-2], k.shape[-2]
    small = max(rows, keys) <= LONGEST and max(q.shape[-1], v.shape[-1]) <= LARGEST_HEAD and min(rows, keys) >= 1
    same = q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and q.dtype == k.dtype == v.dtype == torch.float32
    return small and same and triton_found()


@lru_cache(maxsize=1)
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
        from infoflow.nn import triton_attention as kernels

        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        (R, n), (T, m) = q.shape[-2:], v.shape[-2:]
        N = q.shape[:-2].numel()
        out, lse = q.new_empty(*q.shape[:-1], m), q.new_empty(*q.shape[:-1])
        size = tile(T, R)
        grid = (N, -(-R // size["part"]))
        kernels.attention_forward[grid](
            q, k, v, out, lse, R, T, scale, n=n, m=m, BK=size["full"], BQ=size["part"], num_warps=size["warps"]
        )
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """The gradients by q, k and v; the weights are computed again."""
        from infoflow.nn import triton_attention as kernels

        q, k, v, out, lse = ctx.saved_tensors
        (R, n), (T, m) = q.shape[-2:], v.shape[-2:]
        N, dout = q.shape[:-2].numel(), grads[0].contiguous()
        common = (q, k, v, lse, dout, (dout * out).sum(-1))
        dq = dk = dv = None
        if ctx.needs_input_grad[0]:
            dq, size = torch.empty_like(q), tile(T, R)
            kernels.attention_backward_queries[(N, -(-R // size["part"]))](
                *common, dq, R, T, ctx.scale, n=n, m=m, BK=size["full"], BQ=size["part"], num_warps=2 * size["warps"]
            )
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            dk, dv, size = torch.empty_like(k), torch.empty_like(v), tile(R, T)
            kernels.attention_backward_keys[(N, -(-T // size["part"]))](
                *common, dk, dv, R, T, ctx.scale, n=n, m=m, BK=size["part"], BQ=size["full"],
                num_warps=2 * size["warps"],
            )  # fmt: skip
        return dq, dk, dv, None
