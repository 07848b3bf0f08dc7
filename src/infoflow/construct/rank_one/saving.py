"""Saved memorisers and contextual maps: the network with the data its certificate speaks of, so that it can be checked.

Tensors `network.*` are the Transformer, bit for bit; `data.*` are vocabulary, tokens (-1 behind the end), mask and
labels, and what enters before the position table where there is one.
Nothing the file says is trusted: the bound is computed again from the stored weights.
"""

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from infoflow.certificates import Certificate, Claim, asked_of
from infoflow.certificates.certificate import expect_config
from infoflow.construct.rank_one.certificate import certify_gap
from infoflow.construct.rank_one.context_map import ids_apart
from infoflow.construct.rank_one.contexts import LARGEST, Contexts, contexts_of
from infoflow.construct.rank_one.head import RankOneHead, attention_average, dyadic_shares
from infoflow.construct.rank_one.memorize import Memorizer, certificate_of, state_error
from infoflow.construct.rank_one.network import Memory, attention_config, block_config
from infoflow.construct.rank_one.separation import same_token_gap
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, files
from infoflow.nn.transformer import from_saved

BLOCK = 1 << 20  # hidden activations and attention weights of one block of the attack
SMALLEST = 2.0**-1022  # of the normal numbers of float64
LARGEST_LOG = 308.0  # stands for "nothing to keep apart"


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
    def head(self) -> RankOneHead:
        """Read back from the first rows; `verify` compares the rest."""
        layer: Any = self.network.attentions[0]
        size = self.network.config.head_dims[0]
        share = float(dyadic_shares(size)[0])
        key, query, output = (t.detach().numpy() for t in (layer.key[0, 0], layer.query[0, 0], layer.output[:, 0]))
        return RankOneHead(key.copy(), query / share, output / share, size)

    def verify(self) -> list[str]:
        """Every entry of the four matrices that is not of rank 1 as built, by name.

        Below the normal numbers a power of two no longer scales exactly: entries there have no rank to speak of.
        """
        layer: Any = self.network.attentions[0]
        stored = {"W_K": layer.key[0], "W_Q": layer.query[0], "W_V": layer.value[0], "W_O": layer.output}
        reasons = []
        head = self.head
        vectors = {"W_K": head.key, "W_Q": head.query, "W_V": head.key, "W_O": head.output[:, None]}
        for name, matrix in head.matrices().items():
            found = stored[name].detach().numpy()
            for row, column in np.argwhere((np.abs(matrix) < SMALLEST) & (vectors[name] != 0)):
                reasons.append(f"{name}[{row}, {column}] is below the normal numbers of float64")
            for row, column in np.argwhere(found != matrix):
                reasons.append(
                    f"{name}[{row}, {column}] is {found[row, column]:.17g}, rank 1 asks {matrix[row, column]:.17g}"
                )
        return reasons


class SavedMap(SavedRankOne):
    """A contextual map: the claim is a distance between ids, in real arithmetic on the stored weights."""

    @cached_property
    def averages(self) -> Float[ndarray, " M"]:
        """What the stored head computes for every class."""
        vocabulary = self.contexts.vocabulary
        return attention_average(self.contexts, vocabulary @ self.head.key, vocabulary @ self.head.query)

    @cached_property
    def certificate(self) -> Certificate:
        """The gap of the stored ids, certified again."""
        pair = same_token_gap(self.contexts.query, self.averages)
        found = certify_gap(self.contexts, self.head, self.averages, pair.gap if pair else None)
        log10_gap = ids_apart(self.contexts, self.head, found)
        inputs = f"every two of the {self.contexts.size} contexts of the data"
        return Certificate(
            Claim("log10 of the distance of ids", asked_of(self.header), inputs, least=True),
            min(log10_gap, LARGEST_LOG) if log10_gap > -math.inf else None,
            f"real arithmetic on the stored weights; {found.method}, {found.bits} bits",
            reasons=() if found.holds else ("the averages of two contexts of one token could not be separated",),
            parts={"log10 gap of the averages": found.log10_gap} if math.isfinite(found.log10_gap) else {},
        )

    def check(self, certificate: Certificate, seed: int, seconds: float) -> Certificate:
        """The data executed by the loaded module: ids must be x + a s up to rounding. It is no attack: the contexts of
        the claim are all there are."""
        states = Memory(self.network).class_states(self.contexts)
        proved = self.contexts.vocabulary[self.contexts.query] + self.head.output * self.averages[:, None]
        distance = float(np.nan_to_num(np.abs(states - proved), nan=np.inf).max(initial=0.0))
        found = replace(certificate, measured={"executed ids from x + a s": distance})
        allowed = 2 * state_error(self.contexts, self.head)
        near = math.isfinite(distance) and distance <= allowed
        return found if near else found.against(f"executed ids are {distance:.6g} away from x + a s")


