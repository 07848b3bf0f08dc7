"""Head count, synthetic: y = sum_i max_t a_i'x(t) with D = 4 maxima wants four heads, whatever the width."""

from fractions import Fraction
from math import log10
from typing import Any

import numpy as np

from infoflow import targets
from infoflow.architecture import Architecture
from infoflow.lab.item import LAST, Compared, Context, Item, Judgement, Outcome, Told, printed
from infoflow.lab.sweep import cells, measured_on, train_cells
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.verdicts.bounds import head_count_exponent
from infoflow.verdicts.predict import predict

HEAD_SIZE = 8  # per head, so E = 8 h: far below T d, where one head could memorise
PAPER = Recipe(samples=36_000, validation=4_000, batch=256, epochs=100, lr=3e-3, decay=0.0, encoder="mlp",
              encoder_activation="relu", residual=False, evaluate_every=5)  # fmt: skip
QUICK = PAPER.with_(samples=4_000, validation=500, batch=128, epochs=40, lr=1e-2, evaluate_every=10)
LENGTHS = (8, 16, 32, 64, 128)
LONG = "widths, T=128"  # where the theorem gives one and two heads of this size a rate; at T = 32 it gives none
PARTS = (*(f"T={T}" for T in LENGTHS), "widths", LONG)
Key = tuple[int, int, int]  # T, h, N


def plan(context: Context) -> dict[Key, list[Run]]:
    """Every T and h at one width, and every width and h at one T."""
    heads, seeds = (range(1, 6), 1) if context.quick else (range(1, 7), 4)
    at, usual, widths = (8, 32, (8,)) if context.quick else (32, 128, (16, 32, 64, 256))
    lengths: tuple[int, ...] = (8,) if context.quick else LENGTHS
    parts = context.parts or PARTS
    keys = [(T, h, usual) for T in lengths for h in heads if f"T={T}" in parts]
    if "widths" in parts:
        keys += [(at, h, N) for N in (usual, *widths) for h in heads]
    if LONG in parts and not context.quick:
        keys += [(128, h, N) for N in (usual, *widths) for h in range(1, 5)]
    target, recipe = targets.sum_of_maxima(D=4, d=4, seed=0), QUICK if context.quick else PAPER
    return {
        (T, h, N): [
            Run(target, Architecture(h, HEAD_SIZE * h, N), T, seed, recipe.with_(encoder_width=N))
            for seed in range(seeds)
        ]
        for T, h, N in dict.fromkeys(keys)
    }


def run(context: Context) -> Outcome:
    """The NMSE against heads, and against width where there are too few."""
    grid = plan(context)
    results = train_cells(context, grid, "head count")
    rows = []
    for (T, h, N), summary in cells(results).items():
        target, arch, _ = grid[T, h, N][0].regression()
        rows.append(
            {
                "T": T,
                "h": h,
                "N": N,
                "mean": summary.mean,
                "std": summary.deviation,
                "median": summary.median,
                "quartiles": summary.quartiles_text(),
                "failed": summary.failed,
                "log10 N": log10(N),
                "log10 NMSE": log10(summary.mean) if summary.mean else None,
                "predicted": predict(target, arch.with_(width=None), T=T).verdict,
            }
        )
    columns = ["T", "h", "N", "mean", "std", "median", "quartiles", "failed", "log10 N", "log10 NMSE", "predicted"]
    remarks, figures = _told(rows)
    remarks.append(
        "the slides print figures only, no numbers; `predicted` speaks of the model with residual connections"
    )
    extra, measured = {"transition": printed(__package__)["transition"]}, measured_on(results.runs())
    return Outcome(columns, rows, results.runs(), remarks, figures, extra, measured)


def _told(rows: list[dict[str, Any]]) -> Told:
    """The transition at the width that all lengths have, and what width does where several were run."""
    widths = {T: {row["N"] for row in rows if row["T"] == T} for T in {row["T"] for row in rows}}
    shared = max(set.intersection(*widths.values()), key=lambda N: (sum(row["N"] == N for row in rows), N))
    remarks = [_transition(rows, T, shared) for T in sorted(widths)] + _slopes(rows)
    figures = {"nmse_against_heads": _heads_figure(rows, shared)}
    if any(len(found) > 1 for found in widths.values()):
        figures["nmse_against_width"] = _width_figure(rows, sorted(T for T, found in widths.items() if len(found) > 1))
    return remarks, figures


