"""Methods that explain networks, on networks whose mechanism is known: every baseline in one table.

    python benchmarks/planted.py [--count 1000] [--first N] [--tuned 120] [--folder out/planted] [--seconds S]

Makes the benchmark of seed 0 and, to choose thresholds on, one of seed 1, where they are not there yet; runs every
method on every network (what was run stays in FOLDER/judged, so a stopped call goes on); writes
`results/planted.json`. TransformerLens' head detector is run where that library is installed (in an environment of its
own: pip install --no-deps transformer-lens and what it imports); otherwise its row says that it was not.
"""

import argparse
import json
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _planted_methods import TwoPasses, answers
from infoflow.apart import end_with_parent, processes
from infoflow.cost import cores
from infoflow.files import write_json
from infoflow.probes.benchmark.catalogue import STRENGTHS
from infoflow.probes.benchmark.faithful import mib
from infoflow.probes.benchmark.make import make_benchmark
from infoflow.probes.benchmark.read import Benchmark, PlantedNetwork, open_benchmark
from infoflow.probes.benchmark.score import KEEPS, Judged, by_family, judge, summary
from infoflow.progress import Progress
from infoflow.provenance import provenance

RESULT = Path(__file__).parent / "results" / "planted.json"
LENS = "TransformerLens head detector"
LENS_DOCUMENTS = 8  # its patterns of repeats are made document by document
RANKED = ("matter", "edges", "copies")
TUNING_SEED, SCORED_SEED = 1, 0
STRONGEST = f"NMSE {max(STRENGTHS):g}"


def lens_labels(network: PlantedNetwork) -> list[list[str]] | None:
    """The library's similarity of patterns with detection patterns; below a half everywhere: `max`."""
    try:
        from transformer_lens import head_detector as lens
    except ImportError:
        return None
    options = {"exclude_bos": False, "exclude_current_token": False, "error_measure": "mul"}
    T = network.X.shape[1]
    found = []
    for weights in TwoPasses.of(network).clean.weights:
        if weights.shape[2] < T:  # the library asks for square patterns: the CLS' own are none
            found.append(["max"] * weights.shape[1])
            continue
        scores = {
            name: [
                np.mean(
                    [
                        lens.compute_head_attention_similarity_score(pattern, wanted, **options)
                        for pattern, wanted in zip(_patterns(weights[:, i, :T], detection), detection, strict=True)
                    ]
                )
                for i in range(weights.shape[1])
            ]
            for name, detection in _detections(network, lens).items()
        }
        best = [max(scores, key=lambda name: scores[name][i]) for i in range(weights.shape[1])]
        found.append([name if scores[name][i] >= 0.5 else "max" for i, name in enumerate(best)])
    return found


def _patterns(weights: torch.Tensor, detection: list[torch.Tensor]) -> list[torch.Tensor]:
    """The mean pattern for a detection pattern that all documents share, else that of every document."""
    return [weights.mean(0)] if len(detection) == 1 else list(weights[: len(detection)])


def _detections(network: PlantedNetwork, lens: Any) -> dict[str, list[torch.Tensor]]:
    """The library's detection patterns; those of repeats depend on the document's symbols."""
    T = network.X.shape[1]
    found = {
        "previous": [lens.get_previous_token_head_detection_pattern(torch.zeros(1, T))],
        "self": [torch.eye(T)],
        "next": [torch.eye(T).roll(1, 1).triu()],
        "sink": [torch.zeros(T, T).index_fill(1, torch.tensor([0]), 1.0)],
    }
    if network.symbols is not None:
        documents = [row[None] for row in network.symbols[:LENS_DOCUMENTS]]
        found["duplicate"] = [lens.get_duplicate_token_head_detection_pattern(row) for row in documents]
        found["induction"] = [lens.get_induction_head_detection_pattern(row) for row in documents]
    return found


