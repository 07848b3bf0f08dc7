"""How runs are grouped and sized: what the engine chooses by itself (and says), and the parts it trains in one pass."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from infoflow.cost import available_memory, cores
from infoflow.errors import InfoFlowError
from infoflow.nn import TransformerConfig
from infoflow.train import checkpoint
from infoflow.train.checkpoint import Checkpoint
from infoflow.train.folded import MOST_NATIVE, Fused, foldable, native_found, pool_bytes, triton_fits
from infoflow.train.run import Run

LARGEST_STACK = 512  # beyond it the GPU is full: more models only take memory
# Of networks that are not the one Transformer, whose sizes nobody knows; on a CPU more gain nothing, and cost once
# tensors pass 32 MB (benchmarks/memory.py).
UNKNOWN_STACK = {"cpu": 16, "cuda": 256}
ENOUGH = 3e9  # operations in one pass on a CPU: below, the cost of calling PyTorch shows; above, caches overflow
ELSEWHERE = 16 << 30  # memory assumed of a GPU that only the cluster's nodes have; they choose again
SMALL_SHARED = 96 << 10  # bytes of shared memory that every GPU in use gives to a program
MEMORY_SHARE = 0.5  # of the free memory that a stack may be expected to take
SAVE_EVERY = 20.0  # seconds between checkpoints of a part, wherever it is trained


def check_device(name: str, elsewhere: bool = False) -> torch.device:
    """cpu, cuda or cuda:K, there and usable (or on the nodes of a cluster, `elsewhere`); one sentence otherwise."""
    try:
        device = torch.device(name)
        if device.type == "cuda" and elsewhere:
            return torch.device("cuda")
        if device.type == "cuda" and not torch.cuda.is_available():
            raise InfoFlowError(f"expected a CUDA device for {name!r}, this machine offers none; use --device cpu.")
        if device.type not in ("cpu", "cuda"):
            raise InfoFlowError(f"expected device cpu, cuda or cuda:K, got {name!r}.")
        torch.empty(1, device=device)
    except RuntimeError as error:
        reason = str(error).split("\n")[0]
        raise InfoFlowError(f"expected device cpu, cuda or cuda:K, got {name!r} ({reason}).") from None
    return device


@dataclass(frozen=True)
class Setup:
    """How a part is trained: the device, the kernel, the size of a stack and the workers beside it."""

    device: str
    kernel: str  # "triton tf32x3", "folded pytorch, attention in C", "folded pytorch" or "pytorch"
    stack: int  # models in one pass
    workers: int  # passes at a time: threads of this process, or processes where they are asked for
    threads: int  # PyTorch threads of each worker

    def to_json(self) -> dict[str, Any]:
        """As it is kept in a result."""
        return asdict(self)

    @property
    def fused(self) -> Fused | None:
        """The Triton kernel's precision, where one was chosen."""
        return Fused(self.kernel.removeprefix("triton ")) if self.kernel.startswith("triton ") else None

    def __str__(self) -> str:
        return f"{self.device}: {self.kernel}, {self.stack} models a pass, {self.workers} x {self.threads} threads"


