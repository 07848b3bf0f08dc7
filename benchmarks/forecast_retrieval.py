"""Real text: the accuracy of rankers against their heads, forecast before they are trained.

    python benchmarks/forecast_retrieval.py forecast FOLDER EMBEDDINGS    adds to results/forecast/retrieval.json
    python benchmarks/forecast_retrieval.py score      beside results/head_count/retrieval/best, where that is trained

FOLDER holds the lists (`../shared/data/msmarco`), EMBEDDINGS what `infoflow reproduce head_count/retrieval --preset
best --part embeddings` wrote. The network scores a candidate by the product of its state with the query's. Both are E
numbers made of frozen sentence vectors, and nothing else distinguishes candidates. So whatever heads and layers do
for one pair, the score is a product of rank E of candidate and query, and the reduced problem has that alone: score =
(A x_c) . (B x_q), with A and B the same random matrix at first (entries and rate as those of the network's encoder,
in the units of unit vectors), fitted by cross-entropy to the training lists, its epoch chosen on one half of the
validation lists and its accuracy measured on the other. No head, layer or length enters but through E and the lists.
Test lists are not looked at.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.files import write_json
from infoflow.forecasts.scores import rank_correlation
from infoflow.lab.papers.head_count.retrieval.features import frozen_vectors
from infoflow.lab.papers.head_count.retrieval.item import BEST, LENGTHS, WIDE
from infoflow.lab.papers.head_count.retrieval.lists import Lists, read_folder
from infoflow.lab.papers.head_count.retrieval.model import TEST_SHARE, shuffled
from infoflow.progress import Progress
from infoflow.provenance import provenance

ROOT = Path(__file__).parents[1]
FORECASTS, TRAINED = ROOT / "results/forecast/retrieval.json", ROOT / "results/head_count/retrieval/best"
SCORED = Path(__file__).parent / "results" / "forecast_retrieval.json"
HEADS, HEAD_SIZE = (1, 2, 4, 8, 16), 8


def reduced(vectors: Tensor, lists: Lists, T: int, E: int) -> tuple[float, float]:
    """The accuracy at the chosen epoch and that of the start, both on validation lists."""
    x, y = shuffled(lists.of_length(T))
    held = len(x) // TEST_SHARE
    x, y = x[:-held], y[:-held]  # the last lists test the network
    train, validation = slice(0, len(x) - held), slice(len(x) - held, len(x))
    generator = torch.Generator().manual_seed(E)
    start = torch.randn(vectors.shape[1], E, generator=generator)
    A, B = (start.clone().requires_grad_() for _ in range(2))
    optimiser = torch.optim.Adam([A, B], lr=BEST.lr * vectors.shape[1] ** 0.5)
    right = [_right(A, B, vectors, x[validation], y[validation])]
    for _ in range(BEST.epochs):
        for rows in torch.randperm(len(x[train]), generator=generator).split(BEST.batch):
            loss = torch.nn.functional.cross_entropy(_scores(A, B, vectors, x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        right.append(_right(A, B, vectors, x[validation], y[validation]))
    looks = np.array(right)  # (epochs, lists)
    halves = [looks[:, 0::2], looks[:, 1::2]]
    chosen = [other[half.mean(1).argmax()].mean() for half, other in (halves, halves[::-1])]
    return float(np.mean(chosen)), float(looks[0].mean())


def _scores(A: Tensor, B: Tensor, vectors: Tensor, x: Tensor) -> Tensor:
    found = vectors[x]  # (lists, T + 1, size), the query last
    candidates, query = found[:, :-1] @ A, found[:, -1] @ B
    return torch.einsum("bte,be->bt", candidates, query) / A.shape[1] ** 0.5


@torch.no_grad()
def _right(A: Tensor, B: Tensor, vectors: Tensor, x: Tensor, y: Tensor) -> np.ndarray:
    return (_scores(A, B, vectors, x).argmax(-1) == y).numpy()


def make_forecasts(folder: Path, embeddings: Path, lengths: list[int]) -> None:
    torch.set_num_threads(1)
    lists = read_folder(folder)
    vectors = frozen_vectors(lists.texts, embeddings)
    if vectors is None:
        raise SystemExit(f"expected cached embeddings in {embeddings}, found none; see the head of this file.")
    payload = json.loads(FORECASTS.read_text()) if FORECASTS.exists() else {
        "what": "accuracies of head_count/retrieval, preset best, frozen vectors: forecast before training",
        "sources": []}  # fmt: skip
    sizes = [HEAD_SIZE * h for h in HEADS]
    found = []
    with Progress("reduced", len(lengths) * len(sizes)) as bar:
        for T in lengths:
            for E in sizes:
                accuracy, start = reduced(vectors, lists, T, E)
                found.append({"T": T, "E": E, "accuracy": round(accuracy, 4), "start": round(start, 4)})
                bar.update(len(found), f"T = {T}, E = {E}: {accuracy:.3f}")
    entry = {"source": lists.source, "provenance": provenance(), "cells": found}
    payload["sources"] = [*(each for each in payload["sources"] if each["source"] != lists.source), entry]
    write_json(FORECASTS, payload)


def score() -> dict[str, Any]:
    """Every trained cell beside its forecast; how far off the forecast and two simple guesses are."""
    rows = []
    for entry in json.loads(FORECASTS.read_text())["sources"]:
        known = {(cell["T"], cell["E"]): cell for cell in entry["cells"]}
        path = TRAINED / entry["source"].split(",")[0] / "result.json"
        trained = json.loads(path.read_text())["rows"] if path.exists() else []
        for row in [row for row in trained if row["features"] == "minilm"]:  # words were not forecast
            fixed = not row["E"].endswith("h")
            cell = known[row["T"], WIDE if fixed else HEAD_SIZE * row["h"]]
            measured = {
                name: round(row[name], 4) for name in ("accuracy", "std", "untrained cosine", "untrained model")
            }
            said = {"forecast": cell["accuracy"], "start": cell["start"]}
            rows.append({"source": entry["source"], "T": row["T"], "h": row["h"], "E": row["E"], **said, **measured})
    accuracy = np.array([row["accuracy"] for row in rows])
    off = {}
    for name in ("forecast", "start", "untrained cosine"):
        guess = np.array([row[name] for row in rows])
        miss = np.abs(guess - accuracy)
        off[name] = {"mean": round(float(miss.mean()), 4), "largest": round(float(miss.max()), 4),
                     "spearman": round(float(rank_correlation(guess, accuracy)), 3)}  # fmt: skip
    return {"provenance": provenance(), "cells": len(rows), "off": off, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("forecast", "score"))
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("embeddings", type=Path, nargs="?")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    options = parser.parse_args()
    if options.what == "forecast":
        make_forecasts(options.folder, options.embeddings, options.lengths)
    else:
        found = score()
        write_json(SCORED, found)
        print(json.dumps(found["off"]))


if __name__ == "__main__":
    main()
