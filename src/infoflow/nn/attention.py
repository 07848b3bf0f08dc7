"""The one attention of this project.

    attention(q, k, v, scale, mask)[t] = sum_s p_ts v_s,   p_t = softmax_s(scale * <q_t, k_s>)

Every head anywhere (retrieval constructions, softmax-attention paper, rank-1, training, probing) goes through here.
The score matrix is shifted by its row maximum, so logits of any size are safe. `hard=True` is the limit scale -> inf:
the mean over the keys that attain the maximum exactly.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Attended(NamedTuple):
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
