"""The parts of information_sets.py about our own networks: built, trained, on their way, long ones, cheap proxies."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import infoflow as iflow
from infoflow import Architecture, targets
from infoflow.lab.papers.infoflow.recovery.item import QUICK, architecture, nmse
from infoflow.nn import Transformer, load
from infoflow.probes import Batch, Keep, record
from infoflow.probes.effects import Stage, effects
from infoflow.probes.infosets import law_of
from infoflow.probes.law import variances
from infoflow.probes.measured import MIDDLE, SWEEP, MeasuredFlow
from infoflow.probes.proxies import judged
from infoflow.probes.proxies import proxies as cheap
from infoflow.probes.rerun import Rerun
from infoflow.progress import Progress
from infoflow.targets import Target
from infoflow.train.loop import Training, start, train
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
    """The shipped networks of eq. (6) with D = 6, T = 64, enough heads and too few; the better of two seeds."""
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

    def keep(now: Training) -> None:
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


BUILT = (
    ("pairwise_max:D=2,d=3,seed=0", 12),
    ("pairwise_max:D=4,d=4,seed=0", 12),
    ("star:k=3,d=2,seed=5", 10),
    ("chain:length=3,d=2,seed=0", 10),
    ("kth_largest:k=2", 8),
    ("max_plus_min", 12),
    ("sum_of_maxima:D=4,d=4,seed=0", 12),
    ("value_at_argmax:d=3", 12),
    ("recall:d=2", 10),
    ("position_sum", 8),
)
NEAR = 1e-3  # mass a head of the layout gives away from its winner: more is a near tie


def built(documents: int = 24) -> dict[str, Any]:
    """Measured content sets of built networks against `trace`, state by state."""
    rows = []
    for spelling, T in BUILT:
        target = targets.parse(spelling)
        network = iflow.build(target, T, 0.02)
        c = network.config
        arch = Architecture(heads=c.heads, embed=c.embed, positions=c.positions)
        counts = {"equal": 0, "other": 0, "near tie, equal": 0, "near tie, other": 0}
        states = 0
        for seed in range(documents):
            low, high = (np.array(side) for side in network.header["domain"])
            X = low + (high - low) * np.random.default_rng(seed).random((T, target.dim))
            flow = iflow.trace(target, arch, X)
            found = iflow.trace(network, X, draws=DRAWS, selection=False)
            places = [(t, l) for l in range(flow.layers) for t in range(1, T + 2)] + [(T + 1, flow.layers)]
            same = all(found.members(t, l) == flow.used(t, l) for t, l in places)
            states += len(places)
            near = "near tie, " if near_tie(flow, network, X) else ""
            counts[near + ("equal" if same else "other")] += 1
        threshold = found.threshold.value
        rows.append({"target": spelling, "T": T, "bound": network.certificate.bound, "threshold": threshold,
                     "documents": documents, "states": states, **counts})  # fmt: skip
    return {"eps": 0.02, "draws": DRAWS, "near": NEAR, "rows": rows}


def near_tie(flow: Any, network: Transformer, X: np.ndarray) -> bool:
    """A head gives away more than NEAR of its mass, at a position where the layout has it retrieve."""
    keep = Keep()
    record(network, torch.as_tensor(X)[None]).feed(keep)
    for layer, step in enumerate(keep.steps, 1):
        weights = step.weights[0]
        rows = [len(X)] if weights.shape[1] == 1 else range(len(X) + 1)
        for row, position in enumerate(rows):
            for head, winner in enumerate(flow.winners(position + 1, layer)):
                if winner is not None and weights[head, row, winner - 1] < 1 - NEAR:
                    return True
    return False


def long(lengths: tuple[int, ...] = (256, 1024, 2048)) -> dict[str, Any]:
    """The content set of long sequences by halving, beside the active positions of the target."""
    target = targets.parse("pairwise_max:D=2,d=4,seed=0")
    rows = []
    for T in lengths:
        network = iflow.build(target, T, 0.02)
        low, high = (np.array(side) for side in network.header["domain"])
        X = low + (high - low) * np.random.default_rng(1).random((T, target.dim))
        started = time.monotonic()
        found = iflow.trace(network, X, draws=8, exact=False, threshold=1e-2, selection=T <= 1024)
        seconds = time.monotonic() - started
        active = [int(t) + 1 for t in np.flatnonzero(np.asarray(target.active(X)))]
        rows.append({**found.to_json(), "active": active, "seconds": seconds})
    return {"target": target.spelling, "rows": rows}


def proxies(documents: int = 12) -> dict[str, Any]:
    """Precision and recall of what people read off a network, against the content set of the output."""
    target, rows = targets.pairwise_max(D=6, d=4, seed=0), []
    small = targets.pairwise_max(D=2, d=3, seed=0)
    cases = [("built, D = 2, T = 24", iflow.build(small, 24, 0.02), small, 24)]
    for name in ("f6f4f64979c15017a3554045", "8f8802d88a3c80afb7b48a86", "2c2d5b205a7d63b7a54a695a"):
        network = load(RECOVERY / "weights" / f"{name}.safetensors")
        cases.append(("trained, D = 6, T = 64, heads ({},{})".format(*network.config.heads), network, target, 64))
    for name, network, goal, T in cases:
        scores: dict[str, list[Any]] = {}
        for seed in range(documents):
            drawn = np.asarray(goal.sample(1, T, seed=100 + seed))
            document = Batch({"X": torch.as_tensor(np.clip(drawn, -1, 1)).to(next(network.parameters()))})
            law = law_of(network, [document], None, seed)
            with Rerun(network, document) as rerun:
                stage = Stage(rerun, document, law.draws(document, DRAWS), variances(rerun, law))
                content = effects(stage, "content", interior=False).output >= MIDDLE
                for proxy, score in cheap(stage).items():
                    scores.setdefault(proxy, []).append(vars(judged(score, content)))
        found = {proxy: mean_of(rows_, tuple(rows_[0])) for proxy, rows_ in scores.items()}
        rows.append({"network": name, "proxies": found})
    return {"documents": documents, "draws": DRAWS, "threshold": MIDDLE, "rows": rows}
