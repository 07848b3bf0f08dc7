"""Width against eps: the Chebyshev rules, the plain rule and unbounded weights, on Theorem 4 and on eq. (6).

    python benchmarks/width_vs_eps.py [--out benchmarks/results]

Widths are counted from the budget the compiler spends (the networks of the first points are also built and their
tensors counted). The slope of log(width) against log(1/eps) is fitted on the last decade of each curve: 1 for the
plain rule; for the Chebyshev rules the width divided by log^2(1/eps) is listed, which must not grow.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

from infoflow.compiler.budget import budget
from infoflow.construct.builders import build
from infoflow.files import write_json
from infoflow.flow.layout import Refused, lay_out
from infoflow.provenance import provenance
from infoflow.targets import min_pair, pairwise_max

T = 64
EPS = [10 ** (-k / 2) for k in range(1, 13)]
RULES: dict[str, dict[str, Any]] = {
    "chebyshev": {"rule": "chebyshev", "weight_bound": 1},
    "plain": {"rule": "plain", "weight_bound": 1},
    "chebyshev, unbounded weights": {"rule": "chebyshev", "weight_bound": None},
}


def curve(target: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
    points = []
    for eps in EPS:
        start = time.perf_counter()
        try:
            plan = budget(lay_out(target, T), eps, **options)
        except Refused as refusal:
            points.append({"eps": eps, "refused": str(refusal)})
            continue
        point = {"eps": eps, "widths": plan.widths, "width": sum(plan.widths), "bound": plan.bound}
        point |= {"beta": plan.betas[0], "seconds": time.perf_counter() - start}
        if eps >= 0.01:
            network = build(target, T, eps, **options)
            assert network.config.widths == plan.widths
        points.append(point)
    return points


def summary(points: list[dict[str, Any]]) -> dict[str, float]:
    made = [p for p in points if "width" in p]
    first, last = made[-3], made[-1]
    return {
        "slope": math.log(last["width"] / first["width"]) / math.log(first["eps"] / last["eps"]),
        "width_over_log2_first": made[2]["width"] / math.log(1 / made[2]["eps"]) ** 2,
        "width_over_log2_last": last["width"] / math.log(1 / last["eps"]) ** 2,
    }


def plot(curves: list[dict[str, Any]], path: Path) -> None:
    from infoflow.report.style import figure, save

    made, axes = figure(height=4.4)
    for entry in curves:
        points = [p for p in entry["points"] if "width" in p]
        axes.loglog([1 / p["eps"] for p in points], [p["width"] for p in points], marker="o", label=entry["label"])
    axes.set_xlabel("1/eps")
    axes.set_ylabel("feed-forward units")
    made.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    save(made, path, formats=("svg",))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    curves = []
    for target in (min_pair(), pairwise_max(4, 4)):
        for name, rule in RULES.items():
            points = curve(target, rule)
            entry = {"target": target.spelling, "rule": name, "label": f"{target.spelling.split(':')[0]}, {name}"}
            curves.append({**entry, "points": points, **summary(points)})
            print(f"{entry['label']}: slope {curves[-1]['slope']:.2f}, {[p.get('width') for p in points]}")
    plot(curves, options.out / "width_vs_eps")
    write_json(options.out / "width_vs_eps.json", {"T": T, "curves": curves, "provenance": provenance()})


if __name__ == "__main__":
    main()
