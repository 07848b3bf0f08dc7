"""Head modes: what each head does, as scores in [0, 1] with documented thresholds and intervals over documents.

For a query t with k visible keys let p be its pattern, m the head's mean pattern at (t, .) over the *other* documents
(leave one out), p' and m' the same without sink keys, p'_1 >= p'_2 >= ... its weights in order, at keys s_1, s_2, ...
Over all queries with at least min(8, K) visible keys:

    sink      mean mass on the first and separator tokens, over queries that are no sinks themselves
    position  1 - W/V: W = sum (p' - m')^2, what is left between inputs (times (N-1)/N for the one left out),
              V = sum (p' - its mean over visible keys)^2, all there is to explain; 0 when there is nothing (V < 1e-4);
              a query that a single document has says nothing and is left out
    self, previous, next   mean mass on the keys t, t-1, t+1
    top       mean of sum_{j <= 4} (g_j - f_j)+ / (1 - f_j): g_j = p'_j - p'_5 is the mass of key j that stands out
              above the fifth (of K < 8 keys: the first K/2 above the next), f_j = (m'(s_j) - m'(s_5))+ what
              position foretold of it. A share of uniform mass, whatever its size, adds nothing to g; a broad pattern
              adds little, for its fifth key is nearly as heavy as its fourth
    max       the same for one key, g = p'_1 - p'_2: 1 for a hardmax by content, 0 for a tie or a head position explains
    global    1 - TV(p, uniform) / (1 - 1/k)
    induction, duplicate   over the queries whose token stands at an earlier visible key s as well: the mass on the keys
              s + 1 (induction), on the keys s (duplicate), less what position foretold of it: (g - f)+ / (1 - f). Keys
              that are both count for neither. 0 where under 1 in 16 queries has such a key: nothing repeats

The label is the first that holds: induction >= 0.5; duplicate >= 0.5; sink >= 0.5; position >= 0.5 and not flat (named
self, previous or next when that key has mass >= 0.5, or half of the mass that is not uniform); top >= 0.52, and then
max when max >= top / 2: the first key leads the second by half of all that stands out; global >= 0.66; else mixed. A
head is flat when global >= 0.8.

On repeats of one fixed period nothing tells an induction head from one that looks a fixed way back, and the label is
`position`; repeats of random periods (texts.repeated) tell them apart.

Induction, duplicate, sink, position and max ask for the larger half. The bounds of top and global are the middle of the
gap between planted heads that should pass and planted heads that should not (planted.py, seeds 100 and 101, lengths 16
to 64, both masks, clean and disturbed); the benchmark reports the gaps for other seeds. Between a blurred hardmax and a
top-k head whose ties are broken nature leaves no gap: there the bound of max is a convention.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.probes.intervals import LEVEL, draws
from infoflow.probes.record import AnyRecording
from infoflow.probes.references import References, measure_references
from infoflow.probes.tap import Step

REPEATS = ("induction", "duplicate")
SCORES = (*REPEATS, "sink", "position", "self", "previous", "next", "max", "top", "global")
MEANING = {
    "max": "one key, chosen by content",
    "top": "a few keys, chosen by content",
    "global": "all keys nearly alike",
    "position": "keys at fixed places or offsets",
    "self": "the token itself",
    "previous": "the token before",
    "next": "the token behind",
    "sink": "the first token or a separator",
    "induction": "what followed the same token before",
    "duplicate": "the same token before",
    "mixed": "none of these holds",
}
LABELS = tuple(MEANING)
REPEATED = 0.5  # bound of induction and duplicate
LEAST_REPEATED = 1 / 16  # of the queries must have their token earlier, too
THRESHOLDS = {"sink": 0.5, "position": 0.5, "top": 0.52, "global": 0.66}
LEAD = 0.5  # of what stands out on the top keys: by how much the first must lead the second in a hardmax
FLAT = 0.8
NAMED = 0.5  # mass on t, t-1 or t+1 that names a position head
TOP = 4
SEEN = 2 * TOP  # visible keys a query must have to count
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

    @property
    def nearest(self) -> str:
        """The label itself; for a mixed head the score that comes nearest to its bound."""
        return self.label if self.label != "mixed" else nearest(self.scores)

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
        # queries that count, those of them that are no sinks, those with a key for induction, for duplicate
        self.counts = [torch.zeros(4, documents, dtype=torch.float64) for _ in heads]

    def __call__(self, step: Step) -> None:
        l, first = step.layer, step.document
        B, _, Q, K = step.weights.shape
        shown = step.shown()[:, :1]
        k = shown.sum(-1)  # (B, 1, Q)
        counted = (step.counted()[:, None] & (k >= min(SEEN, K))).to(step.weights)
        plain = counted if step.sinks is None or Q != K else counted * ~step.sinks[:, None]
        per_query = self._per_query(step, k.to(step.weights).clamp(min=1))
        rows = slice(first, first + B)
        weights = {"sink": plain}
        for name, keys in zip(REPEATS, _earlier(step), strict=True):
            weights[name] = plain * keys.any(-1)[:, None]
            per_query[name] = self._on(step, keys)
        for number, name in enumerate(_SUMS):
            self.sums[l][:, number, rows] = (per_query[name] * weights.get(name, counted)).sum(-1).T.double().cpu()
        counts = (counted, plain, *(weights[name] for name in REPEATS))
        self.counts[l][:, rows] = torch.stack([x.sum((1, 2)) for x in counts]).double().cpu()

    def _on(self, step: Step, keys: Bool[Tensor, "B Q K"]) -> Float[Tensor, "B h Q"]:
        """The mass on these keys, less what position foretold of it."""
        mean = self._others(step)[0]
        return _excess(*((x * keys[:, None]).sum(-1) for x in (step.weights, mean)))

    def _per_query(self, step: Step, k: Tensor) -> dict[str, Tensor]:
        """Each score for each query: (B, h, Q)."""
        p, (Q, K) = step.weights, step.weights.shape[-2:]
        mean, share = self._others(step)
        sinks = None if step.sinks is None else step.sinks[:, None, None, :]
        content, expected = (p, mean) if sinks is None else (p.masked_fill(sinks, 0.0), mean.masked_fill(sinks, 0.0))
        total = content.square().sum(-1) - content.sum(-1).square() / k
        found = {
            "within": (content - expected).square().sum(-1) * share,
            "total": total * (share > 0),
            "global": 1 - ((p - 1 / k[..., None]).abs() * step.shown()).sum(-1) / 2 / (1 - 1 / k).clamp(min=1e-9),
            "sink": torch.zeros_like(total) if sinks is None else (p * sinks).sum(-1),
        }
        found["max"], found["top"] = _standing_out(content, expected)
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


def _earlier(step: Step) -> tuple[Bool[Tensor, "B Q K"], Bool[Tensor, "B Q K"]]:
    """The keys behind an earlier place of the query's token, and those places; none where queries are no tokens."""
    B, _, Q, K = step.weights.shape
    nothing = torch.zeros(B, Q, K, dtype=torch.bool, device=step.weights.device)
    if step.ids is None or Q < K:
        return nothing, nothing
    ids, shown = step.ids.to(nothing.device), step.shown()[:, 0, :K]
    earlier = torch.ones(K, K, dtype=torch.bool, device=nothing.device).tril(-1)
    same = (ids[:, :, None] == ids[:, None, :]) & earlier
    if step.sinks is not None:
        same &= ~step.sinks[:, None, :]
    behind = torch.zeros_like(same)
    behind[..., 1:] = (same & shown)[..., :-1]
    behind &= earlier & shown
    same = same & shown
    pad = nothing[:, K:]  # a CLS row asks for no token
    return torch.cat([behind & ~same, pad], 1), torch.cat([same & ~behind, pad], 1)


