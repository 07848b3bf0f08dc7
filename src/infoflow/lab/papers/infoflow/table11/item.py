"""InfoFlow Table 11 / Figure 1a: eq. (6), heads (D,D) against (D-1,D) and (D,D-1), T = 64."""

from statistics import fmean
from typing import Any

import numpy as np

from infoflow import targets
from infoflow.architecture import Architecture, matched_embed
from infoflow.lab.item import Compared, Context, Item, Judgement, Outcome, printed
from infoflow.lab.sweep import cells, measured_on, reported, train_cells
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.verdicts.predict import predict

CONFIGURATIONS = ("(D,D)", "(D-1,D)", "(D,D-1)")
TEST = 4_000
# As printed; the batch, the length and the encoder are not.
PAPER = Recipe(samples=36_000, validation=4_000, test=TEST, batch=256, epochs=300, lr=1e-3, decay=1e-2,
               evaluate_every=5)  # fmt: skip
QUICK = PAPER.with_(samples=8_000, validation=1_000, batch=128, epochs=60, lr=1e-2, decay=1e-4)
LONG = PAPER.with_(test=0, epochs=1000, lr=1e-2, decay=1e-4)
# Initial weights that lead to a missed maximum are left after a trial; how many, how soon it shows: README.
SEVERAL_STARTS = LONG.with_(test=TEST, warm_up=1400, rollback=8.0)
BEST = {
    2: SEVERAL_STARTS.with_(starts=3, start_epochs=250, epochs=1200),
    3: SEVERAL_STARTS.with_(starts=6, start_epochs=75),
    4: SEVERAL_STARTS.with_(starts=5, start_epochs=100, epochs=1700),
    5: SEVERAL_STARTS.with_(starts=6, start_epochs=150, epochs=800, warm_up=2800),
    6: SEVERAL_STARTS.with_(starts=4, start_epochs=150, epochs=450, warm_up=2800),
}
SEEDS = {"quick": 2, "paper": 8, "best": 16}
APART = 3.0  # (D,D) must be so many times below both others; the least of the paper's own is 3.1, at D = 6


def heads_of(configuration: str, D: int) -> tuple[int, int]:
    """The heads of both layers that a column of the table means."""
    return {"(D,D)": (D, D), "(D-1,D)": (D - 1, D), "(D,D-1)": (D, D - 1)}[configuration]


def architecture(configuration: str, D: int) -> Architecture:
    """C.4: E_l = ceil(6D / h_l) h_l, width 16 D."""
    heads = heads_of(configuration, D)
    return Architecture(heads, tuple(matched_embed(D, h) for h in heads), 16 * D)


def plan(context: Context) -> tuple[dict[tuple[int, str], list[Run]], int]:
    """The runs of each cell (D, configuration), and T."""
    T = 16 if context.quick else 64
    sizes: tuple[int, ...] = (2,) if context.quick else (2, 3, 4, 5, 6)
    if context.parts:
        sizes = tuple(int(part.removeprefix("D=")) for part in context.parts)
    grid = {}
    for D in sizes:
        recipe = {"quick": QUICK, "paper": PAPER, "best": BEST[D]}[context.preset]
        target, seeds = targets.pairwise_max(D=D, d=4, seed=0), range(SEEDS[context.preset])
        for name in CONFIGURATIONS:
            grid[D, name] = [Run(target, architecture(name, D), T, seed, recipe) for seed in seeds]
    return grid, T


