"""A rate of their own for queries and keys: how far eq. (6) is learned in the same steps, and how sharp its heads are.

    python benchmarks/query_keys.py        writes benchmarks/results/query_keys.json (ten minutes on two cores)

D = 3, heads (D,D), T = 16, a whole cosine of 100 epochs (18,700 steps), rollback 8; all recipes share their seeds.
`ratio` is the recovery error (56) of the argmax token over its value before training, of the worst head of a model: a
head that returns a mixture of the best few tokens has a large one.
"""

from pathlib import Path
from statistics import median
from typing import Any

import torch

from infoflow import targets
from infoflow.files import write_json
from infoflow.lab.papers.infoflow.recovery.item import measure, ratios
from infoflow.lab.papers.infoflow.table11.item import FULL, architecture
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.train.fit import Run, fit_many

RESULT = Path(__file__).parent / "results" / "query_keys.json"
RECIPE = FULL.with_(samples=24_000, validation=1_000, batch=128, epochs=100, warm_up=940, rollback=8.0)
TRIED = ((1e-2, 1.0), (6e-3, 5.0), (3e-3, 10.0))  # rate, multiple for queries and keys


def compare(seeds: int, T: int, D: int) -> list[dict[str, Any]]:
    target, arch, rows = targets.pairwise_max(D=D, d=4, seed=0), architecture("(D,D)", D), []
    with Progress("recipes", len(TRIED)) as bar:
        for index, (lr, multiple) in enumerate(TRIED):
            recipe = RECIPE.with_(lr=lr, query_key_rate=multiple)
            models = [x for x in fit_many([Run(target, arch, T, seed, recipe) for seed in range(seeds)]) if x]
            best = [model.best for model in models if model.best is not None]
            worst = [max(ratios(measure(model.network(), target, T, 400)["argmax"])) for model in models]
            row = {"lr": lr, "query_key_rate": multiple, "rollbacks": sum(model.rollbacks for model in models)}
            rows.append({**row, "median": median(best), "median ratio": median(worst), "best": best, "ratio": worst})
            bar.update(index + 1, f"{lr:g} x {multiple:g}: {median(best):.1e}")
    return rows


def main(seeds: int = 4, T: int = 16, D: int = 3) -> None:
    torch.set_num_threads(1)
    about = {"D": D, "T": T, "seeds": seeds, "epochs": RECIPE.epochs, "samples": RECIPE.samples}
    write_json(RESULT, {**about, "rows": compare(seeds, T, D), "provenance": provenance(("numpy", "torch"))})


if __name__ == "__main__":
    main()
