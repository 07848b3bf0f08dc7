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
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.errors import InfoFlowError

RADII = (0.01, 0.02, 0.05, 0.1)
ALONE = -2.0  # below every cosine: stands for "no pair"
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

    `answers[label[i]]` is the state of what string i should lead to. The best list names two texts once.
    """
    if len(set(label.tolist())) < 2:
        raise InfoFlowError("expected strings with at least two labels to search for collisions, got one label.")
    texts = _numbered(strings, len(states))
    pairs = []
    for start in range(0, len(states), block):
        rows = torch.arange(start, min(start + block, len(states)))
        value, other = (states[rows] @ states.T).masked_fill(_no_pair(rows, label, texts), ALONE).max(1)
        for i, v, j in zip(rows.tolist(), value.tolist(), other.tolist(), strict=True):
            if v > ALONE:
                pairs.append(Pair(i, j, 1 - v, 1 - float(answers[label[i]] @ answers[label[j]])))
    once: dict[frozenset[int], Pair] = {}  # the same two texts may stand in the corpus more than once
    for pair in sorted(pairs, key=lambda p: p.distance):
        once.setdefault(frozenset((int(texts[pair.first]), int(texts[pair.second]))), pair)
    rates = {r: 1000 * sum(p.distance <= r for p in pairs) / len(states) for r in RADII}
    return Collisions(len(states), list(once.values())[:best], rates)


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


def transfer(
    best: list[Pair],
    other: Float[Tensor, "N E"],
    label: np.ndarray,
    strings: Sequence[str] | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """What another encoder makes of the same pairs: `other` holds its unit vectors of all N strings.

    A pair transfers in full when its second string is, there too, the nearest one to the first that has another label.
    The quantile says where its distance stands among 20,000 random pairs (0: nearer than all of them).
    """
    generator = np.random.default_rng(seed)
    i, j = generator.integers(0, len(other), (2, 20_000))
    kept = i != j
    random = 1 - (other[i[kept]] * other[j[kept]]).sum(-1)
    first, second = (torch.tensor([getattr(p, side) for p in best]) for side in ("first", "second"))
    similar = (other[first] @ other.T).masked_fill(_no_pair(first, label, _numbered(strings, len(other))), ALONE)
    own = (other[first] * other[second]).sum(-1, keepdim=True)
    found = 1 - own[:, 0]
    rank = 1 + (similar > own + 1e-6).sum(1)  # its own text may stand there twice, and sums round
    below = torch.stack([(random < d).float().mean() for d in found])
    return {
        "pairs": float(len(best)),
        "mean_distance": float(found.mean()),
        "random_pairs": float(random.mean()),
        "mean_quantile": float(below.mean()),
        "nearest_there": float((rank == 1).float().mean()),
        "among_ten_nearest_there": float((rank <= 10).float().mean()),
    }


def bag_of_tokens(rows: Sequence[Sequence[int]]) -> Float[Tensor, "N words"]:
    """Unit vectors of tf-idf weights, count(w) log(N / documents with w): an encoder that knows words and no order."""
    words = {word: n for n, word in enumerate(sorted({word for row in rows for word in row}))}
    counts = torch.zeros(len(rows), len(words))
    for n, row in enumerate(rows):
        counts[n].index_add_(0, torch.tensor([words[word] for word in row]), torch.ones(len(row)))
    weights = counts * torch.log(len(rows) / (counts > 0).sum(0))
    return torch.nn.functional.normalize(weights, dim=-1)


def _numbered(strings: Sequence[str] | None, count: int) -> Int[Tensor, " N"]:
    """Equal texts get equal numbers; without texts every string is its own."""
    names: dict[str, int] = {}
    return torch.arange(count) if strings is None else torch.tensor([names.setdefault(s, len(names)) for s in strings])


def _no_pair(rows: Int[Tensor, " n"], label: np.ndarray, texts: Int[Tensor, " N"]) -> Bool[Tensor, "n N"]:
    """True where the string of a row and another have one label or one text."""
    marks = torch.from_numpy(np.asarray(label))
    return (marks[rows, None] == marks[None]) | (texts[rows, None] == texts[None])
