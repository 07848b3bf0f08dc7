"""A whole network, of any depth, as forms of its inputs (`forms.py`): what splitting of short sequences rests on.

A softmax average is mixed one token after the other, with functions of one variable alone:

    l <- s_1, m <- v_1;   then for each further token   m <- m + sigma(s - l) (v - m),   l <- l + softplus(s - l),

which is the softmax average exactly (l is the log of the sum of the exponentials so far).
"""

import numpy as np

from infoflow.nn import Transformer
from infoflow.nn.transformer import AttentionLayer, FeedForward
from infoflow.proofs.forms import AffineForm, chosen, constant, joined, stacked


def uncovered(network: Transformer) -> list[str]:
    """What the forms do not speak of; empty when they bound the network."""
    c = network.config
    asked = {
        "a table of the vocabulary": c.encoder == "table",
        "layer norm": c.layer_norm,
        "hardmax": c.hard,
        "no CLS": not c.cls,
        "no read-out": not c.readout,
        "model axes (take one model with .select)": bool(network.stack),
    }
    return [what for what, found in asked.items() if found]


def outputs(network: Transformer, tokens: AffineForm) -> AffineForm:
    """Tokens (boxes, T, d) -> the network's outputs (boxes, outputs)."""
    x = embedded(network, tokens)
    last = network.config.layers - 1
    for l, layer in enumerate(network.attentions):
        assert isinstance(layer, AttentionLayer)
        x = attended(layer, x, l == last)
        if l < last:
            x = fed_forward(network.ffns[l], x)
    assert network.readout is not None
    return fed_forward(network.readout, x)[:, 0]


def embedded(network: Transformer, tokens: AffineForm) -> AffineForm:
    """Encoded tokens with their positions, the CLS behind them."""
    n, (count, T, _) = len(tokens.a), tokens.c.shape
    x = tokens if network.encoder is None else fed_forward(network.encoder, tokens)
    if network.position is not None:
        table = _array(network.position)[:T]
        if network.config.positions == "augmented":
            x = joined([x, constant(np.broadcast_to(table, (count, *table.shape)), n)], -1)
        else:
            x = x.shifted(table)
    assert network.cls_token is not None
    cls = _array(network.cls_token)
    return joined([x, constant(np.broadcast_to(cls, (count, 1, len(cls))), n)], -2)


def fed_forward(block: object, x: AffineForm) -> AffineForm:
    assert isinstance(block, FeedForward)
    y = x
    for position, layer in enumerate(block.maps):
        y = y.mapped(_array(layer.weight), _array(layer.bias))
        if position < len(block.maps) - 1:
            y = y.through(block.activation)
    return x + y if block.skip else y


def attended(layer: AttentionLayer, x: AffineForm, cls_only: bool) -> AffineForm:
    """x' of (1) for the CLS alone or for all rows; rows (boxes, T + 1, E), the CLS last."""
    T = x.c.shape[1] - 1
    asked = x[:, T:] if cls_only else x
    query, key = _array(layer.query), _array(layer.key)
    value = key if layer.value is None else _array(layer.value)
    seen = np.tril(np.ones((T, T), dtype=bool)) if layer.mask == "causal" else np.ones((T, T), dtype=bool)
    seen = np.ones((1, T), dtype=bool) if cls_only else np.vstack([seen, np.ones((1, T), dtype=bool)])
    heads = []
    for Q, K, V in zip(query, key, value, strict=True):
        q, k, v = asked.mapped(Q), x[:, :T].mapped(K), x[:, :T].mapped(V)
        scores = (q[:, :, None] * k[:, None, :]).sum().times(layer.beta)  # (boxes, queries, T)
        heads.append(mixed(scores, v, seen))
    update = joined(heads, -1).mapped(_array(layer.output))
    return asked + update if layer.residual else update


def mixed(scores: AffineForm, values: AffineForm, seen: np.ndarray) -> AffineForm:
    """The softmax averages (boxes, queries, n) of the values (boxes, T, n) that each query sees."""
    rows = scores.c.shape[1]
    total = scores[:, :, 0]
    average = stacked([values[:, 0]] * rows, -2)
    for t in range(1, scores.c.shape[2]):
        lead = scores[:, :, t] - total
        step = values[:, t][:, None] - average
        moved = average + lead.through("sigmoid")[..., None] * step
        v = values[:, t][:, None]
        moved = moved.within(np.minimum(average.low, v.low), np.maximum(average.high, v.high))  # a mixture of both
        taller = total + lead.through("softplus")
        here = seen[:, t]
        average, total = chosen(here[:, None], moved, average), chosen(here, taller, total)
    return average


def _array(parameter: object) -> np.ndarray:
    found: np.ndarray = parameter.detach().double().cpu().numpy()  # type: ignore[attr-defined]
    return found
