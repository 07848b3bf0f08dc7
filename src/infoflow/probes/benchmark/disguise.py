"""Disguises that keep the function exactly (in real arithmetic), and what they do to the truth.

wider stream and blocks   unused directions and units
idle heads                the pattern of another head, nothing written
decoys                    the pattern and the values of another head, written where nobody reads
permuted heads            a random order in every layer
remixed heads             queries and keys by A and A^-T, values and outputs by B and B^-1, for each head
shuffled units            a random order of the hidden units, half of them with signs turned (tanh is odd)
rotation                  a random orthogonal basis of every layer's stream
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.nn import Transformer
from infoflow.probes.benchmark.truth import OUT, Head, Node, Truth, widened
from infoflow.probes.hidden import orthogonal, rotate

SPARE = 2  # unused directions a layer gets


def disguised(network: Transformer, truth: Truth, decoys: int, idle: int, seed: int) -> tuple[Transformer, Truth]:
    """A hidden copy with `decoys` decoys and `idle` idle heads somewhere, and its truth."""
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    layers = network.config.layers
    extra: list[list[tuple[str, int]]] = [[] for _ in range(layers)]
    for role in ("decoy",) * decoys + ("idle",) * idle:
        l = int(rng.integers(layers))
        extra[l].append((role, int(rng.integers(network.config.heads[l]))))
    made, known = _added(network, truth, extra, int(rng.integers(4, 17)), generator)
    known = _permuted(made, known, rng)
    _remixed(made, generator)
    _shuffled_units(made, generator)
    turns = rotate(made, generator)
    moved = tuple(replace(d, vector=(turns[d.layer] @ torch.from_numpy(d.vector)).numpy()) for d in known.directions)
    return made, replace(known, directions=moved)


@torch.no_grad()
def _added(
    old: Transformer, truth: Truth, extra: list[list[tuple[str, int]]], units: int, generator: torch.Generator
) -> tuple[Transformer, Truth]:
    c = old.config
    made = widen(old, tuple(map(len, extra)), SPARE, units)
    heads = dict(truth.heads)
    for l, copies in enumerate(extra):
        layer: Any = made.attentions[l]
        n, E = layer.query.shape[1], c.embed[l]
        for number, (role, source) in enumerate(copies):
            h = c.heads[l] + number
            for name in ("query", "key", "value"):
                getattr(layer, name)[h] = getattr(layer, name)[source]
            if role == "decoy":
                drawn = torch.randn(SPARE, n, generator=generator, dtype=torch.float64)
                layer.output[E:, h * n : (h + 1) * n] = drawn * layer.output.abs().max()
            known = truth.heads[l, source]
            heads[l, h] = Head(known.labels, f"as head {source + 1} before the disguise", role)
    for block in (*made.ffns, made.readout):
        maps: Any = block.maps
        first = maps[0]
        old_units = first.weight.shape[0] - units
        scale = first.weight[:old_units].square().mean().sqrt()
        first.weight[old_units:] = scale * torch.randn(first.weight[old_units:].shape, generator=generator).to(
            first.weight
        )
    return made, widened(replace(truth, heads=heads), made.config.embed)


@torch.no_grad()
def widen(old: Transformer, heads: tuple[int, ...], stream: int, units: int) -> Transformer:
    """More heads, directions and units, all of them 0."""
    c = old.config
    config = replace(
        c,
        heads=tuple(h + more for h, more in zip(c.heads, heads, strict=True)),
        streams=tuple(E + stream for E in c.embed),
        widths=tuple(w + units for w in c.widths),
    )
    made = Transformer(config).to(next(old.parameters()).dtype)
    state = made.state_dict()
    for name, value in old.state_dict().items():
        place = state[name]
        if name.endswith("output"):
            l = int(name.split(".")[1])
            place = place.view(-1, config.heads[l], c.head_dims[l])
            value = value.view(-1, c.heads[l], c.head_dims[l])
        place[tuple(slice(0, size) for size in value.shape)] = value
    return made.requires_grad_(False)


@torch.no_grad()
def _permuted(made: Transformer, truth: Truth, rng: np.random.Generator) -> Truth:
    """Head order[l][i] of the old order becomes head i."""
    place: dict[Node, Node] = {OUT: OUT}
    for l, h in enumerate(made.config.heads):
        order = torch.from_numpy(rng.permutation(h))
        layer: Any = made.attentions[l]
        for name in ("query", "key", "value"):
            weight = getattr(layer, name)
            weight.copy_(weight[order].clone())
        out = layer.output.view(-1, h, layer.query.shape[1])
        out.copy_(out[:, order].clone())
        place.update({(l, int(old)): (l, new) for new, old in enumerate(order)})
    heads = {
        place[node]: head if head.stands_in is None else replace(head, stands_in=place[head.stands_in])
        for node, head in truth.heads.items()
    }
    return replace(truth, heads=heads, edges=tuple(sorted((place[a], place[b]) for a, b in truth.edges)))


@torch.no_grad()
def _remixed(made: Transformer, generator: torch.Generator) -> None:
    layers: Any = made.attentions
    for layer in layers:
        h, n = layer.query.shape[:2]
        for i in range(h):
            A, B = _mixing(n, generator).to(layer.query), _mixing(n, generator).to(layer.query)
            layer.query[i] = A @ layer.query[i]
            layer.key[i] = torch.linalg.inv(A).T @ layer.key[i]
            layer.value[i] = B @ layer.value[i]
            span = slice(i * n, (i + 1) * n)
            layer.output[:, span] = layer.output[:, span] @ torch.linalg.inv(B)


def _mixing(n: int, generator: torch.Generator) -> Tensor:
    """An orthogonal map, stretched by factors between 1/2 and 2."""
    stretch = 2.0 ** (2 * torch.rand(n, generator=generator, dtype=torch.float64) - 1)
    return orthogonal(n, generator) * stretch


@torch.no_grad()
def _shuffled_units(made: Transformer, generator: torch.Generator) -> None:
    for block in (*made.ffns, made.readout):
        first, second = block.maps
        order = torch.randperm(first.weight.shape[0], generator=generator)
        sign = (2 * torch.randint(0, 2, (len(order),), generator=generator) - 1).to(first.weight)
        first.weight.copy_(sign[:, None] * first.weight[order])
        first.bias.copy_(sign * first.bias[order])
        second.weight.copy_(second.weight[:, order] * sign)
