"""Scores of a method's answers, by strength of disguise, with intervals over families of targets.

An answer to one network is a plain object with any of these keys (layers and heads 1-based, as in the truth files):

    modes       a label for every head: [["max", "global"], ["max"]], one list per layer
    matter      a number for every head, larger for heads that matter more: [[0.9, 0.0], [1.0]]
    edges       [[1, 1], [2, 1], 0.8] and [[2, 1], "out", 1.0]: a number for edges that may be there; others count as 0
    directions  a vector for each asked quantity, along which it is written
    sets        for every document the positions (1-based) whose tokens the output holds
    copies      a number for every head, larger for heads that copy the symbol they see to its logit

and the scores are

    modes       macro-F1: the mean over modes of 2PR/(P+R)
    matter      AUROC and, with a threshold, F1 of the heads that compute (backups are left out)
    edges       AUROC and, with a threshold, F1 over all pairs of heads in order and all pairs (head, out)
    directions  mean |cosine| with the true direction
    sets        mean F1 of the positions
    copies      AUROC and, with a threshold, F1 of the copying heads, on networks with logits

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

TASKS = ("modes", "matter", "edges", "directions", "sets", "copies")
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
    except (TypeError, ValueError, LookupError, OverflowError) as error:
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
    return _ranked(
        np.array([node in truth.matter for node in judged_heads(truth)]), _of_heads(truth, answer), threshold
    )


def _copies(truth: Truth, answer: Any, threshold: float | None) -> dict[str, Any]:
    """Suppressing and translating heads, and decoys of copying ones, do not copy."""
    heads = [truth.heads[node] for node in judged_heads(truth)]
    copies = np.array([head.says == "copying" and head.role == "computes" for head in heads])
    return _ranked(copies, _of_heads(truth, answer), threshold)


def _of_heads(truth: Truth, answer: Any) -> np.ndarray:
    """The scores that were answered for the heads that are judged."""
    return np.array([float(answer[l][i]) for l, i in judged_heads(truth)])


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
    """F1 per document that is asked (no near tie); networks whose heads were changed have no sets."""
    if "sets" not in truth.about or not all(head.labels for head in truth.heads.values()):
        return []
    found = []
    for true, said in zip(truth.about["sets"], answer, strict=True):
        if true is None:
            continue
        both = len(set(true) & set(said))
        found.append(2 * both / max(len(set(true)) + len(set(said)), 1))
    return found


_JUDGES: dict[str, Callable[[Truth, Any, float | None], Any]] = {
    "modes": _modes,
    "matter": _matter,
    "edges": _edges,
    "directions": _directions,
    "sets": _sets,
    "copies": _copies,
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


def by_family(judged: list[Judged], task: str, measure: str) -> dict[str, Any]:
    """One measure of one task for every family, with its interval over the networks of the family."""
    found = {}
    for family in sorted({one.family for one in judged}):
        part = [one for one in judged if one.family == family and one.found.get(task) not in (None, [])]
        if part:
            sums, finish = _MEASURES[measure](task, part)
            found[family] = {**_interval(sums, list(range(len(part))), finish), "networks": len(part)}
    return found


Finish = Callable[[np.ndarray], np.ndarray]  # (draws, sums) -> (draws,), nan where there is nothing to say
Summed = tuple[np.ndarray, Finish]  # every score is a function of sums over networks


def _measures(task: str, part: list[Judged]) -> dict[str, Any]:
    names = {"modes": ["macro_f1"], "directions": ["mean"], "sets": ["mean"]}.get(task, ["auroc"])
    if names == ["auroc"] and all("counts" in one.found[task] for one in part):
        names = ["auroc", "f1"]
    families = [one.family for one in part]
    found: dict[str, Any] = {}
    for name in names:
        sums, finish = _MEASURES[name](task, part)
        found[name] = {**_interval(sums, families, finish), "families": len(set(families))}
    return found | ({"by_mode": _f1_by_mode(part)} if task == "modes" else {})


def _interval(sums: np.ndarray, units: list[Any], finish: Finish) -> dict[str, Any]:
    """The score with every unit (a family, or a network) weighted alike, and the central 95% over units drawn again."""
    names = sorted(set(units))
    means = np.stack([sums[[unit == name for unit in units]].mean(0) for name in names])
    count = len(names)
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=DRAWS)
    own = float(finish(means.sum(0)[None])[0])
    values = finish(drawn @ means) if count > 1 else np.array([np.nan])
    values = values[np.isfinite(values)]
    interval = np.quantile(values, [0.025, 0.975]).tolist() if len(values) else [None, None]
    return {"value": own if np.isfinite(own) else None, "interval": interval}


def _counted(part: list[Judged]) -> tuple[list[str], np.ndarray]:
    """The modes, and for every network and mode (hits, said, true)."""
    modes = sorted({mode for one in part for pair in one.found["modes"] for mode in pair})
    counts = np.zeros((len(part), len(modes), 3))
    for row, one in zip(counts, part, strict=True):
        for true, said in one.found["modes"]:
            row[modes.index(true), 2] += 1
            row[modes.index(said), 1] += 1
            row[modes.index(true), 0] += true == said
    return modes, counts


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    return np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)


def _macro_f1(task: str, part: list[Judged]) -> Summed:
    """The mean of F1 over the modes that occur in the truth."""
    modes, counts = _counted(part)

    def finish(sums: np.ndarray) -> np.ndarray:
        hits, said, true = np.moveaxis(sums.reshape(len(sums), len(modes), 3), -1, 0)
        each = np.where(true > 0, _ratio(2 * hits, said + true), 0.0)
        return _ratio(each.sum(1), (true > 0).sum(1))

    return counts.reshape(len(part), -1), finish


def _f1_by_mode(part: list[Judged]) -> dict[str, dict[str, float]]:
    modes, counts = _counted(part)
    return {
        mode: {"f1": float(2 * hits / (said + true)), "heads": int(true)}
        for mode, (hits, said, true) in zip(modes, counts.sum(0), strict=True)
        if true > 0
    }


def _mean(task: str, part: list[Judged]) -> Summed:
    return np.array([[np.mean(one.found[task]), 1.0] for one in part]), lambda sums: _ratio(sums[:, 0], sums[:, 1])


def _auroc(task: str, part: list[Judged]) -> Summed:
    found = [one.found[task]["auroc"] for one in part]
    sums = np.array([[0.0 if value is None else value, value is not None] for value in found], dtype=np.float64)
    return sums, lambda sums: _ratio(sums[:, 0], sums[:, 1])


def _f1(task: str, part: list[Judged]) -> Summed:
    counts = np.array([one.found[task]["counts"] for one in part], dtype=np.float64)
    return counts, lambda sums: _ratio(2 * sums[:, 0], sums[:, 1] + sums[:, 2])


_MEASURES: dict[str, Callable[[str, list[Judged]], Summed]] = {
    "macro_f1": _macro_f1,
    "mean": _mean,
    "auroc": _auroc,
    "f1": _f1,
}
