"""The token side of a folded two-layer Transformer as one differentiable function: Triton where it runs, else PyTorch.

`token_layer` is the only entry. The reference is the plain formula through the project's one attention; the fused path
is `triton_layer.py`, for float32 on a CUDA device (or in Triton's interpreter, which the tests use).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.nn.attention import attention
from infoflow.nn.fused import LONGEST, attention_values, block, tile, triton_found
from infoflow.nn.transformer import ACTIVATIONS
from infoflow.train.kernels import native

MOST_TOKEN_COORDINATES = 16  # the score loop over d is unrolled


@dataclass(frozen=True)
class Fused:
    """How the kernel multiplies: "ieee" is float32 on the ordinary units, "tf32x3" the same accuracy on tensor cores
    by three products, "tf32" one product with a 10-bit mantissa."""

    precision: str = "tf32x3"


def token_layer(
    X: Float[Tensor, "M B d T"],
    A: Float[Tensor, "M h d+1 d"],
    G: Float[Tensor, "M z w"],
    g: Float[Tensor, "M w"],
    U: Float[Tensor, "M B k w"],
    scale: float,
    activation: str,
    fused: Fused | None,
) -> Float[Tensor, "M B k w"]:
    """For each sequence: attention of the tokens over themselves (h heads), hidden = act(G' z + g), then k softmax
    averages of the hidden states with scores scale <u_i, hidden_t>."""
    if fused is None:
        return reference(X, A, G, g, U, scale, activation)
    Z: Tensor = Attend.apply(X, A)
    if not pool_runs(X.shape[-1], Z.shape[-2], G.shape[-1], U.shape[2], activation, fused.precision, X.device):
        return pool(Z.transpose(-1, -2).flatten(1, 2), G, g, U, scale, activation)
    out: Tensor = Pool.apply(Z, G, g, U, scale, activation, fused.precision)
    return out


def reference(X: Tensor, A: Tensor, G: Tensor, g: Tensor, U: Tensor, scale: float, activation: str) -> Tensor:
    """Plain PyTorch, products batched over models only; on a CPU the attention is that of `native.py`, if found."""
    Z = native.Attend.apply(X, A) if native.usable(X, X.shape[2]) else attend(X, A)
    return pool(Z, G, g, U, scale, activation)


def pool(Z: Float[Tensor, "M rows z"], G: Tensor, g: Tensor, U: Tensor, scale: float, activation: str) -> Tensor:
    """The feed-forward block and the averages in plain PyTorch; rows are the tokens of all sequences."""
    hidden = ACTIVATIONS[activation](torch.baddbmm(g.unsqueeze(1), Z, G))
    hidden = hidden.view(*U.shape[:2], -1, hidden.shape[-1])
    return attention_values(U, hidden, hidden, scale)


def attend(X: Float[Tensor, "M B d T"], A: Float[Tensor, "M h d+1 d"]) -> Float[Tensor, "M rows z"]:
    """[x_t; r_1t; ..; r_ht] for every token. Heads share their keys, the tokens: they are rows of one attention."""
    (M, B, d, T), h = X.shape, A.shape[1]
    tokens = X.transpose(-1, -2)  # (M, B, T, d)
    rows = tokens.reshape(M, B * T, d)
    project = A[:, :, :d].transpose(1, 2).flatten(2)  # (M, d, h d)
    queries = torch.baddbmm(A[:, :, d].flatten(1).unsqueeze(1), rows, project)  # (M, B T, h d)
    queries = queries.view(M, B, T * h, d)  # row (t, head)
    retrieved = attention(queries, tokens, tokens).values.view(M, B * T, h * d)
    return torch.cat([rows, retrieved], -1)  # (M, B T, d (h + 1))


def fits(T: int, d: int) -> bool:
    return T <= LONGEST and d <= MOST_TOKEN_COORDINATES and triton_found()


def pool_bytes(T: int, zdim: int) -> int:
    """Shared memory that one program of the pool kernel takes at least: four float32 tiles (z, tokens) going back."""
    return 16 * block(T) * block(zdim)


@lru_cache(maxsize=256)
def pool_runs(T: int, zdim: int, w: int, k: int, activation: str, precision: str, device: torch.device) -> bool:
    """Whether the pool kernel of these sizes fits this device, forward and backward: tried once, on zeros.

    How much shared memory a program takes is Triton's choice (T = 257 with z = 12 takes twice `pool_bytes`), so it is
    asked, not computed. The batch of 16 makes the compiled program the one that training uses.
    """
    if device.type != "cuda":  # Triton's interpreter
        return True
    from triton.runtime.errors import OutOfResources

    shapes = ((1, 16, zdim, T), (1, zdim, w), (1, w), (1, 16, k, w))
    inputs = [torch.zeros(shape, device=device, requires_grad=True) for shape in shapes]
    try:
        with torch.enable_grad():
            Pool.apply(*inputs, 1.0, activation, precision).sum().backward()
    except OutOfResources:
        return False
    return True


class Attend(torch.autograd.Function):
    """X (M, B, d, T), A (M, h, d+1, d) -> Z (M, B, d (h+1), T), the tokens and what each head retrieved for them; X is
    data and gets no gradient."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, A: Tensor) -> Tensor:
        from infoflow.train.kernels import triton_layer as kernels

        X, A = X.contiguous(), A.contiguous()
        (M, B, d, T), h = X.shape, A.shape[1]
        Z, lse = X.new_empty(M, B, d * (h + 1), T), X.new_empty(M, B, h, T)
        sizes = {"d": d, **attend_blocks(T)}
        blocks = -(-T // sizes["BQ"])
        kernels.attend_forward[(M * B, h, blocks)](X, A, Z, lse, B, T, h, **sizes)
        ctx.save_for_backward(X, A, lse)
        ctx.sizes, ctx.blocks = sizes, blocks
        return Z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        from infoflow.train.kernels import triton_layer as kernels

        X, A, lse = ctx.saved_tensors
        (M, B, d, T), h = X.shape, A.shape[1]
        dA = X.new_empty(M, B, h, ctx.blocks, d + 1, d)
        grid = (M * B, h, ctx.blocks)
        kernels.attend_backward[grid](X, A, lse, grads[0].contiguous(), dA, B, T, h, **ctx.sizes)
        return None, dA.sum((1, 3))


class Pool(torch.autograd.Function):
    """Z (M, B, z, T) through the feed-forward block and k softmax averages over the tokens: (M, B, k, w)."""

    @staticmethod
    def forward(ctx: Any, Z: Tensor, G: Tensor, g: Tensor, U: Tensor, *options: Any) -> Tensor:
        from infoflow.train.kernels import triton_layer as kernels

        scale, activation, precision = options
        Z, G, g, U = (tensor.contiguous() for tensor in (Z, G, g, U))
        (M, B, zdim, T), w, k = Z.shape, G.shape[-1], U.shape[2]
        out = torch.empty_like(U)
        sizes = {"h": k, "w": w, "zdim": zdim, "ACT": activation, "PRECISION": precision, **pool_blocks(T, zdim, w, k)}
        kernels.pool_forward[(M * B,)](Z, G, g, U, out, B, T, scale, **sizes)
        ctx.save_for_backward(Z, G, g, U)
        ctx.sizes, ctx.scale = sizes, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        from infoflow.train.kernels import triton_layer as kernels

        Z, G, g, U = ctx.saved_tensors
        M, B, _, T = Z.shape
        dZ, dU = torch.empty_like(Z), torch.empty_like(U)
        dG, dg = Z.new_empty(M, B, *G.shape[1:]), Z.new_empty(M, B, *g.shape[1:])
        kernels.pool_backward[(M * B,)](Z, G, g, U, grads[0].contiguous(), dZ, dG, dg, dU, B, T, ctx.scale, **ctx.sizes)
        return dZ, dG.sum(1), dg.sum(1), dU, None, None, None


def attend_blocks(T: int) -> dict[str, int]:
    """All keys in one block; queries so that a thread owns one query and at most 64 scores."""
    size = tile(T, T)
    return {"BK": size["full"], "BQ": size["part"], "num_warps": size["warps"]}


def pool_blocks(T: int, zdim: int, w: int, k: int) -> dict[str, int]:
    """All tokens in one block; hidden units in chunks of at most 64 that keep the tile at 4096 numbers."""
    tokens = block(T)
    width = min(64 if w % 64 == 0 or w % 64 > 32 else 32, max(16, 4096 // tokens))
    return {
        "BT": tokens,
        "BZ": block(zdim),
        "BW": width,
        "BH": block(k),
        "num_warps": 2 if tokens * width <= 2048 else 4,  # measured: benchmarks/kernel_sweep.py
        "num_stages": 1,
    }
