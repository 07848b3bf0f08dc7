"""The head and the read-out direction that spread the ids of all classes best on one line.

    t = w.id = w.x + A s,   A = w.a

Random heads times random (w, A); then the best candidates climb: key, query, w and A move together until the smallest
gap is as large as the order of the ids allows. M random points leave a smallest gap of about range / M^2.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from infoflow.construct.rank_one.climb import climb
from infoflow.construct.rank_one.contexts import LARGEST, Contexts
from infoflow.construct.rank_one.head import attention_average, attention_jacobian
from infoflow.progress import Progress

EXTREMES = 8  # ids at either end, which must not move out
FEW = 2000  # contexts whose ids stay far apart beside rounding, so that time matters more than the last of the gap
CLIMBED, CLIMBED_OF_FEW = 6, 2  # candidates that are climbed


@dataclass(frozen=True)
class Spread:
    """Directions of the head (beta in `query`), read-out (w, A), and the smallest gap of t over its range."""

    key: Float[ndarray, " d"]
    query: Float[ndarray, " d"]
    readout: Float[ndarray, " d"]
    amplitude: float
    gap: float

    def reversed(self) -> "Spread":
        """-t for t: the same gaps in the opposite order."""
        return Spread(self.key, self.query, -self.readout, -self.amplitude, self.gap)


def find_spreads(contexts: Contexts, heads: int = 16, readouts: int = 24, seed: int = 0) -> list[Spread]:
    """heads x readouts candidates of O(M n) and O(M log M), the best of them climbed, best first."""
    rng = np.random.default_rng(seed)
    climbed = CLIMBED if contexts.size > FEW else CLIMBED_OF_FEW
    kept: list[Spread] = []
    with Progress("rank-1 head", heads) as bar:
        for index in range(heads):
            key, query = _directions(contexts.vocabulary, rng)
            s = attention_average(contexts, contexts.vocabulary @ key, contexts.vocabulary @ query)
            kept += _candidates(contexts, key, query, s, readouts, rng)
            kept = sorted(kept, key=lambda c: -c.gap)[:climbed]
            bar.update(index + 1, f"gap {kept[0].gap:.2g}")
    return sorted((climb(MovableLine.of(contexts, spread)).spread for spread in kept), key=lambda c: -c.gap)


@dataclass(frozen=True)
class MovableLine:
    """All weights that place the ids on the line, to climb with: key, query, w and A together, one group."""

    contexts: Contexts
    parts: tuple[Float[ndarray, " d"], Float[ndarray, " d"], Float[ndarray, " d"], Float[ndarray, " 1"]]

    @classmethod
    def of(cls, contexts: Contexts, spread: Spread) -> "MovableLine":
        """The line that a spread describes."""
        return cls(contexts, (spread.key, spread.query, spread.readout, np.array([spread.amplitude])))

    @property
    def spread(self) -> Spread:
        """What it is now, with its relative gap."""
        key, query, readout, amplitude = self.parts
        return Spread(key, query, readout, float(amplitude[0]), relative_gap(self.ids))

    @property
    def groups(self) -> Int[ndarray, " M"]:
        """One group for all: with the token mixed in, classes of different tokens must lie apart as well."""
        return np.zeros(self.contexts.size, dtype=np.int64)

    @cached_property
    def averages(self) -> Float[ndarray, " M"]:
        """What the head computes for every class."""
        key, query, *_ = self.parts
        return attention_average(self.contexts, self.contexts.vocabulary @ key, self.contexts.vocabulary @ query)

    @cached_property
    def ids(self) -> Float[ndarray, " M"]:
        """Token and average on one line."""
        *_, readout, amplitude = self.parts
        made: ndarray = (self.contexts.vocabulary @ readout)[self.contexts.query] + amplitude * self.averages
        return made

    @property
    def size(self) -> float:
        """The distance of the outermost ids."""
        return float(np.ptp(self.ids))

    def jacobian(self, at: Int[ndarray, " k"]) -> Float[ndarray, "k P"]:
        """Of the ids by all its parts, in units of their norms."""
        key, query, _, amplitude = self.parts
        by_key, by_query = attention_jacobian(self.contexts, key, query, at)
        own = self.contexts.vocabulary[self.contexts.query[at]]
        slopes = (amplitude * by_key, amplitude * by_query, own, self.averages[at, None])
        return np.hstack([slope * np.linalg.norm(part) for slope, part in zip(slopes, self.parts, strict=True)])

    def extremes(self) -> tuple[Float[ndarray, "e P"], Float[ndarray, " e"]]:
        """Rows and values of the outermost ids, which a step must not move outwards."""
        order = np.argsort(self.ids)
        low, high = order[:EXTREMES], order[-EXTREMES:]
        rows = np.vstack([-self.jacobian(low), self.jacobian(high)])
        return rows, np.r_[self.ids[low] - self.ids[low[0]], self.ids[high[-1]] - self.ids[high]]

    def moved(self, y: Float[ndarray, " P"]) -> "MovableLine":
        """The line with its parts moved by y."""
        steps = np.split(y, np.cumsum([len(part) for part in self.parts])[:-1])
        moved = tuple(part + step * np.linalg.norm(part) for part, step in zip(self.parts, steps, strict=True))
        return MovableLine(self.contexts, moved)


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
    """w normal per unit of each coordinate's spread (of its size where all tokens share it, of 1 where it is 0), A so
    that A s spans 0.02 to 50 times what w.x spans."""
    vocabulary = contexts.vocabulary
    deviation = vocabulary.std(0)
    unit = np.where(deviation > 0, deviation, np.abs(vocabulary).max(0))
    unit = np.where(unit > 1 / LARGEST, unit, 1.0)
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
