"""InfoFlow C.1 and C.2, Tables 1 to 10: is the token at the argmax (and at the second largest score) still readable?

The text speaks of a retrieval target, which `paper` trains; the sizes and the printed errors are those of eq. (6),
which `best` trains.
"""

from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow import targets
from infoflow.architecture import Architecture, matched_embed
from infoflow.errors import InfoFlowError
from infoflow.files import write_json
from infoflow.lab.item import Compared, Context, Item, Judgement, Outcome, Told, printed
from infoflow.lab.papers.infoflow.followed import followed
from infoflow.lab.sweep import TrainedCells, best_of, train_cells
from infoflow.probes.record import batched, record
from infoflow.probes.recovery import recovery, untrained
from infoflow.reading import json_of
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.store import Result, Store, is_number
from infoflow.verdicts.predict import predict

# The paper prints no rate, decay or length here ("to convergence"). The score of D-retrieval is a square, which a
# linear encoder cannot form: two layers. Queries and keys have a rate of their own: the softmax has to become sharp.
SHARP = Recipe(samples=36_000, validation=4_000, batch=256, lr=3e-3, decay=1e-4, query_key_rate=10.0, warm_up=2800,
               rollback=8.0, evaluate_every=10)  # fmt: skip
PAPER = SHARP.with_(epochs=300, encoder="mlp", encoder_width=64, test=4_000)
BEST = SHARP.with_(starts=3, start_epochs=100)
QUICK = SHARP.with_(samples=12_000, validation=1_000, batch=128, epochs=140, warm_up=500)
HEADS = ((6, 6), (5, 5), (5, 6), (5, 7), (6, 5), (7, 5), (7, 7))
NAMES = {1: "argmax", 2: "second"}
TEST = 4_000
ARGMAX, SECOND = "Tables 1 to 3", "Tables 4 to 10"
NAMED = "D-retrieval"  # the target C.1 names
LOST = 0.7  # a ratio above it: the token is not kept


def architecture(heads: tuple[int, int], D: int, width: int) -> Architecture:
    """C.1: E_1 = 36, 40, 42 for 6, 5, 7 heads, i.e. ceil(6D / h) h; the same rule for the second layer."""
    return Architecture(heads, tuple(matched_embed(D, h) for h in heads), width)


def plan(context: Context) -> dict[tuple[str, tuple[int, int]], list[Run]]:
    """The runs of every target and head count of a preset."""
    D, T, width, seeds = (2, 16, 64, 1) if context.quick else (6, 64, 384, 2)
    name, target = "eq. (6)", targets.pairwise_max(D=D, d=4, seed=0)
    if context.preset == "paper":
        name, target = NAMED, targets.d_retrieval(D=D, d=4, seed=0)
    heads = ((2, 2), (1, 2)) if context.quick else HEADS
    chosen = [h for h in heads if not context.parts or f"heads={h[0]},{h[1]}" in context.parts]
    grid = {}
    for h in chosen:
        best = BEST.with_(epochs=4500 if min(h) >= D else 1500)  # how long each row had: README
        recipe = {"quick": QUICK, "paper": PAPER, "best": best}[context.preset]
        grid[name, h] = [Run(target, architecture(h, D, width), T, seed, recipe) for seed in range(seeds)]
    return grid


