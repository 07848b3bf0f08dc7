"""Does `plan --forecast` choose well? Targets of test families, 15 architectures each, forecast first, then trained.

    python benchmarks/forecast_plan.py forecast     writes results/forecast/plan.json: commit it before the next call
    python benchmarks/forecast_plan.py train --seconds 600 [--device cuda]    adds lines to results/forecast/plan.jsonl
    python benchmarks/forecast_plan.py score        writes benchmarks/results/forecast_plan.json

Targets are drawn by a seed of their own; those without parameters of their own (`max_plus_min`) are asked at lengths or
with steps that no registration has. Candidates are those of `plan`: one to three heads in each of one to five layers,
each with the largest head dimension and width that the budget of parameters lets it have. Runs and sequences are short,
so that all of it fits a processor hour or two. Targets are taken in the order of their cost, all candidates of one
before the next, so a part is a fixed beginning. A choice is good if its trained error is within GOOD times the best
candidate's (medians over seeds, on a fresh test set). All three calls go on where they were.

`--name plan_second` is a second test with other targets, made when the first had been scored and its cells had entered
the calibration; it is what the rule "simplest of like forecasts" was tested on. `--name plan_third` is a third, with
targets of families that no forecast had met, made when both had been scored; it tests the rule that `plan` follows now
(`choose.preferred`). `one_seed_for_another` says how often one training of every candidate would have chosen well, and
how alike two trainings rank them. `--share 2/8 --out FILE`: of eight processes side by side this is number 2, and
writes there.
"""

import argparse
import json
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from forecast_cells import TEST_SAMPLES, TEST_SEED, labels, summary
from infoflow.architecture import Architecture
from infoflow.files import write_json
from infoflow.forecasts import families, flops
from infoflow.forecasts.cells import USUAL, Cell
from infoflow.forecasts.choose import MOST, candidates, preferred
from infoflow.forecasts.forecast import forecast
from infoflow.forecasts.scores import rank_correlation
from infoflow.provenance import provenance
from infoflow.targets import Target
from infoflow.train.fit import fit_many
from infoflow.train.run import Run

ROOT = Path(__file__).parents[1]
SEEDS = 2
BUDGET, LAYERS = 3_000, 5  # parameters, and the most layers
RECIPE = USUAL.with_(epochs=6)
GOOD, GOAL = 1.5, 0.9  # 18 of 20
LEAST, SIMPLEST, PLANNED = "least forecast", "simplest of like forecasts", "what plan takes"
SIMPLE = ("most parameters", "one layer", "two layers")  # choices to compare with; of so many: the one with most heads


@dataclass(frozen=True)
class Test:
    name: str
    targets: int
    seed: int
    lengths: tuple[int, ...]
    group: str = "test"

    @property
    def forecasts(self) -> Path:
        return ROOT / f"results/forecast/{self.name}.json"

    @property
    def trained(self) -> Path:
        return ROOT / f"results/forecast/{self.name}.jsonl"

    @property
    def scored(self) -> Path:
        return ROOT / f"benchmarks/results/forecast_{self.name}.json"


FIRST, SECOND = Test("plan", 20, 3, (6, 8, 12, 16)), Test("plan_second", 12, 4, (6, 8))
THIRD = Test("plan_third", 20, 5, (6, 8, 12, 16), "newest")
TESTS = {test.name: test for test in (FIRST, SECOND, THIRD)}
TEACHING = (FIRST, SECOND, THIRD)  # whose candidates the shipped model learns from


def drawn(test: Test) -> list[tuple[Target, int]]:
    """Different targets with their lengths, the families in turn, cheapest first."""
    rng = np.random.default_rng(test.seed)
    found: dict[str, tuple[Target, int]] = {}
    for family in cycle(families.GROUPS[test.group]):
        target = family(rng).target
        found.setdefault(target.spelling, (target, int(rng.choice(test.lengths))))
        if len(found) == test.targets:
            break
    return sorted(found.values(), key=lambda pair: sum(_cost(*pair, arch) for arch in _candidates(*pair)))


