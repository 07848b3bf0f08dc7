"""Which maximum of eq. (6) each head of a trained network follows, and what the networks that are stuck miss.

    python benchmarks/followed.py CHECKPOINTS [FOLDER [D ...]]      writes FOLDER/followed_D<D>.json

CHECKPOINTS is the folder of that name in the store of a stopped Table 11 run. `first` and `second` give, for every
maximum, the share of tokens (of sequences) at which the head of that layer that follows it best does so
(`infoflow.lab.papers.infoflow.followed`). `argmax` gives for every head of the first layer what `infoflow/recovery`
measures: the error (56) of the token it looks at hardest, read back from what the head returns, over the same error
before training.
"""

import sys
from pathlib import Path
from typing import Any

import torch

from infoflow import targets
from infoflow.files import write_json
from infoflow.lab.papers.infoflow.followed import followed
from infoflow.lab.papers.infoflow.recovery.item import measure, ratios, sequences
from infoflow.lab.papers.infoflow.table11.item import LONG, architecture
from infoflow.nn import Transformer
from infoflow.provenance import provenance
from infoflow.train import checkpoint
from infoflow.train.run import Run

T, SEQUENCES, RECOVERY_SEQUENCES, SEEDS = 64, 400, 1000, 16
RECIPE = {"lr": 1e-2, "decay": 1e-4, "init_scale": 0.5, "rollback": 8.0, "epochs": 1000}  # what recipes.py chose
FOLLOWED = 0.8  # of tokens or sequences


def network_of(found: checkpoint.Checkpoint, run: Run) -> Transformer:
    """The best model so far of a run on its way; its read-out gives the label as it was trained, standardised."""
    network = Transformer(run.config())
    weights = found.tensors["best_weights"][found.keys.index(run.key)]
    torch.nn.utils.vector_to_parameters(weights, network.parameters())
    return network.requires_grad_(False)


def look(folder: Path, D: int) -> dict[str, Any]:
    target = targets.pairwise_max(D=D, d=4, seed=0)
    recipe = LONG.with_(**RECIPE)
    runs = [Run(target, architecture("(D,D)", D), T, seed, recipe) for seed in range(SEEDS)]
    found = checkpoint.find(folder, [run.key for run in runs])
    if not found:
        raise SystemExit(f"followed: expected a checkpoint of D = {D} in {folder}, found none; stop a run there first.")
    rows = []
    for run in runs:
        network = network_of(found[0], run)
        first, second = followed(network, target, sequences(run, SEQUENCES))
        argmax = ratios(measure(network, sequences(run, RECOVERY_SEQUENCES))["argmax"])
        best = float(found[0].tensors["best"][found[0].keys.index(run.key)])
        missed = sum(min(pair) < FOLLOWED for pair in zip(first, second, strict=True))
        rows.append(
            {"seed": run.seed, "best": best, "missed": missed, "first": first, "second": second, "argmax": argmax}
        )
    return {"D": D, "step": found[0].step, "recipe": RECIPE, "rows": sorted(rows, key=lambda row: row["best"])}


def main(folder: Path, out: Path, sizes: list[int]) -> None:
    for D in sizes:
        found = look(folder, D)
        for row in found["rows"]:
            shares = ", ".join(f"{a:.2f}/{b:.2f}" for a, b in zip(row["first"], row["second"], strict=True))
            argmax = ", ".join(f"{ratio:.2f}" for ratio in row["argmax"])
            print(f"D = {D}, seed {row['seed']:2}: {row['best']:.1e}, followed in layers 1/2: {shares}; (56): {argmax}")
        write_json(out / f"followed_D{D}.json", {**found, "provenance": provenance(("torch",))})


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("followed: needs the folder of the checkpoints of a stopped run; nothing measured")
        sys.exit(0)
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "results"
    main(Path(sys.argv[1]), where, [int(D) for D in sys.argv[3:]] or [2, 3, 4])
