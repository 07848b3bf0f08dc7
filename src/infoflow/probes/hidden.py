"""Networks with known heads, hidden: the residual basis rotated, the attention weights disturbed, idle heads added.

A rotation R_l of the stream of layer l changes no pattern and no output: what writes the stream is multiplied by R_l,
what reads it by R_l'. Distractors look around but write nothing (their columns of W_O are 0), so the function stays
the same: in turn they see all keys alike (global), rank the keys by a random bilinear score with logits of standard
deviation 40 (max), or, with 16 tokens or more, by one of standard deviation 1.2 (mixed: too broad for a mode).
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer
from infoflow.probes.record import Batch, record
from infoflow.probes.tap import Step

SPREAD = {"max": 40.0, "mixed": 1.2}  # standard deviations of logits
BROAD_FROM = 16  # tokens; among fewer, four keys hold most of the mass of a broad head


def hide(
    network: Transformer,
    inputs: Tensor,
    truth: list[list[str]],
    distractors: int = 2,
    noise: float = 0.02,
    seed: int = 0,
) -> tuple[Transformer, list[str]]:
    """A hidden copy of `network` and the labels its heads should get, layer by layer.

    `truth[l]` are the labels of the heads of layer l; `inputs` scale the logits of the distractors; `noise` is relative
    to the root mean square of each attention matrix.
    """
    c = network.config
    skips = c.ffn_skip or c.encoder_skip or c.readout_skip
    if c.layer_norm or skips or c.encoder in ("none", "table") or c.position_dim:
        raise InfoFlowError("expected a network whose stream may be rotated (no norms, no skips around blocks).")
    generator = torch.Generator().manual_seed(seed)
    made = Transformer(replace(c, heads=tuple(h + distractors for h in c.heads), streams=c.embed)).to(
        next(network.parameters())
    )
    _copy(network, made, generator, noise)
    turn = ("global", "max", "mixed") if inputs.shape[1] >= BROAD_FROM else ("global", "max")
    kinds = [turn[i % len(turn)] for i in range(distractors)]
    _add_distractors(made, c.heads, kinds, generator)
    rotate(made, generator)
    _scale_distractors(made, inputs, c.heads, kinds)
    return made, [label for labels in truth for label in (*labels, *kinds)]


def _copy(old: Transformer, new: Transformer, generator: torch.Generator, noise: float) -> None:
    state = new.state_dict()
    for name, value in old.state_dict().items():
        if not name.startswith("attentions"):
            state[name].copy_(value)
            continue
        spread = noise * value.square().mean().sqrt()
        value = value + spread * torch.randn(value.shape, generator=generator).to(value)
        if name.endswith("output"):
            state[name][:, : value.shape[1]] = value
        else:
            state[name][: value.shape[0]] = value


@torch.no_grad()
def _add_distractors(new: Transformer, heads: tuple[int, ...], kinds: list[str], generator: torch.Generator) -> None:
    for layer, h in zip(new.attentions, heads, strict=True):
        for number, kind in enumerate(kinds):
            for name in ("query", "key", "value"):
                weight = getattr(layer, name)[h + number]
                drawn = torch.randn(weight.shape, generator=generator).to(weight)
                weight.copy_(0 * drawn if kind == "global" and name == "query" else drawn)


@torch.no_grad()
def rotate(new: Transformer, generator: torch.Generator) -> list[Tensor]:
    """Turn the stream of every layer of `new` by a random rotation; the function stays. Returns the rotations."""
    turns = [orthogonal(E, generator).to(next(new.parameters())) for E in new.config.embed]
    assert new.encoder is not None
    _write(new.encoder.maps[-1], turns[0])
    for table in (new.cls_token, new.position):
        if table is not None:
            table.copy_(table @ turns[0].T)
    layers: Any = new.attentions
    for l, layer in enumerate(layers):
        R = turns[l]
        for weight in (layer.query, layer.key, layer.value):
            if weight is not None:
                weight.copy_(weight @ R.T)
        layer.output.copy_(R @ layer.output)
        block: Any = new.ffns[l] if l < len(new.ffns) else new.readout
        if block is not None:
            block.maps[0].weight.copy_(block.maps[0].weight @ R.T)
            if l + 1 < len(turns):
                _write(block.maps[-1], turns[l + 1])
    return turns


def _write(last: Any, R: Tensor) -> None:
    last.weight.copy_(R @ last.weight)
    last.bias.copy_(R @ last.bias)


def orthogonal(size: int, generator: torch.Generator) -> Tensor:
    """A rotation or reflection, uniform over all of them."""
    Q, R = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    return Q * R.diagonal().sign()


@torch.no_grad()
def _scale_distractors(new: Transformer, inputs: Tensor, heads: tuple[int, ...], kinds: list[str]) -> None:
    """Bring the logits of the ranking distractors to the stated standard deviation over the keys."""
    layers: Any = new.attentions

    def scale(step: Step) -> None:
        spread = step.scores.std(-1).mean((0, 2))
        for number, kind in enumerate(kinds):
            if kind in SPREAD:
                head = heads[step.layer] + number
                layers[step.layer].query[head] *= SPREAD[kind] / spread[head].clamp(min=1e-12)

    record(new, Batch({"X": inputs})).feed(scale)
