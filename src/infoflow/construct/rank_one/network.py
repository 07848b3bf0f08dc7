"""The block (2), (3) as a config of the project's Transformer, and its O(log m) form.

One head of any size in a stream of size d, no encoder, no CLS, skips around attention and feed-forward, ReLU, scale 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from infoflow.construct.rank_one.contexts import Contexts
from infoflow.construct.rank_one.head import RankOneHead
from infoflow.construct.rank_one.lookup import Lookup, grid, read_back
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig

BLOCK = 1 << 17  # hidden activations held at once
TILE = (128, 2048)  # tokens x units of one product in a dense check: its activations stay in cache
SCORES = 1 << 21  # attention scores held at once


def rank_one_config(
    dim: int, layers: int = 1, width: int = 64, outputs: int | None = None, head_size: int = 1, **options: Any
) -> TransformerConfig:
    """The rank-1 Transformer of (20), any depth: value and key share v_1, head size 1, skips, ReLU, no layer norm.

    `outputs`: the number of classes for token classification; None keeps the stream, with the skip of (3).
    """
    base: dict[str, Any] = {
        "dim": dim,
        "heads": (1,) * layers,
        "head_dims": (head_size,) * layers,
        "streams": (dim,) * layers,
        "widths": (width,) * layers,
        "outputs": outputs or dim,
        "scales": (1.0,) * layers,
        "activation": "relu",
        "ffn_skip": True,
        "readout_skip": outputs is None,
        "cls": False,
        "encoder": "none",
        "share_key_value": True,
    }
    return TransformerConfig(**{**base, **options})


def set_head(network: Transformer, head: RankOneHead) -> None:
    """Copy the four rank-1 matrices into layer 1."""
    layer: Any = network.attentions[0]
    for name, matrix in head.matrices().items():
        value = torch.from_numpy(matrix)
        if name == "W_O":
            layer.output.data = value
        else:
            getattr(layer, {"W_K": "key", "W_Q": "query", "W_V": "value"}[name]).data = value[None]


@dataclass
class Memory:
    """A memorising network: the dense module, and the line t = w.h with its table."""

    network: Transformer
    lookup: Lookup | None = None
    readout: Float[ndarray, " d"] | None = None

    @property
    def dim(self) -> int:
        """Numbers a token."""
        return self.network.config.dim

    @property
    def head_size(self) -> int:
        """s: rows of the head's query, key and value matrices, each of rank one."""
        return self.network.config.head_dims[0]

    @classmethod
    def of(cls, network: Transformer) -> "Memory":
        """From stored weights alone: every hidden unit reads the same w, the biases are the knots."""
        maps: Any = network.readout.maps if network.readout is not None else (None,)
        if len(maps) != 2 or not (maps[0].weight == maps[0].weight[0]).all():
            raise InfoFlowError("expected a memorising network (equal rows in its first map), got another one.")
        first, last = maps
        knots = -first.bias.detach().numpy()
        if not (np.diff(knots) > 0).all():
            raise InfoFlowError("expected increasing knots in the first map's bias, got others.")
        start, coefficients = last.bias.detach().numpy(), last.weight.detach().numpy().T
        if any((grid(stored) != stored).any() for stored in (knots, start, coefficients)):
            raise InfoFlowError(
                "expected multiples of 2^-100 in the feed-forward block, got smaller parts, which the exact sum of its "
                "table does not see; build the network again."
            )
        beyond = np.r_[knots, knots[-1] + 1.0]  # the last knot is no unit: its piece simply goes on
        return cls(network, read_back(beyond, start, coefficients), first.weight[0].detach().numpy())

    def fill(self, readout: Float[ndarray, " d"], solved: Lookup) -> None:
        """Write the table into the feed-forward block; a table with fewer columns than coordinates is repeated."""
        self.lookup, self.readout = solved, readout
        columns = np.arange(self.dim) % len(solved.start)
        block: Any = self.network.readout
        first, last = block.maps
        units = len(solved.knots) - 1
        if units:
            first.weight.data = torch.from_numpy(np.tile(readout, (units, 1)))
            first.bias.data = torch.from_numpy(-solved.knots[:-1])
            last.weight.data = torch.from_numpy(np.ascontiguousarray(solved.coefficients[:, columns].T))
        last.bias.data = torch.from_numpy(solved.start[columns])

    def states(self, X: Float[ndarray, "B n d"], visible: ndarray | None = None) -> Float[ndarray, "B n d"]:
        """H: what the feed-forward block sees."""
        mask = None if visible is None else torch.from_numpy(np.ascontiguousarray(visible))
        with torch.no_grad():
            return self.network.represent(torch.from_numpy(np.ascontiguousarray(X)), None, mask).numpy()

    def place_states(self, contexts: Contexts) -> Float[ndarray, "places d"]:
        """H at every place of the data, flat in (N, n), as the dense module computes it."""
        N, n = contexts.tokens.shape
        out = np.empty((N, n, self.dim))
        real = contexts.tokens >= 0
        table = None if self.network.position is None else self.network.position.detach().numpy()
        step = max(SCORES // (n * n), 1)
        for start in range(0, N, step):
            rows = slice(start, start + step)
            length = int(real[rows].sum(1).max())
            seen = None if real[rows, :length].all() and contexts.visible is None else real[rows, None, :length]
            if contexts.visible is not None:
                seen = contexts.visible[:length, :length] & real[rows, None, :length]
            X = contexts.vocabulary[contexts.tokens[rows, :length]]
            if table is not None:  # the vocabulary already holds X + E: enter behind the position table
                out[rows, :length] = self._behind_positions(X, seen)
            else:
                out[rows, :length] = self.states(X, seen)
        return out.reshape(-1, self.dim)

    def _behind_positions(self, X: ndarray, seen: ndarray | None) -> ndarray:
        layer: Any = self.network.attentions[0]
        mask = None if seen is None else torch.from_numpy(np.ascontiguousarray(seen))
        with torch.no_grad():
            out: ndarray = layer(torch.from_numpy(np.ascontiguousarray(X)), X.shape[1], False, None, mask).numpy()
        return out

    def class_states(self, contexts: Contexts) -> Float[ndarray, "M d"]:
        """H at the first place of every class."""
        made: ndarray = self.place_states(contexts)[contexts.first]
        return made

    def lookup_output(self, states: Float[ndarray, "k d"]) -> Float[ndarray, "k d"]:
        """H + table(w.h), O(log m) per token: the function of the dense module."""
        assert self.lookup is not None
        assert self.readout is not None
        made: ndarray = states + self.lookup(states @ self.readout)
        return made

    def dense_output(self, states: Float[ndarray, "k d"]) -> Float[ndarray, "k d"]:
        """The feed-forward block with its skip, in tiles of tokens and units that stay in cache."""
        block: Any = self.network.readout
        first, last = block.maps
        rows, units = torch.from_numpy(np.ascontiguousarray(states)), first.bias.shape[0]
        with torch.no_grad():
            out = rows + last.bias
            for start in range(0, len(rows), TILE[0]):
                tokens, total = rows[start : start + TILE[0]], out[start : start + TILE[0]]
                for unit in range(0, units, TILE[1]):
                    part = slice(unit, unit + TILE[1])
                    hidden = torch.addmm(first.bias[part], tokens, first.weight[part].T).relu_()
                    total.addmm_(hidden, last.weight[:, part].T)
        made: ndarray = out.numpy()
        return made

    def module_output(self, states: Float[ndarray, "k d"]) -> Float[ndarray, "k d"]:
        """The same by the module itself, whose sums run over all units at once: for a few tokens."""
        block: Any = self.network.readout
        step = max(BLOCK // max(block.maps[0].bias.shape[0], 1), 8)
        with torch.no_grad():
            parts = [block(torch.from_numpy(states[start : start + step])) for start in range(0, len(states), step)]
        return torch.cat(parts).numpy() if parts else np.empty((0, self.dim))


def attention_config(contexts: Contexts, head_size: int) -> TransformerConfig:
    """Of the attention layer (2) alone."""
    options: dict[str, Any] = {
        "share_key_value": False,
        "readout": False,
        "readout_skip": False,
        "mask": _mask_of(contexts),
    }
    return rank_one_config(contexts.vocabulary.shape[1], width=1, head_size=head_size, **options)


def attention_network(head: RankOneHead, contexts: Contexts) -> Transformer:
    """The attention layer (2) alone."""
    network = Transformer(attention_config(contexts, head.size)).double()
    set_head(network, head)
    return network


def _mask_of(contexts: Contexts) -> str:
    """Causal masks are part of the configuration; padding and other masks come with the input."""
    n = contexts.length
    causal = contexts.visible is not None and bool((contexts.visible == np.tri(n, dtype=bool)).all())
    return "causal" if causal else "none"


def block_config(contexts: Contexts, width: int, head_size: int, positions: bool) -> TransformerConfig:
    """Of the block (2), (3) for these contexts."""
    return rank_one_config(
        contexts.vocabulary.shape[1],
        width=width,
        head_size=head_size,
        share_key_value=False,
        mask=_mask_of(contexts),
        positions="additive" if positions else "none",
        length=contexts.length if positions else 0,
    )


def block_network(head: RankOneHead, contexts: Contexts, table: Float[ndarray, "n d"] | None) -> Memory:
    """The dense module for these contexts with the head in place and a blank feed-forward block."""
    config = block_config(contexts, max(contexts.size - 1, 1), head.size, table is not None)
    network = Transformer(config).double()
    set_head(network, head)
    if table is not None:
        assert network.position is not None
        network.position.data = torch.from_numpy(table.copy())
    return Memory(network)
