"""What a forecast from theory alone costs: seconds on two cores, imports aside, beside the operations of a 5% pilot.

    python benchmarks/forecast_seconds.py        writes benchmarks/results/forecast_seconds.json

T = 64 and D = 4 where the target has terms to count, one to four layers, with enough heads. Each is asked once, as a
person asks, in one process whose imports are paid for; the goal is 10 seconds.
"""

import time
from pathlib import Path
from typing import Any

import torch

import infoflow as iflow
from infoflow import targets
from infoflow.architecture import Architecture
from infoflow.files import write_json
from infoflow.forecasts import flops
from infoflow.forecasts.cells import USUAL
from infoflow.forecasts.pilots import SEEDS, SHARE, pilot_recipe
from infoflow.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "forecast_seconds.json"
T, GOAL, CORES = 64, 10.0, 2
TARGETS = (
    "sum_of_maxima:D=4,d=4",
    "pairwise_max:D=4,d=4",
    "d_retrieval:D=4,d=4",
    "kth_largest:k=4,d=4",
    "triangle_center:d=2",
)


def main() -> None:
    torch.set_num_threads(CORES)
    iflow.forecast("max_plus_min", "heads=1", 8, USUAL)  # pays for the imports
    rows: list[dict[str, Any]] = []
    for spelling in TARGETS:
        for layers in (1, 2, 3, 4):
            heads = 4
            arch = Architecture((heads,) * layers, 6 * heads, 64)
            target = targets.parse(spelling)
            began = time.monotonic()
            iflow.forecast(target, arch, T, USUAL)
            seconds = round(time.monotonic() - began, 2)
            pilot = SEEDS * flops.training(arch, target.dim, T, pilot_recipe(USUAL, SHARE), target.outputs)
            theory = flops.theory(arch, target.dim, T)
            rows.append({"target": target.spelling, "T": T, "layers": layers, "seconds": seconds,
                         "gflop": round(theory / 1e9, 1), "pilot_gflop": round(pilot / 1e9, 1)})  # fmt: skip
            print(rows[-1], flush=True)
    slowest = max(row["seconds"] for row in rows)
    payload = {"provenance": provenance(), "cores": CORES, "goal": GOAL, "slowest": slowest,
               "within_goal": sum(row["seconds"] <= GOAL for row in rows), "asked": len(rows),
               "cheaper_than_pilot": sum(row["gflop"] < row["pilot_gflop"] for row in rows), "rows": rows}  # fmt: skip
    write_json(RESULTS, payload)


if __name__ == "__main__":
    main()
