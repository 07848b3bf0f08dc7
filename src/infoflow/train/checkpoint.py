"""The last complete state of a stack on its way: safetensors with a JSON header, written atomically.

A checkpoint names its runs by key. Models are rows that never see each other, so a later call may take up any of its
rows: the stack is resumed without those that are finished or not asked for. It carries a checksum over its tensors and
its state, and the one before it is kept: a damaged one is named, set aside, and training goes on from the other.
"""

import hashlib
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoflow.errors import InfoFlowError, printable
from infoflow.nn import files
from infoflow.train.loop import Save, Training, evaluated_at
from infoflow.train.run import Run
from infoflow.train.store import finite, is_number, tensor_checksum

CURVE = "curve "  # before the name of a metric: the tensor of its curve
# Every tensor has the model axis first, but `step` (1) and the curves (evaluations, M).
_ROWS = ("weights", "first", "second", "alive", "loss", "best", "best_weights", "diverged_at",
         "rate", "best_second", "rollbacks")  # fmt: skip

_WHOLE = ("diverged_at", "rollbacks", "step")  # of int64
_FLAT, _COLUMNS = ("loss", "best", "diverged_at", "rollbacks"), ("alive", "rate")
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

BEFORE = ".before"  # in the name of the last checkpoint but one
DAMAGED = ".damaged"  # at the end of the name of one that cannot be used


@dataclass(frozen=True)
class Checkpoint:
    """Rows of tensors, one for each run."""

    path: Path | None
    keys: list[str]
    steps: list[int]  # of the evaluations
    metrics: list[str]  # in their order: the first is the error
    seconds: float
    tensors: dict[str, Tensor]
    tried: list[list[float]]  # of each run: what its starts reached

    @property
    def step(self) -> int:
        """How far the stack had come."""
        return int(self.tensors["step"])

    def restore(self, state: Training) -> bool:
        """Put the rows of `state`'s runs in place; False (nothing changed) when they do not fit."""
        rows = [self.keys.index(run.key) for run in state.stack.runs]
        into = _tensors(state)
        chosen = {name: self.tensors[name][rows] for name in _ROWS} | {"step": self.tensors["step"]}
        if any(chosen[name].shape != into[name].shape or chosen[name].dtype != into[name].dtype for name in chosen):
            return False
        recipe = state.stack.runs[0].recipe
        if not 0 < self.step <= recipe.total_steps or self.steps != evaluated_at(recipe, self.step):
            return False
        for name, tensor in chosen.items():
            into[name].copy_(tensor)
        state.curves = {name: self.tensors[CURVE + name][:, rows].tolist() for name in self.metrics}
        state.steps = list(self.steps)
        state.step, state.seconds, state.tried = self.step, self.seconds, [list(self.tried[row]) for row in rows]
        return True


def save(folder: Path, state: Training) -> Path:
    """Write the state; what was written there before is kept as the one before."""
    keys = [run.key for run in state.stack.runs]
    curves = {CURVE + name: torch.tensor(values, dtype=torch.float64) for name, values in state.curves.items()}
    tensors = {name: tensor.detach().cpu() for name, tensor in {**_tensors(state), **curves}.items()}
    header = {"keys": keys, "steps": state.steps, "metrics": list(state.curves), "seconds": state.seconds,
              "tried": _plain(state.tried)}  # fmt: skip
    path = folder / _name(state.stack.runs)
    if path.exists():
        with suppress(FileNotFoundError):  # another sweep of this store may save the same stack
            path.replace(path.with_suffix(BEFORE + path.suffix))
    return files.write(path, "checkpoint", tensors, {**header, "checksum": tensor_checksum(tensors, header)})


def saver(folder: Path | None) -> Save | None:
    """What saves a stack there; without a folder, nothing does."""
    return None if folder is None else partial(save, folder)


def find(folder: Path, pending: Collection[str]) -> list[Checkpoint]:
    """Usable checkpoints that hold at least one pending run, the furthest first; a damaged one is set aside."""
    found = []
    for path in sorted(folder.glob("[!.]*.safetensors")) if folder.is_dir() else ():
        try:
            kind, tensors, header = files.read(path)
            if kind != "checkpoint":
                raise InfoFlowError(f"expected a checkpoint, got a {kind}.")
            checkpoint = from_saved(tensors, header, path)
        except InfoFlowError as error:
            if path.exists():  # else another sweep has finished with it
                _set_aside(path, str(error))
            continue
        if not set(pending).isdisjoint(checkpoint.keys):
            found.append(checkpoint)
    return sorted(found, key=lambda checkpoint: -checkpoint.step)


def _set_aside(path: Path, reason: str) -> None:
    """It only saves time: without it the stack goes on from the one before, or starts again."""
    with suppress(OSError):
        path.replace(path.with_name(path.name + DAMAGED))
        words = f"the checkpoint {path} is damaged ({reason.rstrip('.')}); it is set aside as {path.name}{DAMAGED}"
        print(printable(f"infoflow: {words}, and training goes on from the one before it."), file=sys.stderr)


def holding(folder: Path, runs: Sequence[Run]) -> Checkpoint | None:
    """The furthest usable checkpoint that holds all of these runs."""
    keys = {run.key for run in runs}
    return next((found for found in find(folder, keys) if keys <= set(found.keys)), None)


