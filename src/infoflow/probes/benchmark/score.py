"""Scores of a method's answers, by strength of disguise, with intervals over families of targets.

An answer to one network is a plain object with any of these keys (layers and heads 1-based, as in the truth files):

    modes       a label for every head: [["max", "global"], ["max"]], one list per layer
    matter      a number for every head, larger for heads that matter more: [[0.9, 0.0], [1.0]]
    edges       [[1, 1], [2, 1], 0.8] and [[2, 1], "out", 1.0]: a number for edges that may be there; others count as 0
    directions  a vector for each asked quantity, along which it is written
    sets        for every document the positions (1-based) whose tokens the output holds

and the scores are

    modes       macro-F1: the mean over modes of 2PR/(P+R)
    matter      AUROC and, with a threshold, F1 of the heads that compute (backups are left out)
    edges       AUROC and, with a threshold, F1 over all pairs of heads in order and all pairs (head, out)
    directions  mean |cosine| with the true direction
    sets        mean F1 of the positions

Every family (the name of a target) has the same weight, whatever its number of networks or heads; the interval is the
central 95% over families drawn again with replacement. Networks of one family are no independent evidence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from infoflow.errors import InfoFlowError
from infoflow.probes.benchmark.read import open_benchmark
from infoflow.probes.benchmark.truth import OUT, Edge, Node, Truth

TASKS = ("modes", "matter", "edges", "directions", "sets")
DRAWS = 1000
KEEPS = "keeps the function"


@dataclass(frozen=True)
class Judged:
    """One network's counts: what the scores of all networks are put together from."""

    family: str
    disguise: str
    strength: float
    found: dict[str, Any]

    @property
    def level(self) -> str:
        """The strength of its disguise in words: the NMSE it leaves."""
        if self.disguise == "float16":
            return "float16"
        return KEEPS if not self.strength else f"NMSE {self.strength:g}"


