"""Softmax over equally spaced anchors, evaluated where it has weight.

    s_k(z) = exp(-lambda (z - L_k)^2) / sum_j exp(-lambda (z - L_j)^2),   c = lambda spacing^2

An anchor m steps from the nearest one has weight at most exp(-c (m^2 - m)) times the leader's, so a window of
`half_width(c)` steps on each side loses less than 2^-60: no p x n array is ever formed, and (z - L_k) is taken
directly, never through the expanded square.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Values = Callable[[Int[Tensor, " ..."]], Float[Tensor, " ..."]]
CHUNK = 1 << 14  # tokens at a time: the temporaries stay in cache
FAR = 1e30  # spacings beyond the ends (a number of float32, too), where the last anchor has all weight
SMALL_C = 0.05  # below it more than 60 anchors have weight, and the sums below are bounded by integrals


def half_width(c: float) -> int:
    """K with 2 sum_{m>K} m exp(-c (m^2 - m)) <= 2^-60: the root of c (m^2 - m) = 48 (e^-48 < 2^-69), rounded up."""
    return math.ceil(0.5 + math.sqrt(0.25 + 48 / c))


def selected(
    z: Float[Tensor, " ..."],
    values: Values,
    first: float,
    spacing: float,
    c: float,
    low: int | Int[Tensor, " ..."],
    high: int | Int[Tensor, " ..."],
) -> Float[Tensor, " ..."]:
    """sum_k s_k(z) values(k) over the anchors low..high (inclusive; may differ from token to token)."""
    near = torch.round((z - first) / spacing)
    near = torch.minimum(torch.maximum(near, _like(low, near)), _like(high, near))
    offset = (z - first - spacing * near) / spacing  # |offset| <= 1/2 inside, larger only beyond the ends
    offset = offset.clamp(-FAR, FAR)  # 0 steps of an infinite one are no number
    bottom, top = _column(low), _column(high)
    half = min(half_width(c), int((high - low) if isinstance(low, int) else (high - low).max()))
    steps = torch.arange(-half, half + 1, device=z.device, dtype=z.dtype)
    key = (near[..., None] + steps).to(torch.int64)
    share = torch.exp(-c * steps * (steps - 2 * offset[..., None]))
    share = torch.where((key >= bottom) & (key <= top), share, torch.zeros_like(share))
    inside = torch.minimum(torch.maximum(key, _like(bottom, key)), _like(top, key))
    return (share * values(inside)).sum(-1) / share.sum(-1)


def in_chunks(
    function: Callable[[Float[Tensor, " tokens"]], Float[Tensor, " tokens"]], z: Float[Tensor, " ..."]
) -> Float[Tensor, " ..."]:
    """Apply a function to a long tensor piece by piece."""
    flat = z.reshape(-1)
    if flat.numel() <= CHUNK:
        return function(flat).reshape(z.shape)
    return torch.cat([function(piece) for piece in flat.split(CHUNK)]).reshape(z.shape)


def _column(bound: int | Tensor) -> int | Tensor:
    return bound if isinstance(bound, int) else bound[..., None]


def _like(bound: int | Tensor, reference: Tensor) -> Tensor:
    return torch.as_tensor(bound, dtype=reference.dtype, device=reference.device)


def tail(c: float) -> float:
    """Expected distance to z that all but the two bracketing anchors can add, in spacings:

        sum_{m>=1} (m + 1/2) exp(-c m^2) + sum_{m>=2} m exp(-c (m^2 - m))

    The two bracketing anchors alone give E|L - z| <= 1/2 for every c (u + s(1-2u) <= 1/2 for u, s <= 1/2).
    """
    if c < SMALL_C:
        return _small_tail(c)
    reach = range(1, 60)
    left = sum((m + 0.5) * math.exp(-c * m * m) for m in reach)
    right = sum(m * math.exp(-c * (m * m - m)) for m in reach if m >= 2)
    return left + right


def overshoot(c: float) -> float:
    """E (distance of the selected anchor from the end anchor) for z at or beyond that end: sum_m m exp(-c m^2)."""
    if c < SMALL_C:
        return 1 / (2 * c) + 0.43 / math.sqrt(c)
    return sum(m * math.exp(-c * m * m) for m in range(1, 60))


def _small_tail(c: float) -> float:
    """sum g <= integral of g + max g for a function with one peak: x e^{-c x^2} has integral 1/(2c) and peak
    0.429/sqrt c, e^{-c x^2} has integral 0.887/sqrt c; c (m^2 - m) = c (m - 1/2)^2 - c/4."""
    one = 1 / (2 * c) + 0.43 / math.sqrt(c) + 0.444 / math.sqrt(c)
    return one + math.exp(c / 4) * one