def tidy(folder: Path, finished: Collection[str]) -> None:
    """Remove the checkpoints all of whose runs are finished."""
    for checkpoint in find(folder, finished):
        if checkpoint.path is not None and set(checkpoint.keys) <= set(finished):
            checkpoint.path.unlink(missing_ok=True)


def from_saved(tensors: dict[str, Tensor], header: dict[str, Any], path: Path | None = None) -> Checkpoint:
    """Checked: nothing changed since it was written, all tensors there, one row per run, one step per evaluation, and
    values that training can have left."""
    state = {name: value for name, value in header.items() if name != "checksum"}
    if header.get("checksum") != tensor_checksum(tensors, state):
        raise InfoFlowError("expected the checksum of a checkpoint to be that of its tensors and state, it is not.")
    found: dict[str, Any] = {name: header.get(name) for name in ("keys", "steps", "metrics", "seconds")}
    keys, steps, metrics, seconds = found.values()
    if not (_strings(keys) and keys):
        raise InfoFlowError("expected the keys of the runs in a checkpoint.")
    if not (isinstance(steps, list) and all(type(s) is int for s in steps) and is_number(seconds)):
        raise InfoFlowError("expected steps and seconds in a checkpoint.")
    if not (_strings(metrics) and bool(metrics) == bool(steps)) or seconds < 0:
        raise InfoFlowError("expected the names of metrics and a time in a checkpoint.")
    curves = [CURVE + name for name in metrics]
    if set(tensors) != {*_ROWS, "step", *curves}:
        raise InfoFlowError("expected the tensors of a checkpoint.")
    _check_form(tensors, len(steps), len(keys))
    _check_values(tensors, tensors[curves[0]] if curves else None)
    return Checkpoint(path, keys, steps, metrics, float(seconds), tensors, _tried(header, len(keys)))


def _check_form(tensors: dict[str, Tensor], evaluations: int, models: int) -> None:
    """Types and shapes: (M, P), (M, 1) and (M,) for M models of P weights, and (evaluations, M) for a curve."""
    weights = tuple(tensors["weights"].shape)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_ROWS, weights) | {"step": (1,)}
    shapes |= dict.fromkeys(_FLAT, (models,)) | dict.fromkeys(_COLUMNS, (models, 1))
    if len(weights) != 2 or weights[0] != models:
        raise InfoFlowError("expected one row per run in a checkpoint.")
    for name, tensor in tensors.items():
        types = (torch.int64,) if name in _WHOLE else (torch.bool,) if name == "alive" else _FLOATS
        if tensor.dtype not in types or tuple(tensor.shape) != shapes.get(name, (evaluations, models)):
            raise InfoFlowError(f"expected {name!r} in a checkpoint in the type and shape of its runs, it has others.")


def _check_values(tensors: dict[str, Tensor], errors: Tensor | None) -> None:
    """Models are frozen before their weights are anything but finite; the best error is the least on the curve."""
    rate, found = tensors["rate"], tensors["diverged_at"]
    if not bool((tensors["second"] >= 0).all() & (tensors["best_second"] >= 0).all() & (rate >= 0).all()):
        raise InfoFlowError("expected second moments and rates in a checkpoint that are not negative, got others.")
    if not bool((found >= -1).all() & (found <= tensors["step"]).all() & (rate <= 1).all()):
        raise InfoFlowError("expected rates of at most 1 and models that diverged before this step, got others.")
    best, alive = tensors["best"], tensors["alive"].flatten().bool()
    for name, chosen in (("weights", alive), ("first", alive), ("best_weights", best.isfinite())):
        if not bool(tensors[name][chosen].isfinite().all()):
            raise InfoFlowError(f"expected finite numbers in {name} of a checkpoint, got NaN or infinity.")
    least = torch.full_like(best, inf)
    if errors is not None:
        least = torch.where(errors.isnan(), inf, errors).amin(0).to(least)
    if not torch.equal(least, best):
        raise InfoFlowError("expected the best error in a checkpoint to be the least on its curve, it is not.")


def _strings(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _plain(tried: list[list[float]]) -> list[list[float | None]]:
    return [[finite(value) for value in values] for values in tried]


def _tried(header: dict[str, Any], runs: int) -> list[list[float]]:
    """Read back, inf for what was no number."""
    tried = header.get("tried")
    if not (isinstance(tried, list) and len(tried) == runs and all(isinstance(values, list) for values in tried)):
        raise InfoFlowError("expected what the starts of each run reached in a checkpoint.")
    if not all(value is None or is_number(value) for values in tried for value in values):
        raise InfoFlowError("expected numbers for what starts reached in a checkpoint.")
    return [[inf if value is None else float(value) for value in values] for values in tried]


def _tensors(state: Training) -> dict[str, Tensor]:
    own = ("best", "best_weights", "diverged_at", "best_second", "rollbacks")
    return {**state.stack.tensors(), **{name: getattr(state, name) for name in own}}


def _name(runs: Sequence[Run]) -> str:
    text = " ".join(run.key for run in runs)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.safetensors"