def judged(network: PlantedNetwork) -> dict[str, Any]:
    """Every method's counts on one network, as plain values."""
    seen, truth = TwoPasses.of(network), network.truth()
    found: dict[str, Any] = {}
    given = answers(network)
    lens = lens_labels(network)
    if lens is not None:
        given[LENS] = {"modes": lens}
    X = network.X[: len(seen.clean.output)]
    known: dict[Any, float] = {}
    for name, answer in given.items():
        one = judge(truth, answer, {})
        found[name] = dict(one.found)
        if "matter" in answer:
            found[name]["mib"] = mib(seen.engine, seen.clean, seen.other, X, answer["matter"], known)
        if "set_scores" in answer and all(head.labels for head in truth.heads.values()):
            found[name]["set_scores"] = {
                "true": truth.about["sets"][: len(answer["set_scores"])],
                "scores": answer["set_scores"],
            }
    about = {key: truth.about[key] for key in ("family", "disguise", "strength")}
    kept = sum(bool(head.labels) for head in truth.heads.values())
    modes = [head.labels[0] for head in truth.heads.values() if head.labels]
    says = [head.says for head in truth.heads.values() if head.says and head.role == "computes"]
    left = truth.error["nmse_left_by_disguise"]
    return {
        "about": about, "heads": len(truth.heads), "kept": kept, "modes": modes, "says": says, "left": left,
        "found": found,
    }  # fmt: skip


def all_judged(benchmark: Benchmark, until: float) -> dict[int, dict[str, Any]]:
    """In as many processes as there are cores; `until` is a time of the clock, behind which none is begun."""
    tasks = [(network, until) for network in benchmark if not _path(network).is_file()]
    there = len(benchmark) - len(tasks)
    with Progress(f"methods on {benchmark.folder.name}", len(benchmark), before=there) as bar:
        if tasks and time.time() < until:
            with processes() as spawn, ProcessPoolExecutor(cores(), spawn, end_with_parent) as pool:
                for done, _ in enumerate(pool.map(_job, tasks), there + 1):
                    bar.update(done)
    paths = {network.number: _path(network) for network in benchmark}
    return {number: json.loads(path.read_text("utf-8")) for number, path in paths.items() if path.is_file()}


def _path(network: PlantedNetwork) -> Path:
    return network.folder / "judged" / f"{network.number:04d}.json"


def _job(task: tuple[PlantedNetwork, float]) -> None:
    network, until = task
    torch.set_num_threads(1)
    if time.time() < until:
        write_json(_path(network), judged(network))


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


def set_threshold(rows: list[dict[str, Any]]) -> float:
    """The score from which on the mean F1 of the sets of these networks is largest."""
    tried = np.geomspace(1e-4, 1.0, 41)
    asked = [row for row in rows if any(true is not None for true in row["true"])]
    values = [np.mean([np.mean(sets_f1(row, bar)) for row in asked]) for bar in tried]
    return float(tried[int(np.argmax(values))])


def sets_f1(row: dict[str, Any], bar: float) -> list[float]:
    """F1 per document that is asked of the positions whose score reaches the bar."""
    found = []
    for true, scores in zip(row["true"], row["scores"], strict=True):
        if true is None:
            continue
        said = {s + 1 for s, value in enumerate(scores) if value >= bar}
        found.append(2 * len(said & set(true)) / max(len(true) + len(said), 1))
    return found


