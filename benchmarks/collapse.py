"""Models that learn and then collapse, and what helps: eq. (6) with D = 4 at a rate that is too high.

    python benchmarks/collapse.py        writes benchmarks/results/collapse.json (a quarter of an hour on one core)

At T = 64 and rate 1e-2 the same happens after hundreds of epochs (results/infoflow/table11/rate_1e-2.json); here it
takes a few thousand steps: T = 8, constant rate 3e-2. The loss leaps by orders of magnitude within ten steps, every
weight moves, and the model ends as a constant. All rows share their seeds.
"""

from pathlib import Path
from statistics import median

import torch

from infoflow import targets
from infoflow.files import write_json
from infoflow.lab.papers.infoflow.table11.item import LONG, architecture
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.train.fit import Run, fit_many

RESULT = Path(__file__).parent / "results" / "collapse.json"
RECIPE = LONG.with_(samples=18_000, batch=128, epochs=40, lr=3e-2, schedule="constant", evaluate_every=2)
TRIED = {
    "as it is": RECIPE,
    "gradients clipped at norm 1": RECIPE.with_(clip=1.0),
    "back to the best at half the rate when 8 times above it": RECIPE.with_(rollback=8.0),
    "a third of the rate": RECIPE.with_(lr=1e-2),
}


def main(seeds: int = 6, T: int = 8, D: int = 4) -> None:
    torch.set_num_threads(1)
    target, arch = targets.pairwise_max(D=D, d=4, seed=0), architecture("(D,D)", D)
    rows = []
    with Progress("recipes", len(TRIED)) as bar:
        for index, (name, recipe) in enumerate(TRIED.items()):
            found = fit_many([Run(target, arch, T, seed, recipe) for seed in range(seeds)])
            models = [result for result in found if result is not None]
            best = [result.best for result in models if result.best is not None]
            rows.append(
                {
                    "recipe": name,
                    "models": len(models),
                    "collapsed": sum(result.collapsed for result in models),
                    "rollbacks": sum(result.rollbacks for result in models),
                    "median": median(best),
                    "worst": max(best),
                    "curves": [result.curve for result in models],
                }
            )
            bar.update(index + 1, name)
    about = {"target": target.spelling, "arch": str(arch), "T": T, "lr": RECIPE.lr, "epochs": RECIPE.epochs}
    write_json(RESULT, {**about, "rows": rows, "provenance": provenance(("numpy", "torch"))})


if __name__ == "__main__":
    main()
