"""Methods that explain networks, on networks whose mechanism is known: every baseline in one table.

    python benchmarks/planted.py [--count 1000] [--first N] [--tuned 48] [--folder out/planted] [--seconds S]

Makes the benchmark of seed 0 and, to choose thresholds on, one of seed 1, where they are not there yet; runs every
method on every network (what was run stays in FOLDER/judged, so a stopped call goes on); writes
`results/planted.json`. TransformerLens' head detector is run where that library is installed (in an environment of its
own: pip install --no-deps transformer-lens and what it imports); otherwise its row says that it was not.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoflow.files import write_json
from infoflow.probes.benchmark.faithful import mib
from infoflow.probes.benchmark.make import make_benchmark
from infoflow.probes.benchmark.methods import Seen, answers
from infoflow.probes.benchmark.read import Benchmark, PlantedNetwork, open_benchmark
from infoflow.probes.benchmark.score import Judged, judge, summary
from infoflow.progress import Progress
from infoflow.provenance import provenance

RESULT = Path(__file__).parent / "results" / "planted.json"
LENS = "TransformerLens head detector"
MEASURES = ("macro_f1", "auroc", "f1", "mean")
RANKED = ("matter", "edges")
PATTERNS = ("previous", "self", "next", "sink")


def lens_labels(network: PlantedNetwork) -> list[list[str]] | None:
    """The library's similarity of patterns with detection patterns; below a half everywhere: `max`."""
    try:
        from transformer_lens import head_detector as lens
    except ImportError:
        return None
    T = network.X.shape[1]
    eye = torch.eye(T)
    wanted = {
        "previous": lens.get_previous_token_head_detection_pattern(torch.zeros(1, T)),
        "self": eye,
        "next": torch.eye(T).roll(1, 1).triu(),
        "sink": torch.zeros(T, T).index_fill(1, torch.tensor([0]), 1.0),
    }
    found = []
    for weights in Seen.of(network).clean.weights:
        rows = []
        for i in range(weights.shape[1]):
            if weights.shape[2] < T:  # the library asks for square patterns: the CLS' own are none
                rows.append("max")
                continue
            pattern = weights[:, i, :T].mean(0)
            options = {"exclude_bos": False, "exclude_current_token": False, "error_measure": "mul"}
            scores = {
                name: lens.compute_head_attention_similarity_score(pattern, wanted[name], **options)
                for name in PATTERNS
            }
            best = max(scores, key=scores.__getitem__)
            rows.append(best if scores[best] >= 0.5 else "max")
        found.append(rows)
    return found


def judged(network: PlantedNetwork) -> dict[str, Any]:
    """Every method's counts on one network, as plain values."""
    seen, truth = Seen.of(network), network.truth()
    found: dict[str, Any] = {}
    given = answers(network)
    lens = lens_labels(network)
    if lens is not None:
        given[LENS] = {"modes": lens}
    X = network.X[: len(seen.clean.output)]
    for name, answer in given.items():
        one = judge(truth, answer, {})
        found[name] = dict(one.found)
        if "matter" in answer:
            found[name]["mib"] = mib(seen.engine, seen.clean, seen.other, X, answer["matter"])
    about = {key: truth.about[key] for key in ("family", "disguise", "strength")}
    kept = sum(bool(head.labels) for head in truth.heads.values())
    modes = [head.labels[0] for head in truth.heads.values() if head.labels]
    left = truth.error["nmse_left_by_disguise"]
    return {"about": about, "heads": len(truth.heads), "kept": kept, "modes": modes, "left": left, "found": found}


def all_judged(benchmark: Benchmark, until: float) -> dict[int, dict[str, Any]]:
    results = {}
    with Progress(f"methods on {benchmark.folder.name}", len(benchmark)) as bar:
        for network in benchmark:
            path = benchmark.folder / "judged" / f"{network.number:04d}.json"
            if not path.is_file():
                if time.monotonic() > until:
                    continue
                write_json(path, judged(network))
            results[network.number] = json.loads(path.read_text(encoding="utf-8"))
            bar.update(network.number + 1)
    return results


