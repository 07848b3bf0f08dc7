"""Planted heads: patterns whose mode is known, to measure the labeller against.

Tokens are drawn at random; content heads score keys by the tokens, position heads by the positions alone. `moved`
shifts that share of every row's mass to uniform; `noise` is the standard deviation of normal noise on the logits, in
logits, or with `relative` in standard deviations of the head's own logits. (Relative noise breaks the ties of a top-k
head, which then is partly a hardmax: leave that kind out.) The key a head looks at stands 6 to 12 logits above
the others; a mixed head scores keys by content with a standard deviation of 1.5, too broad for any mode.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.probes.record import Consumer
from infoflow.probes.tap import Step

KINDS = ("max", "top", "global", "position", "self", "previous", "next", "sink", "mixed")


@dataclass
class Planted:
    """A recording of planted heads: one layer per kind, `copies` heads each with their own secret direction."""

    documents: int = 24
    T: int = 48
    copies: int = 4
    moved: float = 0.0
    noise: float = 0.0
    relative: bool = False
    causal: bool = False
    seed: int = 0
    shuffled: bool = False  # permute the tokens of every document, the sinks stay
    kinds: tuple[str, ...] = KINDS

    @property
    def heads(self) -> tuple[int, ...]:
        return (self.copies,) * len(self.kinds)

    @property
    def truth(self) -> list[str]:
        return [kind for kind in self.kinds for _ in range(self.copies)]

    def feed(self, *consumers: Consumer) -> None:
        for document in range(self.documents):
            tokens, order = self._tokens(document)
            for layer, kind in enumerate(self.kinds):
                step = self._step(layer, kind, document, tokens, order)
                for consumer in consumers:
                    consumer(step)

    def _tokens(self, document: int) -> tuple[Float[np.ndarray, "T d"], Int[np.ndarray, "T"]]:
        generator = np.random.default_rng((self.seed, 1, document))
        tokens = generator.normal(size=(self.T, 8))
        order = np.arange(self.T)
        if self.shuffled:
            order[1:] = 1 + np.random.default_rng((self.seed, 2, document)).permutation(self.T - 1)
        return tokens[order], order

    def _step(self, layer: int, kind: str, document: int, tokens: np.ndarray, order: np.ndarray) -> Step:
        T, h = self.T, self.copies
        secret = np.random.default_rng((self.seed, 3, layer))
        generator = np.random.default_rng((self.seed, 4, layer, document))
        visible = np.tril(np.ones((T, T), dtype=bool)) if self.causal else np.ones((T, T), dtype=bool)
        rows = []
        for _ in range(h):
            logits = _logits(kind, tokens, secret, visible)
            spread = max(float(logits[visible].std()), 1.0) if self.relative else 1.0
            logits = logits + self.noise * spread * generator.normal(size=(T, T))
            rows.append((1 - self.moved) * _softmax(logits, visible) + self.moved * _softmax(0 * logits, visible))
        weights = torch.from_numpy(np.stack(rows))[None]
        state = torch.from_numpy(tokens)[None]
        flat = torch.zeros(1, h, T, 1, dtype=torch.float64)
        sinks = torch.zeros(1, T, dtype=torch.bool)
        sinks[0, 0] = True
        return Step(
            layer, document, state, state, flat, flat, flat, weights, 1.0, torch.from_numpy(visible)[None, None],
            sinks=sinks, tokens=state,
        )  # fmt: skip


def _logits(kind: str, tokens: np.ndarray, secret: np.random.Generator, visible: Bool[np.ndarray, "T T"]) -> np.ndarray:
    """Clean logits (T, T)."""
    T, d = tokens.shape
    gap = secret.uniform(6, 12)
    scores = tokens @ secret.normal(size=(d, d)) @ tokens.T
    if kind == "mixed":
        return 1.5 * (scores - scores.mean()) / scores.std()
    scores[:, 0] = -1e9  # the first token is a sink, never content
    if kind in ("max", "top"):
        count = 1 if kind == "max" else 3
        ranked = np.where(visible, scores, -np.inf)
        edge = -np.sort(-ranked, axis=1)[:, min(count, T) - 1][:, None]
        return np.where(ranked >= edge, gap, 0.0)
    if kind == "global":
        return np.zeros((T, T))
    if kind == "sink":
        return np.where(np.arange(T)[None] == 0, gap, 0.0) + np.zeros((T, 1))
    offset = {"self": 0, "previous": 1, "next": -1}.get(kind, int(secret.integers(2, 6)))
    key = np.arange(T)[:, None] - offset
    key = np.where((key >= 0) & (key < T), key, np.arange(T)[:, None])  # at the edge a head looks at itself
    return np.where(np.arange(T)[None] == key, gap, 0.0)


def _softmax(logits: np.ndarray, visible: np.ndarray) -> np.ndarray:
    masked = np.where(visible, logits, -np.inf)
    grown = np.exp(masked - masked.max(1, keepdims=True))
    return grown / grown.sum(1, keepdims=True)


def accuracy(labels: list[str], truth: list[str]) -> float:
    return float(np.mean([a == b for a, b in zip(labels, truth, strict=True)]))


def confusion(labels: list[str], truth: list[str]) -> dict[str, dict[str, int]]:
    """truth -> label -> count, zeros left out."""
    table: dict[str, dict[str, int]] = {}
    for label, true in zip(labels, truth, strict=True):
        row = table.setdefault(true, {})
        row[label] = row.get(label, 0) + 1
    return table


def precision_recall(labels: list[str], truth: list[str]) -> dict[str, dict[str, float | None]]:
    """Per true mode: precision, recall, support. None where nothing was labelled so."""
    table: dict[str, dict[str, float | None]] = {}
    for kind in dict.fromkeys(truth):
        hits = sum(a == kind == b for a, b in zip(labels, truth, strict=True))
        said = sum(a == kind for a in labels)
        support = sum(b == kind for b in truth)
        table[kind] = {"precision": hits / said if said else None, "recall": hits / support, "support": float(support)}
    return table


def top_key(step: Step) -> Int[Tensor, "B h Q"]:
    return step.weights.argmax(-1)