def cells(test: Test) -> list[Cell]:
    """The candidates of all targets as cells, for those who calibrate on them."""
    found = []
    for number, (target, T) in enumerate(drawn(test)):
        family = target.spelling.partition(":")[0]
        for i, arch in enumerate(_candidates(target, T)):
            found.append(Cell(f"{test.name}-{number}-{i}", family, target, arch, T, RECIPE))
    return found


def trained_cells(test: Test) -> dict[str, list[float]]:
    """The errors of the cells that are trained, by their names."""
    known = {(row["target"], row["T"], row["arch"]): row["tests"] for row in _rows(test.trained)}
    keys = {cell.name: (cell.target.spelling, cell.T, str(cell.arch)) for cell in cells(test)}
    return {name: known[key] for name, key in keys.items() if key in known}


def _candidates(target: Target, T: int) -> list[Architecture]:
    return list(candidates(target, T, BUDGET, LAYERS))[:MOST]


def _cost(target: Target, T: int, arch: Architecture) -> float:
    return flops.training(arch, target.dim, T, RECIPE, target.outputs)


def make_forecasts(test: Test, seconds: float) -> None:
    """Of all targets, with those that are there already kept."""
    began = time.process_time()
    payload = json.loads(test.forecasts.read_text()) if test.forecasts.exists() else {
        "provenance": provenance(), "what": "forecasts from theory alone, committed before any of these was trained",
        "order": "targets by the cost of training all their candidates", "targets": []}  # fmt: skip
    for target, T in drawn(test)[len(payload["targets"]) :]:
        if time.process_time() - began > seconds:
            break
        made = [forecast(target, arch, T, RECIPE) for arch in _candidates(target, T)]
        entries = [{"arch": str(f.arch), "nmse": float(f"{f.nmse:.4g}"), "low": float(f"{f.low:.4g}"),
                    "high": float(f"{f.high:.4g}"), "floor": float(f"{f.parts.floor:.4g}"),
                    "seconds": round(f.seconds, 2)} for f in made]  # fmt: skip
        payload["targets"].append({"target": target.spelling, "T": T, "candidates": entries})
        write_json(test.forecasts, payload)


def train(test: Test, seconds: float, device: str, share: str = "0/1", out: Path | None = None) -> None:
    torch.set_num_threads(1)
    began, made = time.monotonic(), provenance()
    out = out or test.trained
    done = {(row["target"], row["T"], row["arch"]) for row in _rows(test.trained) + _rows(out)}
    known = {target.spelling: target for target, _ in drawn(test)}
    number, of = map(int, share.split("/"))
    with open(out, "a", encoding="utf-8") as file:
        for target, T, arch in _asked(test, known)[number::of]:
            if (target.spelling, T, arch) in done:
                continue
            if time.monotonic() - began > seconds:
                return
            record = _trained(target, T, Architecture.of(arch), device)
            file.write(json.dumps(record | {"made": made}) + "\n")
            file.flush()


def _trained(target: Target, T: int, arch: Architecture, device: str) -> dict[str, Any]:
    X = torch.from_numpy(target.sample(TEST_SAMPLES, T, seed=TEST_SEED)).float().to(device)
    found = fit_many([Run(target, arch, T, seed, RECIPE) for seed in range(SEEDS)], device=device)
    runs = [summary(result, X, labels(target, X)) for result in found if result is not None]
    return {"target": target.spelling, "T": T, "arch": str(arch), "tests": [run["test"] for run in runs]}