def _standing_out(content: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """The mass of the largest key above the second, and of the TOP largest above the next, less what was foretold."""
    K = content.shape[-1]
    if K < 2:
        return torch.zeros_like(content[..., 0]), torch.zeros_like(content[..., 0])
    many = min(TOP, K // 2)
    best = content.topk(many + 1, dim=-1)
    foretold = expected.gather(-1, best.indices)

    def above(place: int) -> Tensor:
        return _excess(*((x[..., :place] - x[..., place, None]).clamp(min=0) for x in (best.values, foretold))).sum(-1)

    return above(1), above(many)


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


def head_modes(
    recording: AnyRecording, references: References | None = None, seed: int = 0, intervals: bool = True
) -> list[HeadMode]:
    """Label every head of a recording. The recording is fed twice: mean patterns first, then the scores. Without
    `intervals` every interval is the score alone."""
    references = references or measure_references(recording)
    sums = ModeSums(recording.heads, recording.documents, references)
    recording.feed(sums)
    own = np.ones((1, recording.documents))
    multiplicity = np.concatenate([own, draws(recording.documents, seed) if intervals else own])
    return [
        _label_head(l, i, sums.sums[l][i].numpy(), sums.counts[l].numpy(), multiplicity)
        for l, h in enumerate(recording.heads)
        for i in range(h)
    ]


def _label_head(
    layer: int,
    head: int,
    sums: Float[np.ndarray, "sums documents"],
    counts: Float[np.ndarray, "4 documents"],
    multiplicity: Float[np.ndarray, "draws documents"],
) -> HeadMode:
    """The first row of `multiplicity` is the sample itself; the others are bootstrap draws."""
    table = scores_of(multiplicity @ sums.T, multiplicity @ counts.T)
    labels = label(table)
    own = str(labels[0])
    scores = {name: float(values[0]) for name, values in table.items()}
    shown = own if own != "mixed" else nearest(scores)
    low, high = np.quantile(table[shown][1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return HeadMode(layer, head, own, scores, (float(low), float(high)), float((labels[1:] == own).mean()))


def nearest(scores: dict[str, float]) -> str:
    """The score that is the largest part of its bound."""
    return max(THRESHOLDS, key=lambda name: scores[name] / THRESHOLDS[name])


def scores_of(sums: Float[np.ndarray, "draws sums"], counts: Float[np.ndarray, "draws 4"]) -> dict[str, np.ndarray]:
    """Scores from summed statistics."""
    column = dict(zip(_SUMS, sums.T, strict=True))
    queries, plain, behind, same = np.maximum(counts, 1e-12).T
    by = {"sink": plain, "induction": behind, "duplicate": same}
    table = {name: column[name] / by.get(name, queries) for name in SCORES if name != "position"}
    for name in REPEATS:
        table[name] = np.where(by[name] >= LEAST_REPEATED * plain, table[name], 0.0)
    explained = 1 - column["within"] / np.maximum(column["total"], 1e-12)
    table["position"] = np.where(column["total"] / queries > 1e-4, np.clip(explained, 0, 1), 0.0)
    return {name: np.clip(table[name], 0, 1) for name in SCORES}


def label(table: dict[str, np.ndarray]) -> np.ndarray:
    """The rule of the module's docstring, for arrays of scores."""
    result = np.full(table["max"].shape, "mixed", dtype="<U9")
    for name in ("global", "top", "position", "sink"):  # later ones win
        holds = table[name] >= THRESHOLDS[name]
        if name == "position":
            holds &= table["global"] < FLAT
        result[holds] = name
    result[(result == "top") & (table["max"] >= LEAD * table["top"])] = "max"
    placed = result == "position"
    uneven = np.maximum(1 - table["global"], 1e-9)  # what is not uniform: noise must not hide a name
    for name in ("next", "previous", "self"):
        result[placed & (table[name] >= NAMED * np.minimum(1, uneven))] = name
    for name in reversed(REPEATS):
        result[table[name] >= REPEATED] = name
    return result
