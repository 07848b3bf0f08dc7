"""Write a budget into the tensors of the one Transformer. Every row comes from the wiring; nobody counts columns."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from infoflow.compiler.blocks import Block, constant_units, units
from infoflow.compiler.budget import Budget
from infoflow.flow.layout import Layout
from infoflow.flow.normal_form import names_positions
from infoflow.nn import Transformer, TransformerConfig
from infoflow.nn.transformer import AttentionLayer, FeedForward, Linear


def configure(layout: Layout, plan: Budget) -> TransformerConfig:
    """The shape of the network: the layout's, or the given architecture's, which is then padded with zeros."""
    arch, form = layout.arch, layout.form
    widths = tuple(max(w, 1) for w in plan.widths)
    if arch is not None and arch.width is not None:
        widths = arch.width
    augmented = layout.positions == "augmented"
    return TransformerConfig(
        dim=form.dim,
        heads=layout.heads,
        head_dims=tuple(size // h for size, h in zip(layout.sizes, layout.heads, strict=True)),
        widths=widths,
        outputs=plan.blocks[-1].outputs,
        scales=plan.betas,
        encoder="linear" if plan.encoder is None else "mlp",
        encoder_width=plan.encoder_width,
        positions=layout.positions,  # type: ignore[arg-type]
        length=form.T if layout.positions != "none" else 0,
        position_dim=max(len(form.position_features), 1) if augmented else 0,
        mask=arch.mask if arch is not None else "none",
    )


def write(layout: Layout, plan: Budget, weight_bound: float | None) -> Transformer:
    """The network in float64."""
    network = Transformer(configure(layout, plan)).double()
    with torch.no_grad():
        places = [coordinates(layout, layer) for layer in range(layout.layers)]
        _write_embedding(network, layout, plan, places[0], weight_bound)
        for layer, attention in enumerate(network.attentions):
            assert isinstance(attention, AttentionLayer)
            _write_heads(attention, layout, plan, layer, places[layer])
        for layer, ffn in enumerate(network.ffns):
            assert isinstance(ffn, FeedForward)
            write_block(ffn, plan.blocks[layer], weight_bound, places[layer], places[layer + 1])
        assert network.readout is not None
        outputs = np.arange(plan.blocks[-1].outputs)
        write_block(network.readout, plan.blocks[-1], weight_bound, places[-1], outputs)
    return network.requires_grad_(False)


def coordinates(layout: Layout, layer: int) -> np.ndarray:
    """Direction j of the layout lives in coordinate coordinates[j]; augmented positions are the last coordinates."""
    state = layout.states[layer]
    result = np.arange(state.size)
    if layer == 0 and layout.positions == "augmented" and layout.form.position_features:
        count, features = len(layout.form.position_features), len(state.basis)
        codes = np.arange(features - count, features)
        rest = np.setdiff1d(result, codes)
        result[rest] = np.arange(len(rest))
        result[codes] = np.arange(layout.sizes[0] - count, layout.sizes[0])
    return result


def _write_embedding(
    network: Transformer, layout: Layout, plan: Budget, place: np.ndarray, weight_bound: float | None
) -> None:
    form, state, wiring = layout.form, layout.states[0], plan.wiring
    rows = wiring.scales[0][:, None] * state.basis  # stored feature = rows @ features
    assert network.encoder is not None
    assert network.cls_token is not None
    if plan.encoder is not None:
        write_block(network.encoder, plan.encoder, weight_bound, np.arange(form.dim), place)
    else:
        (linear,) = linear_maps(network.encoder)
        for i, feature in enumerate(form.features):
            if not names_positions(feature):
                axis = feature.index(1)
                for j in np.flatnonzero(rows[:, i]):
                    linear.weight[place[j], axis] = rows[j, i] / form.half[axis]
                    linear.bias[place[j]] -= rows[j, i] * form.centre[axis] / form.half[axis]
        if state.one is not None:
            linear.bias[place[state.one]] = wiring.token_one[0]
    if network.position is not None:
        offset = layout.sizes[0] - network.config.position_dim if network.config.position_dim else 0
        for i in form.position_features:
            code = form.position_code(i)
            for j in np.flatnonzero(rows[:, i]):
                network.position[:, place[j] - offset] += torch.from_numpy(rows[j, i] * code)
    network.cls_token[torch.from_numpy(place)] = torch.from_numpy(wiring.cls)


def _write_heads(attention: AttentionLayer, layout: Layout, plan: Budget, layer: int, place: np.ndarray) -> None:
    """Head i is rows i*n..(i+1)*n of the joined output; a shared head holds its message first, its read behind it."""
    n = layout.sizes[layer] // layout.heads[layer]
    used_keys = [0] * layout.heads[layer]
    used_values = [0] * layout.heads[layer]
    columns = torch.from_numpy(place)
    assert attention.value is not None
    for head in plan.wiring.heads[layer]:
        h = head.job.head
        for query, key in zip(head.query, head.key, strict=True):
            attention.query[h, used_keys[h], columns] = torch.from_numpy(query)
            attention.key[h, used_keys[h], columns] = torch.from_numpy(key)
            used_keys[h] += 1
        for value, target in zip(head.value, head.writes, strict=True):
            attention.value[h, used_values[h], columns] = torch.from_numpy(value)
            attention.output[place[target], h * n + used_values[h]] = 1.0
            used_values[h] += 1


def linear_maps(ffn: Module) -> tuple[Linear, ...]:
    """The affine maps of a feed-forward block, in order."""
    assert isinstance(ffn, FeedForward)
    return tuple(layer for layer in ffn.maps if isinstance(layer, Linear))


def write_block(
    ffn: FeedForward, block: Block, weight_bound: float | None, inputs: np.ndarray, outputs: np.ndarray
) -> None:
    """Units of every piece one after the other, then the units of constants above the bound."""
    first, second = linear_maps(ffn)
    columns = torch.from_numpy(np.asarray(inputs))
    used = 0
    for piece in block.pieces:
        hidden, biases, coefficients = units(piece)
        span = slice(used, used + len(hidden))
        first.weight[span, columns] = torch.from_numpy(hidden)
        first.bias[span] = torch.from_numpy(biases)
        second.weight[outputs[piece.output], span] = torch.from_numpy(coefficients)
        used += len(hidden)
    for output, value in block.constants.items():
        count = constant_units(value, weight_bound)
        bias = value if count == 0 else math.copysign(1.0, value)
        second.bias[outputs[output]] = bias
        if count:
            first.bias[used : used + count] = 1.0
            second.weight[outputs[output], used : used + count] = (value - bias) / (count * math.tanh(1.0))
            used += count


def nonzero(network: Transformer) -> int:
    """Parameters that are not 0."""
    return sum(int(torch.count_nonzero(p)) for p in network.parameters())


def largest_weight(network: Transformer) -> float:
    """The largest entry of everything Theorem 4 bounds by 1: attention matrices, feed-forward blocks, read-out."""
    bounded: list[Tensor] = [
        p for name, p in network.named_parameters() if name.startswith(("attentions", "ffns", "readout"))
    ]
    return max(float(p.abs().max()) for p in bounded if p.numel())
