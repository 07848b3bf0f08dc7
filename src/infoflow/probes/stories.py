"""The llama2.c byte layout (`stories260K.bin`, `tok512.bin`) as a Hugging Face Llama and its tokenizer.

Layout, little endian: 7 int32 (dim, hidden, layers, heads, kv heads, vocabulary, length), then float32 blocks, all
layers of one kind together; rotary pairs are interleaved there and split in halves here, so the rows of W_Q and W_K
are put in the order evens, odds within each head. A file that is too short, too long, or whose sizes do not fit
together is refused before anything is built.
"""

import math
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.cost import memory
from infoflow.errors import InfoFlowError
from infoflow.installation import extra
from infoflow.reading import plain

LIMIT = 1 << 16  # no size in a header of this layout is larger
MOST_LAYERS = 1024  # each is a module of many objects, however few numbers it holds
LARGEST_TOKENIZER = 16 << 20  # bytes
LONGEST_WORD = 256  # characters that are merged together; a longer word is cut


@dataclass(frozen=True)
class StorySizes:
    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    length: int

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    def blocks(self) -> dict[str, tuple[int, ...]]:
        L, d, kv = self.layers, self.dim, self.kv_heads * self.head_dim
        return {
            "embed": (self.vocabulary, d),
            "attention_norm": (L, d),
            "q": (L, d, d),
            "k": (L, kv, d),
            "v": (L, kv, d),
            "o": (L, d, d),
            "ffn_norm": (L, d),
            "w1": (L, self.hidden, d),
            "w2": (L, d, self.hidden),
            "w3": (L, self.hidden, d),
            "norm": (d,),
        }


def read_sizes(path: Path, head: bytes) -> StorySizes:
    if len(head) < 28:
        raise InfoFlowError(f"expected a llama2.c model of at least 28 bytes at {path}, got {len(head)}.")
    sizes = StorySizes(*struct.unpack("<7i", head))
    numbers = (sizes.dim, sizes.hidden, sizes.layers, sizes.heads, sizes.kv_heads, sizes.vocabulary, sizes.length)
    if any(not 0 < n <= LIMIT for n in numbers) or sizes.dim % sizes.heads or sizes.heads % sizes.kv_heads:
        raise InfoFlowError(f"expected sizes of a llama2.c model in {path}, got {numbers}; untied models are not read.")
    if sizes.layers > MOST_LAYERS:
        raise InfoFlowError(f"expected at most {MOST_LAYERS} layers in {path}, got {sizes.layers}.")
    if sizes.head_dim % 2:
        raise InfoFlowError(f"expected an even head dimension for rotary pairs in {path}, got {sizes.head_dim}.")
    return sizes


