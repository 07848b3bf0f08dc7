"""Grids of supervised cells: each a task, a schedule and a seed, stacked where they differ in their seed alone.

Each finished model is one JSON file in the item's store, so a stopped item goes on with the models that are missing,
and a stopped stack from its last state.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch

from infoflow.errors import InfoFlowError, JobError
from infoflow.files import write_json
from infoflow.lab.item import Context
from infoflow.lab.stack import Schedule, Task, train_stack
from infoflow.progress import Progress
from infoflow.provenance import note
from infoflow.reading import json_of
from infoflow.train.device import check_device

# Models trained together; on a CPU more gain nothing, and cost once tensors pass 32 MB (benchmarks/memory.py).
STACK = {"cpu": 16, "cuda": 256}
FORMAT = 1  # changes when the same cell would give other numbers


@dataclass(frozen=True)
class Cell:
    """One model: a task, a schedule, a seed."""

    task: Task
    schedule: Schedule
    seed: int

    def identity(self) -> dict[str, Any]:
        settings = {"task": self.task.identity, "schedule": asdict(self.schedule), "seed": self.seed}
        return {"format": FORMAT, **settings}

    @property
    def key(self) -> str:
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def train_grid(
    context: Context, grid: Mapping[Any, Sequence[Cell]], title: str, stack: int | None = None
) -> dict[Any, list[dict[str, Any]]]:
    """Every cell of the grid, finished ones from the store; cells that differ in their seed alone are stacked."""
    device = check_device(context.device)
    cells = {cell.key: cell for members in grid.values() for cell in members}
    groups: dict[str, list[Cell]] = {}
    for key, cell in cells.items():
        if not _path(context, key).exists():
            same = json.dumps({**cell.identity(), "seed": 0}, sort_keys=True)
            groups.setdefault(same, []).append(cell)
    size = min(stack or STACK[device.type], STACK[device.type])
    parts = [group[at : at + size] for group in groups.values() for at in range(0, len(group), size)]
    until = inf if context.seconds is None else time.monotonic() + context.seconds
    with Progress(title, sum(part[0].schedule.epochs for part in parts)) as bar:
        done = 0
        for number, part in enumerate(parts):
            if not _train_part(context, part, device, bar, done, until):
                raise JobError(
                    f"expected to finish {len(parts)} stacks of {title}, finished {number} in {context.seconds:g} s; "
                    f"the same call goes on from {context.store}."
                )
            done += part[0].schedule.epochs
    return {name: [_read(_path(context, cell.key), cell) for cell in members] for name, members in grid.items()}


def _train_part(
    context: Context, part: list[Cell], device: torch.device, bar: Progress, before: int, until: float
) -> bool:
    """Whether the part was finished in time; its results are in the store then. `before` is what the bar counts."""
    name = hashlib.sha256(" ".join(cell.key for cell in part).encode()).hexdigest()[:24]
    state = context.store / "checkpoints" / f"{name}.safetensors"
    seeds = [cell.seed for cell in part]
    epochs: list[int] = []  # of this call

    def report(epoch: int) -> None:
        if not epochs:
            bar.skip(epoch - 1)  # an earlier call's
        epochs.append(epoch)
        bar.update(before + epoch)

    try:
        records = train_stack(part[0].task, part[0].schedule, seeds, device, report, state, until)
    finally:  # a call that was stopped has trained, too
        if epochs:
            note(context.store)
    if records is None:
        return False
    for cell, record in zip(part, records, strict=True):
        payload = {"key": cell.key, "identity": cell.identity(), "device": str(device), **record}
        write_json(_path(context, cell.key), payload)
    state.unlink(missing_ok=True)
    return True


def _path(context: Context, key: str) -> Path:
    return context.store / f"{key}.json"


def _read(path: Path, cell: Cell) -> dict[str, Any]:
    try:
        payload: Any = json_of(path)
    except InfoFlowError:
        payload = None
    if not isinstance(payload, dict) or payload.get("key") != cell.key or not isinstance(payload.get("final"), dict):
        raise InfoFlowError(f"expected a finished cell in {path}, could not read one; remove the file to train again.")
    return payload


def spread(records: Sequence[dict[str, Any]], name: str) -> tuple[float | None, float | None]:
    """Mean and standard deviation of a final measure over the models where it is finite."""
    values = torch.tensor([r["final"][name] for r in records if r["final"][name] is not None], dtype=torch.float64)
    if not len(values):
        return None, None
    return float(values.mean()), float(values.std()) if len(values) > 1 else 0.0
