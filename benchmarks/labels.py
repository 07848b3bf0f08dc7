"""Labels of triangle-center: the pruned search against direct enumeration of all T^3 triples, in one run.

    python benchmarks/labels.py [--sequences 100000] [--check 2000]

Direct enumeration is timed on a subset, at the best of three chunk sizes, and scaled to the number of sequences; the
search is timed on all of them, with a C compiler where one is found and without. Two forms of enumeration are timed: as
one would write it, and tuned by hand (one coordinate at a time, in place). Values must agree to 1e-12.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch

from infoflow.files import write_json
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.targets import Target, norm_search, triangle_center

T, D = 64, 2
CHUNKS = {"plain": (1, 8, 64), "tuned": (1, 4, 16)}


def plain(X: torch.Tensor) -> torch.Tensor:
    """min over all (i, j, k) of |x_i + x_j + x_k|^2, written as it stands."""
    sums = X[:, :, None, None] + X[:, None, :, None] + X[:, None, None, :]
    return (sums**2).sum(-1).flatten(1).amin(1)


def tuned(X: torch.Tensor) -> torch.Tensor:
    """The same triples with fewer and smaller temporaries."""
    total = None
    for i in range(X.shape[2]):
        x = X[:, :, i]
        sums = (x[:, :, None] + x[:, None, :])[..., None] + x[:, None, None, :]
        total = sums.mul_(sums) if total is None else total.addcmul_(sums, sums)
    return total.flatten(1).amin(1)


def seconds_per_sequence(enumerate_: Callable[[torch.Tensor], torch.Tensor], X: torch.Tensor, chunk: int) -> float:
    for part in X[:chunk].split(chunk):
        enumerate_(part)
    start = time.perf_counter()
    for part in X.split(chunk):
        enumerate_(part)
    return (time.perf_counter() - start) / len(X)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=100_000)
    parser.add_argument("--subset", type=int, default=256, help="sequences the enumeration is timed on")
    parser.add_argument("--check", type=int, default=2000, help="sequences whose values are compared")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "labels.json")
    options = parser.parse_args()
    F = triangle_center(d=D)
    X = F.sample(options.sequences, T, seed=0, kind="torch", dtype=torch.float64)
    baselines = {}
    with Progress("direct enumeration", total=6) as progress:
        for name, enumerate_ in (("plain", plain), ("tuned", tuned)):
            timed = {}
            for chunk in CHUNKS[name]:
                timed[chunk] = seconds_per_sequence(enumerate_, X[: options.subset], chunk)
                progress.update(progress.done + 1)
            best = min(timed, key=timed.__getitem__)
            baselines[name] = {
                "best_chunk": best,
                "microseconds_per_sequence": {str(c): 1e6 * s for c, s in timed.items()},
                "seconds_scaled": timed[best] * options.sequences,
            }
    labels, search = timed_labels(F, X)
    with patch.object(norm_search, "verified_library", lambda: None):  # what a machine without a compiler does
        array_labels, arrays = timed_labels(F, X)
    reference = torch.cat([tuned(part) for part in X[: options.check].split(4)])
    difference = max(float((found[: options.check] - reference).abs().max()) for found in (labels, array_labels))
    result = {
        "what": "labels of triangle_center, float64",
        "sequences": options.sequences,
        "T": T,
        "d": D,
        "sampler": F.sampler,
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],  # above the number of cores: others were at work, measure again
        "enumeration_timed_on": options.subset,
        "enumeration": baselines,
        "compiler_found": norm_search.verified_library() is not None,
        "seconds": {"search": search, "search_without_compiler": arrays},
        "times_faster": {
            f"{name}_than_{baseline}": found["seconds_scaled"] / seconds
            for name, seconds in (("search", search), ("search_without_compiler", arrays))
            for baseline, found in baselines.items()
        },
        "compared": options.check,
        "largest_difference": difference,
        "provenance": provenance(),
    }
    if difference > 1e-12:
        raise SystemExit(f"labels differ by {difference}")
    write_json(options.out, result)
    print(f"{options.sequences} sequences; largest difference {difference:.1e}; seconds {result['seconds']}")
    for name, times in result["times_faster"].items():
        print(f"{name.replace('_', ' ')}: {times:.1f} times faster")


def timed_labels(F: Target, X: torch.Tensor) -> tuple[torch.Tensor, float]:
    F(X[:2000])
    start = time.perf_counter()
    labels = F(X)
    return labels, time.perf_counter() - start


if __name__ == "__main__":
    main()
