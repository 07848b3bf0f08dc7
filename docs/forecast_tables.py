"""The tables of docs/forecast.md and docs/forecast_record.md: registered forecasts against training, families left out,
choices."""

from typing import Any

import numpy as np
from tables import Recorded, Shown, markdown, number, plain, recorded, registry, source

TABLES, table = registry()
REGISTRATIONS = {
    "first": "first",
    "second": "second",
    "third": "third",
    "fourth": "fourth",
    "fifth": "fifth",
    "sixth": "sixth",
    "seventh": "seventh",
    "eighth": "eighth",
    "ninth": "ninth",
    "tenth": "tenth",
    "eleventh": "eleventh",
    "tenth and eleventh": "shipped",
    "all of families never met": "test",
}


@table("benchmarks/results/forecast.json")
def forecast(payload: Recorded) -> Shown:
    head = ["from", "left out", "Spearman", "within a target", "median factor", "nine in ten within", "within 5"]
    rows = []
    for name, found in payload["scores"].items():
        source_, left = name.split(", ")
        low, high = found["spearman_band"]
        rows.append([source_, left.removesuffix(" left out"), f"{found['spearman']:.2f} ({low:.2f} to {high:.2f})",
                     f"{found['within_target']:.2f}", found["median_factor"], found["factor_at_90"],
                     f"{found['within_5']:.0%}"])  # fmt: skip
    return head, rows


def headline() -> list[str]:
    """The first row of README's table: the version that ships beside its rivals, and all versions together."""
    test, every = (recorded(f"results/forecast/{name}/result.json") for name in ("shipped", "test"))
    theory, all_theory = (next(row for row in found["rows"] if row["from"] == "theory") for found in (test, every))
    pilot = next(row for row in test["rows"] if row["from"].startswith("regression on pilot"))
    thinner = next(row for row in test["rows"] if row["from"].startswith("... at a quarter of the width"))
    return [
        "error of trained networks, forecast before training: rank correlation, median factor off",
        f"{theory['spearman']:.3f}, {theory['median_factor']:.1f} (a regression on a pilot of 5% of the steps and "
        f"sizes: {pilot['spearman']:.2f}, {pilot['median_factor']:.1f}; the same network at a quarter of its "
        f"width, trained, at {thinner['gflop'] / theory['gflop']:.1f} times the operations: "
        f"{thinner['spearman']:.2f}, {thinner['median_factor']:.1f} on {thinner['cells']} cells)",
        f"forecasts committed first, by the version that ships, for twelve families of targets it had not met; "
        f"{test['trained']} of {test['registered']} cells, the cheapest: small networks. Nine registrations by "
        f"seven versions, {every['trained']:,} of {every['registered']:,} cells: {all_theory['spearman']:.2f}, "
        f"{all_theory['median_factor']:.1f}",
        "`infoflow reproduce forecast/test --part tenth --part eleventh`",
    ]


@table
def forecast_test() -> str:
    """What the registered forecasts of the version that ships are worth, beside the rivals."""
    return _beside_rivals("shipped")


@table
def forecast_test_all() -> str:
    """The same of all registrations of families that their version had not met."""
    return _beside_rivals("test")


def _beside_rivals(folder: str) -> str:
    payload = recorded(f"results/forecast/{folder}/result.json")
    head = ["from", "Spearman", "within a target", "median factor", "nine in ten within", "within 5", "Gflop"]
    rows = []
    for found in payload["rows"]:
        low, high = found["spearman_band"]
        within = found["within_target"]
        rows.append([found["from"], f"{found['spearman']:.2f} ({low:.2f} to {high:.2f})",
                     "" if np.isnan(within) else f"{within:.2f}", found["median_factor"], found["factor_at_90"],
                     f"{found['within_5']:.0%}", number(found["gflop"])])  # fmt: skip
    trained = f"\n{payload['trained']:,} of {payload['registered']:,} cells are trained; the 80% interval covers "
    covered = f"{payload['coverage']:.0%} of them.\n"
    return markdown(head, rows) + trained + covered + source({"provenance": payload["provenance"]})


@table
def forecast_registrations() -> str:
    """Each registration from theory alone, a version of the model each, and the version before on the same cells."""
    head = ["registration", "cells trained", "Spearman", "within a target", "median factor",
            "nine in ten within", "within 5", "interval covers"]  # fmt: skip
    found = {name: recorded(f"results/forecast/{folder}/result.json") for name, folder in REGISTRATIONS.items()}
    rows = []
    for name, registered in found.items():
        rows.append([name, f"{registered['trained']} of {registered['registered']}", *_scores(registered["cells"])])
        if name in ("third", "fourth"):
            before = {"third": "second", "fourth": "third"}[name]
            asked = {cell["name"] for cell in registered["cells"]}
            same = [cell for cell in found[before]["cells"] if cell["name"] in asked]
            rows.append([f"{before}, on the {name}'s cells", len(same), *_scores(same)])
    return markdown(head, rows)


