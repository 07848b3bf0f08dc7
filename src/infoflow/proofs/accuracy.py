"""Accuracy on a finite vocabulary, proved without listing the sequences.

The label of a sequence of T tokens is its largest token number. A group of sequences (`tabled.py`) has the same largest
token, so the same label; when the label's logit leads everywhere in the group, all its sequences are right, and there
are T! / (n_1! n_2! .. r!) b^r of them (n_i the multiplicities of the fixed tokens, r free places, b tokens for each).
Groups that are not decided are split by their next token and its multiplicity. So there is a ladder of proofs:

    depth 1       the largest token and how often it stands there: V T groups
    depth 2, ..   the two, three, .. largest tokens: more groups, fewer sequences undecided
    depth T       every multiset of tokens, (V+T-1 choose T): brute force up to order, exact

and `prove` climbs it where the most sequences are undecided, until a time is up. Counts are integers, so the bound is
exact; for a product law the masses are floats with an allowance.
"""

import heapq
import math
import time
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations_with_replacement, islice

import numpy as np
from jaxtyping import Float

from infoflow import arguments, cost
from infoflow.certificates import Certificate, Claim, stated_limit
from infoflow.certificates.rules import UNIT
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer
from infoflow.proofs.reduce import ARITHMETIC, ASSUMPTIONS
from infoflow.proofs.tabled import Groups, Tabled, ends, margins, tabled

GROUP_BYTES = 200  # of a group of sequences while it is made
BATCH = 256  # groups bounded at once
MOST_SEQUENCES = 2 * 10**7  # sequences up to which brute force checks the bound
TOGETHER = 8  # groups split at once
LAW_SLACK = 1e-10  # of a sum of masses in float64; their T factors and V summands add 16 u T (V + log T)
GROUPS = 1e9  # operations a second


@dataclass(frozen=True)
class Share:
    """right <= accuracy <= at_most, as shares of all sequences; `groups` bounds were computed for it."""

    right: float
    at_most: float
    groups: int
    seconds: float
    depth: int | None = None


@dataclass(frozen=True)
class TokenLaw:
    """How likely each token is, independently at every place; None: all V^T sequences alike, counted in integers."""

    size: int
    T: int
    weights: Float[np.ndarray, " V"] | None = None
    below: Float[np.ndarray, " V"] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.weights is not None:
            given = arguments.array("the probabilities of the tokens", self.weights)
            if given.shape != (self.size,) or (given < 0).any() or not given.sum() > 0:
                raise InfoFlowError(f"expected {self.size} probabilities, one for each token, got {given.shape}.")
            object.__setattr__(self, "weights", given / given.sum())
            object.__setattr__(self, "below", np.concatenate([[0.0], np.cumsum(given / given.sum())]))

    def mass(self, tokens: np.ndarray, counts: np.ndarray, free: int, below: int) -> int | float:
        """Of the sequences of a group: their number, or their probability."""
        ways = math.factorial(self.T) // math.factorial(free)
        for count in counts.tolist():
            ways //= math.factorial(count)
        if self.weights is None or self.below is None:
            return int(ways * below**free)
        parts = [*zip(self.weights[tokens].tolist(), counts.tolist(), strict=True), (float(self.below[below]), free)]
        if any(p == 0.0 and n for p, n in parts):
            return 0.0
        return math.exp(math.log(ways) + sum(n * math.log(p) for p, n in parts if n))  # ways may be beyond float64

    def share(self, mass: int | float) -> float:
        """As a share of everything, rounded downwards."""
        if isinstance(mass, int):
            exact = Fraction(mass, self.size**self.T)
            found = mass / self.size**self.T
            return found if Fraction(found) <= exact else math.nextafter(found, 0.0)
        return max(0.0, float(mass) - LAW_SLACK - 16 * UNIT * self.T * (self.size + math.log(self.T + 1.0)))


EMPTY = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
Entry = tuple[float, int, np.ndarray, np.ndarray, int, int]  # -mass, number, tokens, counts, free places, their limit


def prove(net: Tabled, law: TokenLaw, seconds: float, depth: int | None = None, most: float = math.inf) -> Share:
    """Bound the accuracy on the largest token. `depth` splits no group beyond that many fixed tokens; without it the
    open group with the most sequences is split next, until the time is up, `most` groups were bounded or nothing is
    open."""
    begin = time.monotonic()
    right: int | float = 0
    wrong: int | float = 0
    made = 0
    heap: list[Entry] = [(0.0, 0, *EMPTY, law.T, net.size)]
    while heap and (not made or time.monotonic() - begin < seconds) and made < most:
        if depth is not None and len(heap[0][2]) >= depth:
            break
        fixed = len(heap[0][2])
        parents: list[Entry] = []
        while heap and len(heap[0][2]) == fixed and (depth is not None or len(parents) < TOGETHER):
            parents.append(heapq.heappop(heap))
        groups = joined([children(*parent[2:]) for parent in parents])
        leads = lead_of(net, groups)
        for g, lead in enumerate(leads.tolist()):
            made += 1
            entry = groups.tokens[g], groups.counts[g], int(groups.free[g]), int(groups.below[g])
            mass = law.mass(*entry)
            if lead > 0.0:
                right += mass
            elif entry[2]:
                heapq.heappush(heap, (-float(mass), made, *entry))
            elif lead + 2.0 * net.slack < 0.0:
                wrong += mass
    return Share(law.share(right), 1.0 - law.share(wrong), made, time.monotonic() - begin, depth)


