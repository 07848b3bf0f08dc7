"""InfoFlow Table 12 / Figure 1b: triangle-center against T; and the control the paper lacks, an order-2 target."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from infoflow import targets
from infoflow.architecture import Architecture
from infoflow.lab.item import Compared, Context, Item, Judgement, Outcome, printed
from infoflow.lab.sweep import cells, measured_on, train_cells
from infoflow.targets import Extremum, NormOfSum, Polynomial, Target
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.verdicts.predict import predict

SIZES = {
    "(2,2) E=24": Architecture((2, 2), 24, 32),
    "(4,4) E=24": Architecture((4, 4), 24, 32),
    "(4,4) E=48": Architecture((4, 4), 48, 32),
}
LENGTHS = (3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
FAILS = 0.8  # an NMSE above this is called a failure
SPREAD = 0.4  # labels whose log standard deviations differ by no more are said to vary alike
LONGER_LENGTHS = (4, 8, 12, 16)
ENCODERS = ("linear", "two-layer")
# A cell at a time.
PIECES = {f"two-layer:{name}:T={T}": ("two-layer", name, T) for name in (*SIZES, "control") for T in LENGTHS}
PARTS = (*ENCODERS, *PIECES, *(f"T={T}" for T in LENGTHS), "control", *(f"control:T={T}" for T in LENGTHS))
# The paper's rate and decay; it prints no training length: 70 epochs of 351 steps are the 24,600 steps chosen here.
LINEAR = Recipe(samples=90_000, validation=10_000, batch=256, epochs=70, lr=1e-3, decay=1e-2)
PAPER = {"linear": LINEAR, "two-layer": LINEAR.with_(encoder="mlp", encoder_width=32, test=10_000)}
# With the linear encoder longer training hardly helps, and at four times the rate models collapse (README). Behind two
# layers 3e-3 is better while labels vary; from T = 12 on it leaves seeds at a constant.
LONG = PAPER["two-layer"].with_(epochs=140, rollback=3.0)
FAST, FASTER_UP_TO = 3e-3, 8
QUICK = PAPER["two-layer"].with_(samples=6_000, validation=1_000, test=1_000, batch=128, epochs=12, lr=3e-3)
NEAR = 1.3  # at most so many times the printed number counts as the paper's
LEARNED = 12  # up to this length the paper's networks learn


def pair_min() -> Target:
    """min over pairs of |x(s) + x(t)|^2: order of comparison 2, a tree score, two heads a layer suffice."""
    return Target(
        terms=(Extremum(NormOfSum(2, 2), kind="min"),),
        outer=Polynomial.identity(1),
        dim=2,
        spelling="lab.pair_min:d=2",
        sampler="clamped_normal",
    )


@dataclass(frozen=True)
class Length:
    """A length of the control at which its label varies as much as triangle-center's at the length it stands for."""

    triangle: int
    pair: int
    triangle_std: float
    pair_std: float


def label_std(target: Target, T: int, samples: int = 4000) -> float:
    """The standard deviation of the target's values, measured on samples."""
    return _label_std(target.spelling, T, samples)


@cache
def _label_std(spelling: str, T: int, samples: int) -> float:
    target = pair_min() if spelling == pair_min().spelling else targets.parse(spelling)
    return float(np.std(np.asarray(target(target.sample(samples, T, seed=1)))))


def matched(lengths: tuple[int, ...]) -> list[Length]:
    """For each T of triangle-center, the T' <= 256 of pair-min with the nearest standard deviation on a log scale.

    A longer sequence has more pairs, so its minimum varies less: the nearest T' is found by bisection.
    """
    pair = pair_min()
    grid = sorted({round(2 * 1.09**step) for step in range(57)})
    found = []
    for T in lengths:
        std = label_std(targets.triangle_center(d=2), T, 1000)
        low, high = 0, len(grid) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if label_std(pair, grid[middle], 1000) > std else (low, middle)
        ends = {T_pair: label_std(pair, T_pair, 1000) for T_pair in (grid[low], grid[high])}
        best = min(ends, key=lambda length: abs(np.log(ends[length] / std)))
        found.append(Length(T, best, std, ends[best]))
    return found


