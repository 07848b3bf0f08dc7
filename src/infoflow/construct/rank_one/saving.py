"""Saved memorisers and contextual maps: the network with the data its certificate speaks of, so that it can be checked.

Tensors `network.*` are the Transformer, bit for bit; `data.*` are vocabulary, tokens (-1 behind the end), mask and
labels.
Nothing the file says is trusted: the bound is computed again from the stored weights.
"""

import math
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from infoflow.certificates import Certificate
from infoflow.construct.rank_one.certificate import certify_gap, enclose, rounding_bound
from infoflow.construct.rank_one.contexts import LARGEST, Contexts, contexts_of
from infoflow.construct.rank_one.head import Head, attention_average, dyadic_shares
from infoflow.construct.rank_one.memorize import Memorizer, certificate_of
from infoflow.construct.rank_one.network import Memory
from infoflow.construct.rank_one.separation import same_token_gap
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, files
from infoflow.nn.transformer import from_saved


@dataclass
class SavedRankOne:
    """A rank-1 network and its data; `network` is the module to use."""

    network: Transformer
    contexts: Contexts
    header: dict[str, Any]

    def __call__(self, X: Tensor, visible: Tensor | None = None) -> Tensor:
        out: Tensor = self.network(X, visible=visible)
        return out

    @cached_property
    def head(self) -> Head:
        """Read back from the first rows; `verify` compares the rest."""
        layer: Any = self.network.attentions[0]
        size = self.network.config.head_dims[0]
        share = float(dyadic_shares(size)[0])
        key, query, output = (t.detach().numpy() for t in (layer.key[0, 0], layer.query[0, 0], layer.output[:, 0]))
        return Head(key.copy(), query / share, output / share, size)

    def verify(self) -> list[str]:
        """Every entry of the four matrices that is not of rank 1 as built, by name."""
        layer: Any = self.network.attentions[0]
        stored = {"W_K": layer.key[0], "W_Q": layer.query[0], "W_V": layer.value[0], "W_O": layer.output}
        reasons = []
        for name, matrix in self.head.matrices().items():
            found = stored[name].detach().numpy()
            for row, column in np.argwhere(found != matrix):
                reasons.append(
                    f"{name}[{row}, {column}] is {found[row, column]:.17g}, rank 1 asks {matrix[row, column]:.17g}"
                )
        return reasons


class SavedMap(SavedRankOne):
    """A contextual map; `bound` is the float64 error of every attention average, `parts` hold the certified gap."""

    @cached_property
    def averages(self) -> Float[ndarray, " M"]:
        vocabulary = self.contexts.vocabulary
        return attention_average(self.contexts, vocabulary @ self.head.key, vocabulary @ self.head.query)

    @cached_property
    def certificate(self) -> Certificate:
        pair = same_token_gap(self.contexts.query, self.averages)
        found = certify_gap(self.contexts, self.head, self.averages, pair.gap if pair else None)
        parts = {"log10_gap": found.log10_gap} if math.isfinite(found.log10_gap) else {}
        return Certificate(
            bound=rounding_bound(self.contexts, self.head),
            arithmetic=f"float64 averages against the stored weights; gap by {found.method}, {found.bits} bits",
            assumptions=(f"the {self.contexts.size} contexts of the data",),
            holds=found.holds,
            reasons=() if found.holds else ("the averages of two contexts of one token could not be separated",),
            parts=parts,
        )

    def attack(self, seed: int, seconds: float) -> float:
        """The largest distance of a float64 average from its ball."""
        balls, _ = enclose(self.contexts, self.head, 256)
        return max(abs(float((ball - s).mid())) for ball, s in zip(balls, self.averages.tolist(), strict=True))


@dataclass
class SavedMemorizer(SavedRankOne):
    labels: Int[ndarray, "M d"]

    @cached_property
    def memory(self) -> Memory:
        """The dense module with its O(log m) form."""
        return Memory.of(self.network)

    @cached_property
    def certificate(self) -> Certificate:
        return certificate_of(self.memory, self.contexts, self.head, self.labels)

    def attack(self, seed: int, seconds: float) -> float:
        """Dense execution of the data in random blocks until the time is over, at least one block."""
        rng, end, worst = np.random.default_rng(seed), time.monotonic() + seconds, 0.0
        label = self.contexts.class_of.ravel()
        places = np.flatnonzero(label >= 0)
        states = self.memory.place_states(self.contexts)
        order = rng.permutation(places)
        for start in range(0, len(order), 256):
            block = order[start : start + 256]
            out = self.memory.dense_output(states[block])
            worst = max(worst, float(np.abs(out - self.labels[label[block]]).max()))
            if time.monotonic() > end:
                break
        return worst


