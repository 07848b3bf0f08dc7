"""Accuracy of a trained max-of-K network, proved by every strategy from brute force to the most compact one.

    python benchmarks/proofs_accuracy.py [--store out/proofs_accuracy] [--symbols 64] [--length 4]

Trains one network on `task:largest_token` and bounds its accuracy over all V^K sequences: depth 1, 2, .. of
`proofs/accuracy.py`, the climb that splits where the most sequences are open (up to so many groups), and brute force
over the multisets, which is the truth. Times are of one core, as the process used it.
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import infoflow as iflow
from infoflow.files import write_json
from infoflow.proofs.accuracy import Share, TokenLaw, listed, prove
from infoflow.proofs.tabled import Tabled, tabled
from infoflow.provenance import provenance
from infoflow.train.fit import Run, fit_many
from infoflow.train.tasks import named_task

RESULTS = Path(__file__).parent / "results"
CLIMBS = (1_000, 3_000, 6_000, 10_000)  # groups


def network_of(symbols: int, length: int, store: Path) -> tuple[Any, float]:
    task = named_task(f"task:largest_token,symbols={symbols},length={length}")
    recipe = iflow.Recipe(samples=32768, validation=4096, epochs=20)
    run = Run(task, iflow.Architecture(heads=(1,), embed=(32,), width=(64,)), length, 0, recipe)
    (result,) = fit_many([run], store, keep_weights=True)
    assert result is not None
    return result.network(), result.best


def timed(strategy: str, prover: Callable[[], Share]) -> dict[str, Any]:
    start = time.process_time()
    share = prover()
    found = {"strategy": strategy, "right": share.right, "at_most": share.at_most, "groups": share.groups}
    print({**found, "seconds": time.process_time() - start}, flush=True)
    return {**found, "seconds": time.process_time() - start}


def strategies(net: Tabled, law: TokenLaw) -> list[dict[str, Any]]:
    rows = [timed(f"depth {depth}", lambda depth=depth: prove(net, law, math.inf, depth)) for depth in (1, 2)]
    rows += [
        timed(f"climb, {most:,} groups", lambda most=most: prove(net, law, math.inf, most=most)) for most in CLIMBS
    ]
    return [*rows, timed("brute force", lambda: listed(net, law))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("out/proofs_accuracy"))
    parser.add_argument("--symbols", type=int, default=64)
    parser.add_argument("--length", type=int, default=4)
    options = parser.parse_args()
    network, missed = network_of(options.symbols, options.length, options.store)
    rows = strategies(tabled(network), TokenLaw(options.symbols, options.length))
    sizes = {"symbols": options.symbols, "length": options.length, "validation_error": missed}
    made = {"provenance": provenance(("numpy", "torch", "scipy")), **sizes, "rows": rows}
    write_json(RESULTS / "proofs_accuracy.json", made)


if __name__ == "__main__":
    main()