def score(
    folder: str | Path, answers: Mapping[int, Mapping[str, Any]], thresholds: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Score answers (network number -> answer) against the truth files of a benchmark: {task: {level: {...}}}."""
    judged = []
    for network in open_benchmark(folder):
        if network.number in answers and not network.hidden:
            judged.append(judge(network.truth(), answers[network.number], thresholds or {}))
    if not judged:
        raise InfoFlowError("expected answers to networks of this benchmark whose truth is public, got none.")
    return summary(judged)


def judge(truth: Truth, answer: Mapping[str, Any], thresholds: Mapping[str, float]) -> Judged:
    found: dict[str, Any] = {}
    try:
        for task in TASKS:
            if task in answer:
                found[task] = _JUDGES[task](truth, answer[task], thresholds.get(task))
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise InfoFlowError(f"expected an answer of the stated form, got another ({error!r}).") from None
    about = truth.about
    return Judged(str(about["family"]), str(about["disguise"]), float(about["strength"]), found)


def _modes(truth: Truth, answer: Any, _: float | None) -> list[tuple[str, str]]:
    """(true, said) for every head whose label was kept; a label among those that count as right is the true one."""
    pairs = []
    for (l, i), head in sorted(truth.heads.items()):
        if head.labels:
            said = str(answer[l][i])
            pairs.append((said if said in head.labels else head.labels[0], said))
    return pairs


def judged_heads(truth: Truth) -> list[Node]:
    """Heads whose part is beyond doubt: labels kept, no backups."""
    return [node for node, head in sorted(truth.heads.items()) if head.labels and head.role != "backup"]


def judged_edges(truth: Truth) -> list[Edge]:
    heads = judged_heads(truth)
    pairs = [(a, b) for a in heads for b in heads if b[0] > a[0]]
    return [*pairs, *((a, OUT) for a in heads)]


def _matter(truth: Truth, answer: Any, threshold: float | None) -> dict[str, Any]:
    nodes = judged_heads(truth)
    scores = np.array([float(answer[l][i]) for l, i in nodes])
    return _ranked(np.array([node in truth.matter for node in nodes]), scores, threshold)


def _edges(truth: Truth, answer: Any, threshold: float | None) -> dict[str, Any]:
    said = {(_node(a), _node(b)): float(value) for a, b, value in answer}
    pairs = judged_edges(truth)
    true = set(truth.edges)
    scores = np.array([said.get(pair, 0.0) for pair in pairs])
    return _ranked(np.array([pair in true for pair in pairs]), scores, threshold)


def _node(value: Any) -> Node:
    return OUT if value == "out" else (int(value[0]) - 1, int(value[1]) - 1)


def _ranked(true: np.ndarray, scores: np.ndarray, threshold: float | None) -> dict[str, Any]:
    """AUROC (None where all are alike) and the counts of F1; the raw pairs, from which a threshold can be chosen."""
    if not np.isfinite(scores).all():
        raise ValueError("numbers that are not finite")
    found: dict[str, Any] = {"auroc": None, "true": true.tolist(), "scores": scores.tolist()}
    if true.any() and not true.all():
        above = (scores[true][:, None] > scores[~true]).mean() + (scores[true][:, None] == scores[~true]).mean() / 2
        found["auroc"] = float(above)
    if threshold is not None:
        said = scores >= threshold
        found["counts"] = [int((said & true).sum()), int(said.sum()), int(true.sum())]
    return found


def _directions(truth: Truth, answer: Any, _: float | None) -> list[float]:
    cosines = []
    for direction, vector in zip(truth.directions, answer, strict=True):
        said = np.asarray(vector, dtype=np.float64)
        size = np.linalg.norm(said) * np.linalg.norm(direction.vector)
        cosines.append(float(abs(said @ direction.vector) / size) if size > 0 else 0.0)
    return cosines


def _sets(truth: Truth, answer: Any, _: float | None) -> list[float]:
    """F1 per document; networks whose heads were changed have no sets."""
    if "sets" not in truth.about or not all(head.labels for head in truth.heads.values()):
        return []
    found = []
    for true, said in zip(truth.about["sets"], answer, strict=True):
        both = len(set(true) & set(said))
        found.append(2 * both / max(len(set(true)) + len(set(said)), 1))
    return found


_JUDGES: dict[str, Callable[[Truth, Any, float | None], Any]] = {
    "modes": _modes,
    "matter": _matter,
    "edges": _edges,
    "directions": _directions,
    "sets": _sets,
}


def summary(judged: list[Judged]) -> dict[str, Any]:
    """{task: {level: {score: value, interval, networks}}}, levels by what the disguise leaves, and each disguise."""
    levels: dict[str, list[Judged]] = {}
    for one in judged:
        levels.setdefault(one.level, []).append(one)
        levels.setdefault(f"disguise: {one.disguise}", []).append(one)
    result: dict[str, Any] = {}
    for task in TASKS:
        table = {}
        for level, part in sorted(levels.items()):
            kept = [one for one in part if one.found.get(task) not in (None, [])]
            if kept:
                table[level] = {"networks": len(kept), **_measures(task, kept)}
        if table:
            result[task] = table
    return result


def _measures(task: str, part: list[Judged]) -> dict[str, Any]:
    if task == "modes":
        return {"macro_f1": _interval(part, macro_f1), "by_mode": _f1_by_mode(part)}
    if task in ("directions", "sets"):
        return {"mean": _interval(part, lambda weighted: _mean(weighted, task))}
    found = {"auroc": _interval(part, lambda weighted: _auroc(weighted, task))}
    if all("counts" in one.found[task] for one in part):
        found["f1"] = _interval(part, lambda weighted: _f1(weighted, task))
    return found


Weighted = list[tuple[float, Judged]]


def _interval(part: list[Judged], measure: Callable[[Weighted], float | None]) -> dict[str, Any]:
    """The score with every family weighted alike, and its interval over families."""
    families = sorted({one.family for one in part})
    members = {family: [one for one in part if one.family == family] for family in families}
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(len(families), np.full(len(families), 1 / len(families)), size=DRAWS)

    def value(weights: Any) -> float | None:
        weighted = [
            (float(w) / len(members[family]), one)
            for w, family in zip(weights, families, strict=True)
            if w
            for one in members[family]
        ]
        return measure(weighted)

    values = [v for v in map(value, drawn) if v is not None] if len(families) > 1 else []
    own = value(np.ones(len(families)))
    low, high = np.quantile(values, [0.025, 0.975]) if values else (None, None)
    return {"value": own, "interval": [low, high], "families": len(families)}


def _tally(weighted: Weighted) -> dict[str, np.ndarray]:
    """Per mode the weights of (hits, said, true)."""
    counts: dict[str, np.ndarray] = {}
    for weight, one in weighted:
        for true, said in one.found["modes"]:
            counts.setdefault(true, np.zeros(3))[2] += weight
            counts.setdefault(said, np.zeros(3))[1] += weight
            if true == said:
                counts[true][0] += weight
    return counts


def macro_f1(weighted: Weighted) -> float | None:
    """The mean of F1 over the modes that occur in the truth."""
    found = [2 * hits / (said + true) for hits, said, true in _tally(weighted).values() if true > 0]
    return float(np.mean(found)) if found else None


def _f1_by_mode(part: list[Judged]) -> dict[str, dict[str, float]]:
    counts = _tally([(1.0, one) for one in part])
    return {
        mode: {"f1": float(2 * hits / (said + true)), "heads": int(true)}
        for mode, (hits, said, true) in sorted(counts.items())
        if true > 0
    }


def _mean(weighted: Weighted, task: str) -> float:
    total = sum(weight for weight, _ in weighted)
    return float(sum(weight * np.mean(one.found[task]) for weight, one in weighted) / total)


def _auroc(weighted: Weighted, task: str) -> float | None:
    kept = [(weight, one.found[task]["auroc"]) for weight, one in weighted if one.found[task]["auroc"] is not None]
    total = sum(weight for weight, _ in kept)
    return float(sum(weight * value for weight, value in kept) / total) if total else None


def _f1(weighted: Weighted, task: str) -> float | None:
    hits, said, true = sum(
        (weight * np.array(one.found[task]["counts"], dtype=float) for weight, one in weighted), np.zeros(3)
    )
    return float(2 * hits / (said + true)) if said + true > 0 else None
