"""Tagged text as a task: trained word vectors, rank-1 layers (20) with skips and no norm, a tag for every token."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from infoflow.construct.rank_one.text import TaggedText
from infoflow.nn import Transformer, TransformerConfig
from infoflow.train.recipe import Recipe
from infoflow.train.task import IGNORED, Data, Task, entropies, wrong

COLUMNS = 16  # a batch is cut to a multiple of these: few shapes, so few graphs on a GPU


@dataclass(frozen=True, eq=False)
class Tagging(Task):
    """Training accuracy on `text`: the test samples are the training samples."""

    text: TaggedText
    source: str
    depth: int
    size: int
    width: int

    name = "tagging"
    most_stacked = 4

    @cached_property
    def digest(self) -> str:
        """The text itself never enters a result, its hash does."""
        rows = zip(self.text.words, self.text.tags, strict=True)
        joined = "\n\n".join("\n".join(f"{w} {t}" for w, t in zip(*row, strict=True)) for row in rows)
        return hashlib.sha256(joined.encode()).hexdigest()[:24]

    def identity(self) -> dict[str, Any]:
        """The text's hash and every size."""
        sizes = {"depth": self.depth, "size": self.size, "width": self.width}
        return {"task": {"name": self.name, "source": self.source, "text": self.digest, **sizes}}

    @cached_property
    def table(self) -> tuple[Int[Tensor, "N n"], Int[Tensor, "N n"], int, int]:
        """Word and tag numbers, padded; how many words and tags there are."""
        words = {w: i for i, w in enumerate(dict.fromkeys(w for row in self.text.words for w in row))}
        tags = {t: i for i, t in enumerate(sorted({t for row in self.text.tags for t in row}))}
        longest = max(len(row) for row in self.text.words)
        x = torch.full((len(self.text.words), longest), IGNORED)
        y = x.clone()
        for i, (row, labels) in enumerate(zip(self.text.words, self.text.tags, strict=True)):
            x[i, : len(row)] = torch.tensor([words[w] for w in row])
            y[i, : len(row)] = torch.tensor([tags[t] for t in labels])
        return x, y, len(words), len(tags)

    def counts(self) -> tuple[int, int]:
        """Sentences: all are trained on and all are measured."""
        return len(self.text.words), len(self.text.words)

    def network(self, arch: Any, T: int | None, recipe: Recipe, stack: tuple[int, ...]) -> Transformer:
        """Heads of size 1 that share key and value."""
        _, _, words, tags = self.table
        config = TransformerConfig(
            dim=words,
            heads=(1,) * self.depth,
            head_dims=(1,) * self.depth,
            streams=(self.size,) * self.depth,
            widths=(self.width,) * self.depth,
            outputs=tags,
            activation="relu",
            encoder="table",
            ffn_skip=True,
            cls=False,
            share_key_value=True,
        )
        return Transformer(config, stack)

    def data(self, T: int | None, recipe: Recipe, seeds: Sequence[int], device: torch.device) -> Data:
        """Sentences of similar length together, padded."""
        x, y, _, _ = self.table
        lengths = (x != IGNORED).sum(-1)
        columns = (lengths + COLUMNS - 1) // COLUMNS * COLUMNS
        here, there = x[None].to(device), y[None].to(device)
        per = dict.fromkeys(("error", "accuracy"), float(self.text.size))
        return Data(here, there, here, there, per, lengths=columns[None])

    def predict(self, network: nn.Module, x: Tensor, fused: Any) -> Tensor:
        """Tags of a batch of sentences; padding is masked as a key."""
        y: Tensor = network(x, visible=(x != IGNORED).unsqueeze(-2))
        return y

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy over real tokens, the mean of each model's batch."""
        return entropies(output, y).flatten(1).sum(1) / (y != IGNORED).flatten(1).sum(1)

    def metrics(self, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The share of wrong tags, and of right ones among real words."""
        missed = wrong(output, y)
        return {"error": missed, "accuracy": (y != IGNORED) * (1 - missed)}


def synthetic_text(sentences: int, seed: int) -> TaggedText:
    """Sentences in the manner of CoNLL, made in code: the tag of a word needs its sentence, never the order.

    Names are a person, a place or a firm by the trade word of their sentence; nine in ten other words are "O".
    """
    rng = np.random.default_rng(seed)
    kinds = {"PER": ["said", "smiled", "born"], "LOC": ["north", "river", "city"], "ORG": ["shares", "profit", "board"]}
    names = [f"Name{i}" for i in range(40)]
    fillers = [f"word{i}" for i in range(120)]
    words, tags = [], []
    for _ in range(sentences):
        kind = str(rng.choice(list(kinds)))
        row = [(str(rng.choice(names)), f"B-{kind}"), (str(rng.choice(kinds[kind])), "O")]
        row += [(str(word), "O") for word in rng.choice(fillers, size=int(rng.integers(3, 10)), replace=False)]
        order = rng.permutation(len(row))
        words.append([row[i][0] for i in order])
        tags.append([row[i][1] for i in order])
    return TaggedText(words, tags)
