"""Lists of candidates: what is read, what is refused in one sentence, and that the label follows the passage."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from infoflow.errors import InfoFlowError
from infoflow.lab.papers.head_count.retrieval import features
from infoflow.lab.papers.head_count.retrieval.features import NO_WORD, frozen_vectors, hashed_words
from infoflow.lab.papers.head_count.retrieval.lists import (
    NATIVE,
    NEGATIVES,
    PAIRS,
    SENTENCES,
    read_folder,
    synthetic_lists,
)
from infoflow.lab.papers.head_count.retrieval.model import Ranking, shuffled


def write(path: Path, *lines: str) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as handle:
        handle.write("\n".join(lines) + "\n")


def pairs(folder: Path) -> None:
    write(folder / PAIRS, *[json.dumps({"id": i, "query": f"q{i}", "positive": f"p{i}"}) for i in (1, 2, 3)])
    write(folder / NEGATIVES, "1\t2 3", "2\t3 1")


def test_pairs_negatives_and_native_lists(tmp_path: Path) -> None:
    pairs(tmp_path)
    native = {"query": "q", "passages": {"is_selected": [0, 1, 0], "passage_text": ["a", "b", "c"]}}
    none = {"query": "q", "passages": {"is_selected": [0, 0], "passage_text": ["a", "b"]}}
    write(tmp_path / NATIVE, json.dumps(native), json.dumps(none))
    lists = read_folder(tmp_path)
    assert [[lists.texts[i] for i in row] for row in lists.rows] == [["q1", "p1", "p2", "p3"], ["q2", "p2", "p3", "p1"]]
    assert [[lists.texts[i] for i in row] for row in lists.native] == [["q", "b", "a", "c"]]
    assert lists.of_length(2).shape == (2, 3)
    assert lists.of_length(4).shape == (0, 5)


def test_sentences_never_repeat_the_relevant_one(tmp_path: Path) -> None:
    write(tmp_path / SENTENCES, "one ?\tsame", "two ?\tsame", "three ?\tother", "four ?\tlast")
    lists = read_folder(tmp_path)
    texts = [[lists.texts[i] for i in row] for row in lists.rows]
    assert texts[0] == ["one ?", "same", "other", "last"]
    assert texts[2] == ["three ?", "other", "same", "last"]  # the nearer line first


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        (PAIRS, "{", "line 1"),
        (PAIRS, "[1]", "id \\(int\\)"),
        (PAIRS, json.dumps({"id": "1", "query": "q", "positive": "p"}), "line 1"),
        (NEGATIVES, "1\t9", "ids of its negatives"),
        (NEGATIVES, "x", "line 1"),
        (NATIVE, json.dumps({"query": "q", "passages": {"is_selected": [1]}}), "passage_text"),
        (NATIVE, json.dumps({"query": "q", "passages": {"is_selected": [1], "passage_text": [3]}}), "passage_text"),
    ],
)
def test_a_bad_line_is_one_sentence(tmp_path: Path, name: str, line: str, message: str) -> None:
    pairs(tmp_path)
    write(tmp_path / name, line)
    with pytest.raises(InfoFlowError, match=message):
        read_folder(tmp_path)


def test_bad_folders_and_files(tmp_path: Path) -> None:
    with pytest.raises(InfoFlowError, match="found neither"):
        read_folder(tmp_path)
    write(tmp_path / SENTENCES, "no tab here")
    with pytest.raises(InfoFlowError, match="got 1 columns"):
        read_folder(tmp_path)
    (tmp_path / SENTENCES).write_bytes(b"not gzip")
    with pytest.raises(InfoFlowError, match="could not read"):
        read_folder(tmp_path)
    write(tmp_path / PAIRS, json.dumps({"id": 1, "query": "q", "positive": "p"}))
    with pytest.raises(InfoFlowError, match=NEGATIVES):
        read_folder(tmp_path)


def test_the_label_follows_the_relevant_passage() -> None:
    lists = synthetic_lists(30, T=5, seed=1)
    x, y = shuffled(lists.of_length(5))
    relevant = {row[0]: row[1] for row in lists.rows}
    for row, label in zip(x.tolist(), y.tolist(), strict=True):
        assert row[label] == relevant[row[-1]]
    assert len(set(y.tolist())) == 5


def test_negatives_made_in_code_never_answer() -> None:
    lists = synthetic_lists(40, T=6, seed=2)
    for query, relevant, *others in lists.rows:
        key, name = lists.texts[query].split()[3], lists.texts[query].split()[5]
        words = [lists.texts[i].split() for i in (relevant, *others)]
        assert [(w[1], w[3]) == (key, name) for w in words] == [True] + [False] * 5


def test_words_are_hashed_the_same_everywhere() -> None:
    ids = hashed_words(["Two words", "", "a b c d"], buckets=64, longest=3)
    assert ids[0, 2] == NO_WORD
    assert (ids[1] == NO_WORD).all()
    assert (ids[2] != NO_WORD).all()
    assert torch.equal(ids[0], hashed_words(["two WORDS!"], 64, 3)[0])


def test_cached_embeddings_are_read_and_checked(tmp_path: Path) -> None:
    np.save(tmp_path / "minilm-x.npy", np.ones((2, 384), dtype=np.float32))
    found = frozen_vectors(["a", "b"], "x", tmp_path)
    assert found is not None
    assert found.shape == (2, 384)
    with pytest.raises(InfoFlowError, match="remove the file"):
        frozen_vectors(["a"], "x", tmp_path)
    if features.find_minilm() is None:
        assert frozen_vectors(["a"], "other", tmp_path) is None
        assert not (tmp_path / "minilm-other.npy").exists()


def test_candidates_may_change_places() -> None:
    """Without positions the scores move with their candidates."""
    lists = synthetic_lists(4, T=3, seed=0)
    task = Ranking(lists, hashed_words(lists.texts, 64, 8), "words", 3, 2, 4, 64, 2, 4)
    network = task.network(())
    network.initialise(torch.Generator().manual_seed(0))  # type: ignore[operator]
    stack = task.network((1,))
    stack.load_state_dict({name: value[None] for name, value in network.state_dict().items()})
    x, _ = shuffled(lists.of_length(3))
    order = [2, 0, 1]
    with torch.no_grad():
        before, after = stack(x[None]), stack(x[None][..., [*order, 3]])
    torch.testing.assert_close(after, before[..., order])
