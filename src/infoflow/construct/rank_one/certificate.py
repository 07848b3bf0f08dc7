"""Proofs that the ids of a rank-1 head are distinct, cheapest first.

1. `rounding_bound`: an a-priori bound on the float64 error of every attention average; enough when the measured gap is
   more than twice as large.
2. `certify_by_balls`: Arb balls around the averages that bound leaves in doubt; neighbours must be disjoint.
3. `saturated_order`: where softmax saturates, subtraction would need about 2r/log 2 bits. The identity

       s_A - s_B = sum_{j<l} (p_j - p_l) w_j w_l (A_j B_l - A_l B_j) / (Z_A Z_B),   w_j = exp(q p_j)

   cancels common parts as integers, so 128 bits certify gaps such as 10^(-6.5e10).

All three speak of the real function that the stored float64 weights define.
"""

import math
from dataclasses import asdict, dataclass
from functools import cmp_to_key
from itertools import pairwise
from operator import mul
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from infoflow.certificates.rules import UNIT
from infoflow.construct.rank_one.contexts import Contexts
from infoflow.construct.rank_one.head import RankOneHead
from infoflow.errors import JobError
from infoflow.installation import extra

TINY = 2.0**-1074  # what a product that underflows may lose, whatever its size


@dataclass(frozen=True)
class GapCertificate:
    """Same-token classes have attention averages at least 10^log10_gap apart; `gap` is that as a float64 (0 if
    smaller).

    `holds` is false when not even the sharpest method separates them. `float64` says whether float64 execution, too,
    keeps all averages apart.
    """

    gap: float
    log10_gap: float
    method: str
    bits: int
    classes: int
    float64: bool
    holds: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite gap (nothing to separate) is null."""
        plain = asdict(self)
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}


def _flint() -> Any:
    return extra("flint", "certify", "ball arithmetic")


def gamma(k: int) -> float:
    """k u / (1 - k u): the error factor of a sum of k products in any order, with or without fused operations."""
    return k * UNIT / (1 - k * UNIT)


def rounding_bound(contexts: Contexts, head: RankOneHead) -> float:
    """max |s computed - s| over all classes, for float64 execution in any order of summation.

    Projections: |dp| <= gamma_{d+s} |V||v|, the same for q. Logits: |dp| Q + P |dq| + |dp||dq| + 8 u P Q =: e (the 8
    covers product, shift and its cancellation). Weights: relative error e^e - 1 + 8 u =: h (8 u for exp). An average
    whose weights err by h relatively moves by at most h/(1-h) times its mean absolute deviation <= P; the sums add
    2 gamma_{n+2} P and the keys |dp| themselves; an underflowing weight adds at most n 2^-1022 P, far below the
    1e-9 of it, the underflowing products of the sum n + 2 times TINY.
    """
    n = contexts.members.shape[1]
    P, dp = projected(contexts, head.key, head.size)
    e = logit_error(contexts, head)
    if e > 0.5:
        return 2 * P
    h = math.expm1(e) + 8 * UNIT
    return float(P * (h / (1 - h) + 2 * gamma(n + 2)) * (1 + 1e-9) + dp + (n + 2) * TINY)


def projected(contexts: Contexts, direction: Float[ndarray, " d"], head_size: int) -> tuple[float, float]:
    """(max |p|, max |p computed - p|) of the tokens along a direction, the first already enlarged by the second.

    The stored rows are direction times powers of two from 1/8 to 8, exact but for underflow, as are the products.
    """
    count, size = len(direction) + head_size + 2, np.abs(contexts.vocabulary)
    underflow = 8 * head_size * count * TINY * (1 + float(size.max()))
    error = gamma(count) * float((size @ np.abs(direction)).max()) + underflow
    return float(np.abs(contexts.vocabulary @ direction).max()) + error, error


def logit_error(contexts: Contexts, head: RankOneHead) -> float:
    """|dp| Q + P |dq| + |dp||dq| + 8 u P Q: the rounding of any shifted logit, and its underflow."""
    P, dp = projected(contexts, head.key, head.size)
    Q, dq = projected(contexts, head.query, head.size)
    return dp * Q + P * dq + dp * dq + 8 * UNIT * P * Q + (head.size + 2) * TINY


def enclose(
    contexts: Contexts, head: RankOneHead, bits: int = 64, classes: Int[ndarray, " k"] | None = None
) -> tuple[list[Any], list[Any]]:
    """Balls around s of the given classes (all), and around every p: exact float64 inputs, `bits` of precision."""
    query, set_of = contexts.query, contexts.set_of
    if classes is not None:
        query, set_of = query[classes], set_of[classes]
    library = _flint()
    before = library.ctx.prec
    library.ctx.prec = bits
    try:
        p, q = _balls(contexts.vocabulary, head.key), _balls(contexts.vocabulary, head.query)
        used, place = np.unique(set_of, return_inverse=True)
        members = [[p[j] for j in row if j >= 0] for row in contexts.members[used].tolist()]
        averages, nothing = [], library.arb(0)
        for token, group in zip(query.tolist(), place.tolist(), strict=True):
            keys, scale = members[group], q[token]
            weights = [(scale * key).exp() for key in keys]
            averages.append(sum(map(mul, weights, keys), start=nothing) / sum(weights, start=nothing))
        return averages, p
    finally:
        library.ctx.prec = before


def _balls(vocabulary: Float[ndarray, "m d"], direction: Float[ndarray, " d"]) -> list[Any]:
    library = _flint()
    m, d = vocabulary.shape
    table = library.arb_mat(m, d, vocabulary.ravel().tolist()) * library.arb_mat(d, 1, direction.tolist())
    entries: list[Any] = table.entries()
    return entries


def certify_gap(
    contexts: Contexts, head: RankOneHead, s: Float[ndarray, " M"], measured: float | None
) -> GapCertificate:
    """The cheapest certificate that succeeds. `s` are the float64 averages, `measured` their smallest same-token
    gap."""
    if measured is None:
        return GapCertificate(math.inf, math.inf, "no token has two contexts", 53, contexts.size, True)
    error = rounding_bound(contexts, head)
    finite = bool(np.isfinite(s).all()) and math.isfinite(measured)  # else float64 decides nothing: sums overflowed
    if finite and measured > 2 * error:
        gap = measured - 2 * error
        return GapCertificate(gap, math.log10(gap), "a-priori float64 bound", 53, contexts.size, True)
    largest = float(np.abs(contexts.vocabulary @ head.key).max() * np.abs(contexts.vocabulary @ head.query).max())
    if finite and largest < 500:
        for bits in (64, 128, 256):
            found = certify_by_balls(contexts, head, s, bits)
            if found.holds:
                return found
    found = saturated_order(contexts, head)
    return found if found.holds else saturated_order(contexts, head, 1024)


def certify_by_balls(contexts: Contexts, head: RankOneHead, s: Float[ndarray, " M"], bits: int = 64) -> GapCertificate:
    """Balls where float64 does not decide: same-token neighbours at most 2 g + 4 e apart, g the smallest float64 gap
    and e the rounding bound of `s`. Any other two classes of a token are 2 g + 2 e apart in truth."""
    error = rounding_bound(contexts, head)
    order = np.lexsort((s, contexts.query))
    steps, same = np.diff(s[order]), np.diff(contexts.query[order]) == 0
    near = same & (steps <= 2 * steps[same].min(initial=math.inf) + 4 * error)
    chain = np.cumsum(np.r_[False, ~near])  # neighbours without a wide step between them share a number
    chosen = np.r_[near, False] | np.r_[False, near]
    smallest = _smallest_in_chains(enclose(contexts, head, bits, order[chosen])[0], chain[chosen])
    if smallest is None:
        return GapCertificate(0.0, -math.inf, "Arb enclosures overlap", bits, contexts.size, False, holds=False)
    far = steps[same & ~near] - 2 * error
    if far.size:
        smallest = min(smallest, math.log10(far.min()) - 1e-12)
    kept = bool((steps[same] > 2 * error).all())
    return GapCertificate(_power(smallest), smallest, "Arb enclosures", bits, contexts.size, kept)


def _smallest_in_chains(balls: list[Any], chain: Int[ndarray, " k"]) -> float | None:
    """A lower bound on log10 of the smallest difference inside a chain; None when two balls of a chain overlap."""
    middle = np.array([float(ball.mid()) for ball in balls])
    order = np.lexsort((middle, chain))
    inside = np.flatnonzero(np.diff(chain[order]) == 0)
    if (np.diff(middle[order])[inside] == 0).any():  # float64 cannot rank the midpoints: the balls themselves do

        def rank(i: int, j: int) -> int:
            if chain[i] != chain[j]:
                return 1 if chain[i] > chain[j] else -1
            return 1 if balls[i].mid() > balls[j].mid() else -1

        order = np.array(sorted(order.tolist(), key=cmp_to_key(rank)))
    smallest = math.inf
    for at in inside.tolist():
        difference = balls[order[at + 1]] - balls[order[at]]
        if not difference > 0:
            return None
        smallest = min(smallest, float((difference.lower().log() / math.log(10)).lower()))
    return smallest


def _power(log10: float) -> float:
    """10^log10 rounded down a little, 0 below float64."""
    return 10.0**log10 * (1 - 1e-12) if log10 > -300 else 0.0


def saturated_order(contexts: Contexts, head: RankOneHead, bits: int = 128) -> GapCertificate:
    """Sort each token's classes with the identity as comparator; neighbours certified positive are all distinct."""
    library = _flint()
    before = library.ctx.prec
    library.ctx.prec = bits
    try:
        compare = _Minors(contexts, head)
        smallest = math.inf
        order = np.argsort(contexts.query, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(contexts.query[order])) + 1):
            ranked = sorted(group.tolist(), key=cmp_to_key(compare.sign))
            for one, other in pairwise(ranked):
                smallest = min(smallest, compare.log10_difference(one, other))
    except _Undecided:
        return GapCertificate(0.0, -math.inf, "minor identity undecided", bits, contexts.size, False, holds=False)
    finally:
        library.ctx.prec = before
    return GapCertificate(_power(smallest), smallest, "minor identity", bits, contexts.size, False)