def run(context: Context) -> Outcome:
    """The NMSE of D heads and of one fewer in either layer, for every D."""
    grid, T = plan(context)
    paper = {row["D"]: row for row in printed(__package__)["rows"]}
    results = train_cells(context, grid, "table 11")
    rows = []
    for (D, name), summary in cells(results).items():
        target, arch, _ = grid[D, name][0].regression()
        chosen_by = [result.best for result in results.by_cell[D, name] if result.best is not None]
        said = predict(target, arch.with_(width=None), T=T, with_temperature=True)
        rows.append(
            {
                "D": D,
                "heads": "({},{})".format(*heads_of(name, D)),
                "configuration": name,
                "paper mean": paper[D][name] if T == 64 else None,
                "mean": summary.mean,
                "std": summary.deviation,
                "validation mean": fmean(chosen_by) if chosen_by else None,
                "median": summary.median,
                "quartiles": summary.quartiles_text(),
                "failed": summary.failed,
                "unlearned": summary.unlearned,
                "collapsed": summary.collapsed,
                "predicted": said.verdict,
                "logit std at 1e-4": None if said.temperature is None else said.temperature.logit_std[-1],
            }
        )
    columns = [name for name in rows[0] if name != "configuration"]
    remarks = [_separation(rows, D) for D in sorted({row["D"] for row in rows})]
    remarks += on_validation(rows, [(r.test, r.best) for r in results.runs() if r.test is not None and r.best])
    seeds = {cell: [s for r in found if (s := reported(r)) is not None] for cell, found in results.by_cell.items()}
    figures, measured = {"figure1a": _figure(rows, seeds, T)}, measured_on(results.runs())
    return Outcome(columns, rows, results.runs(), remarks, figures, {"T": T}, measured)


def on_validation(rows: list[dict[str, Any]], errors: list[tuple[float, float]]) -> list[str]:
    """What the validation samples say, on which the paper measures; `errors` are test and validation NMSE of models."""
    if not errors or any(row["validation mean"] is None for row in rows):
        return []
    ratios = _ratios(rows, "validation mean")
    low, middle, high = np.quantile([test / validation for test, validation in errors], (0.05, 0.5, 0.95))
    return [
        "on validation samples, as the paper measures, the nearest other head count is "
        + ", ".join(f"{ratio:.3g} (D={D})" for D, ratio in sorted(ratios.items()))
        + " times above (D,D)",
        f"test over validation error of the {len(errors)} models: {middle:.2f} in the median, {low:.2f} to {high:.2f} "
        "for nine in ten",
    ]


def judge(result: dict[str, Any]) -> dict[str, Judgement]:
    """(D,D) is well below both others for every D that was run; the paper's own ratios beside ours."""
    said, ours = [], _ratios(result["rows"], "mean")
    printed_too = _ratios(result["rows"], "paper mean") if all(row.get("paper mean") for row in result["rows"]) else {}
    for D, ratio in sorted(ours.items()):
        said.append(f"{ratio:.3g} (D={D}" + (f", printed {printed_too[D]:.3g})" if D in printed_too else ")"))
    number = f"the nearest other head count is {', '.join(said)} times above (D,D)"
    if printed_too:
        number += f"; by two orders of magnitude or more, as the text says for D <= 5: {_hundredfold(ours)}, "
        number += f"printed: {_hundredfold(printed_too)}"
    return dict.fromkeys(CONCLUDES, Judgement(min(ours.values()) >= APART, number))


def _hundredfold(ratios: dict[int, float]) -> str:
    return ", ".join(f"D={D}" for D, ratio in sorted(ratios.items()) if ratio >= 100) or "for no D"


def _ratios(rows: list[dict[str, Any]], column: str) -> dict[int, float]:
    """For each D, how far the nearer of the other two head counts lies above (D,D)."""
    mean: dict[int, dict[str, float]] = {}
    for row in rows:
        heads = tuple(int(h) for h in row["heads"].strip("()").split(","))
        (name,) = (name for name in CONFIGURATIONS if heads_of(name, row["D"]) == heads)
        mean.setdefault(row["D"], {})[name] = row[column]
    return {D: min(found[name] for name in CONFIGURATIONS[1:]) / found["(D,D)"] for D, found in mean.items()}