def thresholds(tuned: dict[int, dict[str, Any]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    names = {name for row in tuned.values() for name in row["found"]}
    for name in names:
        for task in RANKED:
            rows = [row["found"][name][task] for row in tuned.values() if task in row["found"].get(name, {})]
            if rows:
                found.setdefault(name, {})[task] = best_threshold(rows)
        sets = [
            row["found"][name]["set_scores"] for row in tuned.values() if "set_scores" in row["found"].get(name, {})
        ]
        if sets:
            found.setdefault(name, {})["sets"] = set_threshold(sets)
    return found


OURS = {"modes": ("infoflow: row labels", "macro_f1"), "edges": ("infoflow: interchange", "f1")}


def judged_with(results: dict[int, dict[str, Any]], name: str, bars: dict[str, float]) -> list[Judged]:
    """What one method said of every network, with the thresholds that were chosen elsewhere."""
    part = []
    for row in results.values():
        if name not in row["found"]:
            continue
        found = {task: value for task, value in row["found"][name].items() if task not in ("mib", "set_scores")}
        if "set_scores" in row["found"][name] and "sets" in bars:
            found["sets"] = sets_f1(row["found"][name]["set_scores"], bars["sets"])
        for task in RANKED:
            if task in found and task in bars:
                said = np.array(found[task]["scores"]) >= bars[task]
                true = np.array(found[task]["true"], dtype=bool)
                found[task]["counts"] = [int((said & true).sum()), int(said.sum()), int(true.sum())]
        part.append(Judged(row["about"]["family"], row["about"]["disguise"], row["about"]["strength"], found))
    return part


def scored(results: dict[int, dict[str, Any]], chosen: dict[str, dict[str, float]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in sorted({name for row in results.values() for name in row["found"]}):
        table[name] = summary(judged_with(results, name, chosen.get(name, {})))
        curves = [row["found"][name]["mib"] for row in results.values() if "mib" in row["found"].get(name, {})]
        if curves:
            table[name]["mib"] = {key: float(np.mean([curve[key] for curve in curves])) for key in ("cpr", "cmd")}
    return table


def families(results: dict[int, dict[str, Any]], chosen: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Our scores family by family, function kept and at the strongest disguise that nearly keeps it; intervals are over
    the networks of each family."""
    found: dict[str, Any] = {}
    for task, (name, measure) in OURS.items():
        part = judged_with(results, name, chosen.get(name, {}))
        for level in (KEEPS, STRONGEST):
            at_level = [one for one in part if one.level == level]
            found.setdefault(task, {})[level] = by_family(at_level, task, measure)
    return found


def shares(results: dict[int, dict[str, Any]]) -> dict[str, float]:
    """Of the heads: every mode, and every way to move symbols."""
    modes = [mode for row in results.values() for mode in row["modes"]]
    says = [word for row in results.values() for word in row["says"]]
    count = len(modes)
    return {word: (modes + says).count(word) / count for word in sorted({*modes, *says})}


def made(folder: Path, count: int, first: int | None) -> dict[str, Any]:
    """Make what is missing; what the networks took is kept beside them, for calls that find them there."""
    path, there = folder / "seconds.json", len(list(folder.glob("networks/*")))
    start, before, workers = time.monotonic(), _processor(), cores()
    index = make_benchmark(folder, count, SCORED_SEED, None, first)
    if index["made"] > there:
        earlier = json.loads(path.read_text(encoding="utf-8")) if path.is_file() and there else {}
        took = {"networks": index["made"] - there, "wall": time.monotonic() - start, "processor": _processor() - before}
        write_json(path, {"workers": workers} | {key: value + earlier.get(key, 0) for key, value in took.items()})
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _processor() -> float:
    """Of this process and those it started."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--tuned", type=int, default=120, help="networks of seed 1 to choose thresholds on")
    parser.add_argument("--first", type=int, default=None, help="score the first so many of COUNT alone")
    parser.add_argument("--folder", type=Path, default=Path("out/planted"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="run methods for so long; call again")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    processor = _processor()
    folders = {"scored": options.folder / "seed0", "tuned": options.folder / "seed1"}
    make_benchmark(folders["tuned"], options.tuned, TUNING_SEED, None)
    making = made(folders["scored"], options.count, options.first)
    until = time.time() + options.seconds
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
        "families": families(results, thresholds(tuned)),
        "transformer_lens": "run" if lens else "not installed here: its head detector was not run",
        "making": making,
        "seconds": {"processor": _processor() - processor},
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