def plan(context: Context) -> dict[tuple[str, int, str, str], list[Run]]:
    """Cells (target, T, size, encoder): the paper's table with both encoders, and the control.

    A piece such as `two-layer:(2,2) E=24:T=3` or `two-layer:control:T=3` is one cell, beside what other parts ask for.
    Labels are standardised in training whatever the target (Recipe), so the scale of a label alone is no obstacle.
    """
    recipes = {"quick": {"two-layer": QUICK}, "paper": PAPER, "best": {"two-layer": LONG}}[context.preset]
    lengths = {"quick": (3, 8, 16), "paper": LENGTHS, "best": LONGER_LENGTHS}[context.preset]
    sizes = {"quick": ["(2,2) E=24"], "paper": list(SIZES), "best": ["(4,4) E=48"]}[context.preset]
    parts = set(context.parts) - set(PIECES)
    encoders = [name for name in recipes if name in parts or not parts & set(ENCODERS)]
    everything = not context.parts or (parts and parts <= set(ENCODERS))
    asked = [T for T in lengths if everything or f"T={T}" in parts]
    controlled = [T for T in lengths if everything or {"control", f"control:T={T}"} & parts]
    chosen = [(encoder, size, T) for encoder in encoders for T in asked for size in sizes]
    pieces = [cell for name, cell in PIECES.items() if name in context.parts and cell[2] in lengths]
    chosen += [cell for cell in pieces if cell[1] in SIZES]
    controls = {(encoder, T) for encoder in encoders for T in controlled}
    controls |= {(encoder, T) for encoder, name, T in pieces if name == "control"}
    seeds, triangle = range(1 if context.quick else 2), targets.triangle_center(d=2)
    grid: dict[tuple[str, int, str, str], list[Run]] = {}

    def recipe(encoder: str, T: int) -> Recipe:
        faster = context.preset == "best" and T <= FASTER_UP_TO
        return recipes[encoder].with_(lr=FAST) if faster else recipes[encoder]

    for encoder, size, T in dict.fromkeys(chosen):
        runs = [Run(triangle, SIZES[size], T, seed, recipe(encoder, T)) for seed in seeds]
        grid["triangle", T, size, encoder] = runs
    for encoder in ENCODERS:
        for length in matched(tuple(T for T in lengths if (encoder, T) in controls)):
            rate = recipe(encoder, length.triangle)  # of the length it stands for
            runs = [Run(pair_min(), SIZES[sizes[0]], length.pair, seed, rate) for seed in seeds]
            grid["pair", length.pair, sizes[0], encoder] = runs
    return grid


def run(context: Context) -> Outcome:
    """The NMSE against the length, for both targets."""
    grid = plan(context)
    results = train_cells(context, grid, "table 12")
    summaries = cells(results)
    paper = {row["T"]: row for row in printed(__package__)["rows"]}
    rows = []
    for (which, T, size, encoder), summary in summaries.items():
        first = grid[which, T, size, encoder][0]
        rows.append(
            {
                "target": which,
                "T": T,
                "size": size,
                "encoder": encoder,
                "label std": label_std(first.regression()[0], T),
                "paper": paper[T][size] if which == "triangle" and T in paper and not context.quick else None,
                "mean": summary.mean,
                "std": summary.deviation,
                "seeds": summary.models,
                "scored on": "test" if first.recipe.test else "validation, last step",
                "exponent (lower)": _exponent(first, "lower"),
                "exponent (ordered)": _exponent(first, "ordered"),
            }
        )
    columns = ["target", "T", "size", "encoder", "label std", "paper", "mean", "std", "seeds", "scored on",
               "exponent (lower)", "exponent (ordered)"]  # fmt: skip
    figures, measured = {"figure1b": _figure(rows)}, measured_on(results.runs())
    if context.preset == "best":
        measured += ", but for the rate at T = 12 and 16, which was lowered with their errors in sight"
    return Outcome(columns, rows, results.runs(), _remarks(rows), figures, scored=measured)


