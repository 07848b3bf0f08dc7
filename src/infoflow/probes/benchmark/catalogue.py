"""Which networks a benchmark holds: targets, sizes, layouts, circuits and disguises, all drawn from one seed.

A group is one target of one size on one layout (heads, T, mask); at most MOST networks share a group. The numbers of a
network come from a hash of the seed and its number; for a hidden part (every FIFTH network) a salt enters the hash, so
that nobody without the salt can make their truth.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from infoflow.flow.jobs import minimal_heads
from infoflow.flow.normal_form import normal_form
from infoflow.targets.named import parse

MOST = 5  # networks of one group
FIFTH = 5  # every fifth network is hidden when there is a salt
LENGTHS = (8, 12, 16, 24)
EPS = (0.1, 0.2)
MOST_LAYERS, MOST_HEADS = 4, 4
DEEP_ENOUGH = 3
# name -> keys and the values they take; "seed" is drawn for each network
SIZES: dict[str, dict[str, tuple[Any, ...]]] = {
    "sum_of_maxima": {"D": (1, 2, 3, 4), "d": (1, 2, 3)},
    "max_plus_min": {},
    "d_retrieval": {"D": (1, 2, 3), "d": (1, 2)},
    "value_at_argmax": {"d": (2, 3, 4)},
    "position_sum": {"positions": ("2", "3..4", "2+5", "4..6"), "d": (1, 2)},
    "kth_largest": {"k": (2,), "d": (1, 2)},
    "pairwise_max": {"D": (1, 2, 3), "d": (1, 2, 3)},
    "min_pair": {"d": (1, 2, 3)},
    "closest_pair": {"d": (2, 3)},
    "recall": {"d": (1, 2), "values": (1, 2)},
    "star": {"k": (3, 4), "d": (1, 2)},
    "chain": {"length": (3, 4, 5), "d": (1, 2)},
}
SMALL = ("closest_pair",)  # whose values are small beside eps: always built at the smallest
DEEP = ("backup", "two jobs")  # need a head between tokens
SEEDED = ("sum_of_maxima", "d_retrieval", "pairwise_max", "star", "chain")
# what hides the mechanism -> its share of the networks; strengths are the NMSE a disguise leaves
STRENGTHS = (1e-4, 1e-3, 1e-2)
SHARES: dict[tuple[str, float], float] = {
    ("plain", 0.0): 0.05,
    ("turned", 0.0): 0.17,
    ("decoys", 0.0): 0.12,
    ("backup", 0.0): 0.1,
    ("two jobs", 0.0): 0.1,
    ("superposed", 0.0): 0.1,
    **{("noise", s): 0.06 for s in STRENGTHS},
    **{("fine-tuned", s): 0.04 for s in STRENGTHS},
    ("float16", 0.0): 0.06,
}


@dataclass(frozen=True)
class TargetGroup:
    """One target of one size on one layout."""

    name: str
    keys: tuple[tuple[str, Any], ...]
    heads: tuple[int, ...]
    T: int
    causal: bool
    placed: bool  # needs position codes

    def spelling(self, seed: int) -> str:
        keys = dict(self.keys) | ({"seed": seed} if self.name in SEEDED else {})
        return self.name + (":" + ",".join(f"{k}={v}" for k, v in keys.items()) if keys else "")


@dataclass(frozen=True)
class Order:
    """One network to be made."""

    number: int
    group: TargetGroup
    disguise: str
    strength: float
    seed: int
    hidden: bool


@lru_cache(maxsize=1)
def groups() -> tuple[TargetGroup, ...]:
    """Every group, by enumeration: all sizes, lengths and head vectors none of whose entries can be lowered, and of
    shallow ones those with idle layers in front, up to DEEP_ENOUGH: an induction circuit needs room."""
    found: list[TargetGroup] = []
    for name, sizes in SIZES.items():
        for values in product(*sizes.values()):
            keys = tuple(zip(sizes, values, strict=True))
            for T in LENGTHS:
                found += _layouts(name, keys, T)
    return tuple(found)


def _layouts(name: str, keys: tuple[tuple[str, Any], ...], T: int) -> Iterator[TargetGroup]:
    target = parse(TargetGroup(name, keys, (), T, False, False).spelling(0))
    form = normal_form(target, T)
    placed = bool(form.position_features)
    jobs = sum(len(term.messages) + 1 for term in form.terms)
    least = tuple(minimal_heads(form, min(MOST_LAYERS, jobs), MOST_HEADS))
    deeper = ((1,) * (DEEP_ENOUGH - len(heads)) + heads for heads in least if len(heads) < DEEP_ENOUGH)
    for heads in dict.fromkeys((*least, *deeper)):
        free = name == "min_pair" or not any(
            term.messages for term in form.terms
        )  # may be causal: symmetric, or no pairs
        for causal in (False, True) if free else (False,):
            yield TargetGroup(name, keys, heads, T, causal, placed)


def number_of(*parts: Any) -> int:
    """63 bits of a hash: a seed that depends on every part."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def orders(count: int, seed: int, salt: str | None) -> list[Order]:
    """What to make: names in turn, groups of a name in random order, disguises in their shares."""
    rng = np.random.default_rng(number_of("order", seed))
    by_name: dict[str, list[TargetGroup]] = {}
    for group in groups():
        by_name.setdefault(group.name, []).append(group)
    turns = {name: _turn(found, rng) for name, found in by_name.items()}
    names, chosen = list(by_name), list[TargetGroup]()
    while len(chosen) < count and names:
        for name in tuple(names):
            drawn = next(turns[name], None)
            if drawn is None:
                names.remove(name)
            elif len(chosen) < count:
                chosen.append(drawn)
    kinds = _disguises(chosen, rng)
    found = []
    for number, (group, kind) in enumerate(zip(chosen, kinds, strict=True)):
        hidden = salt is not None and number % FIFTH == FIFTH - 1
        own = number_of("network", seed, number, salt if hidden else "")
        found.append(Order(number, group, *kind, own, hidden))
    return found


def _turn(found: list[TargetGroup], rng: np.random.Generator) -> Iterator[TargetGroup]:
    for _ in range(MOST):
        for place in rng.permutation(len(found)):
            yield found[place]


def _disguises(chosen: list[TargetGroup], rng: np.random.Generator) -> list[tuple[str, float]]:
    """One for each network, in their shares; those that need heads between tokens go to networks of several layers."""
    count, kinds, shares = len(chosen), list(SHARES), np.array(list(SHARES.values()))
    edges = np.floor(np.cumsum(shares) / shares.sum() * count + 1e-9).astype(int)
    each = np.diff(np.concatenate([[0], edges]))
    listed = [kind for kind, n in zip(kinds, each, strict=True) for _ in range(n)]
    listed += [("turned", 0.0)] * (count - len(listed))
    found: list[tuple[str, float]] = [("turned", 0.0)] * count
    places = rng.permutation(count).tolist()
    for kind in sorted(listed, key=lambda kind: kind[0] not in DEEP):
        place = next((p for p in places if len(chosen[p].heads) > 1 or kind[0] not in DEEP), None)
        if place is not None:
            places.remove(place)
            found[place] = kind
    return found
