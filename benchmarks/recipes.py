"""Which rate, warm-up, decay and initial scale eq. (6) wants, on seeds that no table reports: Table 11's recipe.

    python benchmarks/recipes.py [FOLDER [D ...]]      writes FOLDER/recipes_D<D>_<device>.json

T = 64, heads (D,D), a whole cosine of 150 epochs, rollback 8. A model is stuck when it ends above `SHARE` of the error
that a network with one head less ends at in the recorded Table 11: it misses one of the maxima, or it never learned.
The rule, fixed before the runs: the fewest stuck models, among those the least median. Recipes that differ in rate,
decay and scale alone are one stack.
"""

import json
import sys
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from infoflow import targets
from infoflow.files import write_json
from infoflow.lab.papers.infoflow.table11.item import LONG, architecture
from infoflow.provenance import provenance
from infoflow.train.fit import Run, fit_many

HERE = Path(__file__).parent
RECORDED = HERE.parent / "results" / "infoflow" / "table11" / "best" / "result.json"
SHARE = 0.4
RECIPE = LONG.with_(epochs=150, lr=1e-2, decay=1e-4, warm_up=0, rollback=8.0)
WARM = 2800  # steps, 20 epochs
FIRST_SEED = 100
SMALL: tuple[dict[str, float], ...] = (
    {},
    {"init_scale": 0.5},
    {"init_scale": 2.0},
    {"warm_up": WARM},
    {"warm_up": WARM, "lr": 5e-3},
    {"warm_up": WARM, "lr": 2.5e-3},
    {"warm_up": WARM, "init_scale": 0.5},
    {"warm_up": WARM, "init_scale": 2.0},
    {"warm_up": WARM, "decay": 1e-2},
    {"warm_up": WARM, "lr": 5e-3, "init_scale": 0.5},
)
LARGE: tuple[dict[str, float], ...] = (
    {"warm_up": WARM},
    {"warm_up": WARM, "lr": 5e-3},
    {"warm_up": WARM, "lr": 2.5e-3},
    {"warm_up": WARM, "lr": 5e-3, "init_scale": 0.5},
    {"warm_up": WARM, "lr": 5e-3, "init_scale": 2.0},
)


def compare(D: int, level: float, device: str) -> list[dict[str, Any]]:
    """A row per recipe; a model that ends above `level` is stuck."""
    tried, seeds = (SMALL, range(FIRST_SEED, FIRST_SEED + 16)) if D < 5 else (LARGE, range(FIRST_SEED, FIRST_SEED + 8))
    target, arch = targets.pairwise_max(D=D, d=4, seed=0), architecture("(D,D)", D)
    runs = [Run(target, arch, 64, seed, RECIPE.with_(**changes)) for changes in tried for seed in seeds]
    found = iter(fit_many(runs, device=device))
    cells = [[next(found) for _ in seeds] for _ in tried]
    rows = []
    for changes, cell in zip(tried, cells, strict=True):
        recipe = RECIPE.with_(**changes)
        values = sorted(result.best for result in cell if result is not None and result.best is not None)
        rows.append(
            {
                "D": D,
                **{name: getattr(recipe, name) for name in ("lr", "decay", "warm_up", "init_scale")},
                "models": len(values),
                "stuck": sum(value > level for value in values),
                "unlearned": sum(result.unlearned for result in cell if result is not None),
                "median": median(values),
                "mean": fmean(values),
                "rollbacks": sum(result.rollbacks for result in cell if result is not None),
                "best": values,
            }
        )
    return rows


def one_head_less(D: int) -> float:
    """The lesser of the recorded medians of (D-1,D) and (D,D-1)."""
    rows = json.loads(RECORDED.read_text(encoding="utf-8"))["rows"]
    less = [row["median"] for row in rows if row["D"] == D and row["heads"] != f"({D},{D})"]
    return float(min(less))


def chosen(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The rule: fewest stuck models, then the least median."""
    best = min(rows, key=lambda row: (row["stuck"], row["median"]))
    return {name: best[name] for name in ("lr", "decay", "warm_up", "init_scale")}


def main(folder: Path, sizes: list[int]) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for D in sizes:
        level = SHARE * one_head_less(D)
        rows = compare(D, level, device)
        for row in rows:
            print({name: value for name, value in row.items() if name != "best"}, flush=True)
        about = {"D": D, "T": 64, "epochs": RECIPE.epochs, "first seed": FIRST_SEED, "stuck above": level}
        record = {**about, "rows": rows, "chosen": chosen(rows), "provenance": provenance(("torch",))}
        write_json(folder / f"recipes_D{D}_{device}.json", record)


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results"
    main(where, [int(D) for D in sys.argv[2:]] or [3, 6])