def expect_bytes(path: Path, sizes: StorySizes, found: int) -> None:
    """Before anything is read: the file is as long as its sizes say, and fits in memory twice, as numbers and model."""
    rotary = sizes.length * (sizes.head_dim // 2) * 2  # two obsolete tables at the end
    expected = 28 + 4 * (sum(math.prod(shape) for shape in sizes.blocks().values()) + rotary)
    if found != expected:
        raise InfoFlowError(f"expected {expected} bytes in {path}, got {found}; the file is damaged.")
    memory(3 * expected, f"the model in {path}", "the size of the model")


def read_blocks(path: Path, data: bytes, sizes: StorySizes) -> dict[str, Tensor]:
    shapes = sizes.blocks()
    numbers = np.frombuffer(data, dtype="<f4")
    blocks, start = {}, 0
    for name, shape in shapes.items():
        count = math.prod(shape)
        blocks[name] = torch.from_numpy(numbers[start : start + count].reshape(shape).copy())
        start += count
    if not all(bool(torch.isfinite(block).all()) for block in blocks.values()):
        raise InfoFlowError(f"expected finite weights in {path}, got NaN or infinity.")
    return blocks


def halves(weight: Tensor, head_dim: int) -> Tensor:
    """Rows of each head from interleaved rotary pairs to evens, then odds."""
    rows, inputs = weight.shape
    return weight.view(rows // head_dim, head_dim // 2, 2, inputs).transpose(1, 2).reshape(rows, inputs)


def read_model(path: str | Path) -> Any:
    """The model as `transformers.LlamaForCausalLM`, in evaluation mode."""
    transformers = extra("transformers", "probe", "a llama2.c model")
    path = plain(path, "a llama2.c model")
    try:
        with path.open("rb") as file:
            sizes = read_sizes(path, file.read(28))
            expect_bytes(path, sizes, path.stat().st_size)
            blocks = read_blocks(path, file.read(), sizes)
    except OSError as error:
        raise InfoFlowError(f"expected a llama2.c model, could not read {path} ({error.strerror}).") from None
    config = transformers.LlamaConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.dim,
        intermediate_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        max_position_embeddings=sizes.length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config)
    state = {"model.embed_tokens.weight": blocks["embed"], "model.norm.weight": blocks["norm"]}
    state["lm_head.weight"] = blocks["embed"]
    for l in range(sizes.layers):
        state |= {f"model.layers.{l}.{name}.weight": value for name, value in _layer(blocks, l, sizes.head_dim).items()}
    model.load_state_dict(state)
    return model.eval()


def _layer(blocks: dict[str, Tensor], l: int, head_dim: int) -> dict[str, Tensor]:
    return {
        "input_layernorm": blocks["attention_norm"][l],
        "self_attn.q_proj": halves(blocks["q"][l], head_dim),
        "self_attn.k_proj": halves(blocks["k"][l], head_dim),
        "self_attn.v_proj": blocks["v"][l],
        "self_attn.o_proj": blocks["o"][l],
        "post_attention_layernorm": blocks["ffn_norm"][l],
        "mlp.gate_proj": blocks["w1"][l],
        "mlp.down_proj": blocks["w2"][l],
        "mlp.up_proj": blocks["w3"][l],
    }


class StoriesTokenizer:
    """The byte-pair tokenizer of llama2.c: merge the neighbours whose joint token has the largest score.

    Pieces never cross a space, so words are encoded one by one and remembered.
    """

    start, end = 1, 2

    def __init__(self, path: str | Path, vocabulary: int) -> None:
        path = plain(path, "a llama2.c tokenizer")
        try:
            with path.open("rb") as file:
                data = file.read(LARGEST_TOKENIZER + 1)
        except OSError as error:
            raise InfoFlowError(f"expected a llama2.c tokenizer, could not read {path} ({error.strerror}).") from None
        if len(data) > LARGEST_TOKENIZER:
            raise InfoFlowError(f"expected a tokenizer of at most {LARGEST_TOKENIZER} bytes, {path} is larger.")
        self.pieces: list[bytes] = []
        self.scores: dict[bytes, tuple[float, int]] = {}
        position = 4
        for number in range(vocabulary):
            if position + 8 > len(data):
                raise InfoFlowError(f"expected {vocabulary} tokens in {path}, found {number}; the file is damaged.")
            score, size = struct.unpack_from("<fi", data, position)
            position += 8
            if not 0 <= size <= len(data) - position:
                raise InfoFlowError(f"expected token {number} inside {path}, got length {size}; the file is damaged.")
            piece = data[position : position + size]
            position += size
            self.pieces.append(piece)
            self.scores.setdefault(piece, (score, number))
        self.words: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Token ids without the start token."""
        ids: list[int] = []
        for word in _words(text):
            if word not in self.words:
                self.words[word] = self._merge(word)
            ids += self.words[word]
        return ids

    def decode(self, ids: list[int]) -> str:
        parts = [bytes([i - 3]) if 3 <= i < 259 else self.pieces[i] for i in ids if i > 2]
        return b"".join(parts).decode("utf-8", errors="replace")

    def _merge(self, word: str) -> list[int]:
        parts: list[bytes] = []
        for character in word:
            encoded = character.encode("utf-8")
            parts += [encoded] if encoded in self.scores else [bytes([b]) for b in encoded]
        while True:
            pairs = [(self.scores.get(a + b, (-np.inf, 0))[0], -n) for n, (a, b) in enumerate(pairwise(parts))]
            best = max(pairs, default=(-np.inf, 0))
            if best[0] == -np.inf:
                return [self.scores[p][1] if p in self.scores else p[0] + 3 for p in parts]
            n = -best[1]
            parts[n : n + 2] = [parts[n] + parts[n + 1]]


def _words(text: str) -> list[str]:
    """Words with their leading space; a space is put in front, as llama2.c does."""
    found, start, padded = [], 0, " " + text
    for n in range(1, len(padded)):
        if padded[n] == " " or n - start == LONGEST_WORD:
            found.append(padded[start:n])
            start = n
    return [*found, padded[start:]]
