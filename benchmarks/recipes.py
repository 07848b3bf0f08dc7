"""Which rate, decay and initial scale eq. (6) wants, on seeds that no table reports: to choose Table 11's recipe by.

    python benchmarks/recipes.py [FOLDER [D ...]]      writes FOLDER/recipes_<device>.json

T = 64, heads (D,D), a whole cosine of 150 epochs, rollback 8. A model is left behind when it ends three times above the
best quartile of all recipes: it sits where two heads follow the same maximum, or it never learned. All recipes of a D
are one stack, since rates, decays and scales may differ inside one.
"""

import sys
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

import torch

from infoflow import targets
from infoflow.files import write_json
from infoflow.lab.papers.infoflow.table11.item import FULL, architecture
from infoflow.provenance import provenance
from infoflow.train.fit import Run, fit_many

SEEDS = range(100, 116)
RECIPE = FULL.with_(epochs=150, rollback=8.0)
TRIED: tuple[dict[str, float], ...] = (
    {"lr": 1e-2, "decay": 1e-4},
    {"lr": 5e-3, "decay": 1e-4},
    {"lr": 2.5e-3, "decay": 1e-4},
    {"lr": 1e-2, "decay": 1e-2},
    {"lr": 5e-3, "decay": 1e-2},
    {"lr": 5e-3, "decay": 1e-4, "init_scale": 2.0},
    {"lr": 5e-3, "decay": 1e-4, "init_scale": 0.5},
)


def compare(D: int, device: str) -> list[dict[str, Any]]:
    target, arch = targets.pairwise_max(D=D, d=4, seed=0), architecture("(D,D)", D)
    runs = [Run(target, arch, 64, seed, RECIPE.with_(**changes)) for changes in TRIED for seed in SEEDS]
    found = iter(fit_many(runs, device=device))
    cells = [[next(found) for _ in SEEDS] for _ in TRIED]
    best = [[result.best for result in cell if result is not None and result.best is not None] for cell in cells]
    level = min(quantiles(values, n=4, method="inclusive")[0] for values in best)
    return [
        {
            "D": D,
            **changes,
            "models": len(values),
            "unlearned": sum(result.unlearned for result in cell if result is not None),
            "left behind": sum(value > 3 * level for value in values),
            "mean": fmean(values),
            "median": median(values),
            "rollbacks": sum(result.rollbacks for result in cell if result is not None),
            "best": values,
        }
        for changes, cell, values in zip(TRIED, cells, best, strict=True)
    ]


def main(folder: Path, sizes: list[int]) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows: list[dict[str, Any]] = []
    for D in sizes:
        rows += compare(D, device)
        for row in rows[-len(TRIED) :]:
            print({name: value for name, value in row.items() if name != "best"}, flush=True)
        about = {"T": 64, "epochs": RECIPE.epochs, "seeds": [SEEDS[0], SEEDS[-1]]}
        write_json(folder / f"recipes_{device}.json", {**about, "rows": rows, "provenance": provenance(("torch",))})


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results"
    main(where, [int(D) for D in sys.argv[2:]] or [3, 6])
