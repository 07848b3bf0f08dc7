"""100 trained networks, drawn by a seed and none left out: proved bound, attacked error, and a second attack on each.

    python benchmarks/proofs_sweep.py [--certifiable] [--store out/proofs_sweep] [--seconds 20] [--attack 20]

A run that is stopped goes on where it was; what is recorded speaks of the networks of the draw it has reached.

Every network has one layer and heads enough (D, or one more), D and d of 1..3, T of 8..64, its own target. The first
attack is certify's own; the second (`proofs_attack.py`) shares no code with certify, is given `--attack` processor
seconds and knows nothing of the bound. A bound below either is false.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import infoflow as iflow
from infoflow.files import write_json
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.targets.named import parse
from infoflow.train.fit import Run, fit_many
from proofs_attack import attack

NETWORKS, SEED = 100, 25
RESULTS = Path(__file__).parent / "results"


def runs(certifiable: bool) -> list[Run]:
    rng = np.random.default_rng(SEED)
    sizes = {"samples": 4096, "validation": 1000, "batch": 128, "epochs": 30, "evaluate_every": 3}
    recipe = iflow.Recipe(**sizes, certifiable=certifiable)
    found = []
    for i in range(NETWORKS):
        D, d, extra = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(0, 2))
        T, heads = int(rng.integers(8, 65)), D + extra
        target = iflow.targets.sum_of_maxima(D=D, d=d, seed=i)
        found.append(Run(target, iflow.Architecture(heads=(heads,), embed=(4 * heads,)), T, i, recipe))
    return found


def row(result: Any, seconds: float, again: float) -> dict[str, Any]:
    network = result.network()
    target, T = parse(network.header["target"]), int(network.header["T"])
    start = time.process_time()
    certificate = iflow.certify(network, seconds=seconds)
    used = time.process_time() - start
    second, _, climbed = attack(network, target, T, again, seed=1000 + result.seed)
    corners = np.array(np.meshgrid(*[target.domain] * target.dim)).reshape(target.dim, -1).T
    return {
        "target": target.spelling,
        "T": T,
        "heads": network.config.heads[0],
        "nmse": result.best,
        "bound": certificate.bound,
        "attacked": certificate.attacked,
        "attacked_again": second,
        "climbed_again": climbed,
        "largest_target": float(target(corners)),  # max |F|: every term at its largest
        "nodes": certificate.measured["nodes"],
        "seconds": certificate.seconds,
        "processor_seconds": used,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The shares that are asked for. The attacked error is the larger of both attacks."""
    found = [max(r["attacked"], r["attacked_again"]) for r in rows]
    ratios = sorted(r["bound"] / f for r, f in zip(rows, found, strict=True))
    good = [(r, f) for r, f in zip(rows, found, strict=True) if f < r["largest_target"] / 8]
    proved = sum(r["bound"] < r["largest_target"] / 4 for r, _ in good)
    return {
        "networks": len(rows),
        "within_1.5": sum(ratio <= 1.5 for ratio in ratios),
        "within_2": sum(ratio <= 2 for ratio in ratios),
        "median_ratio": float(np.median(ratios)),
        "largest_ratio": ratios[-1],
        "false_bounds": sum(f > r["bound"] for r, f in zip(rows, found, strict=True)),
        "attacked_below_an_eighth": len(good),
        "of_those_proved_below_a_quarter": proved,
        "median_nmse": float(np.median([r["nmse"] for r in rows])),
        "median_attacked": float(np.median([f / r["largest_target"] for r, f in zip(rows, found, strict=True)])),
        "median_seconds": float(np.median([r["seconds"] for r in rows])),
        "median_processor_seconds": float(np.median([r["processor_seconds"] for r in rows])),
    }


def done(i: int, run: Run, options: argparse.Namespace, name: str) -> dict[str, Any]:
    """The row of network i: read where it was made before with the same times, else made and kept."""
    kept = options.store / "rows" / f"{name}_{i:03d}.json"
    times = {"search_seconds": options.seconds, "second_attack": options.attack}
    if kept.exists() and (found := json.loads(kept.read_text()))["times"] == times:
        return found
    (result,) = fit_many([run], options.store, keep_weights=True)
    made = {"number": i, **row(result, options.seconds, options.attack), "times": times}
    write_json(kept, made)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--certifiable", action="store_true")
    parser.add_argument("--store", type=Path, default=Path("out/proofs_sweep"))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--attack", type=float, default=20.0)
    parser.add_argument("--first", type=int, default=NETWORKS, help="Only the first so many of the draw.")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    name = "proofs_sweep_certifiable" if options.certifiable else "proofs_sweep"
    rows: list[dict[str, Any]] = []
    with Progress("sweep", options.first) as bar:
        for i, run in enumerate(runs(options.certifiable)[: options.first]):
            rows.append(done(i, run, options, name))
            bar.update(i + 1, f"{rows[-1]['target']} {rows[-1]['attacked']:.3g} to {rows[-1]['bound']:.3g}")
            if (i + 1) % 10 == 0 or i + 1 == options.first:
                made = {"provenance": provenance(("numpy", "torch", "scipy")), "drawn": NETWORKS}
                write_json(options.out / f"{name}.json", {**made, "summary": summary(rows), "rows": rows})


if __name__ == "__main__":
    main()