def _asked(test: Test, known: dict[str, Target]) -> list[tuple[Target, int, str]]:
    listed = json.loads(test.forecasts.read_text())["targets"]
    return [(known[entry["target"]], entry["T"], c["arch"]) for entry in listed for c in entry["candidates"]]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def score(test: Test) -> dict[str, Any]:
    """Targets all of whose candidates are trained: how far the chosen one is from the best, beside simple choices."""
    seeds = {(row["target"], row["T"], row["arch"]): row["tests"] for row in _rows(test.trained)}
    known = {target.spelling: target for target, _ in drawn(test)}
    found, repeated = [], []
    for entry in json.loads(test.forecasts.read_text())["targets"]:
        names = [candidate["arch"] for candidate in entry["candidates"]]
        trained = [seeds.get((entry["target"], entry["T"], name)) for name in names]
        if None not in trained:
            found.append(_judged(entry, np.median(np.array(trained, float), 1), known[entry["target"]]))
            repeated.append(_repeated(np.array(trained, float)))
    labels = (LEAST, PLANNED, SIMPLEST, *SIMPLE)
    within = {label: sum(each["times_best"][label] <= GOOD for each in found) for label in labels}
    means = {label: round(float(np.exp(np.mean([np.log(each["times_best"][label]) for each in found]))), 2)
             for label in labels}  # fmt: skip
    return {"provenance": provenance(), "targets": test.targets, "scored": len(found), "good_within": GOOD,
            "goal": GOAL, "good": within, "geometric_mean": means,
            "one_seed_for_another": {name: round(float(np.mean([each[name] for each in repeated])), 3)
                                     for name in ("good", "spearman")},
            "spearman": round(float(np.mean([each["spearman"] for each in found])), 3), "each": found}  # fmt: skip


def _repeated(errors: np.ndarray) -> dict[str, float]:
    """How near the goal luck lets anybody come: train each candidate (row) once, take the best, let another seed judge.
    The share of the seeds (columns) whose choice is good by the next one's errors, and how alike both rank them."""
    chosen = errors.argmin(0)
    judged = np.roll(errors, -1, 1)
    good = judged[chosen, np.arange(errors.shape[1])] <= GOOD * judged.min(0)
    alike = [rank_correlation(one, other) for one, other in zip(errors.T, judged.T, strict=True)]
    return {"good": float(good.mean()), "spearman": float(np.mean(alike))}


def _judged(entry: dict[str, Any], trained: np.ndarray, target: Target) -> dict[str, Any]:
    shapes = [Architecture.of(candidate["arch"]) for candidate in entry["candidates"]]
    said = [candidate["nmse"] for candidate in entry["candidates"]]
    parameters = [shape.parameters(target.dim, target.outputs, entry["T"]) for shape in shapes]
    chosen = {LEAST: int(np.argmin(said)), SIMPLEST: _simplest(said, shapes), PLANNED: preferred(said, shapes)[0],
              "most parameters": int(np.argmax(parameters)),
              "one layer": max(i for i, shape in enumerate(shapes) if shape.layers == 1),
              "two layers": max(i for i, shape in enumerate(shapes) if shape.layers == 2)}  # fmt: skip
    return {"target": entry["target"], "T": entry["T"], "best": float(f"{trained.min():.3g}"),
            "chosen": shapes[chosen[PLANNED]].heads, "best_heads": shapes[int(trained.argmin())].heads,
            "times_best": {label: float(f"{trained[i] / trained.min():.3g}") for label, i in chosen.items()},
            "spearman": round(rank_correlation(np.array(said), trained), 3)}  # fmt: skip


def _simplest(said: list[float], shapes: list[Architecture]) -> int:
    """The rule that the first test gave and the second one tested: of forecasts within twice the least the one with the
    fewest layers, and of these the one with the most heads."""
    alike = [i for i, nmse in enumerate(said) if nmse <= 2.0 * min(said)]
    return min(alike, key=lambda i: (shapes[i].layers, -sum(shapes[i].heads), said[i]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("forecast", "train", "score"))
    parser.add_argument("--name", choices=list(TESTS), default="plan")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--share", default="0/1")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    test = TESTS[options.name]
    if options.what == "forecast":
        make_forecasts(test, options.seconds)
    elif options.what == "train":
        train(test, options.seconds, options.device, options.share, options.out)
    else:
        found = score(test)
        write_json(test.scored, found)
        print(
            f"{found['good']} of {found['scored']} scored targets ({test.targets} asked) within {GOOD} times the best"
        )


if __name__ == "__main__":
    main()
