"""Sequences and labels from a JSON file: {"X": N x n x d numbers, "Y": N x n or N x n x d integers}."""

from pathlib import Path
from typing import Any

from infoflow import reading
from infoflow.errors import InfoFlowError


def read_data(path: str | Path, keys: tuple[str, ...] = ("X", "Y")) -> dict[str, Any]:
    """The object in the file, with every key there; shapes and numbers are checked by who uses them."""
    payload = reading.data_of(path, "a JSON file")
    if not isinstance(payload, dict):
        raise InfoFlowError(f"expected an object with {', '.join(keys)} in {path}, got {type(payload).__name__}.")
    for key in keys:
        if not isinstance(payload.get(key), list) or not payload[key]:
            raise InfoFlowError(f"expected a non-empty list {key!r} in {path}, found none.")
    return payload
