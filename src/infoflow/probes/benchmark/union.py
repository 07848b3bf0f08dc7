"""Two networks side by side in one: their streams, heads and units next to each other, their outputs added."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from infoflow.nn import Transformer


@torch.no_grad()
def union(first: Transformer, second: Transformer) -> Transformer:
    """y = (first(x) + (second(z)_1, 0, ...), second(z)_2, ...) for tokens (x, z): the first outputs are added, further
    ones of the second stand behind. Both have the same layers and the same kind of encoder."""
    a, b = first.config, second.config
    placed = "additive" if "additive" in (a.positions, b.positions) else "none"
    config = replace(
        a,
        dim=a.dim + b.dim,
        outputs=a.outputs + b.outputs - 1,
        heads=tuple(x + y for x, y in zip(a.heads, b.heads, strict=True)),
        head_dims=tuple(max(x, y) for x, y in zip(a.head_dims, b.head_dims, strict=True)),
        widths=tuple(x + y for x, y in zip(a.widths, b.widths, strict=True)),
        streams=tuple(x + y for x, y in zip(a.embed, b.embed, strict=True)),
        encoder_width=a.encoder_width + b.encoder_width,
        positions=placed,  # type: ignore[arg-type]
        length=max(a.length, b.length),
    )
    made = Transformer(config).to(next(first.parameters()).dtype)
    _beside(made.encoder, first.encoder, second.encoder)
    for l in range(config.layers):
        _attention(made.attentions[l], first.attentions[l], second.attentions[l], b.betas[l] / a.betas[l])
    for mine, one, two in zip(made.ffns, first.ffns, second.ffns, strict=True):
        _beside(mine, one, two)
    _beside(made.readout, first.readout, second.readout, added=True)
    _rows(made.cls_token, first.cls_token, second.cls_token)
    _rows(made.position, first.position, second.position, a.embed[0])
    return made.requires_grad_(False)


def _rows(mine: Any, one: Tensor | None, two: Tensor | None, split: int | None = None) -> None:
    if mine is None:
        return
    first = split if split is not None else (0 if one is None else one.shape[-1])
    if one is not None:
        mine[..., :first] = one
    if two is not None:
        mine[..., first:] = two


def _beside(mine: Any, one: Any, two: Any, added: bool = False) -> None:
    """Block-diagonal maps; with `added` the first output of the second is added to that of the first."""
    last = len(mine.maps) - 1
    for number, (m, x, y) in enumerate(zip(mine.maps, one.maps, two.maps, strict=True)):
        rows, columns = x.weight.shape
        m.weight[:rows, :columns] = x.weight
        m.bias[:rows] = x.bias
        if added and number == last:
            places = [0, *range(rows, len(m.weight))]
            m.weight[places, columns:] = y.weight
            m.bias[places] += y.bias
        else:
            m.weight[rows:, columns:] = y.weight
            m.bias[rows:] = y.bias


def _attention(mine: Any, one: Any, two: Any, ratio: float) -> None:
    """`ratio` is the second's inverse temperature over the first's, which the union keeps."""
    (h, n, E), (g, m, _) = one.query.shape, two.query.shape
    for name in ("query", "key", "value"):
        getattr(mine, name)[:h, :n, :E] = getattr(one, name)
        getattr(mine, name)[h:, :m, E:] = getattr(two, name) * (ratio if name == "query" else 1.0)
    size = mine.query.shape[1]
    out = mine.output.view(mine.output.shape[0], h + g, size)
    out[:E, :h, :n] = one.output.view(E, h, n)
    out[E:, h:, :m] = two.output.view(-1, g, m)