def _scores(cells: list[Recorded]) -> list[Any]:
    from infoflow.forecasts.scores import score

    logs = (np.log10([cell[name] for cell in cells]) for name in ("forecast", "trained"))
    found = score(*logs, *(np.array([cell[name] for cell in cells]) for name in ("target", "family")))
    low, high = found.spearman_band
    covered = np.mean([cell["low"] <= cell["trained"] <= cell["high"] for cell in cells])
    within = "" if np.isnan(found.within_target) else f"{found.within_target:.2f}"  # no target has two cells
    return [f"{found.spearman:.2f} ({low:.2f} to {high:.2f})", within, found.median_factor,
            found.factor_at_90, f"{found.within_5:.0%}", f"{covered:.0%}"]  # fmt: skip


@table("benchmarks/results/forecast_plan.json")
def forecast_plan(payload: Recorded) -> Shown:
    return _plans(payload)


@table("benchmarks/results/forecast_plan_second.json")
def forecast_plan_second(payload: Recorded) -> Shown:
    return _plans(payload)


@table("benchmarks/results/forecast_plan_third.json")
def forecast_plan_third(payload: Recorded) -> Shown:
    return _plans(payload)


@table
def forecast_plan_all() -> str:
    """The three tests of plan in short."""
    labels = {"what plan takes": "what plan takes", "least forecast": "least forecast", "two layers": "two layers",
              "most parameters": "most parameters", "one layer": "one layer"}  # fmt: skip
    head = ["test", "families", *labels.values(), "one training of each"]
    kinds = {"": "the rule was found on it", "_second": "met with other targets", "_third": "never met"}
    rows = []
    for nth, (name, kind) in zip(("first", "second", "third"), kinds.items(), strict=True):
        payload = recorded(f"benchmarks/results/forecast_plan{name}.json")
        good = [f"{payload['good'][label]} of {payload['scored']}" for label in labels]
        rows.append([nth, kind, *good, f"{payload['one_seed_for_another']['good']:.0%}"])
    return markdown(head, rows)


SHOWN = ("1 times the least", "2.5 times the least", "any factor")
TABLES["forecast_rules"] = plain(
    "benchmarks/results/forecast_rules.json",
    "of forecasts within | the one with the | drawn: within 1.5 times the best | geometric mean | plan's: within 1.5 | "
    "geometric mean",
    "{within} | {rule} | {drawn good:.0%} | {drawn mean:.2f} | {plan good:.0%} | {plan mean:.2f}",
    where=lambda row: row["within"] in SHOWN,
)


def _plans(payload: Recorded) -> Shown:
    """How far each way to choose is from the best of the candidates, all of which were trained."""
    labels = list(payload["good"])
    rows = [[f"`{each['target']}`, {each['T']}", each["chosen"], each["best_heads"],
             *(each["times_best"][label] for label in labels)] for each in payload["each"]]  # fmt: skip
    good = [f"{payload['good'][label]} of {payload['scored']}" for label in labels]
    means = [payload["geometric_mean"][label] for label in labels]
    head = ["target, T", "heads of plan's choice", "heads of the best", *labels]
    last = [[f"within {payload['good_within']} times the best", "", "", *good], ["geometric mean", "", "", *means]]
    return head, [*rows, *last]


TABLES["forecast_retrieval"] = plain(  # real text: what was forecast, and what came
    "benchmarks/results/forecast_retrieval.json",
    "lists | T | heads | E | forecast | trained, 4 seeds | before training | cosine of all 384 numbers",
    "{source} | {T} | {h} | {E} | {forecast:.3f} | {accuracy:.3f} ± {std:.3f} | {untrained model:.3f} | "
    "{untrained cosine:.3f}",
)


@table
def forecast_worst() -> str:
    """The ten cells whose forecast by the version that ships was farthest off."""
    head = ["target, T", "architecture", "epochs", "forecast", "trained", "least and largest seed"]
    rows = []
    for found in recorded("results/forecast/shipped/result.json")["worst"]:
        encoder = ", MLP encoder" * (found["encoder"] == "mlp")
        rows.append([f"`{found['target']}`, {found['T']}", f"{found['arch']}{encoder}", found["epochs"],
                     f"{found['forecast']:.1e}", f"{found['trained']:.1e}",
                     f"{min(found['seeds']):.0e}, {max(found['seeds']):.0e}"])  # fmt: skip
    return markdown(head, rows)