@dataclass
class SavedMemorizer(SavedRankOne):
    """A memoriser as its file holds it: labels and inputs beside the network."""

    labels: Int[ndarray, "M d"]
    inputs: Float[ndarray, "N n d"]  # what the network takes: tokens before the position table, 0 behind the end

    @cached_property
    def memory(self) -> Memory:
        """The dense module with its O(log m) form."""
        return Memory.of(self.network)

    @cached_property
    def certificate(self) -> Certificate:
        """The largest error on the stored data, proved again."""
        found = certificate_of(self.memory, self.contexts, self.head, self.labels)
        return found.limited_to(asked_of(self.header))

    def attack(self, seed: int, seconds: float) -> float:
        """The module on its own data, sequences in random order until the time is over, at least one."""
        rng, end, worst = np.random.default_rng(seed), time.monotonic() + seconds, 0.0
        real, label = self.contexts.tokens >= 0, self.contexts.class_of
        n, width = self.contexts.length, self.network.config.widths[0]
        step = max(BLOCK // (n * max(width, n)), 1)
        order = rng.permutation(len(real))
        for start in range(0, len(order), step):
            rows = order[start : start + step]
            visible = real[rows, None, :] if self.contexts.visible is None else self.contexts.visible & real[rows, None]
            with torch.no_grad():
                out = self.network(torch.from_numpy(self.inputs[rows]), visible=torch.from_numpy(visible)).numpy()
            error = np.abs(out - self.labels[label[rows]])[real[rows]]
            worst = max(worst, float(np.nan_to_num(error, nan=np.inf).max(initial=0.0)))
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
    """Write the network, its contexts, labels and inputs."""
    network = made.memory.network
    tensors = _tensors(network, made.contexts)
    tensors["data.labels"] = torch.from_numpy(made.labels.astype(np.float64))
    if made.inputs is not None:
        tensors["data.inputs"] = torch.from_numpy(made.inputs)
    certificate = made.certificate
    header = {"config": network.config.to_json(), "eps": certificate.claim.limit, "certificate": certificate.to_json()}
    return files.write(path, "memorizer", tensors, header)


def stored_memorizer(made: Memorizer) -> SavedMemorizer:
    """A memoriser as its file would be read."""
    network, contexts = made.memory.network, made.contexts
    inputs = None if made.inputs is None else torch.from_numpy(made.inputs)
    entering = _inputs(network, contexts, inputs)
    return SavedMemorizer(network, contexts, {"eps": made.certificate.claim.limit}, made.labels, entering)


def save_map(network: Transformer, contexts: Contexts, header: dict[str, Any], path: str | Path) -> Path:
    """Write the network and the contexts it tells apart."""
    about = {"config": network.config.to_json(), **header}
    return files.write(path, "context_map", _tensors(network, contexts), about)


def load_memorizer(tensors: dict[str, Tensor], header: dict[str, Any]) -> SavedMemorizer:
    """The loader of kind "memorizer"."""
    labels, inputs = tensors.pop("data.labels", None), tensors.pop("data.inputs", None)
    network, contexts = _load(tensors, header)
    config = network.config
    positions = config.positions != "none"
    expect_config(config, block_config(contexts, config.widths[0], config.head_dims[0], positions), "a memoriser")
    if labels is None or labels.shape != (contexts.size, config.dim):
        raise InfoFlowError(f"expected labels of shape {(contexts.size, config.dim)}, found none that fit.")
    entering = _inputs(network, contexts, inputs)
    return SavedMemorizer(network, contexts, header, _integers(labels, "data.labels"), entering)


def _inputs(network: Transformer, contexts: Contexts, stored: Tensor | None) -> Float[ndarray, "N n d"]:
    """What the network takes, so that it sees exactly the tokens of the data behind its position table."""
    real = (contexts.tokens >= 0)[..., None]
    seen: ndarray = contexts.vocabulary[contexts.tokens] * real
    if network.position is None:
        if stored is not None:
            raise InfoFlowError("expected no data.inputs in a memoriser without positions; the file is damaged.")
        return seen
    if stored is None or tuple(stored.shape) != seen.shape or stored.dtype != torch.float64:
        raise InfoFlowError(f"expected data.inputs of shape {seen.shape} in float64, found none; build it again.")
    inputs: ndarray = stored.numpy()
    if not ((inputs + network.position.detach().numpy() == seen) | ~real).all():
        raise InfoFlowError("expected data.inputs plus the position table to be the tokens, got other sums.")
    return inputs


def load_map(tensors: dict[str, Tensor], header: dict[str, Any]) -> SavedMap:
    """The loader of kind "context_map"."""
    network, contexts = _load(tensors, header)
    expect_config(network.config, attention_config(contexts, network.config.head_dims[0]), "a contextual map")
    return SavedMap(network, contexts, header)


def _load(tensors: dict[str, Tensor], header: dict[str, Any]) -> tuple[Transformer, Contexts]:
    data = {name: value for name, value in tensors.items() if name.startswith("data.")}
    weights = {name.removeprefix("network."): value for name, value in tensors.items() if name not in data}
    network = from_saved(weights, {"config": header.get("config")})
    config = network.config
    if any(value.dtype != torch.float64 for value in tensors.values()):
        raise InfoFlowError("expected float64 tensors only, got another kind; the certificate holds for float64.")
    if config.layers != 1:
        raise InfoFlowError(f"expected one layer in the configuration (heads), got {config.layers}.")
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
    if ((index[:, :-1] < 0) & (index[:, 1:] >= 0)).any():
        raise InfoFlowError("expected -1 in data.tokens only behind the end of a sequence, got it before a token.")
    if index.min() < -1 or index.max() >= len(vocabulary):
        raise InfoFlowError(f"expected tokens between -1 and {len(vocabulary) - 1}, got others; the file is damaged.")
    mask: Any = visible.numpy() != 0 if visible is not None else "padding"
    return network, contexts_of(vocabulary.numpy(), index, mask)


def _integers(tensor: Tensor, name: str) -> Int[ndarray, " ..."]:
    values: ndarray = tensor.numpy()
    if not np.isfinite(values).all() or (values != np.rint(values)).any() or np.abs(values).max(initial=0) > 2**31:
        raise InfoFlowError(f"expected integers in {name}, got other numbers; the file is damaged.")
    return values.astype(np.int64)
