"""The last complete state of a stack on its way: safetensors with a JSON header, written atomically.

A checkpoint names its runs by key. Models are rows that never see each other, so a later call may take up any of its
rows: the stack is resumed without those that are finished or not asked for.
"""

import hashlib
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoflow.errors import InfoFlowError
from infoflow.nn import files
from infoflow.train.loop import Save, Trained
from infoflow.train.recipe import Run
from infoflow.train.results import finite

# Every tensor has the model axis first, but `step` (1) and `curve` (evaluations, M).
_ROWS = ("weights", "first", "second", "alive", "loss", "best", "best_weights", "diverged_at",
         "rate", "best_second", "rollbacks")  # fmt: skip

ABANDONED = 600.0  # seconds after which nobody is writing a temporary file any more


@dataclass(frozen=True)
class Checkpoint:
    path: Path | None
    keys: list[str]
    steps: list[int]  # of the evaluations
    seconds: float
    tensors: dict[str, Tensor]
    tried: list[list[float]]  # of each run: what its starts reached

    @property
    def step(self) -> int:
        return int(self.tensors["step"])

    def restore(self, state: Trained) -> bool:
        """Put the rows of `state`'s runs in place; False (nothing changed) when they do not fit."""
        rows = [self.keys.index(run.key) for run in state.stack.runs]
        into = _tensors(state)
        chosen = {name: self.tensors[name][rows] for name in _ROWS} | {"step": self.tensors["step"]}
        if any(chosen[name].shape != into[name].shape or chosen[name].dtype != into[name].dtype for name in chosen):
            return False
        if not 0 < self.step <= state.stack.runs[0].recipe.total_steps:
            return False
        for name, tensor in chosen.items():
            into[name].copy_(tensor)
        state.curve, state.steps = self.tensors["curve"][:, rows].tolist(), list(self.steps)
        state.step, state.seconds, state.tried = self.step, self.seconds, [list(self.tried[row]) for row in rows]
        return True


def save(folder: Path, state: Trained) -> Path:
    keys = [run.key for run in state.stack.runs]
    curve = torch.tensor(state.curve, dtype=torch.float64).reshape(len(state.steps), len(keys))
    header = {"keys": keys, "steps": state.steps, "seconds": state.seconds, "tried": _plain(state.tried)}
    return files.write(folder / _name(state.stack.runs), "checkpoint", {**_tensors(state), "curve": curve}, header)


def saver(folder: Path | None) -> Save | None:
    """What saves a stack there; without a folder, nothing does."""
    return None if folder is None else partial(save, folder)


def find(folder: Path, pending: Collection[str]) -> list[Checkpoint]:
    """Readable checkpoints that hold at least one pending run, the furthest first; a damaged one is passed over."""
    found = []
    for path in sorted(folder.glob("[!.]*.safetensors")) if folder.is_dir() else ():
        try:
            kind, tensors, header = files.read(path)
            checkpoint = from_saved(tensors, header, path) if kind == "checkpoint" else None
        except InfoFlowError:
            continue  # it only saves time: without it the stack starts again and overwrites it
        if checkpoint is not None and not set(pending).isdisjoint(checkpoint.keys):
            found.append(checkpoint)
    return sorted(found, key=lambda checkpoint: -checkpoint.step)


def holding(folder: Path, runs: Sequence[Run]) -> Checkpoint | None:
    """The furthest readable checkpoint that holds all of these runs."""
    keys = {run.key for run in runs}
    return next((found for found in find(folder, keys) if keys <= set(found.keys)), None)


def tidy(folder: Path, finished: Collection[str]) -> None:
    """Remove the checkpoints all of whose runs are finished, and what a killed writer left half-written long ago."""
    for checkpoint in find(folder, finished):
        if checkpoint.path is not None and set(checkpoint.keys) <= set(finished):
            checkpoint.path.unlink(missing_ok=True)
    for path in folder.glob(".*") if folder.is_dir() else ():
        with suppress(FileNotFoundError):  # another sweep of this store may tidy, too
            if time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()


def from_saved(tensors: dict[str, Tensor], header: dict[str, Any], path: Path | None = None) -> Checkpoint:
    """Checked: all tensors there, one row per run, one step per evaluation."""
    keys, steps, seconds = header.get("keys"), header.get("steps"), header.get("seconds")
    if not (isinstance(keys, list) and keys and all(isinstance(key, str) for key in keys)):
        raise InfoFlowError("expected the keys of the runs in a checkpoint.")
    if not (isinstance(steps, list) and all(type(s) is int for s in steps) and isinstance(seconds, (int, float))):
        raise InfoFlowError("expected steps and seconds in a checkpoint.")
    tensors = _of_today(tensors)
    if set(tensors) != {*_ROWS, "step", "curve"} or tensors["step"].shape != (1,):
        raise InfoFlowError("expected the tensors of a checkpoint.")
    if tensors["curve"].shape != (len(steps), len(keys)):
        raise InfoFlowError("expected one curve per run in a checkpoint.")
    if any(tensors[name].ndim < 1 or tensors[name].shape[0] != len(keys) for name in _ROWS):
        raise InfoFlowError("expected one row per run in a checkpoint.")
    return Checkpoint(path, keys, steps, float(seconds), tensors, _tried(header, len(keys)))


def _plain(tried: list[list[float]]) -> list[list[float | None]]:
    return [[finite(value) for value in values] for values in tried]


def _tried(header: dict[str, Any], runs: int) -> list[list[float]]:
    """Read back, inf for what was no number; of a checkpoint from before they were kept, none."""
    tried = header.get("tried", [[]] * runs)
    if not (isinstance(tried, list) and len(tried) == runs and all(isinstance(values, list) for values in tried)):
        raise InfoFlowError("expected what the starts of each run reached in a checkpoint.")
    if not all(value is None or type(value) in (int, float) for values in tried for value in values):
        raise InfoFlowError("expected numbers for what starts reached in a checkpoint.")
    return [[inf if value is None else float(value) for value in values] for values in tried]


def _of_today(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Checkpoints from before there were rollbacks: none has happened."""
    if not {"alive", "second", "best"} <= set(tensors) or "rate" in tensors:
        return tensors
    alive, second = tensors["alive"], tensors["second"]
    none = torch.zeros(len(tensors["best"]), dtype=torch.int64)
    return {**tensors, "rate": torch.ones(alive.shape, dtype=second.dtype), "best_second": second, "rollbacks": none}


def _tensors(state: Trained) -> dict[str, Tensor]:
    own = ("best", "best_weights", "diverged_at", "best_second", "rollbacks")
    return {**state.stack.tensors(), **{name: getattr(state, name) for name in own}}


def _name(runs: Sequence[Run]) -> str:
    text = " ".join(run.key for run in runs)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.safetensors"
