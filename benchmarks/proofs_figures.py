"""The figures of docs/certify_trained.md from the recorded proofs: python benchmarks/proofs_figures.py

Writes docs/figures/certify_sweep.svg (bound against attack, one point a network) and docs/figures/certify_accuracy.svg
(what is proved of the accuracy, against what it costs).
"""

import json
from pathlib import Path
from typing import Any

from infoflow.report import style

HERE = Path(__file__).parent
FIGURES = HERE.parent / "docs" / "figures"


def recorded(name: str) -> Any:
    return json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))


def sweep() -> None:
    """Both axes in units of max |F|; on the diagonal attack and proof agree."""
    made, axis = style.figure(6.0, 4.2)
    seen: list[float] = []
    names = {"proofs_sweep": "as fit trains", "proofs_sweep_certifiable": "with --certifiable"}
    for i, (name, words) in enumerate(names.items()):
        if not (HERE / "results" / f"{name}.json").is_file():
            continue
        rows = recorded(name)["rows"]
        found = [max(r["attacked"], r["attacked_again"]) / r["largest_target"] for r in rows]
        proved = [r["bound"] / r["largest_target"] for r in rows]
        seen += found
        axis.plot(found, proved, style.MARKERS[i], color=style.COLOURS[i], alpha=0.7, label=f"{words}, {len(rows)}")
    ends = [0.8 * min(seen), 1.25 * max(seen)]
    for factor, line in ((1.0, "-"), (2.0, "--")):
        label = "proved = attacked" if factor == 1 else "proved = 2 x attacked"
        axis.plot(ends, [factor * e for e in ends], line, color=style.MUTED, linewidth=1.0, label=label)
    axis.set(xscale="log", yscale="log", xlabel="largest error that an attack found / max |F|")
    axis.set(
        ylabel="largest error that is possible, proved / max |F|", title="trained networks: how wrong can each be?"
    )
    axis.legend(loc="upper left")
    style.save(made, FIGURES / "certify_sweep", ("svg",))


def accuracy() -> None:
    payload = recorded("proofs_accuracy")
    made, axis = style.figure(6.0, 3.4)
    truth = next(r["right"] for r in payload["rows"] if r["strategy"] == "brute force")
    axis.axhline(truth, color=style.MUTED, linewidth=1.0)
    axis.annotate(f"the truth, {truth:.4f} (brute force)", (axis.get_xlim()[0], truth), color=style.MUTED,
                  xytext=(4, 5), textcoords="offset points", xycoords=("axes fraction", "data"))  # fmt: skip
    for i, row in enumerate(payload["rows"]):
        axis.plot(row["seconds"], row["right"], style.MARKERS[i % len(style.MARKERS)], label=row["strategy"])
    axis.set(xscale="log", xlabel="processor seconds", ylabel="accuracy proved, at least", ylim=(None, 1.04))
    V, T = payload["symbols"], payload["length"]
    axis.set_title(f"max of {T} over {V} tokens: what a proof costs, all {V**T:,} sequences")
    axis.legend(loc="lower right")
    style.save(made, FIGURES / "certify_accuracy", ("svg",))


if __name__ == "__main__":
    sweep()
    accuracy()