def judge(result: dict[str, Any]) -> dict[str, Judgement]:
    """The NMSE grows with T to nearly that of a constant, whatever the size; and how near ours are to print."""
    rows = [row for row in result["rows"] if row["target"] == "triangle"]
    last = max(row["T"] for row in rows)
    end = [row["mean"] for row in rows if row["T"] == last]
    ends = list(dict.fromkeys(f"{error:.2g}" for error in (min(end), max(end))))
    said, rising = [f"NMSE {' to '.join(ends)} at T={last}"], True
    for encoder in dict.fromkeys(row["encoder"] for row in rows):
        chosen = [row for row in rows if row["encoder"] == encoder]
        by_size = [[r["mean"] for r in chosen if r["size"] == size] for size in {row["size"] for row in chosen}]
        rising &= all(max(before) <= after for found in by_size for *before, after in _prefixes(found))
        ratios = [row["mean"] / row["paper"] for row in chosen if row["T"] <= LEARNED and row["paper"]]
        if ratios:
            said.append(
                f"{encoder} encoder: {min(ratios):.2g} to {max(ratios):.2g} times the printed numbers for T <= "
                f"{LEARNED}, {sum(ratio <= NEAR for ratio in ratios)} of {len(ratios)} at most {NEAR}"
            )
    return dict.fromkeys(CONCLUDES, Judgement(rising and min(end) > FAILS, "; ".join(said)))


def _prefixes(values: list[float]) -> list[list[float]]:
    """Each value from the second on behind all before it."""
    return [values[: end + 1] for end in range(1, len(values))]


def _remarks(rows: list[dict[str, Any]]) -> list[str]:
    """What the rows that were run say, and no more."""
    said = []
    for encoder in dict.fromkeys(row["encoder"] for row in rows):
        chosen = [row for row in rows if row["encoder"] == encoder]
        failing = [row["T"] for row in chosen if row["target"] == "triangle" and row["mean"] > FAILS]
        if failing:
            first = [r for r in chosen if r["target"] == "triangle" and r["T"] == min(failing)]
            said.append(
                f"{encoder} encoder: NMSE passes {FAILS} at T={min(failing)}{_skipped(chosen, min(failing))}, where "
                "the framework's exponent with the proved count is "
                f"{', '.join(sorted({r['exponent (lower)'] for r in first}))}: the law does not explain the failure "
                "there"
            )
        pairs = [row for row in chosen if row["target"] == "pair"]
        for row in chosen:
            if row["target"] == "triangle" and pairs and row["size"] == pairs[0]["size"]:
                near = min(pairs, key=lambda other: abs(np.log(other["label std"] / row["label std"])))
                if abs(np.log(near["label std"] / row["label std"])) > SPREAD:
                    continue  # the control of this length was not run
                said.append(
                    f"{encoder} encoder, label std {row['label std']:.2g}: triangle-center (order 3, T={row['T']}) "
                    f"NMSE {row['mean']:.2g}, pair-min (order 2, T={near['T']}) NMSE {near['mean']:.2g}"
                )
    return said


def _skipped(rows: list[dict[str, Any]], T: int) -> str:
    """The lengths just below T that the rows lack: the error may pass there already."""
    run = {row["T"] for row in rows if row["target"] == "triangle"}
    below = max((length for length in run if length < T), default=0)
    left = [str(length) for length in LENGTHS if below < length < T]
    return f" (T={', '.join(left)} not run)" if below and left else ""


def _exponent(first: Run, count: Any) -> str:
    target, arch, T = first.regression()
    return str(predict(target, arch.with_(width=None), T=T, count=count).counting.exponent)