def judge(result: dict[str, Any]) -> dict[str, Judgement]:
    """The largest fall comes with the fourth head at every T; width alone does not replace it, and lowers the error no
    faster than the theorem allows, where it says how fast."""
    rows = result["rows"]
    usual = 32 if result["preset"] == "quick" else 128
    falls = {}
    for T in sorted({row["T"] for row in rows}):
        mean = {row["h"]: row["mean"] for row in rows if row["T"] == T and row["N"] == usual}
        steps = {h: mean[h - 1] / mean[h] for h in mean if h - 1 in mean}
        falls[T] = max(steps, key=lambda h: steps[h])
    at = [T for T, h in falls.items() if h == 4]
    found = {
        "slides, figure (a)": Judgement(
            len(at) == len(falls), f"the largest fall is at head 4 for {len(at)} of {len(falls)} T"
        )
    }
    swept = [row for row in rows if row["h"] in (3, 4) and len({r["N"] for r in rows if r["T"] == row["T"]}) > 1]
    if swept:
        apart = {T: _three_above_four(swept, T) for T in sorted({row["T"] for row in swept})}
        said = " and ".join(f"{ratio:.3g} times (T = {T})" for T, ratio in apart.items())
        number = f"three heads at the best width end {said} above four heads at the worst; {_rates(rows)}"
        slow = all(slope >= float(-2 / k) for _, _, slope, k in _fits(rows) if k > 0)
        found["slides, figure (b)"] = Judgement(min(apart.values()) > 1 and slow, number)
    return found


def _three_above_four(rows: list[dict[str, Any]], T: int) -> float:
    """How far three heads at their best width are above four at their worst."""
    mean = {h: [row["mean"] for row in rows if (row["T"], row["h"]) == (T, h)] for h in (3, 4)}
    return float(min(mean[3]) / max(mean[4]))


def _transition(rows: list[dict[str, Any]], T: int, N: int) -> str:
    """Where the NMSE falls most from one head count to the next."""
    mean = {row["h"]: row["mean"] for row in rows if row["T"] == T and row["N"] == N and row["mean"]}
    falls = {h: mean[h - 1] / mean[h] for h in mean if h - 1 in mean}
    if not falls:
        return f"T={T}: too few head counts for a transition"
    h = max(falls, key=lambda count: falls[count])
    said = ", ".join(f"{count}: {value:.2e}" for count, value in sorted(mean.items()))
    return f"T={T}, N={N}: NMSE by heads {said}; the largest fall, {falls[h]:.3g} times, comes with head {h} (paper: 4)"


def _fits(rows: list[dict[str, Any]]) -> list[tuple[int, int, float, Fraction]]:
    """T, h, the slope of log NMSE in log N, and the theorem's k, for every h < 4 with three widths or more."""
    found = []
    for T, h in sorted({(row["T"], row["h"]) for row in rows}):
        chosen = [row for row in rows if (row["T"], row["h"]) == (T, h) and row["mean"]]
        if h < 4 and len(chosen) > 2:
            slope = np.polyfit([row["log10 N"] for row in chosen], [row["log10 NMSE"] for row in chosen], 1)[0]
            found.append((T, h, float(slope), head_count_exponent(T, h, 4, HEAD_SIZE)))
    return found


def _slopes(rows: list[dict[str, Any]]) -> list[str]:
    """Measured slopes of log NMSE in log N beside the theorem's -2 / k, which speaks only where k is positive."""
    said = []
    for T, h, slope, k in _fits(rows):
        bound = f"at least {float(-2 / k):.2f}" if k > 0 else f"none (k = {k} is not positive)"
        said.append(f"T={T}, h={h}: slope of log NMSE in log N {slope:.2f}; the theorem's {bound}")
    return said