def run(context: Context) -> Outcome:
    """Train, and measure what a linear map recovers from each head."""
    grid = plan(context)
    results = _trained(context, grid)
    paper = {(table["kind"], tuple(table["heads"])): table for table in printed(__package__)["tables"]}
    rows, details = [], []
    for (name, heads), runs in grid.items():
        found = measured(context, best_of(results, (name, heads)), runs[0])
        said, error, errors, shares = predicted(runs[0]), found["NMSE"], found["errors"], found["followed"]
        for kind in ("argmax", "second"):
            known = None if context.quick else paper.get((kind, heads))
            theirs = list(zip(known["trained"], known["initialized"], strict=True)) if known else []
            row: dict[str, Any] = {"target": name, "heads": "({},{})".format(*heads), "rank": kind, "NMSE": error}
            row["predicted"] = said
            row["least followed"] = ", ".join(_short(min(layer)) for layer in shares) if shares else None
            rows.append({**row, **spans("paper", theirs), **spans("our", errors[kind])})
            details.append(
                {
                    "target": name,
                    "heads": heads,
                    "rank": kind,
                    "trained_initialized": errors[kind],
                    "followed": shares,
                    "paper_ratios": ratios(theirs) if name == "eq. (6)" else [],  # the one its sizes are of
                }
            )
    sides = ("our",) if context.quick else ("paper", "our")  # the paper has no such sizes
    columns = ["target", "heads", "rank", "predicted", "NMSE", "least followed"]
    columns += [f"{whose} {what}" for what in ("ratio", "trained", "initialised") for whose in sides]
    remarks = [
        "ratio: recovery error (56) of the trained model over that of its own initialisation, smallest to largest head",
        "predicted: what infoflow predict says of these heads before training, and the exponent of its flow estimate",
        "least followed: of the maxima of eq. (6) the one the network follows least; the share of tokens (first layer) "
        "and of sequences (second layer) at which the head that follows it best looks at its token",
    ]
    if not context.quick:
        remarks.append("Tables 1 to 3 of the paper print the argmax ratios of three configurations only")
    return Outcome(columns, rows, results.runs(), remarks, {"recovery": _figure(details)}, {"heads": details})


def _trained(context: Context, grid: dict[tuple[str, tuple[int, int]], list[Run]]) -> TrainedCells:
    """All runs; the weights of the best of each cell, or what was measured of it, are enough."""
    store = Store(context.store)
    by_cell: dict[Any, list[Result]] = {}
    whole = {cell for cell, runs in grid.items() if _kept(store, runs, context)}
    for keep in (False, True):
        part = {cell: runs for cell, runs in grid.items() if (cell not in whole) == keep}
        if part or not grid:  # an empty grid is refused there, with the parts a preset trains
            by_cell |= train_cells(context, part, "recovery", keep_weights=keep).by_cell
    return TrainedCells({cell: by_cell[cell] for cell in grid}, store)


def _kept(store: Store, runs: list[Run], context: Context) -> bool:
    """Whether every run is finished, and the weights of the best are there or it was measured."""
    found = [result for run in runs if (result := store.get(run.key)) is not None]
    if len(found) < len(runs):
        return False
    best = best_of(TrainedCells({"": found}, store), "").key
    return _measured(context, best).is_file() or store.get(best, True) is not None


def _measured(context: Context, key: str) -> Path:
    return context.out / "measured" / f"{key}.json"


def measured(context: Context, best: Result, run: Run) -> dict[str, Any]:
    """What the table says of a network: its NMSE, its recovery errors and, for eq. (6), which maxima are followed.

    It is kept in the folder `measured` by the run's key, so that the table can be made again without the weights.
    """
    path = _measured(context, best.key)
    if path.is_file():
        return _read(path)
    network, target = best.network(), run.regression()[0]
    errors = measure(network, sequences(run, 400 if context.quick else 2000))
    shares = followed(network, target, sequences(run, 400)) if context.preset != "paper" else None
    found = {"NMSE": nmse(network, run, TEST), "errors": errors, "followed": shares}
    write_json(path, found)
    return found


def _read(path: Path) -> dict[str, Any]:
    found = json_of(path, "what was measured of a network")
    try:
        pairs = [pair for kind in NAMES.values() for pair in found["errors"][kind]]
        shares = [share for layer in found["followed"] or [] for share in layer]
        known = pairs and {len(pair) for pair in pairs} == {2} and found.keys() == {"NMSE", "errors", "followed"}
        if not known or not all(map(is_number, [found["NMSE"], *shares, *(value for pair in pairs for value in pair)])):
            raise ValueError
        if min(value for pair in pairs for value in pair) <= 0 or min([found["NMSE"], *shares]) < 0:
            raise ValueError  # ratios are formed of the pairs
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InfoFlowError(
            f"expected what was measured of a network in {path}, got another; remove the file."
        ) from None
    return dict(found)