class _Undecided(Exception):
    """A difference whose ball contains 0."""


class _Minors:
    """The cancellation-free difference of two averages of one query, with only the terms that can matter in balls.

    Terms of the sum whose logarithm lies 80 below the largest are replaced by one ball that contains them; `slack`
    covers the rounding of the float64 estimates that choose them.
    """

    CUT = 80.0

    def __init__(self, contexts: Contexts, head: RankOneHead) -> None:
        self.contexts = contexts
        self.p, self.q = contexts.vocabulary @ head.key, contexts.vocabulary @ head.query
        self.blur = 2 * projected(contexts, head.key, head.size)[1]
        self.slack = 4 * logit_error(contexts, head) + 1.0
        self.keys, self.queries = _balls(contexts.vocabulary, head.key), _balls(contexts.vocabulary, head.query)
        self.rows = [row[row >= 0] for row in contexts.members]
        self.counts = [dict(zip(*np.unique(row, return_counts=True), strict=True)) for row in self.rows]
        self.upper = np.triu(np.ones((2 * contexts.members.shape[1],) * 2, dtype=int), 1)
        self.seen: dict[tuple[int, int], Any] = {}
        self.totals: dict[int, Any] = {}

    def sign(self, one: int, other: int) -> int:
        return 1 if self.difference(one, other)[0] > 0 else -1

    def log10_difference(self, one: int, other: int) -> float:
        """A lower bound on log10 |s_one - s_other|."""
        value, centre = self.difference(one, other)
        top = (abs(value).log() + centre - self.log_total(one) - self.log_total(other)) / math.log(10)
        return float((top - 1e-12 * abs(top)).lower())

    def difference(self, one: int, other: int) -> tuple[Any, Any]:
        """(value, centre): s_one - s_other = value e^centre / (Z_one Z_other), value a ball that excludes 0."""
        if (one, other) not in self.seen:
            value, centre = self._difference(one, other)
            self.seen[one, other], self.seen[other, one] = (value, centre), (-value, centre)
        made: tuple[Any, Any] = self.seen[one, other]
        return made

    def _difference(self, one: int, other: int) -> tuple[Any, Any]:
        library = _flint()
        token = int(self.contexts.query[one])
        A, B = (self.rows[self.contexts.set_of[c]] for c in (one, other))
        union, place = np.unique(np.concatenate([A, B]), return_inverse=True)
        a = np.bincount(place[: len(A)], minlength=len(union))
        b = np.bincount(place[len(A) :], minlength=len(union))
        minors = a[:, None] * b
        minors = (minors - minors.T) * self.upper[: len(union), : len(union)]
        j, l = np.nonzero(minors)
        if not len(j):
            raise JobError("expected different multisets, got proportional ones; merge them first.")
        logits = self.q[token] * self.p[union]
        steps = np.abs(self.p[union[j]] - self.p[union[l]]) + self.blur  # never below the true step
        size = logits[j] + logits[l] + np.log(np.abs(minors[j, l]) * steps)
        kept = np.flatnonzero(size >= size.max() - self.CUT - self.slack)
        scale = self.queries[token]
        centre = scale * (self.keys[union[j[size.argmax()]]] + self.keys[union[l[size.argmax()]]])
        value = library.arb(0)
        for k in kept.tolist():
            x, y = self.keys[union[j[k]]], self.keys[union[l[k]]]
            value += (x - y) * int(minors[j[k], l[k]]) * (scale * (x + y) - centre).exp()
        rest = len(j) - len(kept)
        if rest:
            # each dropped term is below e^{size.max() - CUT}, relative to e^centre: `slack` covers four logit errors
            reference = float(size.max() - (logits[j[size.argmax()]] + logits[l[size.argmax()]]))
            value += library.arb(0, rest * math.exp(reference - self.CUT + 1e-3))
        if not (value > 0 or value < 0):
            raise _Undecided
        return value, centre

    def log_total(self, one: int) -> Any:
        """log of the softmax denominator Z of a class, as a ball; computed once."""
        if one not in self.totals:
            self.totals[one] = self._log_total(one)
        return self.totals[one]

    def _log_total(self, one: int) -> Any:
        """Shifted by the largest logit."""
        counts, scale = self.counts[self.contexts.set_of[one]], self.queries[int(self.contexts.query[one])]
        tokens = list(counts)
        top = tokens[int(np.argmax([float((scale * self.keys[t]).mid()) for t in tokens]))]
        peak = scale * self.keys[top]
        total = sum(
            [int(counts[t]) * (scale * self.keys[t] - peak).exp() for t in tokens[1:]],
            int(counts[tokens[0]]) * (scale * self.keys[tokens[0]] - peak).exp(),
        )
        return peak + total.log()
