"""The named tasks, which are classification: model-steps a second of the engine and of one plain module per seed.

    python benchmarks/train_tasks.py [FOLDER]        writes train_tasks_<device>.json

The plain module is written with torch.nn as one writes it, and has as many parameters as ours; both learn from the same
batch in one run on one device. On a CPU it gets whichever is faster, one thread or all. The two take turns, so that
what else the machine does meets both, and its load is kept; processor time tells what a busy machine hides from the
clock.
"""

import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from infoflow.architecture import Architecture
from infoflow.files import write_json
from infoflow.nn import TransformerConfig
from infoflow.provenance import provenance
from infoflow.train.loop import data_of
from infoflow.train.plan import LARGEST_STACK, choose, threads
from infoflow.train.run import Run
from infoflow.train.speed import STRIDE, Step, stepper_of, timed
from infoflow.train.stack import network_of
from infoflow.train.task import IGNORED
from infoflow.train.tasks import named_task
from tasks import SIZES

CPU_MODELS = 16
ROUNDS = 5
SECONDS = 0.5  # of a window


class Attention(nn.Module):
    def __init__(self, size: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.maps = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(4))

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        query, key, value, output = self.maps
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for y in (query(x), key(tokens), value(tokens)))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + output(found.transpose(-2, -3).flatten(-2))


class PlainClassifier(nn.Module):
    """A table, positions, layers with a feed-forward block between them, a class for the CLS or for every token."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        E, w = config.embed[0], config.widths[0]
        self.table, self.position = nn.Embedding(config.dim, E), nn.Parameter(0.02 * torch.randn(config.length, E))
        self.cls = nn.Parameter(0.02 * torch.randn(E)) if config.cls else None
        self.attentions = nn.ModuleList(Attention(E, h, config.mask == "causal") for h in config.heads)
        blocks = (nn.Sequential(nn.Linear(E, w), nn.GELU(), nn.Linear(w, E)) for _ in config.heads[1:])
        self.ffns = nn.ModuleList(blocks)
        self.readout = nn.Sequential(nn.Linear(E, w), nn.GELU(), nn.Linear(w, config.outputs))

    def forward(self, x: Tensor) -> Tensor:
        state = self.table(x) + self.position
        if self.cls is not None:
            state = torch.cat([state, self.cls.expand(len(x), 1, -1)], 1)
        for number, attention in enumerate(self.attentions):
            tokens = state if self.cls is None else state[:, :-1]
            if self.cls is not None and number == len(self.attentions) - 1:
                state = state[:, -1:]
            state = attention(state, tokens)
            if number < len(self.ffns):
                state = state + self.ffns[number](state)
        answer: Tensor = self.readout(state)
        return answer if self.cls is None else answer[:, 0]


def plain_step(run: Run, device: torch.device) -> Step:
    config, data = run.task.config(run.arch, run.T, run.recipe), data_of([run], device)
    assert config is not None
    model = PlainClassifier(config).to(device)
    ours = sum(parameter.numel() for parameter in network_of(run, ()).parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) == ours
    optimiser = torch.optim.AdamW(model.parameters(), lr=run.recipe.lr, weight_decay=run.recipe.decay)
    x, y = data.x[0][: run.recipe.batch_size], data.y[0][: run.recipe.batch_size].flatten()

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(model(x).reshape(len(y), -1), y, ignore_index=IGNORED).backward()
        optimiser.step()

    return step


def our_step(runs: list[Run], device: torch.device, pool: ThreadPoolExecutor) -> tuple[Step, int, str]:
    """One call of the engine, the model-steps it makes, and what was chosen: a stack for every worker, side by side."""
    choice = choose(runs, device)
    size, data = min(choice.stack, len(runs)), data_of(runs[:1], device)
    steppers = [stepper_of(runs[:size], device, choice.fused, data) for _ in range(choice.workers)]

    def stride(stepper: Any) -> None:
        for _ in range(STRIDE):
            stepper.step()

    if len(steppers) == 1:
        return steppers[0].step, size, str(choice)
    return lambda: list(pool.map(stride, steppers)), STRIDE * size * len(steppers), str(choice)


def window(step: Step, models: int, device: torch.device, seconds: float) -> tuple[float, float]:
    """Model-steps a second by the clock, and by the processor time of this process."""
    timed(step, 1, device)
    count = max(1, int(seconds / timed(step, 1, device)))
    began, ticked = time.perf_counter(), time.process_time()
    timed(step, count, device)
    return models * count / (time.perf_counter() - began), models * count / (time.process_time() - ticked)


def measure(runs: list[Run], device: torch.device, seconds: float) -> dict[str, Any]:
    """Both sides in turn, ROUNDS times; the median of each."""
    counts = [1] if device.type == "cuda" else sorted({1, torch.get_num_threads()})
    with ThreadPoolExecutor(max_workers=torch.get_num_threads()) as pool:
        plain, (ours, models, chosen) = plain_step(runs[0], device), our_step(runs, device, pool)
        sides: dict[str, tuple[Step, int, int]] = {f"plain, {count} threads": (plain, 1, count) for count in counts}
        sides["ours"] = ours, models, 1
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, (step, each, count) in sides.items():
                with threads(count):
                    found[name].append(window(step, each, device, seconds))
    rates = {name: statistics.median(rate for rate, _ in seen) for name, seen in found.items()}
    worked = {name: statistics.median(rate for _, rate in seen) for name, seen in found.items()}
    plain_rate, plain_worked = (max(of[name] for name in of if name != "ours") for of in (rates, worked))
    return {
        "plain": plain_rate,
        "ours": rates["ours"],
        "ratio": rates["ours"] / plain_rate,
        "ratio_of_processor_time": worked["ours"] / plain_worked,
        "load": round(os.getloadavg()[0], 1),
        "chosen": chosen,
    }


def main(folder: Path) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = []
    for name, (arch, recipe) in SIZES.items():
        asked = named_task(name), Architecture.parse(arch), None
        models = LARGEST_STACK if device.type == "cuda" else CPU_MODELS
        runs = [Run(*asked, seed, recipe.with_(epochs=None, steps=100_000)) for seed in range(models)]
        rows.append({"task": name, "arch": arch, **measure(runs, device, SECONDS)})
        print(rows[-1], flush=True)
        about = {"rows": rows, "provenance": provenance(("torch",))}
        write_json(folder / f"train_tasks_{device.type}.json", about)  # a run that is cut short keeps what it has


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
