"""Head count, text retrieval: accuracy of a two-layer encoder against its heads, for lists of several lengths."""

from math import log
from typing import Any

from infoflow.errors import InfoFlowError
from infoflow.lab.item import Context, Item, Outcome
from infoflow.lab.papers.head_count.retrieval.features import PACKAGE, frozen_vectors, hashed_words
from infoflow.lab.papers.head_count.retrieval.lists import PAIRS, SENTENCES, Lists, read_folder, synthetic_lists
from infoflow.lab.papers.head_count.retrieval.model import Ranking
from infoflow.lab.supervised import Cell, Schedule, spread, train_grid

FULL = Schedule(epochs=30, batch=64, lr=1e-3, evaluate_every=2)
QUICK = Schedule(epochs=12, batch=32, lr=3e-3, evaluate_every=4)
QUICK_LISTS = 500


def plan(context: Context, lists: Lists) -> tuple[dict[tuple[str, int, int], list[Cell]], list[str]]:
    """Cells (features, T, h), and what could not be had."""
    full = context.preset == "full"
    lengths, heads, seeds = ((4, 8, 16, 31), (1, 2, 4, 8, 16), 4) if full else ((4, 8), (1, 2, 4), 1)
    buckets, longest, sizes = (2**15, 64, (64, 8, 128)) if full else (2**10, 16, (16, 4, 32))
    contents: dict[str, Any] = {"words": hashed_words(lists.texts, buckets, longest)}
    remarks = []
    if full or context.data is not None:
        frozen = frozen_vectors(lists.texts, lists.digest, context.out / "embeddings")
        if frozen is None:
            remarks.append(f"frozen MiniLM embeddings: not run, the package {PACKAGE} was not found")
        else:
            contents["minilm"] = frozen
    size, head, width = sizes
    grid = {}
    for features, content in contents.items():
        for T in lengths:
            if len(lists.of_length(T)) < 10:
                raise InfoFlowError(f"expected at least ten lists of {T} candidates in {lists.source}, found fewer.")
            for h in heads:
                task = Ranking(lists, content, features, T, h, size, buckets, head, width)
                grid[features, T, h] = [Cell(task, FULL if full else QUICK, seed) for seed in range(seeds)]
    return grid, remarks


def run(context: Context) -> Outcome:
    lists = _lists(context)
    grid, remarks = plan(context, lists)
    results = train_grid(context, grid, "retrieval", stack=8)
    rows, cosines = [], {}
    for (features, T, h), records in results.items():
        task: Any = grid[features, T, h][0].task
        if (features, T) not in cosines:
            cosines[features, T] = (task.cosine_accuracy(), task.cosine_accuracy(native=True))
        mean, deviation = spread(records, "accuracy")
        native = [r["kept"]["native accuracy"] for r in records if "native accuracy" in r["kept"]]
        rows.append(
            {
                "features": features,
                "T": T,
                "h": h,
                "accuracy": mean,
                "std": deviation,
                "log(1 - accuracy)": log(1 - mean) if mean is not None and mean < 1 else None,
                "failed": sum(record["failed"] for record in records),
                "chance": 1 / T,
                "untrained cosine": cosines[features, T][0],
                "native lists": sum(native) / len(native) if native else None,
                "native cosine": cosines[features, T][1],
            }
        )
    columns = list(rows[0])
    remarks = [f"lists: {lists.source}, {len(lists.rows)} queries, one in five for testing", *remarks, *_reading(rows)]
    if lists.native:
        remarks.append("native lists come from one search each, are never trained on, and their labels are noisy")
    runs = [record for records in results.values() for record in records]
    return Outcome(columns, rows, runs, remarks, {"retrieval": _figure(rows)}, {"source": lists.source})


def _lists(context: Context) -> Lists:
    if context.data is None:
        if context.preset == "full":
            context.file("head_count/retrieval", PAIRS, SENTENCES)
        return synthetic_lists(QUICK_LISTS, T=8, seed=0)
    lists = read_folder(context.data)
    if context.preset == "quick":
        lists = Lists(lists.source, lists.texts, lists.rows[:QUICK_LISTS], lists.native)
    return lists


def _reading(rows: list[dict[str, Any]]) -> list[str]:
    said = []
    for features, T in dict.fromkeys((row["features"], row["T"]) for row in rows):
        found = {r["h"]: r["accuracy"] for r in rows if (r["features"], r["T"]) == (features, T) and r["accuracy"]}
        if found:
            text = ", ".join(f"{h}: {accuracy:.3f}" for h, accuracy in found.items())
            said.append(f"{features}, T={T}: accuracy by heads {text}")
    said.append("the slides print figures only, no numbers")
    return said


def _figure(rows: list[dict[str, Any]]) -> Any:
    from infoflow.report import style

    figure, (left, right) = style.figure(8.4, 3.4, 1, 2)
    for position, (features, T) in enumerate(dict.fromkeys((row["features"], row["T"]) for row in rows)):
        chosen = [row for row in rows if (row["features"], row["T"]) == (features, T)]
        colour, h = style.COLOURS[position % len(style.COLOURS)], [row["h"] for row in chosen]
        left.plot(h, _values(chosen, "accuracy"), "o-", color=colour, label=f"{features}, T = {T}")
        left.axhline(chosen[0]["untrained cosine"], color=colour, ls=":", lw=1)
        right.plot(h, _values(chosen, "log(1 - accuracy)"), "o-", color=colour)
    left.set(xlabel="heads h", ylabel="accuracy", xscale="log", title="dotted: untrained cosine")
    right.set(xlabel="heads h", ylabel="log(1 - accuracy)", xscale="log")
    left.legend(fontsize=7)
    return figure


def _values(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [row[name] if row[name] is not None else float("nan") for row in rows]


ITEM = Item(
    name="head_count/retrieval",
    title="Head count, text retrieval: accuracy against heads for lists of T passages",
    quick="500 lists (of --data, else key-value sentences made in code), T = 4, 8, h = 1, 2, 4, 1 seed",
    full="all lists of --data, T = 4, 8, 16, 31, h = 1..16, 4 seeds, 30 epochs; hashed words and frozen MiniLM",
    run=run,
    data=f"{PAIRS} with dev_small_bm25_negatives.tsv.gz (and qa_sample_200.jsonl.gz), or {SENTENCES}",
)
