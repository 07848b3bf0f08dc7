"""A step of whole stacks on a GPU, with the optimiser in one kernel and as PyTorch's operations, in turn.

    python benchmarks/optimiser.py OUT.json

Milliseconds a step of a captured graph, the best of five rounds of 40 steps each way: rank-1 networks on tagged text
(sentences made in code, a vocabulary as large as CoNLL-2003's), those of the recovery tables, and small stacks.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from infoflow.architecture import Architecture
from infoflow.construct.rank_one.text import TaggedText
from infoflow.files import write_json
from infoflow.lab.papers.infoflow.recovery.item import PAPER, architecture
from infoflow.lab.papers.rank_one.figure1.model import Tagging, synthetic_text
from infoflow.lab.sweep import schedule
from infoflow.provenance import provenance
from infoflow.targets import d_retrieval, pairwise_max
from infoflow.train.loop import Stepper, epoch_order, start
from infoflow.train.plan import choose
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.stack import Stack

ROUNDS, STEPS, WORDS = 5, 40, 23_600


def text() -> TaggedText:
    """2,000 sentences of 48 words, each word seen four times."""
    tags = [(row * 10)[:48] for row in synthetic_text(sentences=2000, seed=0).tags]
    return TaggedText([[f"word{(48 * i + j) % WORDS}" for j in range(48)] for i in range(len(tags))], tags)


def cases() -> dict[str, list[Run]]:
    tagged, recipe = text(), schedule(10, 32, 1e-3)
    found: dict[str, list[Run]] = {}
    for depth, seeds in ((1, 3), (3, 2), (6, 2)):
        task = Tagging(tagged, "made", depth, 256, 1024)
        runs = [Run(task, seed=seed, recipe=recipe) for seed in range(seeds)]
        found[f"tagging, {depth} layer{'s' * (depth > 1)}, {seeds} models"] = runs
    small = Recipe(samples=4096, validation=256, batch=256, epochs=20)
    retrieval = [Run(d_retrieval(D=6, d=4, seed=0), architecture((5, 5), 6, 384), 64, seed, PAPER.with_(samples=8192))
                 for seed in range(2)]  # fmt: skip
    maxima = [Run(pairwise_max(D=2, d=4, seed=0), Architecture((2, 2), (12, 12), 32), 16, seed, small)
              for seed in range(256)]  # fmt: skip
    return {**found, "recovery, 2 models": retrieval, "eq. (6), D = 2, T = 16, 256 models": maxima}


@contextmanager
def optimiser(fused: bool) -> Iterator[None]:
    kept = Stack._move_fused
    if not fused:
        Stack._move_fused = Stack._move  # type: ignore[method-assign]
    try:
        yield
    finally:
        Stack._move_fused = kept  # type: ignore[method-assign]


def stepper(runs: list[Run], fused: bool) -> Callable[[], None]:
    device, recipe = torch.device("cuda"), runs[0].recipe
    state = start(runs, device, choose(runs, device).fused)
    made = Stepper(state.stack, state.data, recipe.batch_size, recipe.steps_per_epoch)
    made.load_order(epoch_order(torch.tensor([run.seed for run in runs], device=device), 0, recipe.samples))
    with optimiser(fused):
        made.step()
    return made.step


def milliseconds(step: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began) / STEPS


def main() -> None:
    rows = []
    for name, runs in cases().items():
        steps = {fused: stepper(runs, fused) for fused in (True, False)}
        found = {fused: min(milliseconds(step) for _ in range(ROUNDS)) for fused, step in steps.items()}
        row = {"stack": name, "plain": found[False], "fused": found[True], "times": found[False] / found[True]}
        rows.append(row)
        print(f"{name}: {found[False]:.2f} ms, fused {found[True]:.2f} ms", flush=True)
    write_json(Path(sys.argv[1]), {"provenance": provenance(), "rows": rows})


if __name__ == "__main__":
    main()
