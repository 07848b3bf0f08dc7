"""Side by side with Tracr on the tasks both can state: maximum, minimum over pairs on a grid, sum of fixed positions.

    python benchmarks/tracr.py

Tracr (a compiler from RASP to Transformer weights) is not on the package index, so it is not run here and no ratio is
printed: its own published sizes stand beside ours as data. It gives no error bound; ours come with one.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import infoflow as iflow
from infoflow.files import write_json
from infoflow.provenance import provenance
from infoflow.targets import Extremum, Target, TreeScore, min_pair, position_sum

# Dense parameters of Tracr's compiled "reverse", 8 tokens in the vocabulary, by maximal length: published sizes.
TRACR_REVERSE = {10: 102_845, 20: 576_195, 40: 3_789_695, 50: 7_105_845}
EPS = 1e-2


def maximum() -> Target:
    return Target.sum(Extremum(TreeScore.linear(np.ones(1)), "max"), spelling="maximum")


def worst_on_grid(network: Any, target: Target, T: int, levels: int = 9, sequences: int = 4000) -> float:
    """The largest error on sequences whose coordinates lie on a grid of the box: what a RASP program can state."""
    grid = np.linspace(-1, 1, levels)
    X = np.random.default_rng(0).choice(grid, (sequences, T, target.dim))
    with torch.no_grad():
        found = network(torch.from_numpy(X)).numpy()
    return float(np.abs(found - np.asarray(target(X))).max())


def row(name: str, target: Target, T: int) -> dict[str, Any]:
    start = time.perf_counter()
    network = iflow.build(target, T, EPS)
    seconds = time.perf_counter() - start
    parameters = list(network.parameters())
    return {
        "task": name,
        "T": T,
        "eps": EPS,
        "parameters": sum(p.numel() for p in parameters),
        "nonzero": sum(int((p != 0).sum()) for p in parameters),
        "build_seconds": seconds,
        "worst_error_on_grid": worst_on_grid(network, target, T),
        "bound": network.certificate.bound,
    }


def main() -> None:
    rows = [
        row(name, target, T)
        for T in (10, 20, 40, 50)
        for name, target in (
            ("maximum", maximum()),
            ("minimum over pairs", min_pair(d=3)),
            ("sum of positions 1 to 3", position_sum()),
        )
    ]
    for found in rows:
        print({key: found[key] for key in ("task", "T", "parameters", "worst_error_on_grid", "bound")})
    write_json(
        Path(__file__).parent / "results" / "tracr.json",
        {"ours": rows, "tracr_reverse_dense_parameters": TRACR_REVERSE, "tracr_run_here": False,
         "provenance": provenance()},
    )  # fmt: skip


if __name__ == "__main__":
    main()