def expect_room(V: int, T: int) -> None:
    """Refuse a vocabulary and a length whose first groups, V T of them, would not fit in memory."""
    cost.memory(GROUP_BYTES * V * T, f"groups of sequences of T={T} tokens out of {V}", "T or the vocabulary")


def lead_of(net: Tabled, groups: Groups) -> Float[np.ndarray, " groups"]:
    """The proved lead of the label in every group, batch by batch."""
    parts = [np.arange(start, min(start + BATCH, len(groups))) for start in range(0, len(groups), BATCH)]
    return np.concatenate([margins(net, groups[part], groups.tokens[part, 0]) for part in parts])


def children(tokens: np.ndarray, counts: np.ndarray, free: int, below: int) -> Groups:
    """The same sequences by the largest of their free tokens and how often it stands there."""
    pairs = [(v, n) for v in range(below) for n in range(1, free + 1) if v or n == free]
    token, count = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    known = np.broadcast_to(tokens, (len(pairs), len(tokens))), np.broadcast_to(counts, (len(pairs), len(counts)))
    limit = np.where(free > count, token, 0)
    return Groups(np.column_stack([known[0], token]), np.column_stack([known[1], count]), free - count, limit)


def joined(parts: list[Groups]) -> Groups:
    return Groups(*(np.concatenate([getattr(part, name) for part in parts]) for name in Groups.__dataclass_fields__))


def listed(net: Tabled, law: TokenLaw) -> Share:
    """Brute force over the multisets, with the plain forward pass: what every bound is held against."""
    begin = time.monotonic()
    right: int | float = 0
    made = 0
    bags = combinations_with_replacement(range(net.size), law.T)
    while chunk := list(islice(bags, 20_000)):
        sequences = np.array(chunk)
        good = net.logits(sequences).argmax(1) == sequences[:, -1]
        made += len(chunk)
        for bag in sequences[good]:
            tokens, counts = np.unique(bag, return_counts=True)
            right += law.mass(tokens, counts, 0, 0)
    return Share(law.share(right), law.share(right), made, time.monotonic() - begin, law.T)


def largest_error(
    net: Tabled, rank: Float[np.ndarray, " V"], values: Float[np.ndarray, " V"], T: int, seconds: float
) -> tuple[float, float, int]:
    """(bound, value at a sequence, groups) of sup |output - values[v(t*)]|, t* = argmax_t rank[v(t)], over all V^T
    sequences.

    Tokens are ordered by their rank; a group's target is the value of its first token, its output lies between `ends`.
    The group with the largest bound is split until the time is up or a single multiset has the largest.
    """
    order = np.argsort(rank, kind="stable")
    net = replace(net, scores=net.scores[:, order], vectors=net.vectors[:, order])
    values = values[order]
    begin, made, met = time.monotonic(), 0, 0.0
    heap: list[Entry] = [(-math.inf, 0, *EMPTY, T, net.size)]
    while heap[0][4] and (not made or time.monotonic() - begin < seconds):
        groups = children(*heapq.heappop(heap)[2:])
        low, high = ends(net, groups)
        truth = values[groups.tokens[:, 0]]
        bounds = np.maximum(high - truth, truth - low)
        bounds = np.where(np.isnan(bounds), np.inf, bounds)  # no number bounds nothing
        for g, bound in enumerate(bounds.tolist()):
            made += 1
            entry = groups.tokens[g], groups.counts[g], int(groups.free[g]), int(groups.below[g])
            met = met if entry[2] else max(met, bound - 2.0 * net.slack)
            heapq.heappush(heap, (-bound, made, *entry))
    return -heap[0][0], met, made


def certify_accuracy(
    network: Transformer,
    T: int,
    seconds: float = 10.0,
    weights: Float[np.ndarray, " V"] | None = None,
    eps: float | None = None,
) -> Certificate:
    """accuracy >= bound for the largest of T tokens of the network's vocabulary, over all V^T sequences or a product
    law. `eps` asks for an accuracy of at least 1 - eps. Where the sequences can be listed, they are: `attacked` is then
    the true accuracy."""
    begin = time.monotonic()
    net = tabled(network)
    if len(net.constant) != net.size:
        raise InfoFlowError(f"expected a class for each of {net.size} tokens, got {len(net.constant)} outputs.")
    law = TokenLaw(net.size, arguments.integer("T", T), weights)
    bounded = net.size * len(net.start) * (len(net.scores) + net.size)  # a group's hulls and margins
    counted = 0.12 * law.T**2  # its factorials
    cost.work(net.size * law.T * (bounded + counted), GROUPS, f"the first groups of {T} tokens", "T")
    expect_room(net.size, law.T)
    share = prove(net, law, seconds)
    over = f"all {net.size}^{T} sequences" if weights is None else f"sequences of {T} tokens drawn from the given law"
    asked = stated_limit(share.right, least=True) if eps is None else 1.0 - eps
    certificate = Certificate(
        Claim("accuracy on the largest token", asked, over, least=True),
        share.right,
        f"counts in integers, margins in {ARITHMETIC}",
        ASSUMPTIONS,
        measured={"accuracy at most": share.at_most, "groups": float(share.groups)},
        seconds=time.monotonic() - begin,
    )
    if net.size**law.T > MOST_SEQUENCES:
        return certificate
    truth = listed(net, law)
    listings = {"multisets listed": float(truth.groups), "seconds of listing": truth.seconds}
    return replace(certificate, measured=certificate.measured | listings).with_attack(truth.right)
