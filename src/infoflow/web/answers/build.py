"""Weights that attain an error: the network, its certificate, its attention, its error, its file."""

import base64
import re
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoflow import arguments, cost
from infoflow.certificates import Certified
from infoflow.compiler.certification import certify as certify_built
from infoflow.construct.builders import build as build_target
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer
from infoflow.nn.transformer import States
from infoflow.web import questions
from infoflow.web.answers.flow import target_of
from infoflow.web.answers.said import said, words
from infoflow.web.questions import LONGEST_BUILT, LONGEST_FLOW, length

SHOWN = (64, 96)  # rows and columns of a tensor's picture; larger ones are pooled to the entry farthest from 0
GRID = 41  # points of the error surface along each axis
MOST_SECONDS = 10.0  # of an attack
LARGEST_FILE = 24 << 20  # bytes of a network that is handed out


@lru_cache(maxsize=4)
def _built(spelling: str, T: int, eps: float) -> Certified:
    return build_target(target_of(spelling), T, eps)


def _network(question: questions.Build) -> Certified:
    T = length(question.T, LONGEST_BUILT, "the tokens of a built network")
    return _built(question.target, T, arguments.eps(question.eps))


def build(question: questions.Build) -> dict[str, Any]:
    network = _network(question)
    target, T, eps = target_of(question.target), question.T, question.eps
    spelled = f"iflow.build({target.spelling!r}, T={T}, eps={eps:g})"
    shared = {
        "target": target.spelling,
        "d": target.dim,
        "kind": type(network).__name__,
        "about": repr(network).strip("<>"),
        "certificate": network.certificate.to_json(),
        "said": said(
            words("build", target.spelling, "-T", T, "--eps", f"{eps:g}"),
            f"net = {spelled}\nprint(net.certificate)\nnet.save('net.safetensors')",
        ),
    }
    if not isinstance(network, Transformer):
        return {**shared, "layers": [], "blocks": [], "parameters": None}
    header, config = network.header, network.config
    layers = [{"heads": h, "embed": e, "width": w, "beta": b}
              for h, e, w, b in zip(config.heads, config.embed, config.widths, config.betas, strict=True)]  # fmt: skip
    return {
        **shared,
        "layers": layers,
        "directions": header.get("directions", []),
        "jobs": header.get("jobs", []),
        "parameters": sum(weights.numel() for weights in network.parameters()),
        "blocks": [_block(name, weights) for name, weights in network.named_parameters() if weights.numel()],
    }


def _block(name: str, weights: torch.Tensor) -> dict[str, Any]:
    """A tensor as a small picture: 128 is 0, 1 and 255 are minus and plus its largest entry."""
    full = weights.detach().numpy()
    flat = full.reshape(-1, full.shape[-1])
    largest = float(np.abs(flat).max())
    small = _pooled(flat)
    picture = np.rint(128 + 127 * small / (largest or 1.0)).astype(np.uint8)
    return {
        "name": name,
        "shape": list(full.shape),
        "nonzero": int(np.count_nonzero(full)),
        "largest": largest,
        "rows": picture.shape[0],
        "columns": picture.shape[1],
        "picture": _packed(picture),
    }


def _pooled(flat: np.ndarray) -> np.ndarray:
    """At most SHOWN entries: of every cell the one farthest from 0."""
    for axis, most in enumerate(SHOWN):
        if flat.shape[axis] > most:
            parts = np.array_split(flat, most, axis)
            flat = np.concatenate([_farthest(part, axis) for part in parts], axis)
    return flat


def _farthest(part: np.ndarray, axis: int) -> np.ndarray:
    place = np.abs(part).argmax(axis)
    return np.take_along_axis(part, np.expand_dims(place, axis), axis)


def _packed(picture: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(picture).tobytes()).decode("ascii")


def certify(question: questions.Certify) -> dict[str, Any]:
    network = _network(question)
    seconds = arguments.attack_seconds(question.seconds)
    if seconds > MOST_SECONDS:
        raise InfoFlowError(f"expected at most {MOST_SECONDS:g} seconds of attack in the explorer, got {seconds:g}.")
    found = certify_built(network, target_of(question.target), question.T, seconds=seconds)
    return {**found.to_json(), "text": str(found)}


def _transformer(question: questions.Build) -> Transformer:
    network = _network(question)
    if not isinstance(network, Transformer):
        raise InfoFlowError(f"expected a Transformer to look into, this target is built as a {type(network).__name__}.")
    return network


def attention(question: questions.Attention) -> dict[str, Any]:
    """One head's weights on one input, a byte each: 255 is the weight 1."""
    network, T = _transformer(question), question.T
    layer = arguments.integer("layer", question.layer, 1, network.config.layers)
    head = arguments.integer("head", question.head, 1, network.config.heads[layer - 1])
    cost.memory(8 * sum(network.config.heads) * (T + 1) ** 2, f"the attention of T={T} tokens", "T")
    X = target_of(question.target).sample(1, T, seed=arguments.seed(question.seed))
    states = States()
    with torch.no_grad():
        value = network(torch.from_numpy(np.clip(X, *target_of(question.target).domain)), states)
    weights = states.weights[layer - 1][0, head - 1].numpy()
    return {
        "rows": weights.shape[0],
        "columns": weights.shape[1],
        "picture": _packed(np.rint(255 * weights).astype(np.uint8)),
        "winners": (weights.argmax(-1) + 1).tolist(),
        "least_sharp": float(weights[:T].max(-1).min()),  # the CLS may rest in this layer
        "value": float(value.reshape(-1)[0]),
    }


def surface(question: questions.Surface) -> dict[str, Any]:
    """network - target while two numbers of a random input move over the box: of one token, or of two tokens of one."""
    network, target = _transformer(question), target_of(question.target)
    T = length(question.T, LONGEST_FLOW, "the tokens of an error surface")
    low, high = target.domain
    X = np.clip(target.sample(1, T, seed=arguments.seed(question.seed))[0], low, high)
    moved = [(0, 0), (0, 1)] if target.dim > 1 else [(0, 0), (min(1, T - 1), 0)]
    axis = np.linspace(low, high, GRID)
    errors = []
    for b in axis:
        batch = np.repeat(X[None], GRID, 0)
        batch[:, moved[1][0], moved[1][1]] = b
        batch[:, moved[0][0], moved[0][1]] = axis
        with torch.no_grad():
            gap = network(torch.from_numpy(batch)).numpy() - np.asarray(target(batch))
        errors.append(gap.reshape(GRID, -1)[:, 0].tolist())
    names = [f"x({t + 1})" + (f", coordinate {i + 1}" if target.dim > 1 else "") for t, i in moved]
    return {"axis": axis.tolist(), "names": names, "errors": errors, "largest": float(np.abs(errors).max()),
            "bound": None if network.certificate is None else network.certificate.bound}  # fmt: skip


def network(question: questions.Network) -> dict[str, str]:
    """The file that `build` writes."""
    made = _network(question)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.safetensors"
        made.save(path)
        data = path.read_bytes()
    if len(data) > LARGEST_FILE:
        raise InfoFlowError(f"expected a network of at most {cost.spelled_bytes(LARGEST_FILE)} here, this one has "
                            f"{cost.spelled_bytes(len(data))}; use infoflow build.")  # fmt: skip
    name = re.sub(r"[^A-Za-z0-9]+", "_", f"{question.target}_T{question.T}").strip("_")
    return {"name": f"{name}.safetensors", "data": base64.b64encode(data).decode("ascii")}
