"""Softmax attention Figure 4 (C.2): sequence to sequence, error against p and H, trained as the published code does,
beside its own numbers and three untrained ones."""

from typing import Any

from infoflow.construct.softmax_attention.figures import slope
from infoflow.lab.item import Compared, Context, Item, Judgement, Outcome, printed
from infoflow.lab.papers.softmax_attention.tasks import SCORED, Sequences, changed, falls, judge_rates, sweep_rows
from infoflow.lab.sweep import schedule

PAPER = schedule(epochs=3, batch=32, lr=1e-3)
BEST = PAPER.with_(epochs=10, lr=3e-3, schedule="cosine")
QUICK = schedule(epochs=8, batch=32, lr=1e-2)
SEEDS = range(1234, 1244)
SEEDS_OF = {"quick": 2, "paper": 10, "best": 5}
HEADS = (1, 2, 4, 8, 16, 32)
PIECES = tuple(f"H:{H}" for H in HEADS)  # a head count at a time
HARDLY = 0.8  # of the mean predictor's error: above it a model hardly beats the mean


def plan(context: Context) -> dict[tuple[str, int], Sequences]:
    """p sweep: n = 10, hidden 16, 8 heads; H sweep: n = 20, hidden 32, p = 20."""
    ps: tuple[int, ...] = (10, 14, 20) if context.quick else (10, 12, 14, 16, 18, 20)
    heads: tuple[int, ...] = (1, 8, 32) if context.quick else HEADS
    count = 1_000 if context.quick else 50_000
    cells = {("p", p): Sequences(n=10, p=p, H=8, hidden=16, count=count) for p in ps}
    cells |= {("H", H): Sequences(n=20, p=20, H=H, hidden=32, count=count) for H in heads}
    asked = {(sweep, value): {sweep, f"{sweep}:{value}"} for sweep, value in cells}
    return {cell: task for cell, task in cells.items() if not context.parts or asked[cell] & set(context.parts)}


def run(context: Context) -> Outcome:
    """The error of two layers on sequence functions against their size."""
    recipe = {"quick": QUICK, "paper": PAPER, "best": BEST}[context.preset]
    seeds = SEEDS[: SEEDS_OF[context.preset]]
    published = printed(__package__)
    rows, runs = sweep_rows(context, plan(context), recipe, seeds, "figure 4", published)
    remarks = [
        "all d = 5 channels are real here, so there is one convention: the mean over tokens and channels",
        *published["remarks"],
        *_readings(rows),
    ]
    if context.preset == "paper":
        remarks.append(_agreement(rows, len(seeds), published["seeds"]))
    columns = ["sweep", "value", "published", "MSE", "std", "failed", "construction", "sup", "mean predictor",
               "linear regression"]  # fmt: skip
    trained, figures = [run for records in runs for run in records], {"figure4": _figure(rows)}
    return Outcome(columns, rows, trained, remarks, figures, scored=SCORED.get(context.preset, ""))


def judge(result: dict[str, Any]) -> dict[str, Judgement]:
    """The error falls from the first to the last p and H by more than two standard errors; whether that beats the mean;
    and whether it falls at the rates the text names."""
    rows, said, holds = result["rows"], [], []
    for sweep in ("p", "H"):
        chosen = [row for row in rows if row["sweep"] == sweep]
        if chosen:
            factor, _ = falls(rows, sweep)
            first, last = chosen[0], chosen[-1]
            fall, seeds = first["MSE"] - last["MSE"], SEEDS_OF[result["preset"]]
            error = ((first.get("std", 0.0) ** 2 + last.get("std", 0.0) ** 2) / seeds) ** 0.5
            sure = f" ({fall / error:.1f} standard errors)" if error else ""
            share = [row["MSE"] / row["mean predictor"] for row in chosen]
            linear = min(row["MSE"] / row["linear regression"] for row in chosen)
            holds.append(fall > 2 * error)
            hardly = ": the trend is there, and the models hardly beat the mean" if min(share) > HARDLY else ""
            said.append(
                f"{changed(factor)} in {sweep}{sure}, from {share[0]:.2f} to {share[-1]:.2f} of the mean predictor's, "
                f"at least {linear:.3g} times linear regression's{hardly}"
            )
    rates = judge_rates(rows)
    found = {"Figure 4": Judgement(all(holds), "the error " + "; ".join(said))}
    return found | ({"Figure 4, rates": rates} if rates else {})


