"""What a store of many results costs: writing, listing, reading all of it, a partial summary with polars.

    python benchmarks/listing.py [RESULTS...]      (1000 20000) writes benchmarks/results/listing.json

One small model is trained; its result is then stored under the keys of as many seeds, through the store itself, so
every file has the size, name and checksum that a sweep leaves. A summary is what docs/cluster.md says: one row for each
architecture and length, written as parquet, a file for each store, joined at the end.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from infoflow.architecture import Architecture
from infoflow.files import write_json
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.targets import pairwise_max
from infoflow.train.fit import Recipe, Result, Run, Store, fit_many

RECIPE = Recipe(samples=16, validation=8, batch=4, epochs=6, dtype="float64")


def run(seed: int) -> Run:
    return Run(pairwise_max(D=1, d=2, seed=0), Architecture((1, 1), (2, 2), 3), 3, seed, RECIPE)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    return work(), time.process_time() - begin


def filled(store: Store, like: Result, count: int) -> None:
    with Progress("results", count) as bar:
        for seed in range(count):
            this = run(seed)
            store.put(replace(like, key=this.key, identity=this.identity(), store=None, model=None))
            bar.update(seed + 1)


def summarised(store: Store, out: Path) -> pl.DataFrame:
    rows = [{"arch": r.identity["arch"], "T": r.identity["T"], "best": r.best} for r in store.results()]
    table = pl.DataFrame(rows).group_by("arch", "T").agg(pl.col("best").median(), pl.len())
    table.write_parquet(out)
    return table


def measured(count: int, like: Result, folder: Path) -> dict[str, Any]:
    store = Store(folder / f"store{count}")
    _, writing = timed(lambda: filled(store, like, count))
    keys, listing = timed(store.keys)
    table, reading = timed(lambda: summarised(store, folder / f"{count}.parquet"))
    assert len(keys) == int(table["len"].sum()) == count
    size = sum(path.stat().st_size for path in (store.folder / "runs").iterdir())
    row = {"results": count, "bytes_a_result": size / count, "writing": writing, "listing": listing, "summary": reading}
    return row | {"peak_MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main(counts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (like,) = fit_many([run(0)], Path(folder) / "one")
        assert like is not None
        rows = [measured(count, like, Path(folder)) for count in counts]
    payload = {"rows": rows, "provenance": provenance(("polars", "torch"))}
    write_json(Path(__file__).parent / "results" / "listing.json", payload)
    for row in rows:
        print({key: round(value, 3) for key, value in row.items()})


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1000, 20_000])
