"""A rate of their own for queries and keys: how far eq. (6) is learned in the same steps, and how sharp its heads are.

    python benchmarks/query_keys.py [--device cuda]      writes benchmarks/results/query_keys_DEVICE.json

On a processor a small case, D = 3, heads (D,D), T = 16, 100 epochs (18,700 steps), four seeds, twenty minutes on two
cores; with cuda the network of the recovery tables, D = 6, heads (6,6), T = 64, width 384, 180 epochs (25,200 steps),
eight seeds. A whole cosine after a warm-up, rollback 8; all recipes of a case share their seeds.
`ratio` is the recovery error (56) of the argmax token over its value before training, of the worst head of a model: a
head that returns a mixture of the best few tokens has a large one.
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from infoflow import targets
from infoflow.architecture import Architecture
from infoflow.files import write_json
from infoflow.lab.papers.infoflow.recovery import item as recovery
from infoflow.lab.papers.infoflow.table11 import item as table11
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.train.fit import Run, fit_many
from infoflow.train.recipe import Recipe

RESULTS = Path(__file__).parent / "results"
TRIED = ((1e-2, 1.0), (3e-3, 1.0), (6e-3, 5.0), (3e-3, 10.0), (1e-3, 30.0))  # rate, multiple for queries and keys


@dataclass(frozen=True)
class Case:
    D: int
    T: int
    architecture: Architecture
    recipe: Recipe
    seeds: int


SHORT = {"warm_up": 940, "rollback": 8.0, "epochs": 100, "samples": 24_000, "validation": 1_000, "batch": 128}
CASES = {
    "cpu": Case(3, 16, table11.architecture("(D,D)", 3), table11.FULL.with_(**SHORT), 4),
    "cuda": Case(
        6, 64, recovery.architecture((6, 6), 6, 384), recovery.SHARPER.with_(epochs=180, starts=1, start_epochs=0), 8
    ),
}


def compare(case: Case, device: str) -> list[dict[str, Any]]:
    target, rows = targets.pairwise_max(D=case.D, d=4, seed=0), []
    with Progress("recipes", len(TRIED)) as bar:
        for index, (lr, multiple) in enumerate(TRIED):
            recipe = case.recipe.with_(lr=lr, query_key_rate=multiple)
            runs = [Run(target, case.architecture, case.T, seed, recipe) for seed in range(case.seeds)]
            models = [model for model in fit_many(runs, device=device) if model]
            best = [model.best for model in models if model.best is not None]
            errors = [recovery.measure(model.network(), target, case.T, 400)["argmax"] for model in models]
            worst = [max(recovery.ratios(pairs)) for pairs in errors]
            row = {"lr": lr, "query_key_rate": multiple, "rollbacks": sum(model.rollbacks for model in models)}
            rows.append({**row, "median": median(best), "median ratio": median(worst), "best": best, "ratio": worst})
            bar.update(index + 1, f"{lr:g} x {multiple:g}: {median(best):.1e}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=CASES, default="cpu")
    device = parser.parse_args().device
    case = CASES[device]
    torch.set_num_threads(1)
    about = {"D": case.D, "T": case.T, "seeds": case.seeds, "recipe": asdict(case.recipe)}
    found = {**about, "rows": compare(case, device), "provenance": provenance(("numpy", "torch"))}
    write_json(RESULTS / f"query_keys_{device}.json", found)


if __name__ == "__main__":
    main()
