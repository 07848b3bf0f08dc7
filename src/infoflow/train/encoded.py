"""The two-layer Transformer behind an encoder with a hidden layer, its linear maps multiplied out: the same function,
less than half of the work.

The encoder is x(t) = W_e u(t) + b_e with hidden units u(t) = act(W_a X(t) + b_a). What layer 1 computes of a token is
linear in u(t) and in what its heads retrieve, so the states x(t) are never formed:

    W_Q,i x(t) = (W_Q,i W_e) u(t) + W_Q,i b_e,   W_K,i x(s) = (W_K,i W_e) u(s) + (what does not depend on s)
    W_1 x'(t) + b_1 = (W_1 W_O) r(t) + (W_1 W_e) u(t) + g,   r_i(t) = sum_s p_i(t, s) (W_V,i W_e) u(s)

Unlike tokens, hidden units are many and have gradients, so heads keep their own keys (`folded.py` shares the tokens).
The second layer is read by the CLS alone, as there.
"""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.nn import Transformer, TransformerConfig
from infoflow.nn.attention import attention_values
from infoflow.nn.transformer import ACTIVATIONS, project
from infoflow.train.folded import read


@lru_cache(maxsize=256)
def encodable(config: TransformerConfig) -> bool:
    """Two layers read by a CLS behind an encoder with a hidden layer, nothing else between the linear maps."""
    return (config.layers, config.encoder) == (2, "mlp") and config == TransformerConfig(
        dim=config.dim,
        heads=config.heads,
        head_dims=config.head_dims,
        widths=config.widths,
        outputs=config.outputs,
        scales=config.scales,
        activation=config.activation,
        readout_activation=config.readout_activation,
        encoder="mlp",
        encoder_width=config.encoder_width,
        encoder_activation=config.encoder_activation,
    )


def forward(network: Transformer, X: Float[Tensor, "M B d T"]) -> Float[Tensor, "M B o"]:
    """The stacked network on batches X (coordinates before tokens); the last axis is the outputs, also when one."""
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
