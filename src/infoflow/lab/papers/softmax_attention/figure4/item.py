"""Softmax attention Figure 4 (C.2): sequence to sequence, error against p and H, beside three untrained numbers."""

from typing import Any

from infoflow.lab.item import Context, Item, Outcome
from infoflow.lab.papers.softmax_attention.tasks import Sequences, slope, sweep_rows
from infoflow.lab.sweep import schedule

FULL = schedule(epochs=3, batch=32, lr=1e-3)
QUICK = schedule(epochs=8, batch=32, lr=1e-2)


def plan(context: Context) -> dict[tuple[str, int], Sequences]:
    """p sweep: n = 10, hidden 16, H = 2; H sweep: n = 20, hidden 32, p = 24 (the paper does not say its p)."""
    full = context.preset == "full"
    ps, heads = ((12, 24, 48, 96), (1, 2, 4, 8, 16, 32)) if full else ((12, 24), (1, 8))
    count = 50_000 if full else 1_000
    cells = {("p", p): Sequences(n=10, p=p, H=2, hidden=16, count=count) for p in ps}
    cells |= {("H", H): Sequences(n=20, p=24, H=H, hidden=32, count=count) for H in heads}
    return {cell: task for cell, task in cells.items() if not context.parts or cell[0] in context.parts}


def run(context: Context) -> Outcome:
    rows, runs = sweep_rows(context, plan(context), FULL if context.preset == "full" else QUICK, "mse", "figure 4")
    remarks = [
        "all d = 5 channels are real here, so there is one convention: the mean over tokens and channels",
        "the paper prints no number; it reads 1/p and 1/H from its figure",
        *_readings(rows),
    ]
    return Outcome(
        list(rows[0]), rows, [run for records in runs for run in records], remarks, {"figure4": _figure(rows)}
    )


def _readings(rows: list[dict[str, Any]]) -> list[str]:
    said = []
    for sweep in ("p", "H"):
        chosen = [row for row in rows if row["sweep"] == sweep and row["trained MSE"]]
        if len(chosen) > 1:
            x = [row["value"] for row in chosen]
            share = [row["trained MSE"] / row["mean predictor"] for row in chosen]
            linear = [row["trained MSE"] / row["linear regression"] for row in chosen]
            said.append(
                f"{sweep} sweep: log-log slope of the trained MSE {slope(x, [r['trained MSE'] for r in chosen]):.2f}; "
                f"{min(share):.2f} to {max(share):.2f} of the mean predictor's, {min(linear):.1f} to {max(linear):.1f} "
                "times linear regression's"
            )
    return said


def _figure(rows: list[dict[str, Any]]) -> Any:
    from infoflow.report import style

    present = [sweep for sweep in ("p", "H") if any(row["sweep"] == sweep for row in rows)]
    figure, axes = style.figure(4.0 * len(present), 3.4, 1, len(present), squeeze=False)
    for panel, sweep in zip(axes[0], present, strict=True):
        chosen = [row for row in rows if row["sweep"] == sweep]
        for position, name in enumerate(("trained MSE", "construction", "mean predictor", "linear regression")):
            y = [row[name] if row[name] is not None else float("nan") for row in chosen]
            panel.plot([r["value"] for r in chosen], y, color=style.COLOURS[position],
                       marker=style.MARKERS[position], label=name)  # fmt: skip
        panel.set(xscale="log", yscale="log", xlabel={"p": "columns p", "H": "heads H"}[sweep])
    axes[0][0].set_ylabel("test MSE")
    axes[0][0].legend(fontsize=7)
    return figure


ITEM = Item(
    name="softmax_attention/figure4",
    title="Softmax attention Figure 4: sequence to sequence with two attention layers",
    quick="1,000 samples instead of 50,000 (8 epochs at rate 1e-2), p = 12, 24, H = 1, 8, 2 seeds",
    full="d = 5, m = 10, 50,000 samples, 3 epochs, batch 32, Adam 1e-3, 10 seeds; p = 12..96, H = 1..32",
    run=run,
    parts=("p", "H"),
)