def judge(result: dict[str, Any]) -> dict[str, Judgement]:
    """The argmax token is recovered best where the first layer has D heads; no head keeps the second largest.

    Of a head count the geometric mean of its heads' ratios speaks: the paper compares configurations.
    """
    D = 2 if result["preset"] == "quick" else 6
    argmax, second = (
        {tuple(e["heads"]): ratios(e["trained_initialized"]) for e in result["heads"] if e["rank"] == rank}
        for rank in ("argmax", "second")
    )
    target, worst = result["rows"][0]["target"], max(row["NMSE"] for row in result["rows"])
    other = target != NAMED
    typical = {heads: geometric_mean(found) for heads, found in argmax.items()}
    enough = [ratio for heads, ratio in typical.items() if heads[0] >= D]
    fewer = [ratio for heads, ratio in typical.items() if heads[0] < D]
    both = [ratio for heads, ratio in typical.items() if min(heads) >= D]
    found = {}
    if enough and fewer:
        said = (
            f"on {target}, mean ratio {_range(enough)} where the first layer has D heads, {_range(fewer)} where fewer"
        )
        said += f", {_range(both)} where both have D" if both else ""
        found[ARGMAX] = Judgement(max(enough) < min(fewer), f"{said}; NMSE at most {worst:.2g}", other)
    if second:
        least = min(ratio for found in second.values() for ratio in found)
        number = f"on {target}, smallest ratio {least:.2g}; NMSE at most {worst:.2g}"
        found[SECOND] = Judgement(least > LOST, number, other)
    return found


def _range(values: list[float]) -> str:
    least, most = _short(min(values)), _short(max(values))
    return least if least == most else f"{least} to {most}"


def nmse(network: Any, run: Run, count: int) -> float:
    """The NMSE of a trained network on fresh sequences: neither trained on nor used to choose its epoch."""
    target, _, _ = run.regression()
    X = sequences(run, count)
    with torch.no_grad():
        found = torch.cat([network(part).double().flatten() for part in X.split(500)])
    wanted = torch.as_tensor(target(X.double()))
    return float((found - wanted).square().mean() / wanted.var(unbiased=False))


def sequences(run: Run, count: int) -> Float[Tensor, "count T d"]:
    """What a network is looked at with: sequences of its target, drawn apart from its training set."""
    target, _, T = run.regression()
    return torch.from_numpy(target.sample(count, T, seed=7)).to(torch.float32)


def measure(network: Any, X: Float[Tensor, "B T d"]) -> dict[str, list[tuple[float, float]]]:
    """(56) per first-layer head, trained and at initialisation, for the argmax and the second largest score."""
    found: dict[str, list[tuple[float, float]]] = {}
    pairs = {}
    for which, model in (("trained", network), ("initialised", untrained(network))):
        for entry in recovery(record(model, batched([X], 250)), ranks=(1, 2), layers=(0,), fit="plain"):
            pairs[which, entry.head, entry.rank] = entry.error
    heads = sorted({head for _, head, _ in pairs})
    for rank, kind in NAMES.items():
        found[kind] = [(pairs["trained", head, rank], pairs["initialised", head, rank]) for head in heads]
    return found


def predicted(run: Run) -> str:
    """The verdict on the heads, at any width, and the exponent of the flow estimate."""
    target, arch, T = run.regression()
    said = predict(target, arch.with_(width=None), T=T)
    return said.verdict if said.flow is None else f"{said.verdict} ({said.flow.exponent})"


def ratios(pairs: list[tuple[float, float]]) -> list[float]:
    """Of the error after training to that before it."""
    return [trained / initialised for trained, initialised in pairs]


def spans(whose: str, pairs: list[tuple[float, float]]) -> dict[str, str | None]:
    """Three cells of a row: from the smallest to the largest head; empty where there are no numbers."""
    values = {"ratio": ratios(pairs), "trained": [t for t, _ in pairs], "initialised": [i for _, i in pairs]}
    return {f"{whose} {what}": _span(v) if v else None for what, v in values.items()}


