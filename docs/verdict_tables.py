"""The table of docs/predict.md: what predict said on drawn calls, and where build disagreed."""

from tables import Recorded, Shown, registry

TABLES, table = registry()


@table("benchmarks/results/predict_vs_build.json")
def predict_vs_build(payload: Recorded) -> Shown:
    rows = [[verdict, f"{count:,}"] for verdict, count in payload["verdicts"].items()]
    wrong = len(payload["disagreements"])
    return ["verdict", "calls"], [
        *rows,
        ["**all**", f"{payload['draws']:,}"],
        ["disagreements with `build`", f"{wrong}"],
    ]
