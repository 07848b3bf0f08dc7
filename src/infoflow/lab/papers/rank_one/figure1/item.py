"""Rank-1 Figure 1: training accuracy of rank-1 Transformers of 1, 3 and 6 layers on tagged text, beside what any
model of its kind could reach and what one untrained, constructed rank-1 head reaches."""

import statistics
from itertools import pairwise
from typing import Any

from infoflow.construct.rank_one.text import TaggedText, ceilings, memorize_text, read_conll
from infoflow.lab.item import Compared, Context, Item, Judgement, Outcome, printed
from infoflow.lab.papers.rank_one.figure1.model import Tagging, synthetic_text
from infoflow.lab.sweep import failed, schedule, train_cells
from infoflow.train.run import Run
from infoflow.train.store import Result

FILES = ("train.txt.gz", "wikigold.conll.gz")
DEPTHS = (1, 3, 6)
SHOWN, FURTHER = 400, 800  # epochs of the figure, and of its one layer "after further training"
SEEDS = 3  # the paper does not say how many
LEVELS = (0.99, 0.995, 0.996, 0.997)  # training accuracies at which the depths are compared
NAMES = {
    "majority": "the most frequent tag",
    "word": "the word alone",
    "order_free": "the word and its sentence's multiset",
    "positions": "the sentence and the position",
}


def run(context: Context) -> Outcome:
    """Training accuracy against depth on tagged text."""
    text, source = _text(context)
    if context.quick:
        text = TaggedText(text.words[:128], text.tags[:128])
    size, width, every = (32, 64, 5) if context.quick else (256, 1024, 10)
    shown, further, seeds = (30, 30, 1) if context.quick else (SHOWN, FURTHER, SEEDS)
    depths = [depth for depth in DEPTHS if not context.parts or f"layers={depth}" in context.parts]
    grid = {}
    for depth in depths:
        rate = 3e-3 if context.quick else 3e-4 if depth == 6 else 1e-3
        task, epochs = Tagging(text, source, depth, size, width), further if depth == 1 else shown
        grid[depth] = [Run(task, seed=seed, recipe=schedule(epochs, 32, rate, every)) for seed in range(seeds)]
    results = train_cells(context, grid, "figure 1").by_cell
    lines = ceilings(text)
    built = memorize_text(text, dense_places=400 if context.quick else 4000).accuracy
    return _outcome(text, source, results, lines, built, shown)


def _text(context: Context) -> tuple[TaggedText, str]:
    if context.data is None and context.quick:
        return synthetic_text(sentences=128, seed=0), "sentences made in code"
    path = context.file("rank_one/figure1", *FILES)
    return read_conll(path), path.name


def _outcome(
    text: TaggedText,
    source: str,
    results: dict[int, list[Result]],
    lines: dict[str, float],
    built: float,
    shown: int,
) -> Outcome:
    rows: list[dict[str, Any]] = []
    for depth, records in results.items():
        curves = [_curve(result) for result in records]
        rows.append(
            {
                "what": f"trained, {_layers(depth)}",
                "epochs": shown,
                **_accuracy(curves, shown),
                **{f"epochs to {level}": _mean_reached(curves, level, shown) for level in LEVELS},
                "failed": failed(records),
            }
        )
        last = max(epoch for curve in curves for epoch in curve)
        if last > shown:
            paper = str(printed(__package__)["one_layer_800_epochs"]) if source == "train.txt.gz" else None
            row = {"what": f"{_layers(depth)}, trained further", "paper": paper, "epochs": round(last)}
            rows.append({**row, **_accuracy(curves, last), "failed": failed(records)})
    rows += [{"what": f"ceiling: {NAMES[name]}", "accuracy": value} for name, value in lines.items()]
    rows.append({"what": "one rank-1 head, constructed, untrained", "accuracy": built})
    remarks = [
        f"{source}: {len(text.words)} sentences, {text.size} tokens; training accuracy of real tokens",
        "a lookup of the word alone, without attention, is the line a trained model must pass to show context",
    ]
    runs = [result for found in results.values() for result in found]
    return Outcome(
        ["what", "paper", "epochs", "accuracy", "std", *(f"epochs to {level}" for level in LEVELS), "failed"],
        rows,
        runs,
        remarks,
        {"figure1": _figure(results, lines, built, shown)},
        {"ceilings": lines, "constructed": built, "source": source},
    )


def _layers(depth: int) -> str:
    return f"{depth} layer{'s' * (depth > 1)}"


def _curve(result: Result) -> dict[float, float | None]:
    """The accuracy after each epoch that was looked at."""
    per_epoch = result.steps / result.identity["recipe"]["epochs"]
    values = result.curve_of("accuracy")
    return {step / per_epoch: value for step, value in zip(result.curve_steps, values, strict=True)}


def _accuracy(curves: list[dict[float, float | None]], epoch: float) -> dict[str, float | None]:
    """Mean and standard deviation after an epoch, over the models whose accuracy is finite there."""
    values = [value for curve in curves if (value := curve[epoch]) is not None]
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"accuracy": statistics.mean(values), "std": deviation} if values else {"accuracy": None, "std": None}


