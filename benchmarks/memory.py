"""What keeping freed memory is worth on this CPU: model-steps a second with and without, in processes that take turns.

The 187-run sweep of softmax attention Figure 2 in stacks of several sizes, and the engine on eq. (6). Run alone it
writes benchmarks/results/memory.json; a folder as first argument changes where.
"""

import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from infoflow.cost import keep_freed_memory
from infoflow.files import write_json
from infoflow.provenance import provenance

STACKS = (1, 4, 16, 64, 187)
ROUNDS = 3


def rates() -> dict[str, float]:
    import torch

    from infoflow.lab.papers.softmax_attention.tasks import Truncated
    from infoflow.lab.sweep import schedule
    from infoflow.train.plan import choose
    from infoflow.train.run import Run
    from infoflow.train.speed import model_steps, ours, workload

    task, device = Truncated(H=1, a=-5.0, b=5.0, n=50, p=64, count=100), torch.device("cpu")
    runs = [Run(task, seed=seed, recipe=schedule(1, 32, 1e-3)) for seed in range(max(STACKS))]
    found = {}
    for size in STACKS:
        found[f"figure 2, stacks of {size}"] = model_steps(runs[:size], size, max(3, 400 // size), device)
    for D in (2, 4):
        found[f"eq. (6), D = {D}"] = ours(D, choose(workload(D, 16), device), 16, device, 3.0)
    found["peak, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def main(folder: Path) -> None:
    ways: dict[str, list[dict[str, float]]] = {"default": [], "kept": []}
    for _ in range(ROUNDS):
        for way, measured in ways.items():
            call = [sys.executable, __file__, "--child", way]
            child = subprocess.run(call, capture_output=True, text=True, check=True)
            measured.append(json.loads(child.stdout))
    rows = []
    for name in ways["default"][0]:
        medians = {way: statistics.median(found[name] for found in measured) for way, measured in ways.items()}
        rows.append({"name": name, **medians, "ratio": medians["kept"] / medians["default"]})
        print(name, *(f"{key} {value:.2f}" for key, value in rows[-1].items() if key != "name"), sep="  ")
    write_json(folder / "memory.json", {"rows": rows, "rounds": ROUNDS, "provenance": provenance(("torch",))})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        if sys.argv[2] == "kept":
            keep_freed_memory()
        print(json.dumps(rates()))
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
