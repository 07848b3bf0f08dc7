"""Table 11 where print is silent: does (D,D) get to the printed error with a longer training, or another activation?

    python benchmarks/table11_longer.py STORE [--epochs 3000] [--activation gelu] [--seeds 2] [--D 2] [--device cpu]
        [--seconds N]

Rate, decay, cosine, samples and batch as in `paper`, heads (D,D) alone. The store is gone on with; what is finished is
written to STORE/longer.json: of each model the NMSE on test samples at its best validation epoch, and how much of the
way it took to come within a tenth of that.
"""

import argparse
from pathlib import Path
from typing import Any

from infoflow import targets
from infoflow.files import write_json
from infoflow.lab.papers.infoflow.table11.item import PAPER, architecture
from infoflow.nn.transformer import ACTIVATIONS
from infoflow.provenance import noted, provenance
from infoflow.train.fit import Run, fit_many
from infoflow.train.store import Result


def row(result: Result) -> dict[str, Any]:
    curve = [value if value is not None else float("inf") for value in result.curve]
    near = next(step for step, value in zip(result.curve_steps, curve, strict=True) if value <= 1.1 * min(curve))
    return {
        "arch": result.identity["arch"],
        "seed": result.seed,
        "epochs": result.identity["recipe"]["epochs"],
        "activation": result.identity["recipe"]["activation"],
        "test": result.test,
        "validation": result.best,
        "final": result.final,
        "within a tenth after": near / result.steps,
        "tenths": [curve[len(curve) * tenth // 10 - 1] for tenth in range(1, 11)],
        "seconds": round(result.seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("--epochs", type=int, default=3000)
    parser.add_argument("--activation", choices=sorted(ACTIVATIONS), default=PAPER.activation)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--D", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float)
    asked = parser.parse_args()
    every = max(PAPER.evaluate_every, min(20, asked.epochs // 60))
    recipe = PAPER.with_(epochs=asked.epochs, evaluate_every=every, activation=asked.activation)
    target, arch = targets.pairwise_max(D=asked.D, d=4, seed=0), architecture("(D,D)", asked.D)
    runs = [Run(target, arch, 64, seed, recipe) for seed in range(asked.seeds)]
    found = fit_many(runs, asked.store, asked.device, seconds=asked.seconds)
    rows = [row(result) for result in found if result is not None]
    for line in rows:
        about = f"{line['arch']}, seed {line['seed']}, {line['epochs']} epochs, {line['activation']}"
        print(f"{about}: NMSE {line['test']:.2e}", flush=True)
    payload = {"provenance": provenance(), "trained": noted(asked.store), "rows": rows}
    write_json(asked.store / "longer.json", payload)


if __name__ == "__main__":
    main()
