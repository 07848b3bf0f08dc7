"""From a text file to batches: windows of tokens, lines, or question-sentence pairs.

A document is a window of `length` tokens of running text, or one line where lines are the unit (reaction strings).
The first token and the separators are marked as sinks.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from infoflow import reading
from infoflow.errors import InfoFlowError
from infoflow.probes.record import Batch
from infoflow.probes.tasks import Retrieval
from infoflow.probes.token_rules import no_panic

LONGEST_LINE = 1 << 16  # characters that are encoded at once
# The usual regular expression for the tokens of reaction strings (SMILES).
REACTION = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"
)


@dataclass
class Encoding:
    """How a text becomes ids: `encode` gives plain ids, `front` and `back` are put around every document."""

    encode: Callable[[str], list[int]]
    front: tuple[int, ...]
    back: tuple[int, ...]
    pad: int
    mask: int | None = None
    lines: bool = False  # documents are lines, not windows

    @property
    def special(self) -> set[int]:
        return {*self.front, *self.back}


def within(encoding: Encoding, vocabulary: int) -> Encoding:
    """The same, with a sentence for a token that the model has no row for: tokenizer and model may not belong together.
    A mask it has no row for is none; padding is hidden from the model, so any row will do."""

    def checked(ids: Sequence[int]) -> Sequence[int]:
        if any(not 0 <= number < vocabulary for number in ids):
            raise InfoFlowError(
                f"expected tokens below {vocabulary}, the model's vocabulary, its tokenizer gives {max(ids)}; they do "
                "not belong together."
            )
        return ids

    checked((*encoding.front, *encoding.back))
    pad = encoding.pad if 0 <= encoding.pad < vocabulary else 0
    mask = encoding.mask if encoding.mask is not None and 0 <= encoding.mask < vocabulary else None
    return replace(encoding, encode=lambda text: list(checked(encoding.encode(text))), pad=pad, mask=mask)


def documents_of(text: str, encoding: Encoding, length: int, count: int, skip: int = 0) -> list[list[int]]:
    """The ids of `count` documents behind the first `skip`, special tokens included, each at most `length` long."""
    inner = length - len(encoding.front) - len(encoding.back)
    if inner < 2:
        raise InfoFlowError(f"expected a length of at least {length - inner + 2}, got {length}.")
    found: list[list[int]] = []
    pending: list[int] = []
    for line in _pieces(text):
        if len(found) >= skip + count:
            break
        if not line.strip():
            continue
        ids = encoding.encode(line.strip())
        if encoding.lines:
            found += [ids[:inner]] if len(ids) > 1 else []
            continue
        pending += ids
        while len(pending) >= inner:
            found.append(pending[:inner])
            pending = pending[inner:]
    chosen = found[skip : skip + count]
    if len(chosen) < 2:
        raise InfoFlowError(f"expected text for at least {skip + 2} documents of {inner} tokens, got {len(found)}.")
    return [[*encoding.front, *ids, *encoding.back] for ids in chosen]


def _pieces(text: str) -> Iterator[str]:
    """The lines, a very long one in pieces: what is not needed is not encoded."""
    for line in text.splitlines():
        yield from (line[first : first + LONGEST_LINE] for first in range(0, len(line), LONGEST_LINE))


def batches_of(documents: list[list[int]], encoding: Encoding, size: int, device: str = "cpu") -> list[Batch]:
    """Padded batches, in order; documents of one batch share the length of the longest."""
    batches = []
    for start in range(0, len(documents), size):
        rows = documents[start : start + size]
        T = max(map(len, rows))
        ids = torch.full((len(rows), T), encoding.pad)
        shown = torch.zeros(len(rows), T, dtype=torch.bool)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row)
            shown[number, : len(row)] = True
        sinks = torch.isin(ids, torch.tensor(sorted(encoding.special), dtype=torch.long)) & shown
        sinks[:, 0] = True
        inputs = {"input_ids": ids} if bool(shown.all()) else {"input_ids": ids, "attention_mask": shown.long()}
        batches.append(Batch(inputs, shown, sinks).to(device))
    return batches


def repeated(tokens: list[int], encoding: Encoding, count: int, length: int, seed: int) -> list[list[int]]:
    """Documents of `tokens` drawn at random, one period over and over, the period drawn for each document (between a
    quarter and a half of the length): what tells induction and duplicate-token heads from heads that look a fixed way
    back."""
    generator = np.random.default_rng(seed)
    inner = length - len(encoding.front) - len(encoding.back)
    if inner < 8 or len(tokens) < 2:
        raise InfoFlowError(f"expected room for 8 tokens and 2 tokens to draw, got {inner} and {len(tokens)}.")
    found = []
    for _ in range(count):
        period = generator.choice(tokens, int(generator.integers(inner // 4, inner // 2 + 1)))
        found.append([*encoding.front, *map(int, np.resize(period, inner)), *encoding.back])
    return found


@torch.no_grad()
def sampled(model: nn.Module, encoding: Encoding, count: int, length: int, seed: int) -> list[list[int]]:
    """Documents drawn from a causal model itself (temperature 1, behind its start tokens): text it was made for."""
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    ids = torch.tensor([encoding.front], device=device).expand(count, -1)
    if ids.shape[1] == 0:
        raise InfoFlowError("expected a start token to draw text from the model, got none; give --text FILE.")
    past = None
    while ids.shape[1] < length:
        output = model(input_ids=ids if past is None else ids[:, -1:], past_key_values=past, use_cache=True)
        past = output.past_key_values
        chosen = torch.multinomial(torch.softmax(output.logits[:, -1].float(), -1), 1, generator=generator)
        ids = torch.cat([ids, chosen], 1)
    return [list(map(int, row)) for row in ids.tolist()]


def pairs_of(text: str) -> list[tuple[str, str]]:
    """`question<TAB>sentence` lines."""
    rows = [line.split("\t") for line in text.splitlines() if line.strip()]
    if not rows or any(len(row) != 2 for row in rows):
        raise InfoFlowError("expected lines of question<TAB>sentence, got other lines; check the file.")
    return [(question, sentence) for question, sentence in rows]


def retrieval_of(
    pairs: list[tuple[str, str]], encoding: Encoding, pool: int, batch: int = 32, length: int = 96, device: str = "cpu"
) -> Retrieval:
    """A retrieval task: every `pool` consecutive pairs share their distinct sentences as candidates."""
    questions = [question for question, _ in pairs]
    sentences = list(dict.fromkeys(sentence for _, sentence in pairs))
    where = {sentence: number for number, sentence in enumerate(sentences)}
    answer = np.array([where[sentence] for _, sentence in pairs])
    pools = []
    for start in range(0, len(pairs), pool):
        rows = np.arange(start, min(start + pool, len(pairs)))
        pools.append((rows, np.unique(answer[rows])))
    asked, said = (_lines(texts, encoding, length, batch, device) for texts in (questions, sentences))
    return Retrieval(asked, said, answer, pools)


def _lines(texts: list[str], encoding: Encoding, length: int, batch: int, device: str) -> list[Batch]:
    inner = length - len(encoding.front) - len(encoding.back)
    rows = [[*encoding.front, *encoding.encode(text)[:inner], *encoding.back] for text in texts]
    return batches_of(rows, encoding, batch, device)


def reaction_encoding(vocabulary: Path) -> Encoding:
    """The tokenizer of reaction models: one vocabulary entry per line, the regular expression above."""
    ids = {token: number for number, token in enumerate(reading.text(vocabulary, "a vocabulary").splitlines())}
    unknown, front, back, pad, mask = (ids[f"[{name}]"] for name in ("UNK", "CLS", "SEP", "PAD", "MASK"))

    def encode(text: str) -> list[int]:
        return [ids.get(token, unknown) for token in REACTION.findall(text.strip())]

    return Encoding(encode, (front,), (back,), pad, mask, lines=True)


def library_encoding(tokenizer: Any) -> Encoding:
    """A tokenizer of transformers: the special tokens are those it puts around a text."""

    def encode(text: str) -> list[int]:
        try:
            with no_panic("that takes the text"):
                return list(tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"])
        except InfoFlowError:
            raise
        except Exception as error:  # the tokenizer is the model's, and may be anybody's: it fails in any way it can
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise InfoFlowError(f"expected the model's tokenizer to take the text, it says: {reason}.") from None

    inner = encode("a")
    whole = list(tokenizer("a")["input_ids"])
    start = next((n for n in range(len(whole)) if whole[n : n + len(inner)] == inner), 0)
    front, back = tuple(whole[:start]), tuple(whole[start + len(inner) :])
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (tokenizer.eos_token_id or 0)
    return Encoding(encode, front, back, int(pad), tokenizer.mask_token_id)
