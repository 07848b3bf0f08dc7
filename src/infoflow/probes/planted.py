"""Planted heads: patterns whose mode is known, to measure the labeller against.

Tokens are drawn at random, the first is a sink; content heads score the other keys by a secret bilinear form of the
tokens, position heads by the positions alone:

    max       the 1st, 3rd, ... head: logits of standard deviation 40; the others: one key 6 to 12 logits above the rest
    top       2, 3 or 4 keys stand 6 to 12 logits above the others
    global    all logits equal
    sink, self, previous, next, position (2 to 5 back)   that key stands 6 to 12 logits above the others
    induction, duplicate   with `repeats` alone: the key behind the last earlier place of the query's token, that place
              itself, stands 6 to 12 logits above the others; a query without one looks at the sink
    mixed     the 1st, 3rd, ... head: logits of standard deviation 1.5, too broad for any mode; the others: 0.3 of the
              mass on the sink, 0.3 on the previous key, 0.4 on the content's maximum, too divided for any

With `repeats` a document is one period of random tokens over and over, the period drawn for every document ("random",
between T/4 and T/2 tokens) or the same for all ("fixed"); the heads that choose by content prefer later copies.

`noise` is the standard deviation of normal noise on the logits, in logits, or with `relative` in standard deviations
of the head's own logits; then `moved` shifts that share of every row's mass to uniform.

Noise breaks the ties of a top head: of k keys with noise of s logits the first leads the second by
E(q_1 - q_2), q = softmax(N(0, s^2)^k) in order. From a lead of one half on such a head fetches one key, and nothing in
its patterns tells it from a hardmax over scores that happen to lie close; its truth is then `max`. One logit of noise
leaves every top head what it is (lead 0.45 for a pair), noise of its own standard deviation, 1 to 5 logits, does not.
`planted_as` keeps the kind before the noise. No other kind changes. On inputs shorter than 16 tokens a broad head puts
most of its mass on 4 keys and is a top head too: shorter ones are not planted by the benchmark.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from infoflow.probes.modes import LEAD
from infoflow.probes.record import Batch, Consumer
from infoflow.probes.tap import Step

REPEATED_KINDS = ("induction", "duplicate")
KINDS = ("max", "top", "global", "position", "self", "previous", "next", "sink", "mixed")
GRADED, BROAD = 40.0, 1.5  # standard deviations of logits
LATER = 0.5  # standard deviations by which the last of equal tokens leads the first
DIM = 8  # of a token


@dataclass
class Planted:
    """A recording of planted heads: one layer per kind, `copies` heads each with their own secret direction.

    With `twins` every batch holds a document and, behind it, the same document with its tokens shuffled by `order`
    (the sink stays), disturbed by other noise: what `shuffle.Followed` reads.
    """

    documents: int = 24
    T: int = 48
    copies: int = 4
    moved: float = 0.0
    noise: float = 0.0
    relative: bool = False
    causal: bool = False
    seed: int = 0
    twins: bool = False
    kinds: tuple[str, ...] = KINDS
    repeats: Literal["random", "fixed"] | None = None

    @property
    def heads(self) -> tuple[int, ...]:
        return (self.copies,) * len(self.kinds)

    @property
    def planted_as(self) -> list[str]:
        return [kind for kind in self.kinds for _ in range(self.copies)]

    @property
    def truth(self) -> list[str]:
        """The kinds, but `max` for a top head of which noise made one."""
        visible = self._visible()
        found = []
        for layer, kind in enumerate(self.kinds):
            for copy in range(self.copies):
                secret = Secret(self.seed, layer, copy)
                share = secret.count / visible.sum(1).mean()
                spread = secret.gap * np.sqrt(share * (1 - share)) if self.relative else 1.0
                parted = kind == "top" and lead(secret.count, self.noise * float(spread)) >= LEAD
                found.append("max" if parted else kind)
        return found

    def _visible(self) -> Bool[np.ndarray, "T T"]:
        full = np.ones((self.T, self.T), dtype=bool)
        return np.tril(full) if self.causal else full

    def feed(self, *consumers: Consumer) -> None:
        for document in range(self.documents):
            tokens = np.random.default_rng((self.seed, 1, document)).normal(size=(self.T, DIM))
            tokens = tokens[self.places(document)]
            versions = [tokens, tokens[self.order(document)]] if self.twins else [tokens]
            for layer, kind in enumerate(self.kinds):
                step = self._step(layer, kind, document, versions)
                for consumer in consumers:
                    consumer(step)

    def places(self, document: int) -> Int[np.ndarray, " T"]:
        """The drawn token that stands at every place: with repeats the same again and again, the sink once."""
        if self.repeats is None:
            return np.arange(self.T)
        number = document if self.repeats == "random" else 0
        period = int(np.random.default_rng((self.seed, 5, number)).integers(self.T // 4, self.T // 2 + 1))
        return np.concatenate([[0], 1 + np.arange(self.T - 1) % period])

    def order(self, document: int) -> Int[np.ndarray, " T"]:
        """Place t of the twin holds token order[t] of the document."""
        drawn = 1 + np.random.default_rng((self.seed, 2, document)).permutation(self.T - 1)
        return np.concatenate([[0], drawn])

    def _step(self, layer: int, kind: str, document: int, versions: list[np.ndarray]) -> Step:
        T, B = self.T, len(versions)
        visible = self._visible()
        patterns = [self._patterns(layer, kind, document, n, tokens, visible) for n, tokens in enumerate(versions)]
        state = torch.from_numpy(np.stack(versions))
        flat = torch.zeros(B, self.copies, T, 1, dtype=torch.float64)
        sinks = torch.zeros(B, T, dtype=torch.bool)
        sinks[:, 0] = True
        return Step(
            layer, document * B, state, state, flat, flat, flat, torch.from_numpy(np.stack(patterns)), 1.0,
            torch.from_numpy(visible)[None, None], sinks=sinks, tokens=state, ids=Batch({"X": state}).ids,
        )  # fmt: skip

    def _patterns(
        self, layer: int, kind: str, document: int, version: int, tokens: np.ndarray, visible: np.ndarray
    ) -> Float[np.ndarray, "copies T T"]:
        generator = np.random.default_rng((self.seed, 4, layer, document, version))
        rows = []
        for copy in range(self.copies):
            logits = _logits(kind, Secret(self.seed, layer, copy), tokens, visible)
            spread = max(float(logits[visible].std()), 1.0) if self.relative else 1.0
            logits = logits + self.noise * spread * generator.normal(size=logits.shape)
            rows.append((1 - self.moved) * _softmax(logits, visible) + self.moved * _softmax(0 * logits, visible))
        return np.stack(rows)


class Secret:
    """What makes one planted head: its variant, how far its keys stand out, their number and place, its scores."""

    def __init__(self, seed: int, layer: int, copy: int) -> None:
        generator = np.random.default_rng((seed, 3, layer, copy))
        self.first = copy % 2 == 0
        self.gap = float(generator.uniform(6, 12))
        self.offset, self.count = int(generator.integers(2, 6)), int(generator.integers(2, 5))
        self.form = generator.normal(size=(DIM, DIM))


def lead(count: int, noise: float) -> float:
    """E(q_1 - q_2) for q = softmax of `count` normal logits of this standard deviation, in order; 4096 draws."""
    drawn = noise * np.random.default_rng(0).normal(size=(4096, count))
    grown = np.sort(np.exp(drawn - drawn.max(1, keepdims=True)), axis=1)
    return float(((grown[:, -1] - grown[:, -2]) / grown.sum(1)).mean())


def _logits(
    kind: str, secret: Secret, tokens: np.ndarray, visible: Bool[np.ndarray, "T T"]
) -> Float[np.ndarray, "T T"]:
    """Clean logits."""
    T = len(tokens)
    scores = tokens @ secret.form @ tokens.T
    scores = (scores - scores.mean()) / scores.std()
    if kind == "mixed" and secret.first:
        return BROAD * scores
    if kind in REPEATED_KINDS:
        return secret.gap * _at(_again(tokens, 1 if kind == "induction" else 0), T)
    scores = scores + LATER * np.arange(T) / T * bool(len(np.unique(tokens[:, 0])) < T)
    scores[:, 0] = -10.0  # the sink is never content
    if kind == "mixed":
        return _divided(scores, visible)
    if kind == "max" and secret.first:
        return GRADED * scores
    if kind in ("max", "top"):
        return secret.gap * _best(scores, visible, 1 if kind == "max" else secret.count)
    if kind == "global":
        return np.zeros((T, T))
    if kind == "sink":
        return secret.gap * _at(np.zeros(T, dtype=int), T)
    return secret.gap * _at(_places({"self": 0, "previous": 1, "next": -1}.get(kind, secret.offset), T), T)


def _divided(scores: np.ndarray, visible: np.ndarray) -> Float[np.ndarray, "T T"]:
    """Logits of 0.3 on the sink, 0.3 on the previous key and 0.4 on the best by content."""
    T = len(scores)
    mass = 0.3 * _at(np.zeros(T, dtype=int), T) + 0.3 * _at(_places(1, T), T) + 0.4 * _best(scores, visible, 1)
    return np.log(np.maximum(mass, 1e-4))


def _again(tokens: np.ndarray, shift: int) -> Int[np.ndarray, " T"]:
    """The last earlier place of every token, plus `shift`; 0, the sink, where there is none."""
    found = np.zeros(len(tokens), dtype=int)
    last: dict[bytes, int] = {}
    for t, token in enumerate(map(bytes, tokens)):
        found[t] = last[token] + shift if token in last else 0
        last[token] = t
    return found


def _best(scores: np.ndarray, visible: np.ndarray, count: int) -> Float[np.ndarray, "T T"]:
    """1 at the `count` visible keys of largest score, 0 elsewhere."""
    ranked = np.where(visible, scores, -np.inf)
    edge = -np.sort(-ranked, axis=1)[:, min(count, len(scores)) - 1][:, None]
    return (visible & (ranked >= edge)).astype(float)


def _places(offset: int, T: int) -> Int[np.ndarray, " T"]:
    """t - offset; at the edge a head looks at itself."""
    keys = np.arange(T) - offset
    return np.where((keys >= 0) & (keys < T), keys, np.arange(T))


def _at(keys: Int[np.ndarray, " T"], T: int) -> Float[np.ndarray, "T T"]:
    return (np.arange(T)[None] == keys[:, None]).astype(float)


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