def _rates(rows: list[dict[str, Any]]) -> str:
    """The same, short: a clause for each T."""
    said = []
    for T in sorted({T for T, *_ in _fits(rows)}):
        found = [(h, slope, k) for length, h, slope, k in _fits(rows) if length == T]
        slopes = ", ".join(f"{slope:.2f}" for _, slope, _ in found)
        allowed = ", ".join(f"{float(-2 / k):.2f} with h = {h}" for h, _, k in found if k > 0)
        theirs = f"the theorem allows {allowed}" if allowed else "the theorem gives no rate there"
        said.append(f"slopes in N {slopes} at T = {T} with h = {', '.join(str(h) for h, *_ in found)}; {theirs}")
    return "; ".join(said)


def _heads_figure(rows: list[dict[str, Any]], N: int) -> Any:
    from infoflow.report import style

    figure, axes = style.figure(5.6, 3.4)
    for position, T in enumerate(sorted({row["T"] for row in rows})):
        chosen = [row for row in rows if row["T"] == T and row["N"] == N and row["mean"]]
        marker = style.MARKERS[position]
        axes.plot([r["h"] for r in chosen], [r["mean"] for r in chosen], marker=marker, label=f"T = {T}")
    axes.axvline(4, color=style.MUTED, ls=":", lw=1)
    axes.set(yscale="log", xlabel="heads h", ylabel="NMSE", title=f"sum of four maxima, N = {N}")
    axes.legend(fontsize=7)
    return figure


def _width_figure(rows: list[dict[str, Any]], lengths: list[int]) -> Any:
    """A panel for each T with several widths; dashed: the fastest fall the theorem allows, from the first point."""
    from infoflow.report import style

    figure, axes = style.figure(1.2 + 4.4 * len(lengths), 3.4, 1, len(lengths), squeeze=False, sharey=True)
    for panel, T in zip(axes[0], lengths, strict=True):
        for position, h in enumerate(sorted({row["h"] for row in rows if row["T"] == T})):
            chosen = sorted((r for r in rows if (r["T"], r["h"]) == (T, h) and r["mean"]), key=lambda r: r["N"])
            N, mean = [r["N"] for r in chosen], [r["mean"] for r in chosen]
            look = {"color": style.COLOURS[position % len(style.COLOURS)]}
            panel.plot(N, mean, marker=style.MARKERS[position], label=f"h = {h}", **look)
            k = head_count_exponent(T, h, 4, HEAD_SIZE) if h < 4 else 0
            if k > 0 and len(N) > 1:
                panel.plot(N, [mean[0] * (width / N[0]) ** float(-2 / k) for width in N], ls="--", lw=1, **look)
        panel.set(xscale="log", yscale="log", xlabel="width N", ylabel="NMSE", title=f"T = {T}")
    axes[0, 0].legend(fontsize=7)
    return figure


ITEM = Item(
    name="head_count/synthetic",
    title="Head count: a sum of four maxima wants four heads",
    concludes={
        "slides, figure (a)": "the NMSE of a sum of four maxima falls sharply at four heads, for every T",
        "slides, figure (b)": "with fewer heads the error falls slowly with the width N, no faster than predicted",
    },
    quick="T = 8 only, h = 1..5, N = 8 and 32, 4,000 samples, 40 epochs, 1 seed",
    paper="T = 8..128, h = 1..6 at N = 128; N = 16..256 at T = 32 and 128; 36,000 + 4,000 samples, 100 epochs, 4 seeds",
    unsaid=(
        "the directions a_i: standard normal, one draw",
        "the size of a head: 8, so E = 8 h",
        "samples, batch, optimiser: 36,000 + 4,000, 256, AdamW without decay at 3e-3 with cosine, 100 epochs",
        "the widths and lengths of the figures: N = 16 to 256, T = 8 to 128",
        "the seeds: 4",
        "the numbers: the slides print figures alone",
    ),
    run=run,
    judge=judge,
    told=lambda result: _told(result["rows"]),
    compared=Compared(("T", "h", "N"), "mean", None, "std"),
    scored=LAST,
    parts=PARTS,
)
