"""Which maximum of eq. (6) each head of a trained network follows, and what the networks that are stuck miss.

    python benchmarks/followed.py CHECKPOINTS [FOLDER [D ...]]      writes FOLDER/followed_D<D>.json

CHECKPOINTS is the folder of that name in the store of a stopped Table 11 run. A head of the first layer follows a
maximum at token t when it looks hardest at the best partner of t in x(s)' A_i x(t), on a fixed side; a head of the
second layer when the CLS looks hardest at the first or the second token of the best pair. `first` and `second` give,
for every maximum, the share of tokens (of sequences) at which the head that follows it best does so. `argmax` gives
for every head of the first layer what `infoflow/recovery` measures: the error (56) of the token it looks at hardest,
read back from what the head returns, over the same error before training.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow import targets
from infoflow.files import write_json
from infoflow.lab.papers.infoflow.recovery.item import measure
from infoflow.lab.papers.infoflow.table11.item import FULL, architecture
from infoflow.nn import Transformer
from infoflow.probes.record import batched, record
from infoflow.probes.tap import Step
from infoflow.provenance import provenance
from infoflow.targets import Extremum, Target
from infoflow.train import checkpoint
from infoflow.train.recipe import Run

T, SEQUENCES, RECOVERY_SEQUENCES, SEEDS = 64, 400, 1000, 16
RECIPE = {"lr": 1e-2, "decay": 1e-4, "init_scale": 0.5, "rollback": 8.0, "epochs": 1000}  # what recipes.py chose
FOLLOWED = 0.8  # of tokens or sequences


def scores(target: Target, X: Float[Tensor, "B T d"]) -> Float[Tensor, "B D T T"]:
    """x(s)' A_i x(t) for every term of the target."""
    left, right = np.broadcast_arrays(X.numpy()[:, :, None], X.numpy()[:, None])
    pairs = np.stack([left, right], -2)  # (B, s, t, 2, d)
    return torch.stack([torch.from_numpy(term.score(pairs)) for term in target.terms if isinstance(term, Extremum)], 1)


def agreement(network: Transformer, X: Tensor, S: Float[Tensor, "B D T T"]) -> tuple[list[float], list[float]]:
    """For every maximum, how often the head that follows it best does so, in either layer."""
    looked: dict[int, list[Tensor]] = {0: [], 1: []}

    def keep(step: Step) -> None:
        looked[step.layer].append(step.weights.argmax(-1))

    record(network, batched([X], 200)).feed(keep)
    first, second = torch.cat(looked[0])[..., :T], torch.cat(looked[1])  # (B, h, T), and (B, h, 1) of the CLS alone
    partners = (S.argmax(2), S.argmax(3))  # the best left token of each t, the best right token of each s
    pair = S.flatten(2).argmax(-1)
    ends = ((pair // T).unsqueeze(-1), (pair % T).unsqueeze(-1))
    return (
        [max(_share(first, side[:, i]) for side in partners) for i in range(S.shape[1])],
        [max(_share(second, side[:, i]) for side in ends) for i in range(S.shape[1])],
    )


def _share(looked: Int[Tensor, "B h Q"], wanted: Int[Tensor, "B Q"]) -> float:
    """The largest share over heads."""
    return float((looked == wanted.unsqueeze(1)).double().mean((0, 2)).max())


def network_of(run: Run, weights: Float[Tensor, " P"]) -> Transformer:
    network = Transformer(run.config())
    torch.nn.utils.vector_to_parameters(weights, network.parameters())
    return network.requires_grad_(False)


def look(folder: Path, D: int) -> dict[str, Any]:
    target = targets.pairwise_max(D=D, d=4, seed=0)
    recipe = FULL.with_(**RECIPE)
    runs = [Run(target, architecture("(D,D)", D), T, seed, recipe) for seed in range(SEEDS)]
    found = checkpoint.find(folder, [run.key for run in runs])
    if not found:
        raise SystemExit(f"followed: expected a checkpoint of D = {D} in {folder}, found none; stop a run there first.")
    X = torch.from_numpy(target.sample(SEQUENCES, T, seed=7)).float()
    S = scores(target, X)
    rows = []
    for run in runs:
        row = found[0].keys.index(run.key)
        network = network_of(run, found[0].tensors["best_weights"][row])
        first, second = agreement(network, X, S)
        errors = measure(network, target, T, RECOVERY_SEQUENCES)["argmax"]
        argmax = [trained / initialised for trained, initialised in errors]
        best = float(found[0].tensors["best"][row])
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
            ratios = ", ".join(f"{ratio:.2f}" for ratio in row["argmax"])
            print(f"D = {D}, seed {row['seed']:2}: {row['best']:.1e}, followed in layers 1/2: {shares}; (56): {ratios}")
        write_json(out / f"followed_D{D}.json", {**found, "provenance": provenance(("torch",))})


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("followed: expected the checkpoints of a stopped run, got nothing; pass their folder.")
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "results"
    main(Path(sys.argv[1]), where, [int(D) for D in sys.argv[3:]] or [2, 3, 4])