def best_threshold(rows: list[dict[str, Any]]) -> float:
    """The score from which on F1 over these networks is largest."""
    true = np.concatenate([row["true"] for row in rows])
    scores = np.concatenate([row["scores"] for row in rows])
    order = np.argsort(-scores)
    hits = np.cumsum(true[order])
    f1 = 2 * hits / (np.arange(1, len(order) + 1) + true.sum())
    distinct = np.append(scores[order][1:] < scores[order][:-1], True)
    k = int(np.argmax(np.where(distinct, f1, -1)))
    below = scores[order][k + 1] if k + 1 < len(order) else 0.0
    return float((scores[order][k] * max(below, 1e-12)) ** 0.5)  # between the last one taken and the next


def thresholds(tuned: dict[int, dict[str, Any]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    names = {name for row in tuned.values() for name in row["found"]}
    for name in names:
        for task in RANKED:
            rows = [row["found"][name][task] for row in tuned.values() if task in row["found"].get(name, {})]
            if rows:
                found.setdefault(name, {})[task] = best_threshold(rows)
    return found


def scored(results: dict[int, dict[str, Any]], chosen: dict[str, dict[str, float]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    names = sorted({name for row in results.values() for name in row["found"]})
    for name in names:
        part, curves = [], []
        for row in results.values():
            if name not in row["found"]:
                continue
            found = {task: value for task, value in row["found"][name].items() if task != "mib"}
            for task in RANKED:
                if task in found and name in chosen:
                    said = np.array(found[task]["scores"]) >= chosen[name][task]
                    true = np.array(found[task]["true"], dtype=bool)
                    found[task]["counts"] = [int((said & true).sum()), int(said.sum()), int(true.sum())]
            about = row["about"]
            part.append(Judged(about["family"], about["disguise"], about["strength"], found))
            curves.append(row["found"][name].get("mib"))
        table[name] = summary(part)
        if any(curves):
            table[name]["mib"] = {
                key: float(np.mean([curve[key] for curve in curves if curve])) for key in ("cpr", "cmd")
            }
    return table


def shares(results: dict[int, dict[str, Any]]) -> dict[str, float]:
    modes = [mode for row in results.values() for mode in row["modes"]]
    return {mode: modes.count(mode) / len(modes) for mode in sorted(set(modes))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--tuned", type=int, default=48, help="networks of seed 1 to choose thresholds on")
    parser.add_argument("--first", type=int, default=None, help="score the first so many of COUNT alone")
    parser.add_argument("--folder", type=Path, default=Path("out/planted"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="run methods for so long; call again")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start, processor = time.monotonic(), time.process_time()
    folders = {"scored": options.folder / "seed0", "tuned": options.folder / "seed1"}
    for seed, (name, count) in enumerate((("scored", options.count), ("tuned", options.tuned))):
        make_benchmark(folders[name], count, seed, None, options.first if name == "scored" else None)
    made = time.monotonic() - start
    until = time.monotonic() + options.seconds
    tuned = all_judged(open_benchmark(folders["tuned"]), until)
    results = all_judged(open_benchmark(folders["scored"]), until)
    lens = any(LENS in row["found"] for row in results.values())
    report = {
        "what": "methods on planted networks; thresholds chosen on seed 1, scores on seed 0",
        "networks": len(results),
        "asked": options.count,
        "tuned_on": len(tuned),
        "heads": sum(row["heads"] for row in results.values()),
        "labels_kept": sum(row["kept"] for row in results.values()),
        "mode_shares": shares(results),
        "thresholds": thresholds(tuned),
        "methods": scored(results, thresholds(tuned)),
        "transformer_lens": "run" if lens else "not installed here: its head detector was not run",
        "seconds": {"making_missing_networks": made, "processor": time.process_time() - processor},
        "provenance": provenance(),
    }
    write_json(options.out, report)
    for name, tasks in report["methods"].items():
        for task, levels in tasks.items():
            if task != "mib":
                row = levels.get("keeps the function", {})
                print(
                    name, task, {k: round(row[k]["value"], 3) for k in ("macro_f1", "auroc", "f1", "mean") if k in row}
                )


if __name__ == "__main__":
    main()
