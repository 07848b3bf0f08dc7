"""The parts of information_sets.py about our own networks: built, trained, on their way, long ones, cheap proxies."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

import infoflow as iflow
from infoflow import Architecture, targets
from infoflow.lab.papers.infoflow.recovery.item import QUICK, architecture, nmse
from infoflow.nn import Transformer, load
from infoflow.probes.measured import SWEEP, MeasuredFlow
from infoflow.progress import Progress
from infoflow.targets import Target
from infoflow.train.loop import Trained, start, train
from infoflow.train.run import Run
from infoflow.train.stack import single_network

RECOVERY = Path(__file__).parent.parent / "results/infoflow/recovery/best/store"
SNAPSHOTS = (0, 50, 150, 400, 800, 1600, 3200, 100_000)  # and the end
SHORT = QUICK.with_(epochs=80)
DRAWS = 12


def scored(found: set[int], wanted: set[int]) -> tuple[float, float]:
    """Precision and recall; of an empty set the precision is 1."""
    hits = len(found & wanted)
    return hits / len(found) if found else 1.0, hits / len(wanted) if wanted else 1.0


def inputs(target: Target, T: int, count: int, seed: int) -> np.ndarray:
    return np.asarray(target.sample(count, T, seed=seed))


def pairs_at(target: Target, X: np.ndarray) -> list[tuple[int, ...]]:
    """The winning tokens of every maximum, 1-based."""
    return [tuple(int(t) + 1 for t in np.ravel(winners)) for winners in target.winners(X)]


def fetched_at(target: Target, X: np.ndarray) -> np.ndarray:
    """(D, 2, T): the best partner of token t in maximum i, t on the left or on the right; 0-based."""
    T = len(X)
    left, right = np.broadcast_arrays(X[:, None], X[None])
    scores = np.stack([np.asarray(term.score(np.stack([left, right], -2))) for term in target.terms])  # type: ignore
    return np.stack([scores.argmax(2), scores.argmax(1)], 1).reshape(len(target.terms), 2, T)


def compare(network: Transformer, target: Target, X: np.ndarray, **options: Any) -> dict[str, Any]:
    """One document: which predicted tokens the output uses, and which fetched tokens the states hold."""
    found: MeasuredFlow = iflow.trace(network, X, draws=DRAWS, interior=False, **options)
    T, pairs = len(X), pairs_at(target, X)
    output = set(found.output)
    wanted = set().union(*map(set, pairs))
    curve = [scored({s + 1 for s in np.flatnonzero(found.content.output >= bar)}, wanted) for bar in SWEEP]
    held = found.inside(1, "held")[:T]
    partners = fetched_at(target, X)
    own = np.arange(T)
    kept = [[float(held[own, side].mean()) for side in sides] for sides in partners]
    others = held.copy()
    others[own, own] = False
    unclear = found.unclear(T + 1, found.layers)
    return {
        "precision": scored(output, wanted)[0],
        "recall": scored(output, wanted)[1],
        "sweep": curve,
        "maxima": [float(set(pair) <= output) for pair in pairs],
        "size": len(output),
        "wanted": len(wanted),
        "area": found.area,
        "unclear": len(unclear),
        "necessary": len(found.bracket.necessary) if found.bracket else None,
        "sufficient": len(found.bracket.sufficient) if found.bracket else None,
        "selection": None if found.free is None else len(found.members(T + 1, found.layers, "selection")),
        "fetched": [max(sides) for sides in kept],
        "held": float(held.sum(1).mean()),
        "chance": float(others.sum() / (T * (T - 1))),
        "effect": found.content.output,
        "pairs": pairs,
    }


def mean_of(rows: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """Means over documents with bootstrap intervals."""
    from infoflow.probes.intervals import ratio_interval

    found = {}
    for name in names:
        values = np.array([row[name] for row in rows], dtype=np.float64)
        if values.ndim == 1:
            found[name] = ratio_interval(values, np.ones(len(values)))
        else:
            found[name] = values.mean(0)
    return found


NAMES = ("precision", "recall", "sweep", "maxima", "size", "wanted", "area", "unclear", "necessary", "sufficient",
         "fetched", "held", "chance")  # fmt: skip


def trained(documents: int = 8) -> dict[str, Any]:
    """The shipped networks of eq. (6) with D = 6, T = 64, enough heads and too few: of each pair of seeds the better."""
    target = targets.pairwise_max(D=6, d=4, seed=0)
    X = inputs(target, 64, documents, 7)
    chosen: dict[tuple[int, ...], tuple[float, str, Transformer]] = {}
    for path in sorted((RECOVERY / "weights").glob("*.safetensors")):
        network = load(path)
        c = network.config
        error = nmse(network, Run(target, Architecture(c.heads, c.embed, c.widths[-1]), 64, 0, QUICK), 1000)
        if error < chosen.get(c.heads, (np.inf,))[0]:
            chosen[c.heads] = error, path.stem, network
    rows = []
    with Progress("trained networks", len(chosen)) as bar:
        for heads, (error, name, network) in chosen.items():
            found = [compare(network, target, x.astype(np.float32), selection=n < 2) for n, x in enumerate(X)]
            rows.append({"heads": heads, "weights": name, "NMSE": error, **mean_of(found, NAMES)})
            rows[-1]["selection"] = float(np.mean([row["selection"] for row in found[:2]]))
            bar.update(len(rows))
    rows.sort(key=lambda row: row["NMSE"])
    return {"target": target.spelling, "T": 64, "documents": documents, "draws": DRAWS, "sweep": SWEEP, "rows": rows}


def film(documents: int = 8, seeds: int = 1) -> dict[str, Any]:
    """Two small networks on their way: one with a head for every maximum, one with a head fewer in layer 1."""
    target = targets.pairwise_max(D=2, d=4, seed=0)
    X = inputs(target, 16, documents, 7).astype(np.float32)
    strips = []
    for heads in ((2, 2), (1, 2)):
        runs = [Run(target, architecture(heads, 2, 64), 16, seed, SHORT) for seed in range(seeds)]
        for number, frames in enumerate(snapshots(runs)):
            rows = []
            for step, network in frames:
                found = [compare(network, target, x, selection=False) for x in X]
                row = {"step": step, "NMSE": nmse(network, runs[0], 2000), **mean_of(found, NAMES)}
                rows.append({**row, "first": {key: found[0][key] for key in ("effect", "pairs")}})
            strips.append({"heads": heads, "seed": number, "frames": rows})
    return {"target": target.spelling, "T": 16, "documents": documents, "draws": DRAWS, "strips": strips}


def snapshots(runs: list[Run]) -> list[list[tuple[int, Transformer]]]:
    """The networks of a stack at the steps of SNAPSHOTS and at the end."""
    state = start(runs, torch.device("cpu"), None)
    wanted = {min(step, runs[0].recipe.total_steps) for step in SNAPSHOTS}
    kept: list[list[tuple[int, Transformer]]] = [[] for _ in runs]

    def keep(now: Trained) -> None:
        if now.step not in wanted:
            return
        stacked = now.stack.networks(now.stack.weights, now.data)
        for row, run in enumerate(runs):
            network = single_network(run, stacked, row)
            network.header = run.task.header(run.T)  # type: ignore[assignment]
            kept[row].append((now.step, network))  # type: ignore[arg-type]

    keep(state)
    train(state, keep)
    return kept
