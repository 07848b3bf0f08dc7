"""By which rule should `plan --forecast` choose among forecasts that say nearly the same? Measured on cells that are
trained, each forecast by a model that never saw its family.

    python benchmarks/forecast_rules.py        writes benchmarks/results/forecast_rules.json

Two kinds of questions: the candidates of the three tests of `plan` (52 targets, one to five layers with as many
heads in each), and the drawn cells of one target, length, encoder and number of steps (four or more architectures,
unequal layers, every head size and width). A rule looks at the forecasts within a factor of the least one and takes the
first of them by its order; without a bound on the factor it does not look at forecasts at all.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from forecast_plan import GOOD, TEACHING, cells, trained_cells
from infoflow.architecture import Architecture
from infoflow.files import write_json
from infoflow.forecasts.model import shipped
from infoflow.forecasts.quantities import NAMES
from infoflow.provenance import provenance

ROOT = Path(__file__).parent
Candidate = tuple[Architecture, float, float]  # with log10 of its forecast and of what it was trained to
Order = Callable[[Architecture], tuple[int, ...]]
ORDERS: dict[str, Order] = {
    "most heads in the first two layers, then fewest layers": lambda arch: (-sum(arch.heads[:2]), arch.layers),
    "fewest layers, then most heads": lambda arch: (arch.layers, -sum(arch.heads)),
    "nearest to two layers, then most heads": lambda arch: (abs(arch.layers - 2), -sum(arch.heads)),
    "most heads, then fewest layers": lambda arch: (-sum(arch.heads), arch.layers),
}
FACTORS = (1.0, 1.5, 2.0, 2.5, 3.0, 5.0, math.inf)
FEWEST = 4  # architectures of a question


def plan_questions(said: dict[str, float]) -> list[list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for test in TEACHING:
        errors = trained_cells(test)
        for cell in cells(test):
            asked = f"{test.name} {cell.target.spelling} {cell.T}"
            found.setdefault(asked, []).append((cell.arch, said[cell.name], math.log10(median(errors[cell.name]))))
    return list(found.values())


def drawn_questions(said: dict[str, float]) -> list[list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    of_plan = {cell.name for test in TEACHING for cell in cells(test)}
    for cell in json.loads(shipped())["cells"]:
        if cell["name"] not in of_plan:
            encoder = cell["quantities"][NAMES.index("mlp encoder")]
            asked = f"{cell['target']} {cell['T']} {cell['epochs']} {encoder}"
            known = Architecture.of(cell["arch"]), said[cell["name"]], cell["log10_nmse"]
            found.setdefault(asked, []).append(known)
    return [candidates for candidates in found.values() if len(candidates) >= FEWEST]


def chosen(candidates: list[Candidate], order: Order, factor: float) -> float:
    """How many times above the best of the candidates the choice was trained to."""
    least = min(said for _, said, _ in candidates)
    alike = [each for each in candidates if each[1] <= least + math.log10(factor)]
    _, _, ended = min(alike, key=lambda each: (order(each[0]), each[1]))
    return float(10 ** (ended - min(best for _, _, best in candidates)))


def main() -> None:
    said = json.loads((ROOT / "results/forecast.json").read_text())["family_left_out"]
    asked = {"plan": plan_questions(said), "drawn": drawn_questions(said)}
    rows = []
    for name, order in ORDERS.items():
        for factor in FACTORS:
            row: dict[str, Any] = {
                "rule": name,
                "within": "any factor" if math.isinf(factor) else f"{factor:g} times the least",
            }
            for kind, questions in asked.items():
                off = np.array([chosen(candidates, order, factor) for candidates in questions])
                row[f"{kind} good"] = round(float(np.mean(off <= GOOD)), 3)
                row[f"{kind} mean"] = round(float(np.exp(np.log(off).mean())), 3)
            rows.append(row)
    questions = {kind: len(found) for kind, found in asked.items()}
    payload = {"provenance": provenance(), "questions": questions, "good_within": GOOD, "rows": rows}
    write_json(ROOT / "results/forecast_rules.json", payload)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
