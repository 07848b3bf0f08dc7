"""What the free constants of the error budget cost: hidden units with each of them changed, over targets and errors.

    python benchmarks/budget_constants.py          about six minutes; writes benchmarks/results/budget_constants.json

A constant is free when every choice gives a valid certificate; it decides how many units a network has. Units are
summed over the cases that every choice can serve; `refused` counts those a choice cannot.
"""

from pathlib import Path
from typing import Any
from unittest.mock import patch

from infoflow import targets
from infoflow.compiler import blocks, budget
from infoflow.files import write_json
from infoflow.flow.layout import Refused, lay_out
from infoflow.progress import Progress
from infoflow.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "budget_constants.json"
TARGETS = ["min_pair:d=3", "pairwise_max:D=2,d=4", "sum_of_maxima:D=4,d=4", "chain:length=3,d=2", "closest_pair:d=2",
           "recall:d=2", "kth_largest:k=2,d=2"]  # fmt: skip
ERRORS, T = (0.3, 1e-2, 1e-4, 1e-6), 16
CHOICES: dict[str, tuple[Any, str, list[Any]]] = {
    "SHARES": (budget, "SHARES", [{"chebyshev": pair} for pair in ((0.25, 0.25), (0.1, 0.25), (0.4, 0.4), (0.1, 0.1))]),
    "ONE_LAYER_SHARES": (
        budget,
        "ONE_LAYER_SHARES",
        [{"chebyshev": pair} for pair in ((0.05, 0.1), (0.25, 0.25), (0.05, 0.05), (0.05, 0.4), (0.01, 0.1))],
    ),
    "RETRY": (budget, "RETRY", [0.6, 0.4, 0.8, 0.95]),
    "LEAK_SHARE": (budget, "LEAK_SHARE", [0.05, 0.5, 0.005]),
    "SENSITIVITY_STEP": (budget, "SENSITIVITY_STEP", [1e-7, 1e-5, 1e-9]),
    "MOST_NODES": (blocks, "MOST_NODES", [28, 12, 20, 40]),
}


def units() -> dict[str, int | None]:
    """Hidden units of every case, None where it is refused."""
    found: dict[str, int | None] = {}
    blocks.choose.cache_clear()
    for spelling in TARGETS:
        layout = lay_out(targets.parse(spelling), T)
        for eps in ERRORS:
            try:
                found[f"{spelling} {eps:g}"] = sum(budget.budget(layout, eps).widths)
            except Refused:
                found[f"{spelling} {eps:g}"] = None
    return found


def main() -> None:
    result: dict[str, Any] = {}
    with Progress("choices", sum(len(choices) for *_, choices in CHOICES.values())) as bar:
        for name, (module, attribute, choices) in CHOICES.items():
            tried = []
            for choice in choices:
                with patch.object(module, attribute, choice):
                    tried.append(units())
                bar.update(bar.done + 1, name)
            served = [case for case in tried[0] if all(each[case] is not None for each in tried)]
            result[name] = [
                {"choice": choice, "units": sum(each[case] or 0 for case in served),
                 "refused": sum(value is None for value in each.values())}
                for choice, each in zip(choices, tried, strict=True)
            ]  # fmt: skip
            print(
                name,
                *(f"{row['choice']}: {row['units']} ({row['refused']} refused)" for row in result[name]),
                sep="\n  ",
            )
    write_json(RESULTS, {"cases": len(TARGETS) * len(ERRORS), "T": T, **result, "provenance": provenance(("numpy",))})


if __name__ == "__main__":
    main()
