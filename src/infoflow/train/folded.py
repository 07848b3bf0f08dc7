"""The two-layer Transformer with its linear maps multiplied out: the same function, a third of the work.

With a linear encoder x = W_e X + b_e and d token coordinates, everything that layer 1 computes of a token is linear in
X(t) and in the attention averages of X itself, r_i(t) = sum_s p_i(t, s) X(s) (weights sum to one, so biases pass):

    score_i(t, s) = beta_1 <W_Q,i x(t), W_K,i x(s)> = <A_i' [X(t); 1], X(s)> + (what does not depend on s)
    W_1 x'(t) + b_1 = G' [X(t); r_1(t); ..; r_h(t)] + g

and the second layer is read by one query, the CLS, so its keys and values need not be formed for every token:

    <W_Q,i c_2, W_K,i x_2(s)> = <u_i, hidden(s)> + const,   u_i = W_2' W_K,i' W_Q,i c_2
    sum_s p_s W_V,i x_2(s) = W_V,i (W_2 sum_s p_s hidden(s) + b_2)

The products of weights are formed once a step per model; autograd carries gradients back to the weights themselves.
Training through this form and through `Transformer.forward` gives the same gradients up to rounding (tested).

Behind an encoder with hidden units u(t) = act(W_a X(t) + b_a), x(t) = W_e u(t) + b_e, layer 1 is linear in u(t) and in
what its heads retrieve (`forward_encoded`). Unlike tokens, hidden units are many and have gradients, so heads keep
their own keys:

    W_Q,i x(t) = (W_Q,i W_e) u(t) + W_Q,i b_e,   W_K,i x(s) = (W_K,i W_e) u(s) + (what does not depend on s)
    W_1 x'(t) + b_1 = (W_1 W_O) r(t) + (W_1 W_e) u(t) + g,   r_i(t) = sum_s p_i(t, s) (W_V,i W_e) u(s)

The token side, `token_layer`, is one differentiable function computed in one of three ways: plain PyTorch, the
reference; the attention of `attend.c` on a CPU with a C compiler; `triton_layer.py` for float32 on a CUDA device (or in
Triton's interpreter, which the tests use).
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow import kernels
from infoflow.nn import Transformer, TransformerConfig
from infoflow.nn.attention import LONGEST, attention, attention_values, block, tile, triton_found
from infoflow.nn.transformer import ACTIVATIONS, project

SOURCE = Path(__file__).with_name("attend.c")
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-shared", "-fPIC"]
MOST_NATIVE = 16  # token coordinates, as in the source
MOST_TRITON = 16  # token coordinates: the loop over them is unrolled
AGREES = 1e-5  # of the compiled attention, relative to float64


@dataclass(frozen=True)
class Fused:
    """How the Triton kernels multiply: "ieee" is float32 on the ordinary units, "tf32x3" the same accuracy on tensor
    cores by three products, "tf32" one product with a 10-bit mantissa."""

    precision: str = "tf32x3"


@lru_cache(maxsize=256)
def foldable(config: TransformerConfig) -> bool:
    """Two layers read by a CLS, linear encoder, nothing between the linear maps, and d small against the head size."""
    return _two_layers(config) and config.dim <= 2 * config.head_dims[0]


@lru_cache(maxsize=256)
def encodable(config: TransformerConfig) -> bool:
    """Two layers read by a CLS behind an encoder with a hidden layer, nothing else between the linear maps."""
    width, activation = config.encoder_width, config.encoder_activation
    return config.encoder == "mlp" and _two_layers(
        config, encoder="mlp", encoder_width=width, encoder_activation=activation
    )


def _two_layers(config: TransformerConfig, **encoder: Any) -> bool:
    return config.layers == 2 and config == TransformerConfig(
        dim=config.dim,
        heads=config.heads,
        head_dims=config.head_dims,
        widths=config.widths,
        outputs=config.outputs,
        scales=config.scales,
        activation=config.activation,
        readout_activation=config.readout_activation,
        **encoder,
    )


def forward(network: Transformer, X: Float[Tensor, "M B d T"], fused: Fused | None) -> Float[Tensor, "M B o"]:
    """The stacked network on batches X (coordinates before tokens); the last axis is the outputs, also when one."""
    p: dict[str, Tensor] = dict(network.named_parameters())
    beta_1, beta_2 = network.config.betas
    W_e, b_e, token = p["encoder.maps.0.weight"], p["encoder.maps.0.bias"], p["cls_token"]  # (M, E, d), (M, E), (M, E)
    W_1, b_1 = p["ffns.0.maps.0.weight"], p["ffns.0.maps.0.bias"]  # (M, w, E), (M, w)
    act = network.config.activation

    starts = torch.stack([b_e, token], -1)  # (M, E, 2): what tokens and CLS start from
    Q = p["attentions.0.query"] @ torch.cat([W_e, starts], -1).unsqueeze(1)  # (M, h, n, d + 2)
    K = p["attentions.0.key"] @ W_e.unsqueeze(1)  # (M, h, n, d)
    V = p["attentions.0.value"] @ torch.cat([W_e, starts[..., :1]], -1).unsqueeze(1)  # (M, h, n, d + 1)
    A = beta_1 * (Q.transpose(-1, -2) @ K)  # (M, h, d + 2, d): rows for X, 1 and the CLS
    h, n, d = K.shape[1:]
    spread = (W_1 @ p["attentions.0.output"]).unflatten(-1, (h, n)).transpose(1, 2) @ V  # (M, h, w, d + 1)
    G_r = spread[..., :d].transpose(-1, -2).flatten(1, 2)  # (M, h d, w)
    G = torch.cat([(W_1 @ W_e).transpose(-1, -2), G_r], 1)  # (M, d (h + 1), w)
    shift = (b_1 + spread[..., d].sum(1)).unsqueeze(-1) + W_1 @ starts  # (M, w, 2): for tokens and CLS

    # The CLS through layer 1 and F_1: one query a sequence.
    tokens = X.transpose(-1, -2)  # (M, B, T, d)
    asked = A[:, None, :, d + 1].expand(-1, X.shape[1], -1, -1)  # (M, B, h, d): heads are rows, they share the keys
    seen = attention_values(asked, tokens, tokens).flatten(2)  # (M, B, h d)
    hidden = ACTIVATIONS[act](seen @ G_r + shift[..., 1].unsqueeze(1))  # (M, B, w)
    return read(
        network, hidden, lambda U: token_layer(X, TokenLayer(A[:, :, : d + 1], G, shift[..., 0], U, beta_2, act), fused)
    )


def forward_encoded(network: Transformer, X: Float[Tensor, "M B d T"]) -> Float[Tensor, "M B o"]:
    """As `forward`, behind an encoder with a hidden layer: the states x(t) are never formed."""
    p: dict[str, Tensor] = dict(network.named_parameters())
    config = network.config
    beta_1, beta_2 = config.betas
    W_e, b_e, token = p["encoder.maps.1.weight"], p["encoder.maps.1.bias"], p["cls_token"]  # (M, E, u), (M, E), (M, E)
    W_1, b_1 = p["ffns.0.maps.0.weight"], p["ffns.0.maps.0.bias"]  # (M, w, E), (M, w)
    encode, act = ACTIVATIONS[config.encoder_activation or config.activation], ACTIVATIONS[config.activation]

    units = encode(project(X.transpose(-1, -2), p["encoder.maps.0.weight"], p["encoder.maps.0.bias"]))  # (M, B, T, u)
    maps = [p[f"attentions.0.{name}"] for name in ("query", "key", "value")]  # (M, h, n, E)
    W_Q, W_K, W_V = (weight @ W_e.unsqueeze(1) for weight in maps)  # (M, h, n, u)
    q, k, v = (_heads(units, W, bias) for W, bias in ((W_Q, _of(maps[0], b_e)), (W_K, None), (W_V, None)))
    retrieved = attention_values(q, k, v, beta_1).transpose(-3, -2).flatten(-2)  # (M, B, T, h n)

    spread, direct = W_1 @ p["attentions.0.output"], W_1 @ W_e  # (M, w, h n), (M, w, u)
    starts = torch.stack([b_e, token], -1)  # (M, E, 2): what tokens and CLS start from
    passed = spread @ _of(maps[2], b_e).flatten(1).unsqueeze(-1)  # (M, w, 1): weights sum to one, so the bias passes
    shift = b_1.unsqueeze(-1) + passed + W_1 @ starts  # (M, w, 2)
    hidden = act(project(retrieved, spread, shift[..., 0]) + project(units, direct))  # (M, B, T, w)

    asked = beta_1 * (_of(maps[0], token).unsqueeze(-2) @ W_K).squeeze(-2)  # (M, h, u): heads are rows, they share u
    seen = attention_values(asked.unsqueeze(1).expand(-1, X.shape[1], -1, -1), units, units)  # (M, B, h, u)
    cls = project(torch.einsum("mbhu,mhnu->mbhn", seen, W_V).flatten(2), spread, shift[..., 1])  # (M, B, w)
    return read(network, act(cls), lambda U: attention_values(U, hidden, hidden, beta_2))


def _of(weight: Float[Tensor, "M h n E"], x: Float[Tensor, "M E"]) -> Float[Tensor, "M h n"]:
    return (weight @ x[:, None, :, None]).squeeze(-1)


def _heads(x: Tensor, weight: Float[Tensor, "M h n u"], bias: Tensor | None) -> Float[Tensor, "M B h T n"]:
    made: Tensor = project(x, weight.flatten(1, 2), None if bias is None else bias.flatten(1))
    parted: Tensor = made.unflatten(-1, weight.shape[1:3])
    return parted.transpose(-2, -3)


def read(
    network: Transformer, hidden: Float[Tensor, "M B w"], pooled: Callable[[Tensor], Tensor]
) -> Float[Tensor, "M B o"]:
    """Layer 2 and the read-out, from the hidden units of the CLS and `pooled`, which averages those of the tokens:
    queries are pulled back to the hidden units, averages pushed forward."""
    p: dict[str, Tensor] = dict(network.named_parameters())
    W_2, b_2, W_V = p["ffns.0.maps.1.weight"], p["ffns.0.maps.1.bias"], p["attentions.1.value"]
    cls = hidden @ W_2.transpose(-1, -2) + b_2.unsqueeze(1)  # (M, B, E_2)
    q = torch.einsum("mbe,mhne->mbhn", cls, p["attentions.1.query"])
    U = torch.einsum("mbhn,mhnw->mbhw", q, p["attentions.1.key"] @ W_2.unsqueeze(1))
    values = torch.einsum("mbhw,mhnw->mbhn", pooled(U), W_V @ W_2.unsqueeze(1))
    values = values + (W_V @ b_2[:, None, :, None]).squeeze(-1).unsqueeze(1)
    cls = cls + values.flatten(2) @ p["attentions.1.output"].transpose(-1, -2)
    assert network.readout is not None
    answer: Tensor = network.readout(cls)
    return answer


class TokenLayer(NamedTuple):
    """For each sequence: attention of the tokens over themselves (h heads), hidden = act(G' z + g), then k softmax
    averages of the hidden states with scores scale <u_i, hidden_t>."""

    A: Float[Tensor, "M h d+1 d"]
    G: Float[Tensor, "M z w"]
    g: Float[Tensor, "M w"]
    U: Float[Tensor, "M B k w"]
    scale: float
    activation: str


def token_layer(X: Float[Tensor, "M B d T"], layer: TokenLayer, fused: Fused | None) -> Float[Tensor, "M B k w"]:
    """The layer's averages by the fused kernels where they run, by plain PyTorch elsewhere."""
    if fused is None:
        return reference(X, layer)
    A, G, g, U, scale, activation = layer
    Z: Tensor = TritonAttend.apply(X, A)  # type: ignore[no-untyped-call]
    if not pool_runs(X.shape[-1], Z.shape[-2], G.shape[-1], U.shape[2], activation, fused.precision, X.device):
        return pool(Z.transpose(-1, -2).flatten(1, 2), G, g, U, scale, activation)
    out: Tensor = TritonPool.apply(Z, G, g, U, scale, activation, fused.precision)  # type: ignore[no-untyped-call]
    return out


def reference(X: Tensor, layer: TokenLayer) -> Tensor:
    """Plain PyTorch, products batched over models only; on a CPU the attention is that of `attend.c`, if found."""
    native = native_usable(X, X.shape[2])
    Z = NativeAttend.apply(X, layer.A) if native else attend(X, layer.A)  # type: ignore[no-untyped-call]
    return pool(Z, *layer[1:])


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
    maps = A[:, :, :d].transpose(1, 2).flatten(2)  # (M, d, h d)
    queries = torch.baddbmm(A[:, :, d].flatten(1).unsqueeze(1), rows, maps)  # (M, B T, h d)
    queries = queries.view(M, B, T * h, d)  # row (t, head)
    retrieved = attention(queries, tokens, tokens).values.view(M, B * T, h * d)
    return torch.cat([rows, retrieved], -1)  # (M, B T, d (h + 1))


def triton_fits(T: int, d: int) -> bool:
    """Whether the Triton kernels take sequences of this length and dimension here."""
    return T <= LONGEST and d <= MOST_TRITON and triton_found()


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
            TritonPool.apply(*inputs, 1.0, activation, precision).sum().backward()  # type: ignore[no-untyped-call]
    except OutOfResources:
        return False
    return True


class TritonAttend(torch.autograd.Function):
    """X (M, B, d, T), A (M, h, d+1, d) -> Z (M, B, d (h+1), T), the tokens and what each head retrieved for them; X is
    data and gets no gradient."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, A: Tensor) -> Tensor:
        """X and A to the attended states Z; what the backward pass needs is kept."""
        from infoflow.train import triton_layer

        X, A = X.contiguous(), A.contiguous()
        (M, B, d, T), h = X.shape, A.shape[1]
        Z, lse = X.new_empty(M, B, d * (h + 1), T), X.new_empty(M, B, h, T)
        sizes = {"d": d, **attend_blocks(T)}
        blocks = -(-T // sizes["BQ"])
        triton_layer.attend_forward[(M * B, h, blocks)](X, A, Z, lse, B, T, h, **sizes)
        ctx.save_for_backward(X, A, lse)
        ctx.sizes, ctx.blocks = sizes, blocks
        return Z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """The gradient by A; X is data and has none."""
        from infoflow.train import triton_layer

        X, A, lse = ctx.saved_tensors
        (M, B, d, T), h = X.shape, A.shape[1]
        dA = X.new_empty(M, B, h, ctx.blocks, d + 1, d)
        grid = (M * B, h, ctx.blocks)
        triton_layer.attend_backward[grid](X, A, lse, grads[0].contiguous(), dA, B, T, h, **ctx.sizes)
        return None, dA.sum((1, 3))


class TritonPool(torch.autograd.Function):
    """Z (M, B, z, T) through the feed-forward block and k softmax averages over the tokens: (M, B, k, w)."""

    @staticmethod
    def forward(ctx: Any, Z: Tensor, G: Tensor, g: Tensor, U: Tensor, *options: Any) -> Tensor:
        """Hidden units and their softmax averages in one kernel, without storing the units."""
        from infoflow.train import triton_layer

        scale, activation, precision = options
        Z, G, g, U = (tensor.contiguous() for tensor in (Z, G, g, U))
        (M, B, zdim, T), w, k = Z.shape, G.shape[-1], U.shape[2]
        out = torch.empty_like(U)
        sizes = {"h": k, "w": w, "zdim": zdim, "ACT": activation, "PRECISION": precision, **pool_blocks(T, zdim, w, k)}
        triton_layer.pool_forward[(M * B,)](Z, G, g, U, out, B, T, scale, **sizes)
        ctx.save_for_backward(Z, G, g, U)
        ctx.sizes, ctx.scale = sizes, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """The gradients by Z, G, g and U; the hidden units are computed again."""
        from infoflow.train import triton_layer

        Z, G, g, U = ctx.saved_tensors
        M, B, _, T = Z.shape
        dZ, dU = torch.empty_like(Z), torch.empty_like(U)
        dG, dg = Z.new_empty(M, B, *G.shape[1:]), Z.new_empty(M, B, *g.shape[1:])
        triton_layer.pool_backward[(M * B,)](
            Z, G, g, U, grads[0].contiguous(), dZ, dG, dg, dU, B, T, ctx.scale, **ctx.sizes
        )
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


class NativeAttend(torch.autograd.Function):
    """X (M, B, d, T) and A (M, h, d+1, d) -> Z (M, B T, d (h+1)); X is data and gets no gradient."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, A: Tensor) -> Float[Tensor, "M rows z"]:
        """The same attention by the compiled C, on all cores."""
        library = native_library()
        X, A = X.contiguous(), A.contiguous()
        (M, B, d, T), h = X.shape, A.shape[1]
        lanes = library.attend_lanes()
        Z = X.new_empty(M, B * T, d * (h + 1))
        tops = _aligned(M * B * h * -(-T // lanes) * lanes)
        _call(library.attend_forward, [X, A, Z, tops], [M, B, T, h, d])
        ctx.save_for_backward(X, A, tops)
        return Z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """The gradient by A, summed in float64."""
        X, A, tops = ctx.saved_tensors
        (M, B, d, T), h = X.shape, A.shape[1]
        dA = torch.zeros(A.shape, dtype=torch.float64)
        _call(native_library().attend_backward, [X, A, tops, grads[0].contiguous(), dA], [M, B, T, h, d])
        return None, dA.to(A.dtype)


def native_usable(X: Tensor, d: int) -> bool:
    """Whether the compiled C takes these tensors."""
    return X.device.type == "cpu" and X.dtype == torch.float32 and d <= MOST_NATIVE and native_found()


@cache
def native_found() -> bool:
    """Whether there is a library, and it agrees with PyTorch."""
    try:
        native_library()
        with torch.inference_mode(False), torch.enable_grad():  # whoever asks first may want no gradients
            return _agrees()
    except (OSError, AttributeError):
        return False


@cache
def native_library() -> Any:
    """Compiled once for each user and processor (`infoflow.kernels`)."""
    library = kernels.library(SOURCE, FLAGS)
    for name in ("attend_forward", "attend_backward", "attend_lanes"):
        getattr(library, name).restype = ctypes.c_int
    return library


def _agrees() -> bool:
    """Output and gradient on shapes that fill no block of lanes, against float64."""
    for M, B, d, T, h in ((2, 2, 4, 19, 2), (1, 2, 5, 1, 1)):
        generator = torch.Generator().manual_seed(T)
        X, A = torch.randn(M, B, d, T, generator=generator), torch.randn(M, h, d + 1, d, generator=generator)
        weight = torch.randn(M, B * T, d * (h + 1), generator=generator)
        wide, narrow = A.double().requires_grad_(), A.clone().requires_grad_()
        exact, got = attend(X.double(), wide), NativeAttend.apply(X, narrow)  # type: ignore[no-untyped-call]
        (slope,) = torch.autograd.grad((exact * weight).sum(), wide)
        (mine,) = torch.autograd.grad((got * weight).sum(), narrow)
        for a, b in ((exact, got), (slope, mine)):
            if not float((a - b).detach().norm()) <= AGREES * max(float(a.detach().norm()), 1.0):
                return False
    return True


def _call(function: Any, tensors: list[Tensor], sizes: list[int]) -> None:
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    if function(*pointers, *(ctypes.c_int64(size) for size in sizes)):
        raise MemoryError


def _aligned(size: int) -> Tensor:
    """Floats that begin on a line of 64 bytes (PyTorch's own CPU memory does)."""
    memory = torch.empty(size)
    assert memory.data_ptr() % 64 == 0
    return memory
