"""Near-collisions in real text: two strings an encoder puts close together although their task labels differ.

What is reported is what was found: the best pair, its distance, the gap of the labels, and the rate per 1,000 searches
below stated distances. Nothing here says that an encoder cannot tell two strings apart; a read-out sees distances as
small as float32 allows. Distances are 1 - cosine of the pooled states.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.errors import InfoFlowError

RADII = (0.01, 0.02, 0.05, 0.1)
Encoder = Callable[[list[list[int]]], Float[Tensor, "texts E"]]  # token ids -> unit vectors


@dataclass(frozen=True)
class Pair:
    """Strings `first` and `second` (numbers), their distance, and the distance of what they should lead to."""

    first: int
    second: int
    distance: float
    gap: float  # 1 - cosine of the two answers' states: how different the labels are for this encoder


@dataclass(frozen=True)
class Collisions:
    searches: int
    best: list[Pair]
    rates: dict[float, float]  # distance -> pairs below it per 1,000 searches

    def to_json(self) -> dict[str, Any]:
        pairs = [
            {"first": p.first + 1, "second": p.second + 1, "distance": p.distance, "gap": p.gap} for p in self.best
        ]
        rates = {str(radius): rate for radius, rate in self.rates.items()}
        return {"searches": self.searches, "best": pairs, "per_1000_searches": rates}


def nearest_pairs(
    states: Float[Tensor, "N E"],
    answers: Float[Tensor, "A E"],
    label: np.ndarray,
    strings: Sequence[str] | None = None,
    best: int = 10,
    block: int = 1024,
) -> Collisions:
    """For every string the nearest one with another label, by exact search; equal strings are no pair.

    `answers[label[i]]` is the state of what string i should lead to.
    """
    if len(set(label.tolist())) < 2:
        raise InfoFlowError("expected strings with at least two labels to search for collisions, got one label.")
    marks = torch.from_numpy(np.asarray(label))
    names: dict[str, int] = {}
    texts = torch.tensor([names.setdefault(s, len(names)) for s in strings]) if strings is not None else None
    pairs = []
    for start in range(0, len(states), block):
        rows = slice(start, start + block)
        similar = states[rows] @ states.T
        same = marks[rows, None] == marks[None]
        if texts is not None:
            same |= texts[rows, None] == texts[None]
        value, other = similar.masked_fill(same, -2.0).max(1)
        for n, (v, j) in enumerate(zip(value.tolist(), other.tolist(), strict=True)):
            i = start + n
            gap = 1 - float(answers[label[i]] @ answers[label[j]])
            pairs.append(Pair(i, j, 1 - v, gap))
    ordered = sorted({(min(p.first, p.second), max(p.first, p.second)): p for p in pairs}.values(), key=_distance)
    rates = {r: 1000 * sum(p.distance <= r for p in pairs) / len(pairs) for r in RADII}
    return Collisions(len(pairs), ordered[:best], rates)


def swap_search(
    encode: Encoder, anchor: list[int], moving: list[int], fixed: int, steps: int, seed: int = 0, width: int = 32
) -> tuple[list[int], float, float]:
    """Exchange two tokens of `moving` at a time to bring it nearer to `anchor`; both keep their tokens.

    The first and last `fixed` tokens stay. Returns the string found, the distance before and after. A permuted
    question keeps its bag of tokens, and we keep its label; whether a reader would is not decided here.
    """
    generator = np.random.default_rng(seed)
    goal = encode([anchor])[0]
    current = list(moving)
    begin = distance = 1 - float(encode([current])[0] @ goal)
    free = np.arange(fixed, len(current) - fixed)
    if len(free) < 2:
        return current, begin, distance
    for _ in range(steps):
        variants = []
        for _ in range(width):
            a, b = generator.choice(free, 2, replace=False)
            variant = list(current)
            variant[a], variant[b] = variant[b], variant[a]
            variants.append(variant)
        found = 1 - (encode(variants) @ goal)
        number = int(found.argmin())
        if float(found[number]) >= distance:
            break
        current, distance = variants[number], float(found[number])
    return current, begin, distance


def transfer(best: list[Pair], other: Float[Tensor, "N E"], seed: int = 0) -> dict[str, float]:
    """Where another encoder puts the same pairs: their mean distance, against that of random pairs and its quantile."""
    generator = np.random.default_rng(seed)
    i, j = generator.integers(0, len(other), (2, 20_000))
    kept = i != j
    random = 1 - (other[i[kept]] * other[j[kept]]).sum(-1)
    found = torch.tensor([1 - float(other[p.first] @ other[p.second]) for p in best])
    below = torch.stack([(random < d).float().mean() for d in found])
    return {
        "pairs": float(len(best)),
        "mean_distance": float(found.mean()),
        "random_pairs": float(random.mean()),
        "mean_quantile": float(below.mean()),  # 0: nearer than every random pair there too
    }


def _distance(pair: Pair) -> float:
    return pair.distance