def _tensors(network: Transformer, contexts: Contexts) -> dict[str, Tensor]:
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    tensors["data.vocabulary"] = torch.from_numpy(contexts.vocabulary)
    tensors["data.tokens"] = torch.from_numpy(contexts.tokens.astype(np.float64))
    if contexts.visible is not None:
        tensors["data.visible"] = torch.from_numpy(contexts.visible.astype(np.float64))
    return tensors


def save_memorizer(made: Memorizer, path: str | Path) -> Path:
    network = made.memory.network
    tensors = _tensors(network, made.contexts)
    tensors["data.labels"] = torch.from_numpy(made.labels.astype(np.float64))
    header = {"config": network.config.to_json(), "certificate": made.certificate.to_json()}
    return files.write(path, "memorizer", tensors, header)


def save_map(network: Transformer, contexts: Contexts, header: dict[str, Any], path: str | Path) -> Path:
    about = {"config": network.config.to_json(), **header}
    return files.write(path, "context_map", _tensors(network, contexts), about)


def load_memorizer(tensors: dict[str, Tensor], header: dict[str, Any]) -> SavedMemorizer:
    """The loader of kind "memorizer"."""
    labels = tensors.pop("data.labels", None)
    network, contexts = _load(tensors, header)
    if labels is None or labels.shape != (contexts.size, network.config.dim):
        raise InfoFlowError(f"expected labels of shape {(contexts.size, network.config.dim)}, found none that fit.")
    return SavedMemorizer(network, contexts, header, _integers(labels, "data.labels"))


def load_map(tensors: dict[str, Tensor], header: dict[str, Any]) -> SavedMap:
    """The loader of kind "context_map"."""
    return SavedMap(*_load(tensors, header), header)


def _load(tensors: dict[str, Tensor], header: dict[str, Any]) -> tuple[Transformer, Contexts]:
    data = {name: value for name, value in tensors.items() if name.startswith("data.")}
    weights = {name.removeprefix("network."): value for name, value in tensors.items() if name not in data}
    network = from_saved(weights, {"config": header.get("config")})
    config = network.config
    if any(value.dtype != torch.float64 for value in tensors.values()):
        raise InfoFlowError("expected float64 tensors only, got another kind; the certificate holds for float64.")
    if config.layers != 1 or config.cls or config.share_key_value or config.embed != (config.dim,):
        raise InfoFlowError("expected one rank-1 layer without CLS in the configuration, got another network.")
    vocabulary, tokens = data.pop("data.vocabulary", None), data.pop("data.tokens", None)
    visible = data.pop("data.visible", None)
    if data or vocabulary is None or tokens is None or vocabulary.ndim != 2 or tokens.ndim != 2 or not tokens.numel():
        raise InfoFlowError("expected data.vocabulary and data.tokens as matrices and no other data in the file.")
    if vocabulary.shape[1] != config.dim or not torch.isfinite(vocabulary).all() or not vocabulary.any(1).all():
        raise InfoFlowError(f"expected finite tokens other than 0 of {config.dim} numbers in data.vocabulary.")
    size = vocabulary.abs().amax(1)
    if (size > LARGEST).any() or (size < 1 / LARGEST).any():
        raise InfoFlowError(f"expected tokens between {1 / LARGEST:g} and {LARGEST:g} in size in data.vocabulary.")
    index = _integers(tokens, "data.tokens")
    if index.min() < -1 or index.max() >= len(vocabulary):
        raise InfoFlowError(f"expected tokens between -1 and {len(vocabulary) - 1}, got others; the file is damaged.")
    mask: Any = visible.numpy() != 0 if visible is not None else "padding"
    return network, contexts_of(vocabulary.numpy(), index, mask)


def _integers(tensor: Tensor, name: str) -> Int[ndarray, "..."]:
    values: ndarray = tensor.numpy()
    if not np.isfinite(values).all() or (values != np.rint(values)).any() or np.abs(values).max(initial=0) > 2**31:
        raise InfoFlowError(f"expected integers in {name}, got other numbers; the file is damaged.")
    return values.astype(np.int64)
