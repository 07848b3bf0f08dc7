"""The named tasks, which are classification: model-steps a second of the engine and of one plain module per seed.

    python benchmarks/train_tasks.py [FOLDER]        writes train_tasks_<device>.json

The plain module is written with torch.nn as one writes it, and has as many parameters as ours; both learn from the same
batch in one run on one device. On a CPU it gets whichever is faster, one thread or all.
"""

import sys
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
from infoflow.train.speed import STRIDE, Step, rate, stepper_of
from infoflow.train.stack import network_of
from infoflow.train.task import IGNORED
from infoflow.train.tasks import named_task
from tasks import SIZES

CPU_MODELS = 16


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


def plain_rate(run: Run, device: torch.device, seconds: float) -> float:
    found = []
    for count in [1] if device.type == "cuda" else sorted({1, torch.get_num_threads()}):
        with threads(count):
            found.append(rate(plain_step(run, device), 1, device, seconds))
    return max(found)


def our_rate(runs: list[Run], device: torch.device, seconds: float) -> tuple[float, str]:
    choice = choose(runs, device)
    size, data = min(choice.stack, len(runs)), data_of(runs[:1], device)
    steppers = [stepper_of(runs[:size], device, choice.fused, data) for _ in range(choice.workers)]

    def stride(stepper: Any) -> None:
        for _ in range(STRIDE):
            stepper.step()

    with ThreadPoolExecutor(len(steppers)) as pool, threads(1):
        step = steppers[0].step if len(steppers) == 1 else lambda: list(pool.map(stride, steppers))
        models = size if len(steppers) == 1 else STRIDE * size * len(steppers)
        return rate(step, models, device, seconds), str(choice)


def main(folder: Path) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = []
    for name, (arch, recipe) in SIZES.items():
        asked = named_task(name), Architecture.parse(arch), None
        models = LARGEST_STACK if device.type == "cuda" else CPU_MODELS
        runs = [Run(*asked, seed, recipe.with_(epochs=None, steps=100_000)) for seed in range(models)]
        plain = plain_rate(runs[0], device, 1.0)
        ours, chosen = our_rate(runs, device, 1.0)
        rows.append({"task": name, "arch": arch, "plain": plain, "ours": ours, "ratio": ours / plain, "chosen": chosen})
        print(rows[-1], flush=True)
        about = {"rows": rows, "provenance": provenance(("torch",))}
        write_json(folder / f"train_tasks_{device.type}.json", about)  # a run that is cut short keeps what it has


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
