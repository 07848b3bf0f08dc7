"""The head and the read-out direction that spread the ids of all classes best on one line.

    t = w.id = w.x + A s,   A = w.a

Random heads times random (w, A); then, the order of the best candidates held fixed, a linear program in the d + 1
numbers (w, A) makes the smallest gap as large as it can be. M random points leave a smallest gap of about range / M^2.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from infoflow.construct.rank_one.contexts import Contexts
from infoflow.construct.rank_one.head import attention_average
from infoflow.progress import Progress

ROWS = 4000  # the smallest gaps enter the linear program; the rest is checked and added when violated


@dataclass(frozen=True)
class Spread:
    """Directions of the head (beta in `query`), read-out (w, A), and the smallest gap of t over its range."""

    key: Float[ndarray, " d"]
    query: Float[ndarray, " d"]
    readout: Float[ndarray, " d"]
    amplitude: float
    gap: float


def find_spread(contexts: Contexts, heads: int = 16, readouts: int = 24, polish: int = 6, seed: int = 0) -> Spread:
    """heads x readouts candidates of O(M n) and O(M log M), the best of them polished."""
    rng = np.random.default_rng(seed)
    kept: list[Spread] = []
    with Progress("rank-1 head", heads) as bar:
        for index in range(heads):
            key, query = _directions(contexts.vocabulary, rng)
            s = attention_average(contexts, contexts.vocabulary @ key, contexts.vocabulary @ query)
            kept += _candidates(contexts, key, query, s, readouts, rng)
            kept = sorted(kept, key=lambda c: -c.gap)[: max(polish, 1)]
            bar.update(index + 1, f"gap {kept[0].gap:.2g}")
    best = max([*kept, *(_polish(contexts, candidate) for candidate in kept[:polish])], key=lambda c: c.gap)
    return _oriented(contexts, best)


def _oriented(contexts: Contexts, found: Spread) -> Spread:
    """t or -t: a unit at t_j acts on everything to its right, with weight about 1/gap, so crowded ids belong there."""
    s = attention_average(contexts, contexts.vocabulary @ found.key, contexts.vocabulary @ found.query)
    t = np.sort(contexts.vocabulary[contexts.query] @ found.readout + found.amplitude * s)
    steps = np.diff(t)
    if not len(steps) or steps.min() <= 0:
        return found
    rightward, leftward = ((t[-1] - t[:-1]) / steps).sum(), ((t[1:] - t[0]) / steps).sum()
    if rightward <= leftward:
        return found
    return replace(found, readout=-found.readout, amplitude=-found.amplitude)


def _directions(vocabulary: Float[ndarray, "m d"], rng: np.random.Generator) -> tuple[ndarray, ndarray]:
    """Random unit directions with a largest logit drawn log-uniformly from [0.3, 40]."""
    pair = rng.standard_normal((2, vocabulary.shape[1]))
    pair /= np.linalg.norm(pair, axis=1, keepdims=True)
    logit = math.exp(rng.uniform(math.log(0.3), math.log(40)))
    size = np.abs(vocabulary @ pair.T).max(0)
    return pair[0], pair[1] * (logit / float(size[0] * size[1]))


def _candidates(
    contexts: Contexts, key: ndarray, query: ndarray, s: Float[ndarray, " M"], count: int, rng: np.random.Generator
) -> list[Spread]:
    """w normal per unit of each coordinate's spread, A so that A s spans 0.02 to 50 times what w.x spans."""
    vocabulary = contexts.vocabulary
    deviation = vocabulary.std(0)
    unit = np.where(deviation > 0, deviation, np.abs(vocabulary).max(0) + 1e-300)
    found = []
    for _ in range(count):
        w = rng.standard_normal(len(unit)) / unit
        projected = vocabulary @ w
        ratio = math.exp(rng.uniform(math.log(0.02), math.log(50))) * rng.choice([-1.0, 1.0])
        amplitude = ratio * (float(np.ptp(projected)) or 1.0) / (float(np.ptp(s)) or 1.0)
        found.append(Spread(key, query, w, amplitude, relative_gap(projected[contexts.query] + amplitude * s)))
    return found


def relative_gap(t: Float[ndarray, " M"]) -> float:
    """Smallest gap over range; infinite for one point."""
    ordered = np.sort(t)
    if len(t) < 2:
        return math.inf
    span = float(ordered[-1] - ordered[0])
    return float(np.diff(ordered).min()) / span if span > 0 else 0.0


def _polish(contexts: Contexts, start: Spread) -> Spread:
    """max g with D (w, A) >= g and range <= 1; rows are divided by the gap reached so far, so that HiGHS sees
    numbers near 1."""
    from scipy.optimize import linprog

    if contexts.size < 3 or not 0 < start.gap < math.inf:
        return start
    s = attention_average(contexts, contexts.vocabulary @ start.key, contexts.vocabulary @ start.query)
    features = np.hstack([contexts.vocabulary[contexts.query], s[:, None]])
    weights = np.r_[start.readout, start.amplitude]
    order = np.argsort(features @ weights)
    steps = np.diff(features[order], axis=0)
    reach = features[order[-1]] - features[order[0]]
    current = steps @ weights / float(reach @ weights)
    rows = np.argsort(current)[:ROWS]
    for _ in range(4):
        matrix = np.hstack([-steps[rows] / start.gap, np.ones((len(rows), 1))])
        program = linprog(
            np.r_[np.zeros(len(weights)), -1.0],
            A_ub=np.vstack([matrix, np.r_[reach, 0.0]]),
            b_ub=np.r_[np.zeros(len(rows)), 1.0],
            bounds=(None, None),
            method="highs",
        )
        if program.x is None:
            return start
        weights = program.x[:-1]
        violated = np.setdiff1d(np.flatnonzero(steps @ weights < 0.99 * program.x[-1] * start.gap), rows)
        if not len(violated):
            break
        rows = np.r_[rows, violated]
    gap = relative_gap(features @ weights)
    return Spread(start.key, start.query, weights[:-1], float(weights[-1]), gap) if gap > start.gap else start
