"""Rank-1 Figure 1: training accuracy of rank-1 Transformers of 1, 3 and 6 layers on tagged text, beside what any
model of its kind could reach and what one untrained, constructed rank-1 head reaches."""

from itertools import pairwise
from typing import Any

from infoflow.construct.rank_one.text import TaggedText, ceilings, memorize_text, read_conll
from infoflow.lab.item import Compared, Context, Item, Judgement, Outcome, printed
from infoflow.lab.papers.rank_one.figure1.model import Tagging, synthetic_text
from infoflow.lab.sweep import failed, schedule, spread, train_cells
from infoflow.train.run import Run
from infoflow.train.store import Result

FILES = ("train.txt.gz", "wikigold.conll.gz")
DEPTHS = (1, 3, 6)
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
    epochs, seeds = {"quick": (30, 1), "paper": (400, 1), "best": (800, 3)}[context.preset]
    depths = [depth for depth in DEPTHS if not context.parts or f"layers={depth}" in context.parts]
    grid = {}
    for depth in depths:
        rate = 3e-3 if context.quick else 3e-4 if depth == 6 else 1e-3
        task = Tagging(text, source, depth, size, width)
        grid[depth] = [Run(task, seed=seed, recipe=schedule(epochs, 32, rate, every)) for seed in range(seeds)]
    results = train_cells(context, grid, "figure 1").by_cell
    lines = ceilings(text)
    built = memorize_text(text, dense_places=400 if context.quick else 4000).accuracy
    return _outcome(context, text, source, results, lines, built, epochs)


def _text(context: Context) -> tuple[TaggedText, str]:
    if context.data is None and context.quick:
        return synthetic_text(sentences=128, seed=0), "sentences made in code"
    path = context.file("rank_one/figure1", *FILES)
    return read_conll(path), path.name


def _outcome(
    context: Context,
    text: TaggedText,
    source: str,
    results: dict[int, list[Result]],
    lines: dict[str, float],
    built: float,
    epochs: int,
) -> Outcome:
    paper = printed(__package__)["one_layer_800_epochs"] if source == "train.txt.gz" else None
    rows: list[dict[str, Any]] = []
    for depth, records in results.items():
        mean, deviation = spread(records, "accuracy")
        known = f"{paper} at 800 epochs" if depth == 1 and paper and not context.quick else None
        rows.append(
            {
                "what": f"trained, {depth} layer{'s' * (depth > 1)}",
                "paper": known,
                "accuracy": mean,
                "std": deviation,
                "epochs to 0.99": _reached(records, 0.99, epochs),
                "failed": failed(records),
            }
        )
    rows += [{"what": f"ceiling: {NAMES[name]}", "accuracy": value} for name, value in lines.items()]
    rows.append({"what": "one rank-1 head, constructed, untrained", "accuracy": built})
    remarks = [
        f"{source}: {len(text.words)} sentences, {text.size} tokens; training accuracy of real tokens, {epochs} epochs",
        "a lookup of the word alone, without attention, is the line a trained model must pass to show context",
    ]
    runs = [result for found in results.values() for result in found]
    return Outcome(
        ["what", "paper", "accuracy", "std", "epochs to 0.99", "failed"],
        rows,
        runs,
        remarks,
        {"figure1": _figure(results, lines, built, epochs)},
        {"ceilings": lines, "constructed": built, "source": source},
    )


def _reached(records: list[Result], level: float, epochs: int) -> float | None:
    """Mean epoch of the first look at which the accuracy was at `level`, over models that reached it."""
    first = []
    for result in records:
        curve = zip(result.curve_steps, result.curve_of("accuracy"), strict=True)
        hit = [step / result.steps * epochs for step, value in curve if value is not None and value >= level]
        first += hit[:1]
    return sum(first) / len(first) if first else None


def judge(result: dict[str, Any]) -> dict[str, Judgement]:
    """One layer passes what the word alone gives and comes near what any order-free model can reach; and whether each
    depth reaches 0.99 sooner than the one before it."""
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
    epochs = [row["epochs to 0.99"] for row in depths if row.get("epochs to 0.99") is not None]
    if 1 < len(epochs) == len(depths):
        names = ", ".join(row["what"].removeprefix("trained, ") for row in depths)
        number = f"{', '.join(f'{epoch:.0f}' for epoch in epochs)} epochs to 0.99 with {names}"
        sooner = all(deep < flat for flat, deep in pairwise(epochs))
        found["Figure 1, depth"] = Judgement(sooner, number)
    return found


def _figure(results: dict[int, list[Result]], lines: dict[str, float], built: float, epochs: int) -> Any:
    """The whole climb on the left; on the right what lies above the word alone, where depths differ."""
    from infoflow.report import style

    figure, (whole, near) = style.figure(9.6, 3.8, 1, 2)
    for axes in (whole, near):
        for position, (depth, records) in enumerate(results.items()):
            for number, result in enumerate(records):
                y = [value if value is not None else float("nan") for value in result.curve_of("accuracy")]
                x = [step / result.steps * epochs for step in result.curve_steps]
                label = f"{depth} layer{'s' * (depth > 1)}" if number == 0 else None
                look = {"color": style.COLOURS[position], "ls": ("-", "--", ":")[position]}
                axes.plot(x, y, label=label, **look)
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
    paper="CoNLL-2003 NER (or wikigold), d = 256, width 1024, batch 32, 400 epochs, Adam 1e-3 (6 layers: 3e-4), 1 seed",
    best="the same for 800 epochs, 3 seeds",
    unsaid=(
        "which of CoNLL's tasks: NER",
        "sizes: word vectors of 256 from N(0, 1), width 1024, ReLU, no positions",
        "optimiser: Adam 1e-3 without decay, 3e-4 for six layers",
        "the seeds: 1",
        "key and value share v_1 as in (20); the text says value and query",
    ),
    differences=("three seeds", "800 epochs for every depth; the paper names 800 for one layer alone"),
    run=run,
    judge=judge,
    compared=Compared(("what",), "accuracy", "paper", "std"),
    scored="the training samples, as in the paper",
    data="train.txt.gz (CoNLL-2003) or wikigold.conll.gz",
    parts=tuple(f"layers={depth}" for depth in DEPTHS),
)