def _agreement(rows: list[dict[str, Any]], seeds: int, theirs: int) -> str:
    """Points within two standard errors of the difference, with our spread for theirs, which were not kept."""
    near = [abs(row["MSE"] - row["published"]) <= 2 * row["std"] * (1 / seeds + 1 / theirs) ** 0.5 for row in rows]
    return (
        f"{sum(near)} of {len(near)} points within two standard errors of the published code's ({theirs} seeds, whose "
        "spread is taken to be ours)"
    )


def _readings(rows: list[dict[str, Any]]) -> list[str]:
    said = []
    for sweep in ("p", "H"):
        chosen = [row for row in rows if row["sweep"] == sweep and row["MSE"]]
        if len(chosen) > 1:
            x = [row["value"] for row in chosen]
            share = [row["MSE"] / row["mean predictor"] for row in chosen]
            linear = [row["MSE"] / row["linear regression"] for row in chosen]
            said.append(
                f"{sweep} sweep: log-log slope of the trained MSE {slope(x, [r['MSE'] for r in chosen]):.2f}; "
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
        x = [row["value"] for row in chosen]
        panel.errorbar(x, [r["MSE"] for r in chosen], [r["std"] for r in chosen], color=style.COLOURS[0], marker="o",
                       capsize=2, label="trained")  # fmt: skip
        known = [row for row in chosen if row.get("published") is not None]
        panel.plot([r["value"] for r in known], [r["published"] for r in known], ls="", marker="x", zorder=3,
                   color=style.COLOURS[4], label="published code")  # fmt: skip
        for position, name in enumerate(("construction", "mean predictor", "linear regression"), start=1):
            y = [row[name] if row[name] is not None else float("nan") for row in chosen]
            panel.plot(x, y, color=style.COLOURS[position], marker=style.MARKERS[position], label=name)
        panel.set(xscale="log", yscale="log", xlabel={"p": "columns p", "H": "heads H"}[sweep])
    axes[0][0].set_ylabel("test MSE")
    axes[0][0].legend(fontsize=7)
    return figure


ITEM = Item(
    name="softmax_attention/figure4",
    title="Softmax attention Figure 4: sequence to sequence with two attention layers",
    concludes={
        "Figure 4": "the error of two attention layers falls as p and H grow",
        "Figure 4, rates": "it falls as O(1/p) and O(1/H)",
    },
    quick="1,000 samples instead of 50,000 (8 epochs at rate 1e-2), p = 10, 14, 20, H = 1, 8, 32, 2 seeds",
    paper="d = 5, 50,000 samples, 3 epochs, batch 32, Adam 1e-3, 10 seeds; p = 10..20 (n = 10), H = 1..32 (n = 20)",
    best="the same networks and data; rate 3e-3 with cosine, 10 epochs, 5 seeds",
    unsaid=(
        "everything the text leaves unsaid is taken from the published code: normal teachers without scaling, one data "
        "set for all seeds, p = 10 to 20 with 8 heads (the text says 2), p = n = 20 in the sweep over H, the networks",
        "initial weights, splits and batches: other draws of the same law; samples and teachers are the same",
    ),
    differences=("rate 3e-3 with cosine instead of 1e-3", "10 epochs instead of 3", "5 seeds instead of 10"),
    run=run,
    judge=judge,
    compared=Compared(("sweep", "value"), "MSE", "published", "std"),
    scored=SCORED["paper"],
    parts=("p", "H", *PIECES),
)
