"""A rate of their own for queries and keys: how far eq. (6) is learned in the same steps, and how sharp its heads are.

    python benchmarks/query_keys.py [--device cuda]      writes benchmarks/results/query_keys_DEVICE.json
    python benchmarks/query_keys.py --stopped STORE      writes benchmarks/results/query_keys_stopped.json

On a processor a small case, D = 3, heads (D,D), T = 16, 100 epochs (18,700 steps), four seeds, twelve minutes on two
cores; with cuda the network of the recovery tables, D = 6, heads (6,6), T = 64, width 384, 180 epochs (25,200 steps),
eight seeds. A whole cosine after a warm-up, rollback 8; all recipes of a case share their seeds.
`ratio` is the recovery error (56) of the argmax token over its value before training, of the worst head of a model: a
head that returns a mixture of the best few tokens has a large one.

STORE holds the checkpoint of this call, the recipe of the recovery tables with one rate, stopped on its way:
    infoflow fit pairwise_max:D=6,d=4,seed=0 "heads=6,6 embed=36,36 width=384,384" -T 64 --seeds 2 --epochs 4500
        --lr 1e-2 --rollback 8 --warm-up 2800 --starts 3 --start-epochs 100 --device cuda --store STORE --seconds 700
It is put beside the recorded runs of the tables, which are the same but for the rates, at the same epochs.
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from followed import network_of
from infoflow import targets
from infoflow.architecture import Architecture
from infoflow.files import write_json
from infoflow.lab.papers.infoflow.recovery import item as recovery
from infoflow.lab.papers.infoflow.table11 import item as table11
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.train import checkpoint
from infoflow.train.fit import Run, fit_many
from infoflow.train.recipe import Recipe
from infoflow.train.store import Store

RESULTS = Path(__file__).parent / "results"
RECORDED = Path(__file__).parents[1] / "results" / "infoflow" / "recovery" / "best" / "store"
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
    "cpu": Case(3, 16, table11.architecture("(D,D)", 3), table11.LONG.with_(**SHORT), 4),
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
            X = recovery.sequences(runs[0], 400)
            errors = [recovery.measure(model.network(), X)["argmax"] for model in models]
            worst = [max(recovery.ratios(pairs)) for pairs in errors]
            row = {"lr": lr, "query_key_rate": multiple, "rollbacks": sum(model.rollbacks for model in models)}
            rows.append({**row, "median": median(best), "median ratio": median(worst), "best": best, "ratio": worst})
            bar.update(index + 1, f"{lr:g} x {multiple:g}: {median(best):.1e}")
    return rows


def beside(folder: Path, every: int = 500) -> dict[str, Any]:
    """Best NMSE so far by epoch: one rate, stopped, and the recorded runs of the tables; ratios where it stopped."""
    target, shape = targets.pairwise_max(D=6, d=4, seed=0), recovery.architecture((6, 6), 6, 384)
    two_rates = recovery.recipe_of("eq. (6)", (6, 6), 6)
    one_rate = two_rates.with_(lr=1e-2, query_key_rate=1.0, evaluate_every=1)
    stopped = [Run(target, shape, 64, seed, one_rate) for seed in range(2)]
    found = checkpoint.holding(folder / "checkpoints", stopped)
    if found is None:
        raise SystemExit(
            f"query_keys: expected the checkpoint of the call above in {folder}, found none; make the call."
        )
    finished = [Store(RECORDED).get(Run(target, shape, 64, seed, two_rates).key, False) for seed in range(2)]
    steps = one_rate.samples // one_rate.batch
    last = found.step // steps
    rows = []
    for epoch in [*range(every, last, every), last]:
        curve = found.tensors["curve"][[step <= epoch * steps for step in found.steps]]
        seen = [curve[:, found.keys.index(run.key)].min().item() for run in stopped]
        known = [
            min(value for step, value in zip(model.curve_steps, model.curve, strict=True) if step <= epoch * steps)
            for model in finished
            if model is not None
        ]
        rows.append({"epoch": epoch, "one rate": seen, "two rates": known})
    X = recovery.sequences(stopped[0], 2000)
    ratio = [recovery.ratios(recovery.measure(network_of(found, run), X)["argmax"]) for run in stopped]
    return {"epochs": one_rate.epochs, "lr": [one_rate.lr, two_rates.lr], "rows": rows, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=CASES, default="cpu")
    parser.add_argument("--stopped", type=Path, metavar="STORE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.stopped is not None:
        found = {**beside(options.stopped), "provenance": provenance(("numpy", "torch"))}
        write_json(RESULTS / "query_keys_stopped.json", found)
        return
    device = options.device
    case = CASES[device]
    about = {"D": case.D, "T": case.T, "seeds": case.seeds, "recipe": asdict(case.recipe)}
    found = {**about, "rows": compare(case, device), "provenance": provenance(("numpy", "torch"))}
    write_json(RESULTS / f"query_keys_{device}.json", found)


if __name__ == "__main__":
    main()
