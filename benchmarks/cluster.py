"""Real runs through a real Ray cluster: what the head and the caller spend on them, at 1,000 and at 10,000.

    python benchmarks/cluster.py [folder]        writes cluster.json

A head and two more nodes, each with processes of its own, on this machine. The runs are tiny (four steps), so nearly
all the time is the cluster's and the store's; at most 25 of them are trained in one task. Every result must be put into
the store once, and be there in the end.
"""

import logging
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from infoflow.architecture import Architecture
from infoflow.files import write_json
from infoflow.provenance import provenance
from infoflow.targets import parse
from infoflow.train import plan
from infoflow.train.fit import Store, fit_many
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run

COUNTS = (1_000, 10_000)
NODES = 3
TOGETHER = 25  # runs in a task
RECIPE = Recipe(samples=8, validation=4, batch=4, epochs=None, steps=4, evaluate_every=4)


def head_processes() -> list[int]:
    """The process ids of the cluster's control store."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name = (entry / "cmdline").read_bytes().split(b"\0")[0]
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if name.endswith(b"gcs_server") and parent in (os.getpid(), 1):
                found.append(int(entry.name))
    return found


def spent(process: int) -> tuple[float, float]:
    """Processor seconds, and MiB held now."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _runs(count: int) -> list[Run]:
    target, arch = parse("pairwise_max:D=1,d=2"), Architecture.parse("heads=1,1 embed=2,2 width=2")
    return [Run(target, arch, 3, seed, RECIPE) for seed in range(count)]


def swept(count: int, folder: Path, head: int) -> dict[str, Any]:
    runs = _runs(count)
    puts: Counter[str] = Counter()
    put = Store.put
    Store.put = lambda self, result, *rest: (puts.update([result.key]), put(self, result, *rest))[1]  # type: ignore[method-assign, assignment]
    head_before, caller, wall = spent(head)[0], time.process_time(), time.perf_counter()
    found = fit_many(runs, folder, engine="ray")
    Store.put = put  # type: ignore[method-assign]
    head_cpu, head_memory = spent(head)
    assert all(result is not None for result in found)
    assert set(puts.values()) == {1}
    assert len(puts) == count == len(Store(folder).keys())
    return {
        "runs": count,
        "seconds": time.perf_counter() - wall,
        "caller_cpu_seconds": time.process_time() - caller,
        "head_cpu_seconds": head_cpu - head_before,
        "head_mebibytes": head_memory,
    }


def main(folder: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    run = _runs(1)[0]
    config = run.task.config(run.arch, run.T, run.recipe)
    assert config is not None
    plan.ENOUGH = TOGETHER * plan.operations(run, config)  # so small a pass that the sweep falls into many tasks
    before = set(head_processes())
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    (head,) = set(head_processes()) - before
    for _ in range(NODES - 1):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes(timeout=120)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for count in COUNTS:
            rows.append(swept(count, Path(scratch) / str(count), head))
            print(rows[-1], flush=True)
    ray.shutdown()
    cluster.shutdown()
    write_json(folder / "cluster.json", {"rows": rows, "nodes": NODES, "provenance": provenance(("torch", "ray"))})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
