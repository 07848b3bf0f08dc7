"""Tagged text in CoNLL columns, what any order-free model can know of it, and memorising it with one rank-1 head.

Ceilings, each the share of tokens right when every key gets its most frequent tag: no key (majority), the word, the
word with the multiset of its sentence (order-free: all that attention without positions can see), the sentence with the
position.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from infoflow import reading
from infoflow.certificates import Certificate
from infoflow.construct.rank_one.contexts import Contexts, contexts_of
from infoflow.construct.rank_one.memorize import Memorizer, memorize_contexts
from infoflow.errors import InfoFlowError

PAPER_ACCURACY = 0.9872  # Section 5: one trained rank-1 layer at 800 epochs, training accuracy


@dataclass(frozen=True)
class TaggedText:
    """Sentences of (word, tag)."""

    words: list[list[str]]
    tags: list[list[str]]

    @property
    def size(self) -> int:
        """Words of all sentences."""
        return sum(len(sentence) for sentence in self.words)


def read_conll(path: str | Path) -> TaggedText:
    """Columns separated by blanks, the word first and the tag last, a blank line between sentences; .gz is read as
    it is.

    Lines that start with -DOCSTART- separate documents and are dropped.
    """
    words: list[list[str]] = [[]]
    tags: list[list[str]] = [[]]
    lines = reading.text(path, "tagged text in CoNLL columns").splitlines()
    for number, line in enumerate(lines, start=1):
        columns = line.split()
        if not columns or columns[0] == "-DOCSTART-":
            if words[-1]:
                words.append([])
                tags.append([])
            continue
        if len(columns) < 2:
            raise InfoFlowError(f"expected a word and a tag in line {number} of {path}, got {len(columns)} column.")
        words[-1].append(columns[0])
        tags[-1].append(columns[-1])
    if not words[-1]:
        words.pop()
        tags.pop()
    if not words:
        raise InfoFlowError(f"expected sentences in {path}, found none.")
    return TaggedText(words, tags)


def ceilings(text: TaggedText) -> dict[str, float]:
    """The best training accuracy of models that see less and less."""
    whole = [tuple(sentence) for sentence in text.words]
    bags = [tuple(sorted(sentence)) for sentence in text.words]
    tags = [tag for sentence in text.tags for tag in sentence]
    words = [word for sentence in text.words for word in sentence]
    return {
        "majority": _share((None for _ in tags), tags),
        "word": _share(words, tags),
        "order_free": _share(((word, bag) for bag, row in zip(bags, text.words, strict=True) for word in row), tags),
        "positions": _share(((row, k) for row in whole for k in range(len(row))), tags),
    }


def _share(keys: Iterable[Hashable], tags: list[str]) -> float:
    counts: dict[Hashable, Counter[str]] = defaultdict(Counter)
    for key, tag in zip(keys, tags, strict=True):
        counts[key][tag] += 1
    return sum(max(counter.values()) for counter in counts.values()) / len(tags)


@dataclass(frozen=True)
class TextMemory:
    """A memoriser of tagged text with its word table."""

    memorizer: Memorizer
    index: dict[str, int]
    tags: list[str]
    embedding: Float[ndarray, "words d"]
    accuracy: float
    seed: int

    @property
    def certificate(self) -> Certificate:
        """That of the memoriser behind it."""
        return self.memorizer.certificate

    def save(self, path: str | Path) -> Path:
        """The memoriser; the words are not stored with it."""
        return self.memorizer.save(path)

    def stored(self) -> Any:
        """What `load` makes of the saved file."""
        return self.memorizer.stored()

    def accuracy_on(self, text: TaggedText) -> float:
        """Accuracy on other text; words never seen get random embeddings of their own."""
        index = dict(self.index)
        for sentence in text.words:
            for word in sentence:
                index.setdefault(word, len(index))
        rng = np.random.default_rng([self.seed, 1])
        fresh = rng.standard_normal((len(index) - len(self.index), self.embedding.shape[1]))
        contexts = contexts_of(np.vstack([self.embedding, fresh]), _table(text, index), "padding")
        memory = self.memorizer.memory
        places = np.flatnonzero(contexts.tokens.ravel() >= 0)
        out = memory.lookup_output(memory.place_states(contexts)[places])
        return _right(out, _wanted(text, self.tags))


def memorize_text(text: TaggedText, d: int = 16, seed: int = 0, dense_places: int | None = 4000) -> TextMemory:
    """One rank-1 head on random embeddings, untrained: every class gets its most frequent tag."""
    index: dict[str, int] = {}
    for sentence in text.words:
        for word in sentence:
            index.setdefault(word, len(index))
    embedding = np.random.default_rng([seed, 0]).standard_normal((len(index), d))
    contexts = contexts_of(embedding, _table(text, index), "padding")
    tags = sorted({tag for sentence in text.tags for tag in sentence})
    wanted = _wanted(text, tags)
    labels = _most_frequent(contexts, wanted, len(tags))
    memorizer = memorize_contexts(contexts, labels[:, None], seed=seed, dense_places=dense_places)
    memory = memorizer.memory
    places = np.flatnonzero(contexts.tokens.ravel() >= 0)
    accuracy = _right(memory.lookup_output(memory.place_states(contexts)[places]), wanted)
    return TextMemory(memorizer, index, tags, embedding, accuracy, seed)


def _table(text: TaggedText, index: dict[str, int]) -> Int[ndarray, "N n"]:
    tokens = np.full((len(text.words), max(len(sentence) for sentence in text.words)), -1, dtype=np.int64)
    for row, sentence in zip(tokens, text.words, strict=True):
        row[: len(sentence)] = [index[word] for word in sentence]
    return tokens


def _wanted(text: TaggedText, tags: list[str]) -> Int[ndarray, " places"]:
    """Tags as 1, 2, ..; 0 for a tag the memoriser never saw."""
    number = {tag: k for k, tag in enumerate(tags, start=1)}
    return np.array([number.get(tag, 0) for sentence in text.tags for tag in sentence])


def _most_frequent(contexts: Contexts, wanted: Int[ndarray, " places"], tags: int) -> Int[ndarray, " M"]:
    of = contexts.class_of.ravel()
    counts = np.zeros((contexts.size, tags + 1), dtype=np.int64)
    np.add.at(counts, (of[of >= 0], wanted), 1)
    frequent: ndarray = counts.argmax(1)
    return frequent


def _right(out: Float[ndarray, "places d"], wanted: Int[ndarray, " places"]) -> float:
    """A place is right when every output coordinate rounds to its label."""
    return float((np.rint(out) == wanted[:, None]).all(1).mean())
