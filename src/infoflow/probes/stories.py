"""The llama2.c byte layout (`stories260K.bin`, `tok512.bin`) as a Hugging Face Llama and its tokenizer.

Layout, little endian: 7 int32 (dim, hidden, layers, heads, kv heads, vocabulary, length), then float32 blocks, all
layers of one kind together; rotary pairs are interleaved there and split in halves here, so the rows of W_Q and W_K
are put in the order evens, odds within each head. A file that is too short, too long, or whose sizes do not fit
together is refused before anything is built.
"""

import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.errors import InfoFlowError

LIMIT = 1 << 16  # no size in a header of this layout is larger


@dataclass(frozen=True)
class Sizes:
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


def read_sizes(path: Path, data: bytes) -> Sizes:
    if len(data) < 28:
        raise InfoFlowError(f"expected a llama2.c model of at least 28 bytes at {path}, got {len(data)}.")
    sizes = Sizes(*struct.unpack("<7i", data[:28]))
    numbers = (sizes.dim, sizes.hidden, sizes.layers, sizes.heads, sizes.kv_heads, sizes.vocabulary, sizes.length)
    if any(not 0 < n <= LIMIT for n in numbers) or sizes.dim % sizes.heads or sizes.heads % sizes.kv_heads:
        raise InfoFlowError(f"expected sizes of a llama2.c model in {path}, got {numbers}; untied models are not read.")
    if sizes.head_dim % 2:
        raise InfoFlowError(f"expected an even head dimension for rotary pairs in {path}, got {sizes.head_dim}.")
    return sizes


def read_blocks(path: Path, data: bytes, sizes: Sizes) -> dict[str, Tensor]:
    shapes = sizes.blocks()
    rotary = sizes.length * (sizes.head_dim // 2) * 2  # two obsolete tables at the end
    expected = 28 + 4 * (sum(int(np.prod(shape)) for shape in shapes.values()) + rotary)
    if len(data) != expected:
        raise InfoFlowError(f"expected {expected} bytes in {path}, got {len(data)}; the file is damaged.")
    numbers = np.frombuffer(data, dtype="<f4", offset=28)
    blocks, start = {}, 0
    for name, shape in shapes.items():
        count = int(np.prod(shape))
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
    from transformers import LlamaConfig, LlamaForCausalLM

    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InfoFlowError(f"expected a llama2.c model, could not read {path} ({error.strerror}).") from None
    sizes = read_sizes(path, data)
    blocks = read_blocks(path, data, sizes)
    config = LlamaConfig(
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
    model = LlamaForCausalLM(config)
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
        path = Path(path)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InfoFlowError(f"expected a llama2.c tokenizer, could not read {path} ({error.strerror}).") from None
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
        if padded[n] == " ":
            found.append(padded[start:n])
            start = n
    return [*found, padded[start:]]
