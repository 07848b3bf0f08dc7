"""The byte layout of llama2.c: a round trip through a file we write, damaged files, and the real model where it is."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from infoflow.errors import InfoFlowError
from infoflow.probes.stories import LARGEST_TOKENIZER, StoriesTokenizer, StorySizes, halves, read_model

pytest.importorskip("transformers", reason="transformers is not installed")
SIZES = StorySizes(16, 12, 2, 4, 2, 16, 10)


def written(path: Path, sizes: StorySizes = SIZES) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    blocks = {name: generator.normal(size=shape).astype("<f4") for name, shape in sizes.blocks().items()}
    numbers = (sizes.dim, sizes.hidden, sizes.layers, sizes.heads, sizes.kv_heads, sizes.vocabulary, sizes.length)
    rotary = np.zeros(sizes.length * sizes.head_dim, dtype="<f4")
    data = struct.pack("<7i", *numbers) + b"".join(b.tobytes() for b in blocks.values()) + rotary.tobytes()
    path.write_bytes(data)
    return blocks


def forward(blocks, sizes, ids):
    """llama2.c in numpy: interleaved rotary pairs, grouped heads, gated feed-forward."""
    n, d = sizes.head_dim, sizes.dim
    x = blocks["embed"][ids]
    T = len(ids)
    angle = np.arange(T)[:, None] * 10000.0 ** (-np.arange(0, n, 2) / n)

    def norm(x, w):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w

    def turn(y):
        y = y.reshape(T, -1, n // 2, 2)
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        return np.stack([y[..., 0] * c - y[..., 1] * s, y[..., 0] * s + y[..., 1] * c], -1).reshape(T, -1, n)

    for l in range(sizes.layers):
        y = norm(x, blocks["attention_norm"][l])
        q, k = turn(y @ blocks["q"][l].T), turn(y @ blocks["k"][l].T)
        v = (y @ blocks["v"][l].T).reshape(T, -1, n)
        out = []
        for h in range(sizes.heads):
            g = h * sizes.kv_heads // sizes.heads
            scores = q[:, h] @ k[:, g].T / np.sqrt(n)
            scores[np.triu_indices(T, 1)] = -np.inf
            p = np.exp(scores - scores.max(1, keepdims=True))
            out.append(p / p.sum(1, keepdims=True) @ v[:, g])
        x = x + np.concatenate(out, 1).reshape(T, d) @ blocks["o"][l].T
        y = norm(x, blocks["ffn_norm"][l])
        gate = y @ blocks["w1"][l].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ blocks["w3"][l].T)) @ blocks["w2"][l].T
    return norm(x, blocks["norm"]) @ blocks["embed"].T


def test_the_model_is_the_one_in_the_file(tmp_path):
    blocks = written(tmp_path / "m.bin")
    ids = [1, 5, 3, 3, 9, 15]
    wanted = forward(blocks, SIZES, ids)
    with torch.no_grad():
        got = read_model(tmp_path / "m.bin")(input_ids=torch.tensor([ids])).logits[0]
    np.testing.assert_allclose(got.numpy(), wanted, rtol=2e-3, atol=2e-3)


def test_rows_of_rotary_pairs():
    assert halves(torch.arange(8.0)[:, None], 4)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_damaged_models(tmp_path):
    path = tmp_path / "m.bin"
    written(path)
    good = path.read_bytes()
    bad_sizes = struct.pack("<7i", 16, 12, 2, 3, 2, 16, 10) + good[28:]
    huge = struct.pack("<7i", 16, 12, 2, 4, 2, 2**30, 10) + good[28:]
    spoiled = good[:28] + struct.pack("<f", float("nan")) + good[32:]
    for data, words in (
        (b"", "28 bytes"),
        (good[:-1], "damaged"),
        (good + b"0000", "damaged"),
        (bad_sizes, "sizes"),
        (huge, "sizes"),
        (spoiled, "finite"),
    ):
        path.write_bytes(data)
        with pytest.raises(InfoFlowError, match=words):
            read_model(path)
    with pytest.raises(InfoFlowError, match="could not read"):
        read_model(tmp_path / "none.bin")


def tokenizer(path: Path) -> StoriesTokenizer:
    pieces = [(b"<unk>", 0.0), (b"<s>", 0.0), (b"</s>", 0.0)]
    pieces += [(f"<0x{b:02X}>".encode(), 0.0) for b in range(256)]
    pieces += [(b" ", -1.0), (b"a", -2.0), (b"b", -3.0), (b"ab", -4.0), (b" a", -5.0), (b" ab", -6.0)]
    data = struct.pack("<i", 6) + b"".join(struct.pack("<fi", s, len(p)) + p for p, s in pieces)
    path.write_bytes(data)
    return StoriesTokenizer(path, len(pieces))


def test_tokenizer(tmp_path):
    made = tokenizer(tmp_path / "t.bin")
    assert made.encode("ab") == [264]
    assert made.encode("ab aé") == [264, 263, 0xC3 + 3, 0xA9 + 3]
    assert made.decode(made.encode("ab aé")) == " ab aé"
    data = (tmp_path / "t.bin").read_bytes()
    for broken in (data[:-3], data[:9], struct.pack("<ifi", 3, 0.0, -5)):
        (tmp_path / "t.bin").write_bytes(broken)
        with pytest.raises(InfoFlowError, match="damaged"):
            StoriesTokenizer(tmp_path / "t.bin", 265)


def test_the_real_story_model():
    folder = os.environ.get("INFOFLOW_STORIES")
    if folder is None:
        pytest.skip("INFOFLOW_STORIES does not name the folder of stories260K.bin and tok512.bin")
    model = read_model(Path(folder) / "stories260K.bin")
    words = StoriesTokenizer(Path(folder) / "tok512.bin", 512)
    ids = [1]
    with torch.no_grad():
        for _ in range(25):
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    assert words.decode(ids).startswith(" Once upon a time, there was a little girl named Lily. She")
    assert words.encode("Once upon a time, there") == ids[1 : 1 + len(words.encode("Once upon a time, there"))]


def test_absurd_sizes_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    """65,536 layers of two numbers each are a file of a few megabytes, and minutes of making modules."""
    small = StorySizes(2, 1, 65_536, 1, 1, 1, 1)
    written(tmp_path / "deep.bin", small)
    with pytest.raises(InfoFlowError, match="at most 1024 layers"):
        read_model(tmp_path / "deep.bin")
    huge = struct.pack("<7i", *[1 << 16] * 2, 1024, 1, 1, 1 << 16, 1)
    with (tmp_path / "huge.bin").open("wb") as file:  # a hole: nothing of it is on the disk
        file.write(huge)
        file.truncate(28 + 4)
    with pytest.raises(InfoFlowError, match="the file is damaged"):
        read_model(tmp_path / "huge.bin")


def test_a_word_without_end_is_cut(tmp_path: Path) -> None:
    """Merging costs the square of a word's length; llama2.c itself takes no text of this kind."""
    pieces = [b"", b"<s>", b"</s>", *(bytes([n]) for n in range(256)), b" ", b"aa"]
    rows = b"".join(struct.pack("<fi", float(n), len(piece)) + piece for n, piece in enumerate(pieces))
    (tmp_path / "tok.bin").write_bytes(struct.pack("<i", 10) + rows)
    tokenizer = StoriesTokenizer(tmp_path / "tok.bin", len(pieces))
    ids = tokenizer.encode("a" * 100_000)
    assert tokenizer.decode(ids) == " " + "a" * 100_000
    (tmp_path / "tok.bin").write_bytes(bytes(LARGEST_TOKENIZER + 1))
    with pytest.raises(InfoFlowError, match="is larger"):
        StoriesTokenizer(tmp_path / "tok.bin", 4)
