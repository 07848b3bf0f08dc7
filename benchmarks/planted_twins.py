"""Trained twins of constructions: how often training finds the heads of the construction.

    python benchmarks/planted_twins.py [--count 100] [--store DIR] [--seconds S]

Trains what is not in the store yet (a stopped call goes on there), compares every trained network with its
construction head by head (`_planted_twins.py`) and writes `results/planted_twins.json`; twins that are
not trained yet are counted as such.
"""

import argparse
from pathlib import Path

from _planted_twins import FOUND, RECIPE, compare, twins
from infoflow.files import write_json
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.train.fit import fit_many
from infoflow.train.store import Store

RESULT = Path(__file__).parent / "results" / "planted_twins.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--store", type=Path, default=Path("out/planted_twins"))
    parser.add_argument("--seconds", type=float, default=None, help="stop training after so long; call again to go on")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    asked = twins(options.count)
    store = Store(options.store)
    results = fit_many([twin.run for twin in asked], store, keep_weights=True, seconds=options.seconds)
    rows = []
    with Progress("comparing", len(asked)) as bar:
        for number, (twin, result) in enumerate(zip(asked, results, strict=True), 1):
            if result is not None:
                rows.append({**compare(twin, result.network()), "nmse": result.best})
            bar.update(number)
    report = {
        "what": "trained twins of constructions, T=8, head by head",
        "asked": len(asked),
        "finished": len(rows),
        "found_from": FOUND,
        "recipe": RECIPE.identity(),
        "twins": rows,
        "provenance": provenance(),
    }
    write_json(options.out, report)
    jobs = [job for row in rows for job in row["jobs"]]
    hits = sum(job["trained"] >= FOUND for job in jobs)
    print(f"{len(rows)} of {len(asked)} twins trained; {hits} of {len(jobs)} heads found")


if __name__ == "__main__":
    main()
