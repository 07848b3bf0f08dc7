"""Head modes: what each head does, as scores in [0, 1] with documented thresholds and intervals over documents.

For a query t with k visible keys let p be its pattern, m the head's mean pattern at (t, .) over the *other* documents
(leave one out), p' and m' the same without sink keys. Over all queries with at least min(4, K) visible keys:

    sink      mean mass on the first and separator tokens, over queries that are no sinks themselves
    position  1 - W/V: W = sum (p' - m')^2, what is left between inputs (times (N-1)/N for the one left out),
              V = sum (p' - its mean over visible keys)^2, all there is to explain; 0 when there is nothing (V < 1e-4)
    self, previous, next   mean mass on the keys t, t-1, t+1
    max       mean of (p'(s*) - m'(s*))+ / (1 - m'(s*)), s* = argmax p': mass on the maximiser that position did not
              foretell; 1 for a hardmax by content, 0 for a head that position explains
    top       the same for the 4 largest keys together, over queries with at least 16 visible keys
    global    1 - TV(p, uniform) / (1 - 1/k)

The label is the first that holds: sink >= 0.5; position >= 0.5 and not flat (named self, previous or next when that
key has mass >= 0.5, or half of the mass that is not uniform); max >= 0.5; top >= 0.55; global >= 0.6; else mixed.
A head is flat when global >= 0.8.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.probes.intervals import LEVEL, draws
from infoflow.probes.record import AnyRecording
from infoflow.probes.references import References, measure_references
from infoflow.probes.tap import Step

SCORES = ("sink", "position", "self", "previous", "next", "max", "top", "global")
LABELS = ("max", "top", "global", "position", "self", "previous", "next", "sink", "mixed")
THRESHOLDS = {"sink": 0.5, "position": 0.5, "max": 0.5, "top": 0.55, "global": 0.6}
FLAT = 0.8
NAMED = 0.5  # mass on t, t-1 or t+1 that names a position head
TOP = 4
_SUMS = (*(name for name in SCORES if name != "position"), "within", "total")


@dataclass(frozen=True)
class HeadMode:
    """One head: its label, its scores, the interval of the score that gave the label, and how firm the label is."""

    layer: int  # 0-based
    head: int
    label: str
    scores: dict[str, float]
    interval: tuple[float, float]
    stability: float  # share of bootstrap draws with the same label

    def to_json(self) -> dict[str, Any]:
        return {
            "layer": self.layer + 1,
            "head": self.head + 1,
            "label": self.label,
            "scores": self.scores,
            "interval": list(self.interval),
            "stability": self.stability,
        }


class ModeSums:
    """Consumer: per head and document the sums the scores are made of."""

    def __init__(self, heads: Sequence[int], documents: int, references: References) -> None:
        self.references = references
        self.sums = [torch.zeros(h, len(_SUMS), documents, dtype=torch.float64) for h in heads]
        # queries that count, those that are no sinks, those with 4 TOP visible keys
        self.counts = [torch.zeros(3, documents, dtype=torch.float64) for _ in heads]

    def __call__(self, step: Step) -> None:
        l, first = step.layer, step.document
        B, _, Q, K = step.weights.shape
        shown = step.shown()[:, :1]
        k = shown.sum(-1)  # (B, 1, Q)
        counted = (step.counted()[:, None] & (k >= min(4, K))).to(step.weights)
        plain = counted if step.sinks is None or Q != K else counted * ~step.sinks[:, None]
        many = counted * (k >= 4 * TOP)
        per_query = self._per_query(step, k.to(step.weights).clamp(min=1))
        rows = slice(first, first + B)
        for number, name in enumerate(_SUMS):
            weight = {"sink": plain, "top": many}.get(name, counted)
            self.sums[l][:, number, rows] = (per_query[name] * weight).sum(-1).T.double().cpu()
        self.counts[l][:, rows] = torch.stack([x.sum((1, 2)) for x in (counted, plain, many)]).double().cpu()

    def _per_query(self, step: Step, k: Tensor) -> dict[str, Tensor]:
        """Each score for each query: (B, h, Q)."""
        p, (Q, K) = step.weights, step.weights.shape[-2:]
        mean, share = self._others(step)
        sinks = None if step.sinks is None else step.sinks[:, None, None, :]
        content, expected = (p, mean) if sinks is None else (p.masked_fill(sinks, 0.0), mean.masked_fill(sinks, 0.0))
        total = content.square().sum(-1) - content.sum(-1).square() / k
        found = {
            "within": (content - expected).square().sum(-1) * share,
            "total": total,
            "global": 1 - ((p - 1 / k[..., None]).abs() * step.shown()).sum(-1) / 2 / (1 - 1 / k).clamp(min=1e-9),
            "sink": torch.zeros_like(total) if sinks is None else (p * sinks).sum(-1),
        }
        best = content.topk(min(TOP, K), dim=-1)
        foretold = expected.gather(-1, best.indices)
        found["max"] = _excess(best.values[..., 0], foretold[..., 0])
        found["top"] = _excess(best.values.sum(-1), foretold.sum(-1))
        for name, offset in (("self", 0), ("previous", -1), ("next", 1)):
            found[name] = _diagonal(p, offset, Q, K)
        return found

    def _others(self, step: Step) -> tuple[Tensor, Tensor]:
        """The mean pattern of the other documents, and (N-1)/N with N the documents that had this query."""
        l, (Q, K) = step.layer, step.weights.shape[-2:]
        total, count = self.references.sums[l], self.references.counts[l]
        assert total is not None
        total, count = (x[..., :Q, :K].to(step.weights) for x in (total, count))
        others = (total - step.weights) / (count - 1).clamp(min=1)
        seen = count.amax(-1)
        return torch.where(step.shown() & (count > 1), others, 0.0), ((seen - 1) / seen.clamp(min=1)).clamp(min=0)


def _excess(mass: Tensor, foretold: Tensor) -> Tensor:
    left = 1 - foretold
    return torch.where(left > 1e-6, ((mass - foretold) / left.clamp(min=1e-6)).clamp(0, 1), 0.0)


def _diagonal(p: Tensor, offset: int, Q: int, K: int) -> Tensor:
    """p(t, t + offset), 0 where there is no such key or where queries are not the tokens."""
    result = p.new_zeros(p.shape[:-1])
    if Q < K:  # only the CLS asks
        return result
    rows = torch.arange(max(0, -offset), min(K, K - offset), device=p.device)
    result[..., rows] = p[..., rows, rows + offset]
    return result


def head_modes(recording: AnyRecording, references: References | None = None, seed: int = 0) -> list[HeadMode]:
    """Label every head of a recording. The recording is fed twice: mean patterns first, then the scores."""
    references = references or measure_references(recording)
    sums = ModeSums(recording.heads, recording.documents, references)
    recording.feed(sums)
    multiplicity = np.concatenate([np.ones((1, recording.documents)), draws(recording.documents, seed)])
    return [
        _label_head(l, i, sums.sums[l][i].numpy(), sums.counts[l].numpy(), multiplicity)
        for l, h in enumerate(recording.heads)
        for i in range(h)
    ]


def _label_head(
    layer: int,
    head: int,
    sums: Float[np.ndarray, "sums documents"],
    counts: Float[np.ndarray, "3 documents"],
    multiplicity: Float[np.ndarray, "draws documents"],
) -> HeadMode:
    """The first row of `multiplicity` is the sample itself; the others are bootstrap draws."""
    table = scores_of(multiplicity @ sums.T, multiplicity @ counts.T)
    labels = label(table)
    own = str(labels[0])
    shown = own if own != "mixed" else max(THRESHOLDS, key=lambda name: table[name][0])
    low, high = np.quantile(table[shown][1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    scores = {name: float(values[0]) for name, values in table.items()}
    return HeadMode(layer, head, own, scores, (float(low), float(high)), float((labels[1:] == own).mean()))


def scores_of(sums: Float[np.ndarray, "draws sums"], counts: Float[np.ndarray, "draws 3"]) -> dict[str, np.ndarray]:
    """Scores from summed statistics."""
    column = dict(zip(_SUMS, sums.T, strict=True))
    queries, plain, many = np.maximum(counts, 1e-12).T
    below = {"sink": plain, "top": many}
    table = {name: column[name] / below.get(name, queries) for name in SCORES if name != "position"}
    explained = 1 - column["within"] / np.maximum(column["total"], 1e-12)
    table["position"] = np.where(column["total"] / queries > 1e-4, np.clip(explained, 0, 1), 0.0)
    return {name: np.clip(table[name], 0, 1) for name in SCORES}


def label(table: dict[str, np.ndarray]) -> np.ndarray:
    """The rule of the module's docstring, for arrays of scores."""
    result = np.full(table["max"].shape, "mixed", dtype="<U8")
    for name in ("global", "top", "max", "position", "sink"):  # later ones win
        holds = table[name] >= THRESHOLDS[name]
        if name == "position":
            holds &= table["global"] < FLAT
        result[holds] = name
    placed = result == "position"
    uneven = np.maximum(1 - table["global"], 1e-9)  # what is not uniform: noise must not hide a name
    for name in ("next", "previous", "self"):
        result[placed & (table[name] >= NAMED * np.minimum(1, uneven))] = name
    return result
