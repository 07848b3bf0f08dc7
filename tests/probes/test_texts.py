"""Texts to batches: windows, lines, pairs, hostile files."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models import hugging_face

from infoflow.errors import InfoFlowError
from infoflow.probes.texts import (
    Encoding,
    batches_of,
    documents_of,
    pairs_of,
    reaction_encoding,
    retrieval_of,
    sampled,
)

LETTERS = Encoding(lambda text: [ord(c) for c in text], (1,), (2,), 0)


@given(st.text(alphabet="abc \n", max_size=200), st.integers(5, 20))
def test_windows_cover_the_text_in_order(text, length):
    try:
        rows = documents_of(text, LETTERS, length, 1000)
    except InfoFlowError:
        return
    joined = "".join(chr(i) for row in rows for i in row[1:-1])
    plain = "".join(line.strip() for line in text.splitlines() if line.strip())
    assert plain.startswith(joined)
    assert len(plain) - len(joined) < length - 2
    assert all(len(row) == length and row[0] == 1 and row[-1] == 2 for row in rows)


def test_padding_and_sinks():
    (batch,) = batches_of([[1, 5, 2], [1, 5, 6, 7, 2]], LETTERS, 8)
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.sinks.tolist() == [[True, False, True, False, False], [True, False, False, False, True]]
    (whole,) = batches_of([[1, 5, 2]], LETTERS, 8)
    assert "attention_mask" not in whole.inputs


def test_a_line_without_end_is_encoded_as_far_as_it_is_needed():
    seen: list[int] = []
    counting = replace(LETTERS, encode=lambda text: seen.append(len(text)) or [5] * len(text))
    assert len(documents_of("a" * 10_000_000, counting, 10, 4)) == 4
    assert sum(seen) <= 1 << 16


def test_texts_that_are_too_short():
    with pytest.raises(InfoFlowError, match="at least 2 documents"):
        documents_of("short", LETTERS, 30, 4)
    with pytest.raises(InfoFlowError, match="length of at least 4"):
        documents_of("short", LETTERS, 3, 4)


def test_retrieval_pools():
    pairs = pairs_of("q1\ta\nq2\tb\nq3\ta\nq4\tc\n")
    task = retrieval_of(pairs, LETTERS, pool=2)
    assert task.answer.tolist() == [0, 1, 0, 2]
    assert [(r.tolist(), c.tolist()) for r, c in task.pools] == [([0, 1], [0, 1]), ([2, 3], [0, 2])]
    with pytest.raises(InfoFlowError, match="TAB"):
        pairs_of("no tab here")


def test_reaction_tokens(tmp_path):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "C", "Cl", "[Na+]", ">>", "(", ")", "=", "O"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    encoding = reaction_encoding(tmp_path / "vocab.txt")
    ids = encoding.encode("CC(=O)Cl.[Na+]>>CBr")
    assert [tokens[i] for i in ids] == ["C", "C", "(", "=", "O", ")", "Cl", "[UNK]", "[Na+]", ">>", "C", "[UNK]"]
    assert (encoding.front, encoding.back, encoding.mask, encoding.lines) == ((2,), (3,), 4, True)


def test_documents_drawn_from_the_model():
    """Drawn with a cache, they follow the law of the full pass: the same seed gives the same text."""
    model = hugging_face("llama")
    encoding = Encoding(lambda text: [], (1,), (), 0)
    rows = sampled(model, encoding, 400, 3, seed=3)
    assert rows == sampled(model, encoding, 400, 3, seed=3)
    assert all(len(row) == 3 and row[0] == 1 for row in rows)
    with torch.no_grad():
        law = torch.softmax(model(input_ids=torch.tensor([[1]])).logits[0, -1], -1)
    seen = np.bincount([row[1] for row in rows], minlength=50) / 400
    assert np.abs(seen - law.numpy()).max() < 0.1
