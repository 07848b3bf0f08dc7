"""What the engine chooses by itself, and says: kernel, stack size, workers, threads."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

from infoflow.errors import InfoFlowError
from infoflow.train import fold
from infoflow.train.kernels import native
from infoflow.train.kernels.layer import Fused, fits, pool_bytes
from infoflow.train.recipe import Run

LARGEST_STACK = 512  # beyond it the GPU is full: more models only take memory
ENOUGH = 3e9  # operations in one pass on a CPU: below, the cost of calling PyTorch shows; above, caches overflow
ELSEWHERE = 16 << 30  # memory assumed of a GPU that only the cluster's nodes have; they choose again
SMALL_SHARED = 96 << 10  # bytes of shared memory that every GPU in use gives to a program
MEMORY_SHARE = 0.5  # of the free memory that a stack may be expected to take


@dataclass(frozen=True)
class Choice:
    device: str
    kernel: str  # "triton tf32x3", "folded pytorch, attention in C", "folded pytorch" or "pytorch"
    stack: int  # models in one pass
    workers: int  # passes at a time (threads of this process)
    threads: int  # PyTorch threads of each worker

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def fused(self) -> Fused | None:
        return Fused(self.kernel.removeprefix("triton ")) if self.kernel.startswith("triton ") else None

    def __str__(self) -> str:
        return f"{self.device}: {self.kernel}, {self.stack} models a pass, {self.workers} x {self.threads} threads"


def choose(runs: Sequence[Run], device: torch.device) -> Choice:
    """The way one group is trained on this device."""
    run = runs[0]
    folded = fold.foldable(run.config())
    kernel = "folded pytorch" if folded else "pytorch"
    if device.type == "cuda":
        if folded and run.recipe.dtype == "float32" and fits(run.T, run.target.dim):
            kernel = "triton tf32x3"
        free = torch.cuda.mem_get_info(device)[0] if torch.cuda.is_available() else ELSEWHERE
        return Choice(str(device), kernel, min(len(runs), LARGEST_STACK, _room(run, kernel, free)), 1, 1)
    if folded and run.recipe.dtype == "float32" and run.target.dim <= native.MOST and native.found():
        kernel += ", attention in C"
    workers = max(1, min(cores(), len(runs)))
    enough = max(1, round(ENOUGH / operations(run)))
    stack = max(1, min(enough, -(-len(runs) // workers), _room(run, kernel, _free_memory() // workers)))
    return Choice(str(device), kernel, stack, workers, 1)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch's threads inside one operation, put back afterwards."""
    kept = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(kept)


def operations(run: Run) -> float:
    """Of one model's step, roughly: six per parameter and token, and the scores of all layers."""
    B, T = run.recipe.batch_size, run.T
    return 6.0 * B * T * (run.arch.parameters(run.target.dim, run.target.outputs, T) + 2 * T * sum(run.arch.embeds))


def bytes_per_model(run: Run, kernel: str) -> int:
    """Memory of one model's step, counted generously: batch, states, gradients, and the score matrices if formed."""
    size = 8 if run.recipe.dtype == "float64" else 4
    B, T, d = run.recipe.batch_size, run.T, run.target.dim
    E, w, h = max(run.arch.embeds), max(run.arch.widths), max(run.arch.heads)
    rows = T * (10 * E + 6 * w) + 6 * h * T * T
    if kernel.startswith("triton"):
        rows = 3 * d * (h + 1) * (2 * T + w)
        if pool_bytes(T, d * (h + 1)) > SMALL_SHARED:  # then hidden states may be formed
            rows += 6 * w * T
    elif kernel.endswith("in C"):
        rows = T * (10 * E + 6 * w)
    return size * (B * (d * T + rows + 20 * (E + w * h)) + 12 * run.arch.parameters(d, run.target.outputs, T))


def _room(run: Run, kernel: str, free: int) -> int:
    data = (run.recipe.samples + run.recipe.validation) * (run.T * run.target.dim + 1) * 8
    room = int((MEMORY_SHARE * free - data) // bytes_per_model(run, kernel))
    if room < 1:
        raise InfoFlowError(
            f"expected a model and its data to fit in {free / 2**30:.1f} GiB of free memory, T={run.T} with batch "
            f"{run.recipe.batch_size} and {run.recipe.samples} samples does not; take a smaller batch or T."
        )
    return room


def _free_memory() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 4 << 30  # a machine that does not say: assume what every laptop has
