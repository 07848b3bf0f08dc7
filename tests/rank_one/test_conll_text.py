"""Tagged text: the loader, the ceilings, and a network that reaches the order-free one, on text made here."""

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from infoflow.construct.rank_one.text import TaggedText, ceilings, memorize_text, read_conll
from infoflow.errors import InfoFlowError


def synthetic(sentences: int = 120, seed: int = 0) -> str:
    """CoNLL columns over 30 made-up words; tags depend on word, neighbours and chance, so that every ceiling
    differs."""
    rng = np.random.default_rng(seed)
    lines = ["-DOCSTART- -X- -X- O", ""]
    for index in range(sentences):
        words = [f"w{k}" for k in rng.zipf(1.5, size=rng.integers(1, 12)) % 30]
        for place, word in enumerate(words):
            tag = ["O", "O", "B-A", "I-A", "B-B"][(int(word[1:]) + (place and int(words[place - 1][1:]) % 3)) % 5]
            tag = "O" if rng.random() < 0.05 else tag
            lines.append(f"{word} NN I-NP {tag}")
        lines += [""] * (1 + index % 2)
    return "\n".join(lines) + "\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "train.txt"
    file.write_text(synthetic(), encoding="utf-8")
    return file


def test_reader(path: Path, tmp_path: Path) -> None:
    text = read_conll(path)
    assert len(text.words) == 120
    assert text.words[0][0].startswith("w")
    assert not any(word == "-DOCSTART-" for row in text.words for word in row)
    packed = tmp_path / "train.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_conll(packed) == text
    two = tmp_path / "two.txt"
    two.write_text("a I-X\nb O\n\n\nc O", encoding="utf-8")  # two columns, no newline at the end
    assert read_conll(two) == TaggedText([["a", "b"], ["c"]], [["I-X", "O"], ["O"]])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"word\n", "line 1"),
        ("b.txt", b"\n\n", "found none"),
        ("c.txt", b"\xff\xfe\n", "could not read"),
        ("d.gz", b"no gzip", "could not read"),
        ("e.gz", gzip.compress(b"a O\n" * 1000, mtime=0)[:-9], "could not read"),
    ],
)
def test_wrong_files_are_one_sentence(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InfoFlowError, match=words):
        read_conll(file)
    with pytest.raises(InfoFlowError, match="no file"):
        read_conll(tmp_path / "missing.txt")


def test_ceilings_equal_brute_force(path: Path) -> None:
    text = read_conll(path)
    keys: dict[str, list] = {"majority": [], "word": [], "order_free": [], "positions": []}
    for row in text.words:
        for k, word in enumerate(row):
            keys["majority"].append(0)
            keys["word"].append(word)
            keys["order_free"].append((word, frozenset(Counter(row).items())))
            keys["positions"].append((tuple(row), k))
    tags = [tag for row in text.tags for tag in row]
    for name, found in ceilings(text).items():
        right = 0
        for key in set(keys[name]):
            right += max(Counter(t for t, other in zip(tags, keys[name], strict=True) if other == key).values())
        assert found == pytest.approx(right / len(tags))
    values = list(ceilings(text).values())
    assert values == sorted(values)
    assert len(set(values)) > 2


def test_one_head_reaches_the_order_free_ceiling(path: Path, tmp_path: Path) -> None:
    text = read_conll(path)
    made = memorize_text(text, d=4, dense_places=200)
    limit = ceilings(text)["order_free"]
    proportional = made.memorizer.contexts.merged  # each merged class may cost one token
    assert limit - proportional / text.size <= made.accuracy <= limit
    assert made.memorizer.max_error < 0.01
    other = tmp_path / "valid.txt"
    other.write_text(synthetic(40, seed=9) + "\nunseen NN I-NP B-C\n", encoding="utf-8")
    assert 0 <= made.accuracy_on(read_conll(other)) < limit
    assert made.accuracy_on(text) == made.accuracy
