"""Saved networks: safetensors with one JSON header, a format version and a kind. What comes from a disk is hostile.

    write(path, kind, tensors, header)      atomically; every tensor contiguous, on the CPU
    read(path) -> Saved(kind, tensors, header)
    load(path) -> the network, built by the loader of its kind

Every way a file can be wrong (not there, truncated, no header of ours, another version, unknown kind, tensors that
do not fit the configuration) is an `InfoFlowError` that names the file and the reason. Nothing is ever unpickled.
"""

import importlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from infoflow import arguments, cost
from infoflow.errors import InfoFlowError, unknown
from infoflow.files import atomic_path
from infoflow.reading import parsed

FORMAT = 1
MOST_TENSORS = 20_000  # in one file: each is an object, however few numbers it holds
KEY = "infoflow"  # our entry in the safetensors metadata
# kind -> "module:function"; the function takes (tensors, header) and returns the network.
LOADERS: dict[str, str] = {
    "transformer": "infoflow.nn.transformer:from_saved",
    "codec": "infoflow.construct.codec:from_saved",
    "memory_head": "infoflow.construct.single_heads:load_memory",
    "exponential_head": "infoflow.construct.single_heads:load_exponential",
    "occupancy": "infoflow.compiler.occupancy:from_saved",
    "truncated_linear": "infoflow.construct.softmax_attention.saving:load_truncated_linear",
    "grid": "infoflow.construct.softmax_attention.saving:load_grid",
    "icgd": "infoflow.construct.softmax_attention.saving:load_descent",
    "recording": "infoflow.probes.record:step_from_saved",
    "memorizer": "infoflow.construct.rank_one.saving:load_memorizer",
    "context_map": "infoflow.construct.rank_one.saving:load_map",
    "equivariant": "infoflow.construct.rank_one.equivariant_proof:load_equivariant",
    "checkpoint": "infoflow.train.checkpoint:from_saved",
}


class Saved(NamedTuple):
    """What a file holds: its kind, its tensors by name, and its header."""

    kind: str
    tensors: dict[str, Tensor]
    header: dict[str, Any]


def write(path: str | Path, kind: str, tensors: dict[str, Tensor], header: dict[str, Any]) -> Path:
    """Write tensors and header; the header must be plain JSON (finite numbers, strings, lists, objects)."""
    if kind not in LOADERS:
        raise unknown("kind of saved network", kind, list(LOADERS))
    try:
        text = json.dumps({"format": FORMAT, "kind": kind, "header": header}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InfoFlowError(f"expected a header of plain JSON values, got something else ({error}).") from None
    # safetensors refuses shared storage; a copy of each tensor has none.
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(plain, str(temporary), metadata={KEY: text})
    return Path(path)


def read(path: str | Path) -> Saved:
    """Read and check the container; the loader of the kind checks the tensors against their configuration."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise InfoFlowError(f"expected a saved network at {path}, it is no plain file; check the path.")
        if Path(path).is_file():
            cost.memory(Path(path).stat().st_size, f"the tensors of {path}", "the size of the file")
        with safe_open(str(path), framework="pt") as file:
            if len(file.keys()) > MOST_TENSORS:
                raise InfoFlowError(f"expected at most {MOST_TENSORS} tensors in {path}, got {len(file.keys())}.")
            metadata = file.metadata() or {}
            kind, header = _header(path, metadata)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except FileNotFoundError:
        raise InfoFlowError(f"expected a saved network at {path}, found no file there; check the path.") from None
    except (OSError, SafetensorError, RuntimeError) as error:
        raise InfoFlowError(f"expected a safetensors file, could not read {path} ({error}).") from None
    return Saved(kind, tensors, header)


def load(path: str | Path) -> Any:
    """The network saved at `path`: a `Transformer`, or whatever construction its kind names."""
    kind, tensors, header = read(arguments.path("path", path))
    if kind not in LOADERS:
        raise InfoFlowError(f"{path}: {unknown('kind of saved network', kind, list(LOADERS))}")
    module, _, function = LOADERS[kind].partition(":")
    try:
        with np.errstate(all="ignore"):  # what a loader computes from a stranger's numbers it also checks
            return getattr(importlib.import_module(module), function)(tensors, header)
    except InfoFlowError as error:
        raise InfoFlowError(f"{path}: {error}") from None
    except (ArithmeticError, MemoryError) as error:  # numbers of a file, which may be any: products overflow
        reason = str(error) or "more memory than there is"
        raise InfoFlowError(f"{path}: expected numbers a {kind} can be made of, got others ({reason}).") from None


def expect(tensors: dict[str, Tensor], shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse missing, extra, misshapen, non-float and non-finite tensors: the first reason, with its name."""
    for name in shapes.keys() - tensors.keys():
        raise InfoFlowError(f"expected tensor {name!r} of shape {shapes[name]}, found none; the file is incomplete.")
    for name in tensors.keys() - shapes.keys():
        raise InfoFlowError(f"expected no tensor {name!r}; the file holds more than its configuration names.")
    for name, shape in shapes.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != tuple(shape):
            raise InfoFlowError(f"expected shape {tuple(shape)} for tensor {name!r}, got {tuple(tensor.shape)}.")
        if not tensor.dtype.is_floating_point:
            raise InfoFlowError(f"expected floating point in tensor {name!r}, got {tensor.dtype}.")
        if not torch.isfinite(tensor).all():
            raise InfoFlowError(f"expected finite numbers in tensor {name!r}, got NaN or infinity.")


def _header(path: str | Path, metadata: dict[str, str]) -> tuple[str, dict[str, Any]]:
    if KEY not in metadata:
        raise InfoFlowError(f"expected a network saved by infoflow, {path} has no {KEY!r} entry in its metadata.")
    payload = parsed(metadata[KEY], f"the header of {path}")
    if not isinstance(payload, dict) or not isinstance(payload.get("format"), int):
        raise InfoFlowError(f"expected a header with a format number in {path}, got none.")
    if payload["format"] != FORMAT:
        raise InfoFlowError(
            f"expected format {FORMAT}, {path} has format {payload['format']}; use the version that wrote it."
        )
    kind, header = payload.get("kind"), payload.get("header")
    if not isinstance(kind, str) or not isinstance(header, dict):
        raise InfoFlowError(f"expected a kind and a header object in {path}, got neither or one.")
    return kind, header
