"""The state of a lab stack between two epochs, in a file, and back: a stopped stack ends as an unbroken one would.

What counts is the weights, Adam's moments and count, the random stream of every model's order, and the curve so far. A
file that cannot be read or does not fit only costs time: the stack starts again and overwrites it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from infoflow.errors import InfoFlowError, JobError
from infoflow.nn import files

if TYPE_CHECKING:
    from infoflow.lab.stack import Training

KIND = "lab_checkpoint"


@dataclass(frozen=True)
class State:
    tensors: dict[str, Tensor]
    epoch: int
    seconds: float
    curve: list[tuple[int, dict[str, list[float | None]]]]


def save(path: Path, training: "Training") -> None:
    header = {"epoch": training.epoch, "seconds": training.seconds, "curve": [list(entry) for entry in training.curve]}
    try:
        files.write(path, KIND, _tensors(training) | _streams(training), header)
    except OSError as error:
        raise JobError(f"expected to write the checkpoint {path}, could not ({error.strerror}).") from None


@torch.no_grad()
def restore(path: Path, training: "Training") -> bool:
    """Put a saved state in place; False, with nothing changed, when there is none that fits."""
    if not path.is_file():
        return False
    try:
        kind, tensors, header = files.read(path)
        state = from_saved(tensors, header) if kind == KIND else None
    except InfoFlowError:
        return False
    if state is None or not _fits(state, training):
        return False
    streams = [torch.Generator() for _ in training.streams]
    try:
        for i, stream in enumerate(streams):
            stream.set_state(state.tensors[f"stream.{i}"])
    except RuntimeError:
        return False
    for name, tensor in _tensors(training).items():
        tensor.copy_(state.tensors[name])
    training.streams = streams
    training.epoch, training.seconds, training.curve = state.epoch, state.seconds, state.curve
    return True


def from_saved(tensors: dict[str, Tensor], header: dict[str, Any]) -> State:
    """Checked as far as a file alone can be: an epoch, seconds, a curve of numbers or None."""
    epoch, seconds, curve = header.get("epoch"), header.get("seconds"), header.get("curve")
    if type(epoch) is not int or not isinstance(seconds, int | float) or not isinstance(curve, list):
        raise InfoFlowError("expected epoch, seconds and curve in a checkpoint of the lab.")
    if not all(map(_is_measured, curve)):
        raise InfoFlowError("expected measures after each epoch in a checkpoint of the lab.")
    return State(tensors, epoch, float(seconds), [(at, values) for at, values in curve])


def _is_measured(entry: Any) -> bool:
    if not (isinstance(entry, list) and len(entry) == 2 and type(entry[0]) is int and isinstance(entry[1], dict)):
        return False
    return all(isinstance(v, list) and all(x is None or isinstance(x, float) for x in v) for v in entry[1].values())


def _fits(state: State, training: "Training") -> bool:
    own = _tensors(training) | _streams(training)
    if set(own) != set(state.tensors) or not 0 < state.epoch < training.schedule.epochs:
        return False
    if any(state.tensors[n].shape != t.shape or state.tensors[n].dtype != t.dtype for n, t in own.items()):
        return False
    due = [e for e in range(state.epoch + 1) if e % training.schedule.evaluate_every == 0]
    rows = all(len(values) == training.models for _, measures in state.curve for values in measures.values())
    names = {tuple(measures) for _, measures in state.curve}
    return [at for at, _ in state.curve] == due and rows and len(names) == 1


def _tensors(training: "Training") -> dict[str, Tensor]:
    return {str(i): tensor for i, tensor in enumerate(training.optimiser.tensors())}


def _streams(training: "Training") -> dict[str, Tensor]:
    return {f"stream.{i}": stream.get_state() for i, stream in enumerate(training.streams)}