def _figure(rows: list[dict[str, Any]]) -> Any:
    from infoflow.report import style

    figure, (left, right) = style.figure(9.0, 3.6, 1, 2)
    encoders = list(dict.fromkeys(row["encoder"] for row in rows))
    lengths = sorted({row["T"] for row in rows if row["target"] == "triangle"})
    for position, size in enumerate(SIZES):
        colour = style.COLOURS[position]
        for encoder in encoders:
            chosen = [r for r in rows if (r["target"], r["size"], r["encoder"]) == ("triangle", size, encoder)]
            look = {"color": colour, "ls": "-" if encoder == "two-layer" else "--", "marker": "o", "ms": 3}
            if chosen:
                found = {r["T"]: r["mean"] for r in chosen}
                values = [found.get(T, np.nan) for T in lengths]  # no line past a length that was not run
                left.plot(lengths, values, label=f"{size}, {encoder}", **look)
        known = {r["T"]: r["paper"] for r in rows if r["size"] == size and r["paper"] is not None}
        if known:
            left.plot(list(known), list(known.values()), ls=":", marker="x", color=colour, label=f"{size}, paper")
    for position, (which, encoder) in enumerate((w, e) for w in ("triangle", "pair") for e in encoders):
        chosen = [row for row in rows if (row["target"], row["encoder"]) == (which, encoder)]
        if chosen:
            x, y = [r["label std"] for r in chosen], [r["mean"] for r in chosen]
            right.scatter(x, y, s=16, color=style.COLOURS[position], label=f"{which}, {encoder}")
    left.set_title("triangle-center against T")
    right.set_title("the same, against how much the label varies")
    left.set_xlabel("T")
    right.set_xlabel("standard deviation of the label")
    right.invert_xaxis()
    for axes in (left, right):
        axes.set_ylabel("NMSE")
        if axes.has_data():  # parts that train the control alone leave the left side empty: no logarithm of nothing
            axes.set(xscale="log", yscale="log")
            axes.legend(fontsize=7, handlelength=3.6)  # long enough to tell dashes from a line
    if left.has_data():
        left.set_xticks(LENGTHS, [str(T) for T in LENGTHS], fontsize=7)
        left.minorticks_off()
    return figure


CONCLUDES = dict.fromkeys(
    ("Table 12", "Figure 1b"),
    "the NMSE of triangle-center grows with T to nearly that of a constant, whatever the heads and the embedding",
)
ITEM = Item(
    name="infoflow/table12",
    title="InfoFlow Table 12 and Figure 1b: triangle-center against T, with an order-2 control",
    concludes=CONCLUDES,
    quick="T = 3, 8, 16, (2,2) E=24 only, 6,000 samples, 12 epochs, 1 seed; and the control at matched label spread",
    paper="12 lengths, three sizes, 90,000 + 10,000 samples, AdamW 1e-3, decay 1e-2, 2 seeds; both encoders; control",
    best="T = 4, 8, 12, 16, (4,4) E=48, two-layer encoder, 140 epochs, rate 3e-3 for T <= 8; and the control",
    unsaid=(
        'the encoder ("a trainable encoder"): linear, and two layers of width 32 beside it',
        "the training length: 70 epochs (24,570 steps)",
        "the batch: 256",
        "the activation: GELU (Section 3 speaks of sigmoidal ones, the experiments of none)",
        "labels are standardised for training",
        "not as printed: the paper reports the best validation NMSE; ours of the two-layer encoder is the NMSE at "
        "that epoch on 10,000 others, that of the linear one the NMSE after the last step",
    ),
    differences=(
        "rate 3e-3 instead of 1e-3 for T = 4 and 8; T = 12 and 16 were tried at it and given up, validation and test "
        "errors both in sight",
        "140 epochs instead of our 70",
        "one size, four of the twelve lengths, the two-layer encoder alone",
        "a model three times above its best returns to it at half the rate",
    ),
    run=run,
    judge=judge,
    compared=Compared(("target", "T", "size", "encoder"), "mean", "paper", "std"),
    parts=PARTS,
)
