"""A one-layer planted network as a state of TransformerLens' HookedTransformer.

That library can express our attention, with two additions: the CLS is a token there, so one more direction marks it and
one more head dimension takes PENALTY from its logit as a key; and scores have no scale of their own, so beta goes into
the queries. Deeper networks it cannot express: its blocks add to the stream, ours replace it between layers. The
encoder in front and the read-out behind are ours: `lens_stream` is what enters block 0, and the read-out applies to
what leaves it at the CLS.
"""

from typing import Any

import torch
from torch import Tensor

from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer

PENALTY = 1e4  # logits


def lens_config(network: Transformer) -> dict[str, Any]:
    """The keyword arguments of HookedTransformerConfig."""
    c = network.config
    if c.layers != 1:
        raise InfoFlowError(
            f"expected a network of one layer, got {c.layers}; between layers our blocks replace the stream, which "
            "TransformerLens cannot express."
        )
    return {
        "n_layers": 1, "d_model": c.embed[0] + 1, "d_head": c.head_dims[0] + 1, "n_heads": c.heads[0], "n_ctx": 4096,
        "d_vocab": 1, "attn_only": True, "normalization_type": None, "use_attn_scale": False,
        "attention_dir": "bidirectional", "device": "cpu",
    }  # fmt: skip


@torch.no_grad()
def lens_state(network: Transformer) -> dict[str, Tensor]:
    """W_Q, W_K, W_V (heads, d_model, d_head), W_O (heads, d_head, d_model) and biases of block 0."""
    lens_config(network)
    layer: Any = network.attentions[0]
    h, n, E = layer.query.shape
    state = {f"blocks.0.attn.W_{name}": torch.zeros(h, E + 1, n + 1) for name in "QKV"}
    state |= {f"blocks.0.attn.b_{name}": torch.zeros(h, n + 1) for name in "QKV"}
    state |= {"blocks.0.attn.W_O": torch.zeros(h, n + 1, E + 1), "blocks.0.attn.b_O": torch.zeros(E + 1)}
    weights = {"Q": layer.beta * layer.query, "K": layer.key, "V": layer.value}
    for name, weight in weights.items():
        state[f"blocks.0.attn.W_{name}"][:, :E, :n] = weight.transpose(1, 2)
    state["blocks.0.attn.W_O"][:, :n, :E] = layer.output.view(E, h, n).permute(1, 2, 0)
    state["blocks.0.attn.b_Q"][:, n] = 1.0
    state["blocks.0.attn.W_K"][:, E, n] = -PENALTY
    return state


@torch.no_grad()
def lens_stream(network: Transformer, X: Tensor) -> Tensor:
    """The embedded tokens and the CLS, which the last direction marks."""
    x = network.embed(X)
    mark = torch.zeros(*x.shape[:-1], 1)
    mark[:, -1] = 1.0
    return torch.cat([x, mark], -1)
