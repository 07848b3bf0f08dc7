"""Speed of the framework: a whole prediction at T = 10^6, an information flow at T = 4096, and what importing costs.

    python benchmarks/flow.py        writes benchmarks/results/flow.json

Each number is the best of several runs in one process (imports: of fresh processes), so that it speaks of the code.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from infoflow import Architecture, targets
from infoflow.files import write_json
from infoflow.flow.sets import LayerInput, MaxHead, RowScores, Slot, simulate, sizes
from infoflow.flow.trace import trace
from infoflow.provenance import provenance
from infoflow.verdicts.predict import predict

RESULTS = Path(__file__).parent / "results" / "flow.json"


def best(function: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Least wall and least processor seconds; on a busy machine the second one is the code's own."""
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        function()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"wall": min(walls), "cpu": min(cpus)}


def predictions() -> dict[str, dict[str, float]]:
    """Seconds of `predict` at T = 10^6, after one call that pays for the imports."""
    T = 10**6
    cases = {
        "pairwise_max D=4, heads 4,4": (targets.pairwise_max(D=4, d=4), Architecture((4, 4), 24)),
        "pairwise_max D=4, heads 3,4": (targets.pairwise_max(D=4, d=4), Architecture((3, 4), 24)),
        "triangle_center, heads 2,2": (targets.triangle_center(), Architecture((2, 2), 24)),
        "min_pair, one layer": (targets.min_pair(), Architecture(1, 6)),
        "star k=3, heads 2,1": (targets.star(), Architecture((2, 1), (12, 2))),
    }
    found = {}
    for name, (target, arch) in cases.items():
        predict(target, arch, T)
        found[name] = best(lambda target=target, arch=arch: predict(target, arch, T), 15)  # type: ignore[misc]
    return found


def long_flow(T: int = 4096, layers: int = 8, heads: int = 8, d: int = 4) -> dict[str, Any]:
    """All heads of all layers retrieve by random bilinear scores: the full T^2 comparison in each of them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((T, d))

    def head() -> MaxHead:
        A = rng.standard_normal((d, d))

        def scores(state: LayerInput) -> RowScores:
            keys = np.ascontiguousarray((state.X @ A).T)
            return lambda rows: state.X[np.minimum(rows, T - 1)] @ keys

        return MaxHead(scores)

    program = [[Slot(head(), head()) for _ in range(heads)] for _ in range(layers)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = best(lambda: simulate(X, program), 5)
    steps = simulate(X, program)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "T": T,
        "layers": layers,
        "heads": heads,
        "seconds": seconds,
        "peak_megabytes_of_the_process": peak / 1024,
        "added_megabytes": (peak - before) / 1024,
        "cls_set_size": int(sizes(steps[-1].sets)[-1]),
    }


def traced(T: int = 4096) -> dict[str, float]:
    """Seconds of a whole trace of eq. (6) with heads (8,8), the target's own active set included."""
    target = targets.pairwise_max(D=8, d=4)
    X = target.sample(1, T)[0]
    return best(lambda: trace(target, Architecture((8, 8), 48), X), 3)


def imports() -> dict[str, float]:
    """Least seconds of fresh processes, the bare interpreter's start included and named."""
    codes = {
        "python": "pass",
        "import infoflow": "import infoflow",
        "infoflow --help": "from infoflow.cli import main; main(['--help'])",
    }
    found = {}
    for name, code in codes.items():
        times = []
        for _ in range(15):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        found[name] = min(times)
    return found


def main() -> None:
    measured = {
        "prediction_seconds_at_T_1000000": predictions(),
        "flow": long_flow(),
        "trace_seconds_eq6_D8_T_4096": traced(),
        "process_seconds": imports(),
    }
    write_json(RESULTS, {"benchmark": "flow", **measured, "provenance": provenance(("numpy",))})
    for name, value in measured.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
