"""Lists of T candidate passages with one relevant: read from the files of `--data`, or made in code.

Text stays in memory: results hold numbers and hashes only.
"""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from infoflow import reading
from infoflow.errors import InfoFlowError

PAIRS, NEGATIVES, NATIVE = "dev_small_pairs.jsonl.gz", "dev_small_bm25_negatives.tsv.gz", "qa_sample_200.jsonl.gz"
SENTENCES = "dev_question_sentence.tsv.gz"
NEAR = 60  # lines on either side from which a question's hard negatives come


@dataclass
class Lists:
    """`rows[i]` = query, relevant text, then other candidates from hardest to easiest, as numbers of `texts`."""

    source: str
    texts: list[str]
    rows: list[list[int]]
    native: list[list[int]] = field(default_factory=list)  # the same from one search each, for evaluation only

    @cached_property
    def digest(self) -> str:
        """The hash of what they hold."""
        return hashlib.sha256(json.dumps([self.texts, self.rows, self.native]).encode()).hexdigest()[:24]

    def of_length(self, T: int, native: bool = False) -> Int[ndarray, "lists columns"]:
        """The lists with at least T candidates, cut to the relevant one and the T - 1 hardest others."""
        chosen = [row[: T + 1] for row in (self.native if native else self.rows) if len(row) >= T + 1]
        return np.array(chosen, dtype=np.int64).reshape(len(chosen), T + 1)

    def count(self, T: int) -> int:
        """How many lists have at least T candidates."""
        return sum(len(row) >= T + 1 for row in self.rows)

    def first(self, count: int, T: int) -> "Lists":
        """The first `count` lists of each kind with at most T candidates, and the texts these use, no others."""
        rows, native = ([row[: T + 1] for row in kind[:count]] for kind in (self.rows, self.native))
        used = {old: new for new, old in enumerate(dict.fromkeys(number for row in rows + native for number in row))}
        rows, native = ([[used[number] for number in row] for row in kind] for kind in (rows, native))
        return Lists(self.source, [self.texts[old] for old in used], rows, native)


def read_folder(folder: Path) -> Lists:
    """The folder's own kind: the pairs with BM25 negatives (and native lists where present), or question-sentence."""
    if (folder / PAIRS).is_file():
        return _pairs(folder)
    if (folder / SENTENCES).is_file():
        return _sentences(folder / SENTENCES)
    raise InfoFlowError(
        f"expected {PAIRS} with {NEGATIVES}, or {SENTENCES}, in --data {folder}, found neither; pass their folder."
    )


def _lines(path: Path) -> list[str]:
    return [line for line in reading.text(path, "lists of passages").split("\n") if line.strip()]


def _object(path: Path, number: int, line: str, fields: dict[str, type]) -> dict[str, Any]:
    """One JSON line with the fields it must have, of their types."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    good = isinstance(entry, dict) and all(isinstance(entry.get(name), kind) for name, kind in fields.items())
    if not good:
        wanted = ", ".join(f"{name} ({kind.__name__})" for name, kind in fields.items())
        raise InfoFlowError(f"expected a JSON object with {wanted} in line {number} of {path}, got something else.")
    result: dict[str, Any] = entry
    return result


def _pairs(folder: Path) -> Lists:
    texts: list[str] = []
    query, passage = {}, {}
    for number, line in enumerate(_lines(folder / PAIRS), start=1):
        entry = _object(folder / PAIRS, number, line, {"id": int, "query": str, "positive": str})
        query[entry["id"]], passage[entry["id"]] = len(texts), len(texts) + 1
        texts += [entry["query"], entry["positive"]]
    rows = []
    for number, line in enumerate(_lines(folder / NEGATIVES), start=1):
        try:
            ids = [int(part) for part in line.split()]
            rows.append([query[ids[0]], passage[ids[0]], *[passage[other] for other in ids[1:]]])
        except (ValueError, KeyError, IndexError):
            raise InfoFlowError(
                f"expected an id of {PAIRS} and the ids of its negatives in line {number} of {folder / NEGATIVES}."
            ) from None
    native = _native(folder / NATIVE, texts) if (folder / NATIVE).is_file() else []
    return Lists("msmarco, BM25 lists", texts, rows, native)


def _native(path: Path, texts: list[str]) -> list[list[int]]:
    """Lists as one search gave them, those with exactly one selected passage."""
    rows = []
    for number, line in enumerate(_lines(path), start=1):
        entry = _object(path, number, line, {"query": str, "passages": dict})
        selected, passages = entry["passages"].get("is_selected"), entry["passages"].get("passage_text")
        plain = isinstance(selected, list) and isinstance(passages, list) and len(selected) == len(passages)
        if not plain or not all(isinstance(text, str) for text in passages):
            raise InfoFlowError(f"expected passages with is_selected and passage_text in line {number} of {path}.")
        if sum(flag == 1 for flag in selected) != 1:
            continue
        at = selected.index(1)
        start = len(texts)
        texts += [entry["query"], passages[at], *passages[:at], *passages[at + 1 :]]
        rows.append(list(range(start, len(texts))))
    return rows


def _sentences(path: Path) -> Lists:
    """question<TAB>sentence in article order; hard negatives are the nearest lines with another sentence."""
    pairs = []
    for number, line in enumerate(_lines(path), start=1):
        parts = line.split("\t")
        if len(parts) != 2:
            raise InfoFlowError(f"expected question<TAB>sentence in line {number} of {path}, got {len(parts)} columns.")
        pairs.append((parts[0], parts[1]))
    number_of: dict[str, int] = {}
    for _, sentence in pairs:
        number_of.setdefault(sentence, len(number_of))
    texts, rows = list(number_of), []
    for at, (question, sentence) in enumerate(pairs):
        near = sorted(
            range(max(0, at - NEAR), min(len(pairs), at + NEAR + 1)), key=lambda other: (abs(other - at), other)
        )
        others = dict.fromkeys(number_of[pairs[other][1]] for other in near)
        others.pop(number_of[sentence], None)
        rows.append([len(texts), number_of[sentence], *list(others)[:31]])
        texts.append(question)
    return Lists("squad, neighbouring sentences", texts, rows)


def synthetic_lists(count: int, T: int, seed: int) -> Lists:
    """Key-value sentences made in code: "what is the KEY of NAME" against T sentences "the KEY of NAME is VALUE".

    Hard negatives share the key or the name of the question, never both.
    """
    rng = np.random.default_rng(seed)
    keys, names = [f"key{i}" for i in range(8)], [f"name{i}" for i in range(24)]
    texts: list[str] = []
    rows = []
    for _ in range(count):
        key, name = int(rng.integers(len(keys))), int(rng.integers(len(names)))
        start = len(texts)
        texts += [f"what is the {keys[key]} of {names[name]}", _fact(rng, keys[key], names[name])]
        for position in range(T - 1):
            if position % 2:
                other = (key, (name + int(rng.integers(1, len(names)))) % len(names))
            else:
                other = ((key + int(rng.integers(1, len(keys)))) % len(keys), name)
            texts.append(_fact(rng, keys[other[0]], names[other[1]]))
        rows.append(list(range(start, len(texts))))
    return Lists("key-value sentences made in code", texts, rows)


def _fact(rng: np.random.Generator, key: str, name: str) -> str:
    return f"the {key} of {name} is value{int(rng.integers(200))}"
