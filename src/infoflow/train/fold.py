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
"""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.nn import Transformer, TransformerConfig
from infoflow.nn.fused import attention_values
from infoflow.nn.transformer import ACTIVATIONS
from infoflow.train.kernels.layer import Fused, token_layer


@lru_cache(maxsize=256)
def foldable(config: TransformerConfig) -> bool:
    """Two layers read by a CLS, linear encoder, nothing between the linear maps, and d small against the head size."""
    plain = config == TransformerConfig(
        dim=config.dim,
        heads=config.heads,
        head_dims=config.head_dims,
        widths=config.widths,
        outputs=config.outputs,
        scales=config.scales,
        activation=config.activation,
        readout_activation=config.readout_activation,
    )
    return plain and config.layers == 2 and config.dim <= 2 * config.head_dims[0]


def forward(network: Transformer, X: Float[Tensor, "M B d T"], fused: Fused | None) -> Float[Tensor, "M B o"]:
    """The stacked network on batches X (coordinates before tokens); the last axis is the outputs, also when one."""
    p: dict[str, Tensor] = dict(network.named_parameters())
    beta_1, beta_2 = network.config.betas
    W_e, b_e, token = p["encoder.maps.0.weight"], p["encoder.maps.0.bias"], p["cls_token"]  # (M, E, d), (M, E), (M, E)
    W_1, b_1 = p["ffns.0.maps.0.weight"], p["ffns.0.maps.0.bias"]  # (M, w, E), (M, w)
    W_2, b_2 = p["ffns.0.maps.1.weight"], p["ffns.0.maps.1.bias"]  # (M, E_2, w), (M, E_2)
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
    cls = hidden @ W_2.transpose(-1, -2) + b_2.unsqueeze(1)  # (M, B, E_2)

    # Layer 2: queries pulled back to the hidden units, averages pushed forward.
    q = torch.einsum("mbe,mhne->mbhn", cls, p["attentions.1.query"])
    U = torch.einsum("mbhn,mhnw->mbhw", q, p["attentions.1.key"] @ W_2.unsqueeze(1))
    pooled = token_layer(X, A[:, :, : d + 1], G, shift[..., 0], U, beta_2, act, fused)
    W_V = p["attentions.1.value"]
    values = torch.einsum("mbhw,mhnw->mbhn", pooled, W_V @ W_2.unsqueeze(1))
    values = values + (W_V @ b_2[:, None, :, None]).squeeze(-1).unsqueeze(1)
    cls = cls + values.flatten(2) @ p["attentions.1.output"].transpose(-1, -2)
    assert network.readout is not None
    answer: Tensor = network.readout(cls)
    return answer