def _span(values: list[float]) -> str:
    least, most = _short(min(values)), _short(max(values))
    return f"{least} to {most}" if len(values) > 1 else least


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _told(result: dict[str, Any]) -> Told:
    """The figure needs no weights, which the repository has of one preset only."""
    return [], {"recovery": _figure(result["heads"])}


def _figure(details: list[dict[str, Any]]) -> Any:
    from infoflow.report import style

    figure, axes = style.figure(7.5, 3.4)
    labels: list[str] = []
    aside = 0.12 if any(entry["paper_ratios"] for entry in details) else 0.0  # ours left of the paper's
    for entry in details:
        label = "{} ({},{})".format(entry["target"], *entry["heads"])
        if label not in labels:
            labels.append(label)
        colour = style.COLOURS[0] if entry["rank"] == "argmax" else style.COLOURS[1]
        for ratio in ratios(entry["trained_initialized"]):
            axes.scatter(labels.index(label) - aside, ratio, color=colour, s=18, alpha=0.8)
        for ratio in entry["paper_ratios"]:
            axes.scatter(labels.index(label) + aside, ratio, facecolors="none", edgecolors=colour, s=18)
    for colour, kind in zip(style.COLOURS, NAMES.values(), strict=False):
        axes.scatter([], [], color=colour, label=kind)
        if aside:
            axes.scatter([], [], facecolors="none", edgecolors=colour, label=f"{kind}, paper")
    axes.axhline(1.0, color=style.MUTED, lw=1)
    axes.set_yscale("log")
    axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right", fontsize=7)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_ylabel("trained / initialised")
    axes.set_title("what of the token a head looks at can be read back")
    # Outside: among points its own marks would pass for data.
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


ITEM = Item(
    name="infoflow/recovery",
    title="InfoFlow Tables 1 to 10 (C.1, C.2): the argmax token is kept, the second largest is not",
    concludes={
        ARGMAX: "training lowers the recovery error of the argmax token most where the first layer has D heads or more",
        SECOND: "training does not make the second largest token easier to recover",
    },
    quick="eq. (6) with D = 2, T = 16, heads (2,2) and (1,2), width 64, 1 seed, 140 epochs of 12,000 samples",
    paper="D-retrieval, D = 6, T = 64, width 384, seven head counts, two-layer encoder, best of 2 seeds, 300 epochs",
    best="eq. (6), D = 6, T = 64, width 384, seven head counts, best of 2 seeds, 1,500 to 4,500 epochs",
    unsaid=(
        "optimiser, rate, decay: AdamW 3e-3, queries and keys at ten times that, decay 1e-4, warm-up, rollback (the "
        "paper's other experiments print 1e-3 and 1e-2, which were not tried here)",
        "the recovery map: affine; the text says linear",
        'the training length ("to convergence"): 300 epochs',
        "samples and batch: 36,000 + 4,000, 256",
        "the encoder: two layers of width 64, since a linear one cannot form the score |x - z|^2",
        "how many seeds the best is of (its captions name seeds up to 15): 2, chosen on validation samples",
        "the activation: GELU; Section 3 has sigmoidal ones",
        "D-retrieval itself: d = 4, points drawn apart from each other with seed 0, tokens and outer map as in "
        "`infoflow targets`",
        "seven head counts are run; C.1 speaks of six and its Tables 1 to 3 print three",
    ),
    differences=(
        "eq. (6) instead of D-retrieval: the printed sizes and the errors before training are those of eq. (6)",
        "linear encoder",
        "each seed goes on from the best of three starts, chosen on validation samples",
        "1,500 epochs, 4,500 where both layers have D heads",
    ),
    run=run,
    judge=judge,
    told=_told,
    scored="fresh sequences, which chose no start, epoch or seed; the ratios of earlier recipes on them settled `best`",
    compared=Compared(("target", "heads", "rank"), "our ratio", "paper ratio"),
    parts=tuple(f"heads={a},{b}" for a, b in HEADS),
)