def choose(runs: Sequence[Run], device: torch.device, workers: int | None = None) -> Setup:
    """The way one group is trained on this device; `workers` processes share it, where so many are asked for."""
    run = runs[0]
    config = run.task.config(run.arch, run.T, run.recipe)
    kernel, cpu = _kernel(run, config, device), device.type == "cpu"
    workers = max(1, min(workers or cores(), len(runs))) if cpu else workers or 1
    if config is None:
        most = UNKNOWN_STACK[device.type]
    elif cpu:
        room = _room(run, config, kernel, _free(device) // workers)
        most = min(max(1, round(ENOUGH / operations(run, config))), room)
    else:
        most = min(LARGEST_STACK, _room(run, config, kernel, _free(device) // workers))
    most = min(most, run.task.most_stacked or most)
    each = -(-len(runs) // workers) if cpu else len(runs)
    return Setup(str(device), kernel, max(1, min(most, each)), workers, 1)


def _kernel(run: Run, config: TransformerConfig | None, device: torch.device) -> str:
    if config is None or not foldable(config):
        return "pytorch"
    single = run.recipe.dtype == "float32"
    if device.type == "cuda":
        return "triton tf32x3" if single and triton_fits(run.T or 0, config.dim) else "folded pytorch"
    return "folded pytorch" + ", attention in C" * (single and config.dim <= MOST_NATIVE and native_found())


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch's threads inside one operation, put back afterwards."""
    kept = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(kept)


def _parameters(run: Run, config: TransformerConfig) -> int:
    """Of one model; a table of the vocabulary counts as the linear map it stands for."""
    assert run.arch is not None
    return run.arch.with_(positions=config.positions).parameters(config.dim, config.outputs, run.T)


def operations(run: Run, config: TransformerConfig) -> float:
    """Of one model's step, roughly: six per parameter and token, and the scores of all layers."""
    B, T = run.recipe.batch_size, run.T or 1
    weights = _parameters(run, config)
    if config.encoder == "table":  # a row is looked up, not multiplied
        weights -= config.dim * config.embed[0]
    return 6.0 * B * T * (weights + 2 * T * sum(config.embed))


def bytes_per_model(run: Run, config: TransformerConfig, kernel: str) -> int:
    """Memory of one model's step, counted generously: batch, states, gradients, and the score matrices if formed."""
    size = 8 if run.recipe.dtype == "float64" else 4
    B, T = run.recipe.batch_size, run.T or 1
    d = 1 if config.encoder == "table" else config.dim
    E, w, h = max(config.embed), max(config.widths), max(config.heads)
    rows = T * (10 * E + 6 * w) + 6 * h * T * T
    if not config.cls:
        rows += 4 * T * config.outputs
    if kernel.startswith("triton"):
        rows = 3 * d * (h + 1) * (2 * T + w)
        if pool_bytes(T, d * (h + 1)) > SMALL_SHARED:  # then hidden states may be formed
            rows += 6 * w * T
    elif kernel.endswith("in C"):
        rows = T * (10 * E + 6 * w)
    return size * (B * (d * T + rows + 20 * (E + w * h)) + 12 * _parameters(run, config))


def _room(run: Run, config: TransformerConfig, kernel: str, free: int) -> int:
    """Models that fit in so many free bytes beside their data."""
    d = 1 if config.encoder == "table" else config.dim
    data = (run.recipe.samples + run.recipe.validation) * ((run.T or 1) * d + 1) * 8
    room = int((MEMORY_SHARE * free - data) // bytes_per_model(run, config, kernel))
    if room < 1:
        raise InfoFlowError(
            f"expected a model and its data to fit in {free / 2**30:.1f} GiB of free memory, T={run.T} with batch "
            f"{run.recipe.batch_size} and {run.recipe.samples} samples does not; {_advice(run, config, kernel, data)}."
        )
    return room


def _advice(run: Run, config: TransformerConfig, kernel: str, data: int) -> str:
    """What to lower: that which takes the most of the memory, the samples, the weights or the batch."""
    weights = (8 if run.recipe.dtype == "float64" else 4) * 12 * _parameters(run, config)
    batch = bytes_per_model(run, config, kernel) - weights
    if data >= max(weights, batch):
        return "take fewer samples or a smaller T"
    return "take a smaller embed or width" if weights >= batch else "take a smaller batch or T"


def _free(device: torch.device) -> int:
    """Bytes of memory that are free on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] if torch.cuda.is_available() else ELSEWHERE
    return available_memory()


@dataclass(frozen=True)
class Part:
    """Runs of one group that are trained in one pass. Every engine trains parts, and only parts."""

    runs: tuple[Run, ...]
    choice: Setup
    checkpoint: Checkpoint | None = None
    save_every: float = SAVE_EVERY
    tried_steps: int = 0  # of each model's starts, held by checkpoints while none is chosen yet

    @property
    def steps(self) -> int:
        """Model-steps of the whole part."""
        return len(self.runs) * self.runs[0].recipe.all_steps

    @property
    def before(self) -> int:
        """Steps of each model that checkpoints hold, with those of its starts."""
        return self.tried_steps if self.checkpoint is None else self.runs[0].recipe.trial_steps + self.checkpoint.step

    def halves(self) -> "tuple[Part, Part]":
        """Two parts of half the runs, for a stack that was too large."""
        middle = len(self.runs) // 2
        return replace(self, runs=self.runs[:middle]), replace(self, runs=self.runs[middle:])


def plan(
    runs: Sequence[Run],
    pending: Collection[str],
    device: torch.device,
    checkpoints: Path | None,
    workers: int | None = None,
) -> list[Part]:
    """Parts that cover the pending runs: those with a checkpoint as they were stacked, the rest at the chosen size.

    A stack that comes from another machine may be larger than is chosen here (a GPU's for a core): it is taken up in
    pieces. The sizes are chosen for all runs of a group, finished or not, so an interrupted sweep falls into the same
    parts.
    """
    starts = {start.key for run in runs if run.key in pending for start in run.trials()}
    saved = checkpoint.find(checkpoints, {*pending, *starts}) if checkpoints is not None else []
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    parts = []
    for members in groups.values():
        choice = choose(members, device, workers)
        left = {run.key: run for run in members if run.key in pending}
        for found in saved:
            held = tuple(left.pop(key) for key in found.keys if key in left)
            for first in range(0, len(held), choice.stack):
                parts.append(Part(held[first : first + choice.stack], choice, found, SAVE_EVERY))
        for first in range(0, len(members), choice.stack):
            taken = tuple(run for run in members[first : first + choice.stack] if run.key in left)
            if taken:
                parts.append(Part(taken, choice, None, SAVE_EVERY, _tried_steps(taken[0], saved)))
    return parts


def _tried_steps(run: Run, saved: Sequence[Checkpoint]) -> int:
    """Steps of the starts of a run that these checkpoints hold."""
    return sum(max((found.step for found in saved if start.key in found.keys), default=0) for start in run.trials())
