"""Tagged text as a task: trained word embeddings, rank-1 layers (20) with skips and no norm, a tag for every token."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow.construct.rank_one.text import TaggedText
from infoflow.lab.stack import Samples
from infoflow.nn import Transformer, TransformerConfig

PADDING = -1
COLUMNS = 16  # a batch is cut to a multiple of these: few shapes, so few graphs on a GPU


class RankOne(nn.Module):
    """Word table, then the one Transformer with heads of size 1 that share key and value; padding is never seen."""

    def __init__(self, words: int, size: int, width: int, depth: int, tags: int, stack: tuple[int, ...]) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.empty(*stack, words, size))
        config = TransformerConfig(
            dim=size,
            heads=(1,) * depth,
            head_dims=(1,) * depth,
            streams=(size,) * depth,
            widths=(width,) * depth,
            outputs=tags,
            activation="relu",
            encoder="none",
            ffn_skip=True,
            cls=False,
            share_key_value=True,
        )
        self.transformer = Transformer(config, stack)

    def forward(self, ids: Int[Tensor, "M B n"]) -> Float[Tensor, "M B n tags"]:
        M, words, size = self.words.shape
        offset = torch.arange(M, device=ids.device).view(M, 1, 1) * words
        x = self.words.view(M * words, size)[ids.clamp(min=0) + offset]
        out: Tensor = self.transformer(x, visible=(ids != PADDING).unsqueeze(-2))
        return out

    def initialise(self, generator: torch.Generator) -> None:
        self.words.data.normal_(0.0, 1.0, generator=generator)
        self.transformer.initialise(generator)


@dataclass(frozen=True, eq=False)
class Tagging:
    """Training accuracy on `text`: the test samples are the training samples."""

    text: TaggedText
    source: str
    depth: int
    size: int
    width: int

    @cached_property
    def digest(self) -> str:
        """The text itself never enters a result, its hash does."""
        rows = zip(self.text.words, self.text.tags, strict=True)
        joined = "\n\n".join("\n".join(f"{w} {t}" for w, t in zip(*row, strict=True)) for row in rows)
        return hashlib.sha256(joined.encode()).hexdigest()[:24]

    @property
    def identity(self) -> dict[str, Any]:
        sizes = {"depth": self.depth, "size": self.size, "width": self.width}
        return {"kind": "tagging", "source": self.source, "text": self.digest, **sizes}

    @cached_property
    def table(self) -> tuple[Int[Tensor, "N n"], Int[Tensor, "N n"], int, int]:
        """Word and tag numbers, padded; how many words and tags there are."""
        words = {w: i for i, w in enumerate(dict.fromkeys(w for row in self.text.words for w in row))}
        tags = {t: i for i, t in enumerate(sorted({t for row in self.text.tags for t in row}))}
        longest = max(len(row) for row in self.text.words)
        x = torch.full((len(self.text.words), longest), PADDING)
        y = x.clone()
        for i, (row, labels) in enumerate(zip(self.text.words, self.text.tags, strict=True)):
            x[i, : len(row)] = torch.tensor([words[w] for w in row])
            y[i, : len(row)] = torch.tensor([tags[t] for t in labels])
        return x, y, len(words), len(tags)

    def network(self, stack: tuple[int, ...]) -> nn.Module:
        _, _, words, tags = self.table
        return RankOne(words, self.size, self.width, self.depth, tags, stack)

    def samples(self, seeds: Sequence[int]) -> Samples:
        x, y, _, _ = self.table
        return Samples(x[None], y[None], x[None], y[None])

    def columns(self, x: Int[Tensor, "M N n"]) -> Int[Tensor, "M N"]:
        """Sentences fill their rows from the left, so what lies right of the last word is padding."""
        lengths = (x != PADDING).sum(-1)
        return (lengths + COLUMNS - 1) // COLUMNS * COLUMNS

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy over real tokens, the mean of each model's batch."""
        losses = nn.functional.cross_entropy(output.flatten(0, 2), y.flatten(), ignore_index=PADDING, reduction="none")
        real = (y != PADDING).flatten(1).sum(1)
        return losses.view(y.shape).flatten(1).sum(1) / real

    def errors(self, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Right tokens of a sentence, scaled so that the mean over sentences is the share over tokens."""
        per_sentence = self.text.size / len(self.text.words)
        right = ((output.argmax(-1) == y) & (y != PADDING)).sum(-1)
        finite = torch.where(output.isfinite().flatten(2).all(-1), 1.0, torch.nan)
        return {"accuracy": right * finite / per_sentence}

    def keep(self, network: nn.Module, samples: Samples) -> list[dict[str, Any]]:
        models = network.get_parameter("words").shape[0]
        return [{} for _ in range(models)]


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