def _separation(rows: list[dict[str, Any]], D: int) -> str:
    mean = {row["configuration"]: row["mean"] for row in rows if row["D"] == D}
    others = {name: mean[name] / mean["(D,D)"] for name in CONFIGURATIONS[1:]}
    return f"D={D}: (D,D) reaches {mean['(D,D)']:.2e}; " + ", ".join(
        f"{name} is {ratio:.3g} times above it" for name, ratio in others.items()
    )


def _figure(rows: list[dict[str, Any]], seeds: dict[tuple[int, str], list[float]], T: int) -> Any:
    """Means as lines, as the paper draws them, and every seed as a dot: a few seeds may be all of a mean."""
    from infoflow.report import style

    figure, axes = style.figure(6.4, 4.0)
    for position, name in enumerate(CONFIGURATIONS):
        chosen = [row for row in rows if row["configuration"] == name]
        D = [row["D"] for row in chosen]
        colour, marker = style.COLOURS[position], style.MARKERS[position]
        for size in D:
            place = [size + 0.08 * (position - 1)] * len(seeds[size, name])
            axes.scatter(place, seeds[size, name], s=6, color=colour, alpha=0.35, linewidths=0)
        axes.plot(D, [row["mean"] for row in chosen], marker=marker, color=colour, label=f"{name}, ours")
        if T == 64:
            axes.plot(
                D,
                [row["paper mean"] for row in chosen],
                marker=marker,
                ls=":",
                color=colour,
                alpha=0.6,
                label=f"{name}, paper",
            )
    axes.set_yscale("log")
    sizes = sorted({row["D"] for row in rows})
    axes.set_xticks(sizes)
    axes.set_xlim(sizes[0] - 0.5, sizes[-1] + 0.5)  # with one D the seeds' dots would otherwise fill the width
    axes.set_xlabel("D")
    axes.set_ylabel("NMSE")
    axes.set_title(f"eq. (6), T = {T}: means, and every seed")
    axes.legend(fontsize=7, ncols=2)
    return figure


CONCLUDES = dict.fromkeys(
    ("Table 11", "Figure 1a"),
    "heads (D,D) reach a substantially lower NMSE than (D-1,D) and (D,D-1)",
)
ITEM = Item(
    name="infoflow/table11",
    title="InfoFlow Table 11 and Figure 1a: D heads a layer are what eq. (6) wants",
    concludes=CONCLUDES,
    quick="D = 2 only, T = 16, 8,000 samples, 60 epochs at rate 1e-2, 2 seeds",
    paper="D = 2..6, T = 64, 36,000 + 4,000 samples, AdamW 1e-3, decay 1e-2, cosine; 8 of the 16 seeds, 300 epochs",
    best="the same sizes and samples; rate 1e-2, decay 1e-4, warm-up, rollback, several starts, 16 seeds, longer",
    unsaid=(
        "not as printed: 8 of the 16 seeds, and the NMSE at the best validation epoch is that of 4,000 other samples, "
        "where the paper reports the validation NMSE itself",
        "the training length: 300 epochs, too few: with 1,800 five of eight seeds of D = 2 get to print (README)",
        "the batch: 256",
        'the encoder ("a trainable encoder"): linear',
        "the activation: GELU (Section 3 speaks of sigmoidal ones, the experiments of none); with tanh or the logistic "
        "function (2,2) ends 3.5 and 5.4 times higher (README)",
        "the read-out's width: 16 D; labels standardised for training; the epochs looked at: every fifth",
        "the law of A_i: independent standard normal entries, one draw for all seeds",
    ),
    differences=(
        "rate 1e-2 instead of 1e-3",
        "decay 1e-4 instead of 1e-2",
        "the rate rises over 1,400 to 2,800 steps",
        "a model 8 times above its best returns to it at half the rate",
        "each seed goes on from the best of 3 to 6 starts, chosen on validation samples",
        "450 to 1,700 epochs after the starts",
    ),
    run=run,
    judge=judge,
    compared=Compared(("D", "heads"), "mean", "paper mean", "std"),
    parts=tuple(f"D={D}" for D in (2, 3, 4, 5, 6)),
)