def _mean_reached(curves: list[dict[float, float | None]], level: float, until: float) -> float | None:
    """The mean epoch at which the models were at `level`, if all of them were."""
    reached = [_reached(curve, level, until) for curve in curves]
    known = [epoch for epoch in reached if epoch is not None]
    return statistics.mean(known) if known and len(known) == len(curves) else None


def _reached(curve: dict[float, float | None], level: float, until: float) -> float | None:
    """The first epoch that was looked at, among those shown, at which the accuracy was at `level`."""
    hits = (epoch for epoch, value in curve.items() if value is not None and value >= level and epoch <= until)
    return min(hits, default=None)


def judge(result: dict[str, Any]) -> dict[str, Judgement]:
    """One layer passes what the word alone gives and comes near what any order-free model can reach; and whether each
    depth learns sooner than the one before it.

    That is asked at every level which all models reached. No level was chosen before the curves were seen, so none of
    them alone may decide.
    """
    rows = {row["what"]: row["accuracy"] for row in result["rows"]}
    one = rows.get("trained, 1 layer")
    if one is None:
        return {}
    word, top = rows[f"ceiling: {NAMES['word']}"], rows[f"ceiling: {NAMES['order_free']}"]
    share = (one - word) / (top - word)
    way = f"{share:.0%} of the way from the word alone ({word:.4f}) to the ceiling ({top:.4f})"
    number = f"one layer reaches {one:.4f}, {way}"
    found = {"Figure 1": Judgement(share > 0.5, number)}
    depths = [row for row in result["rows"] if row["what"].startswith("trained, ")]
    common = [level for level in LEVELS if all(row.get(f"epochs to {level}") is not None for row in depths)]
    if len(depths) > 1 and common:
        epochs = {level: [row[f"epochs to {level}"] for row in depths] for level in common}
        said = [f"{', '.join(f'{epoch:.0f}' for epoch in when)} epochs to {level}" for level, when in epochs.items()]
        names = ", ".join(row["what"].removeprefix("trained, ") for row in depths)
        slower = "" if result["preset"] == "quick" else "; six layers at a third of the rate"
        sooner = all(deep < flat for when in epochs.values() for flat, deep in pairwise(when))
        number = f"with {names}: {'; '.join(said)}{slower}"
        found["Figure 1, depth"] = Judgement(sooner, number)
    return found


def _figure(results: dict[int, list[Result]], lines: dict[str, float], built: float, shown: int) -> Any:
    """The whole climb on the left; on the right what lies above the word alone, where depths differ."""
    from infoflow.report import style

    figure, (whole, near) = style.figure(9.6, 3.8, 1, 2)
    for axes in (whole, near):
        for position, (depth, records) in enumerate(results.items()):
            for number, result in enumerate(records):
                curve = {epoch: value for epoch, value in _curve(result).items() if epoch <= shown}
                y = [value if value is not None else float("nan") for value in curve.values()]
                label = _layers(depth) if number == 0 else None
                look = {"color": style.COLOURS[position], "ls": ("-", "--", ":")[position]}
                axes.plot(list(curve), y, label=label, **look)
        for value in lines.values():
            axes.axhline(value, color=style.MUTED, lw=0.8)
        axes.axhline(built, color=style.COLOURS[4], lw=1.2, label="one head, constructed")
        axes.set(xlabel="epoch", ylabel="training accuracy")
    whole.set_title("rank-1 Transformers")
    whole.set_ylim(min(lines.values()) - 0.08, 1.02)  # the first epochs come from below
    whole.legend(fontsize=7, loc="lower right")
    near.set_title("above the word alone")
    near.set_ylim(lines["word"] - 0.001, 1.001)
    for name, value in lines.items():  # the two upper ceilings lie together on the left
        axes = whole if name == "majority" else near
        axes.text(0, value, NAMES[name], fontsize=6, va="top" if name == "positions" else "bottom", color=style.MUTED)
    return figure


ITEM = Item(
    name="rank_one/figure1",
    title="Rank-1 Transformers Figure 1: training accuracy of 1, 3 and 6 layers on tagged text",
    concludes={
        "Figure 1": "one rank-1 layer memorises CoNLL-2003 almost perfectly",
        "Figure 1, depth": "deeper ones learn sooner, which the paper conjectures to be what depth is good for",
    },
    quick="128 sentences (of --data, or made in code when there is none), d = 32, width 64, 30 epochs instead of 400",
    paper="CoNLL-2003 NER (or wikigold), d = 256, width 1024, batch 32, 400 epochs (1 layer: 800), Adam 1e-3 "
    "(6 layers: 3e-4), 3 seeds",
    unsaid=(
        "which of CoNLL's languages and tasks: English, NER",
        "sizes: word vectors of 256 from N(0, 1), width 1024, ReLU, no positions",
        "optimiser: Adam 1e-3 without decay, 3e-4 for six layers",
        "the seeds: 3",
        "key and value share v_1 as in (20); the text says value and query",
    ),
    run=run,
    judge=judge,
    compared=Compared(("what",), "accuracy", "paper", "std"),
    scored="the training samples, as in the paper",
    data="train.txt.gz (CoNLL-2003) or wikigold.conll.gz",
    parts=tuple(f"layers={depth}" for depth in DEPTHS),
)
