"""Checks of the rank-1 paper: its lemmas against brute force, its constructions run as stored networks."""

import math
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy import ndarray

from infoflow.book.entry import Finding, Size, times
from infoflow.book.registry import registry
from infoflow.book.statements.boltzmann import (
    boltz,
    boltz_difference,
    boltz_grad,
    boltz_hess,
    gap_bound,
    largest_drop,
    last_entry,
)
from infoflow.construct.rank_one.certificate import certify_gap
from infoflow.construct.rank_one.context_map import ContextMap, ids_apart
from infoflow.construct.rank_one.equivariant import (
    FUNCTIONS,
    approximate_equivariant,
    approximate_function,
    l2_error,
    step_function,
)
from infoflow.construct.rank_one.hardmax import hardmax_collision, random_layer
from infoflow.construct.rank_one.memorize import memorize
from infoflow.construct.rank_one.positions import corollary_encoding
from infoflow.construct.rank_one.projection import find_projection, lemma_constant, satisfies_lemma
from infoflow.construct.rank_one.scales import paper_gap
from infoflow.construct.rank_one.separation import same_token_gap, separation

CHECKS, checks = registry()


@checks("rank1.theorem1")
def theorem_1(size: Size, build: Callable[..., Any] = hardmax_collision) -> list[Finding]:
    """The weight-independent pair on random layers, heads with zero and skew scores among them."""
    rng = np.random.default_rng(0)
    worst, least = 0.0, math.inf
    for n, d in ((4, 1), (5, 3), (9, 2)):
        pair = build(d, n)
        worst = max(worst, *(pair.verify(random_layer(d, 6, rng)) for _ in range(times(size, 60, 500))))
        one, other = (np.unique(tokens, axis=0) for tokens in (pair.first, pair.second))
        least = min(least, float(np.abs(one - other).max()))
    return [
        Finding("largest relative difference of colliding outputs over random hardmax layers", worst, "at most", 1e-13),
        Finding("how far the two token sets differ", least, "above", 0.0),
    ]


def ladders(n: int, delta: float, rng: np.random.Generator) -> tuple[ndarray, ndarray]:
    """Two decreasing vectors from one ladder of steps just above delta, different as sets, k entries in common."""
    values = -np.cumsum(delta * (1 + rng.choice([1e-9, 0.05, 0.5], size=2 * n)))
    k = int(rng.integers(0, n))
    rest = rng.permutation(np.arange(k, 2 * n))
    one, other = np.sort(np.r_[np.arange(k), rest[: n - k]]), np.sort(np.r_[np.arange(k), rest[n - k : 2 * (n - k)]])
    return values[one] - values.mean(), values[other] - values.mean()


def pairs(size: Size, slack: Callable[[int], float], seed: int) -> Iterator[tuple[ndarray, ndarray]]:
    """Pairs that are separated by just over slack(n), and the closest ones: only the last entry differs."""
    rng = np.random.default_rng(seed)
    for _ in range(times(size, 500, 10_000)):
        n = int(rng.integers(2, 13))
        yield ladders(n, slack(n) * (1 + 1e-9), rng)
    for n in range(2, 13):
        ladder = -slack(n) * (1 + 1e-9) * np.arange(n + 1.0)
        yield ladder[:n], np.r_[ladder[: n - 1], ladder[n]]


@checks("rank1.lemma1")
def lemma_1(size: Size, build: Callable[..., float] = gap_bound) -> list[Finding]:
    """Gaps by the identity that does not cancel, against (16) and against the constant its proof gives."""
    ratios = {"paper": math.inf, "proof": math.inf}
    largest = 0.0
    for a, b in pairs(size, lambda n: 2 * math.log(n) + 3, seed=1):
        middle = (max(a.max(), b.max()) + min(a.min(), b.min())) / 2  # the smallest r there is for this pair
        a, b = a - middle, b - middle
        gap = abs(boltz_difference(a, b))
        r = max(np.abs(a).max(), np.abs(b).max())
        largest = max(largest, abs(float(boltz(a))) / r)
        for kind in ratios:
            ratios[kind] = min(ratios[kind], gap / build(a, b, kind))
    return [
        Finding("smallest gap over the bound of (16)", ratios["paper"], "above", 1.0),
        Finding("smallest gap over the bound of the proof", ratios["proof"], "above", 1.0),
        Finding("largest |boltz(a)| over r", largest, "at most", 1.0),
    ]


def tokens_of(seed: int, m: int, d: int) -> ndarray:
    """m normal tokens."""
    return np.random.default_rng(seed).normal(size=(m, d))


@checks("rank1.lemma2")
def lemma_2(size: Size, build: Callable[..., Any] = find_projection) -> list[Finding]:
    """(72) for all pairs by brute force, and how often one uniform draw succeeds."""
    least, most = math.inf, 0.0
    for seed, (m, d) in enumerate([(2, 1), (20, 3), (times(size, 60, 300), 8)] * 2):
        tokens = tokens_of(seed, m, d)
        points = np.vstack([tokens, np.zeros((1, d))])
        v = build(tokens, "lemma", seed=seed).vector
        for x, y in combinations(points, 2):
            ratio = abs(v @ (x - y)) / np.linalg.norm(x - y)
            least, most = min(least, ratio / lemma_constant(m + 1, d)), max(most, ratio)
    rng = np.random.default_rng(0)
    points = tokens_of(9, 40, 5)
    draws = rng.normal(size=(times(size, 300, 3000), 5))
    share = float(np.mean([satisfies_lemma(points, v / np.linalg.norm(v)) for v in draws]))
    return [
        Finding("smallest |v.(x - x')| over the left side of (72)", least, "at least", 1.0),
        Finding("largest |v.(x - x')| over |x - x'|", most, "at most", 1 + 1e-12),
        Finding("share of uniform draws that satisfy (72), derived to be at least 0.363", share, "at least", 0.363),
    ]


@checks("rank1.lemma3")
def lemma_3(size: Size, build: Callable[..., Any] = find_projection) -> list[Finding]:
    """(74) and (75) for every triple of tokens, with the scale (73)."""
    least, shortest, delta = math.inf, math.inf, 5.0
    for seed in range(times(size, 4, 12)):
        tokens = tokens_of(seed, 12, 3)
        apart = separation(tokens)
        m, d = tokens.shape
        v = build(tokens, "lemma", seed=seed).vector
        scale = (m + 1) ** 4 * math.pi * d / 8 * delta / (apart.distance * apart.smallest)
        p = tokens @ v
        gaps = np.abs(p[:, None] - p[None, :])[~np.eye(m, dtype=bool)]
        least = min(least, scale * gaps.min() * np.abs(p).min() / delta)
        shortest = min(shortest, float((np.abs(p) / np.linalg.norm(tokens, axis=1)).min()) / lemma_constant(m + 1, d))
    return [
        Finding("smallest score difference over delta, (74)", least, "at least", 1.0),
        Finding("smallest |v.x| over the left side of (75)", shortest, "at least", 1.0),
    ]


def vectors(size: Size, low: float) -> Iterator[tuple[ndarray, int]]:
    """Vectors with one entry just below max - log n - low, others anywhere."""
    rng = np.random.default_rng(2)
    for _ in range(times(size, 1500, 20_000)):
        n = int(rng.integers(2, 20))
        a = rng.normal(scale=rng.choice([0.1, 1.0, 5.0]), size=n)
        i = int(rng.integers(n))
        others = np.delete(a, i)
        a[i] = others.max() - math.log(n) - low - rng.choice([1e-9, 0.1, 3.0])
        yield a, i


def moved(a: ndarray, i: int, step: float) -> float:
    """The Boltzmann operator with one entry moved."""
    b = a.copy()
    b[i] += step
    return float(boltz(b))


@checks("rank1.lemma4")
def lemma_4(size: Size, build: Callable[..., ndarray] = boltz_grad) -> list[Finding]:
    """The sign of the derivative under the lemma's hypothesis, and (83) against a difference quotient."""
    worst, error, h = -math.inf, 0.0, 1e-5
    for a, i in vectors(size, 1.0):
        slope = float(build(a)[i])
        worst = max(worst, slope)
        error = max(error, abs(slope - (moved(a, i, h) - moved(a, i, -h)) / (2 * h)))
    return [
        Finding("largest derivative where the lemma says negative", worst, "below", 0.0),
        Finding("distance of (83) from a difference quotient", error, "at most", 1e-8),
    ]


@checks("rank1.lemma5")
def lemma_5(size: Size, build: Callable[..., ndarray] = boltz_hess) -> list[Finding]:
    """The same for the second derivative, (97)."""
    worst, error, h = -math.inf, 0.0, 1e-3
    for a, i in vectors(size, 3.0):
        bend = float(build(a)[i])
        worst = max(worst, bend)
        quotient = (moved(a, i, h) - 2 * float(boltz(a)) + moved(a, i, -h)) / h**2
        error = max(error, abs(bend - quotient))
    return [
        Finding("largest second derivative where the lemma says negative", worst, "below", 0.0),
        Finding("distance of (97) from a difference quotient", error, "at most", 1e-6),
    ]


@checks("rank1.lemma6")
def lemma_6(size: Size, build: Callable[..., Any] = last_entry) -> list[Finding]:
    """(103) at the edge of its hypotheses; the left side by the identity that does not cancel."""
    rng = np.random.default_rng(3)
    least, tried = math.inf, 0
    for _ in range(times(size, 1500, 20_000)):
        n = int(rng.integers(2, 20))
        delta = math.log(n) + 3 + rng.choice([1e-9, 0.5])
        top = rng.normal(scale=rng.choice([1e-6, 1.0]), size=n - 1)
        last = top.max() - delta - rng.choice([1e-9, 1.0])
        a, b = np.r_[top, last], np.r_[top, last - rng.choice([1e-3, 0.1, 1.0, 5.0])]
        statement = build(a, b, delta)
        tried += statement.hypothesis
        least = min(least, boltz_difference(b, a) / statement.right)
    return [
        Finding("smallest left side over right side of (103)", least, "above", 1.0),
        Finding("pairs that met the hypotheses", tried, "is", times(size, 1500, 20_000)),
    ]


@checks("rank1.lemma7")
def lemma_7(size: Size, build: Callable[..., float] = gap_bound) -> list[Finding]:
    """The sharp forms: 0.9 delta e^-(a_1 - a_k+1) at 2 log n + 3, constant 0.7 already at log n + 2; and the order."""
    ratios, wrong = [], 0
    for slack in (lambda n: 2 * math.log(n) + 3, lambda n: math.log(n) + 2):
        least = math.inf
        for a, b in pairs(size, slack, seed=4):
            gap = boltz_difference(a, b)
            least = min(least, abs(gap) / build(a, b, "sharp"))
            k = int(np.flatnonzero(a != b)[0])
            wrong += (gap > 0) != ((a[k] > b[k]) == (k == 0))
        ratios.append(least)
    drops = [np.r_[0.0, np.full(n - 1, -1 - largest_drop(n))] for n in (2, 10, 100)]
    attained = max(abs(float(-boltz(a)) / largest_drop(len(a)) - 1) for a in drops)
    return [
        Finding("smallest gap over the sharp bound, delta = 2 log n + 3", ratios[0], "at least", 1.0),
        Finding("smallest gap over the sharp bound, delta = log n + 2", ratios[1], "at least", 1.0),
        Finding("pairs in the wrong order", wrong, "is", 0),
        Finding("how far W((n-1)/e), which replaces log n in (84), is from being attained", attained, "at most", 1e-12),
    ]


def distinct(V: int, d: int, n: int, N: int, seed: int = 0) -> ndarray:
    """N sequences of n different tokens of a vocabulary of V."""
    rng = np.random.default_rng(seed)
    vocabulary = rng.normal(size=(V, d))
    made: ndarray = vocabulary[np.array([rng.choice(V, n, replace=False) for _ in range(N)])]
    return made


def least_distance(ids: ndarray, classes: ndarray) -> float:
    """Of ids of different classes, by brute force."""
    flat, label = ids.reshape(-1, ids.shape[-1]), classes.ravel()
    apart = np.linalg.norm(flat[:, None] - flat[None], axis=-1)
    return float(apart[label[:, None] != label[None]].min())


@checks("rank1.theorem2")
def theorem_2(size: Size, build: Callable[..., ContextMap] = ContextMap.fit) -> list[Finding]:
    """At the theorem's own scale the certified gap (balls, from the weights) against (8); at a moderate one the stored
    network's ids, all pairs compared."""
    findings = []
    for V, d, n, N in [(4, 2, 2, 4), (10, 3, 4, 20)][: times(size, 1, 2)]:
        made = build(distinct(V, d, n, N), "paper")
        closest = same_token_gap(made.contexts.query, made.averages)
        certificate = certify_gap(made.contexts, made.head, made.averages, closest.gap if closest else None)
        log10 = ids_apart(made.contexts, made.head, certificate)
        promised = paper_gap(made.contexts, made.apart)
        what = f"-log10 of the certified gap at the paper's scale, {V} tokens, (8) promises {-promised:.0f}"
        findings.append(Finding(what, -log10, "at most", -promised))
    made = build(distinct(*((12, 3, 4, 30) if size == "quick" else (50, 8, 8, 100))), "auto")
    X = made.contexts.vocabulary[made.contexts.tokens]
    with torch.no_grad():
        ids = made.network()(torch.from_numpy(X)).numpy()
    matrices = made.head.matrices()
    ranks = max(int(np.linalg.matrix_rank(matrices[name])) for name in ("W_K", "W_Q", "W_V"))
    return [
        *findings,
        Finding(
            "least distance of ids, all pairs, moderate scale",
            least_distance(ids, made.contexts.class_of),
            "at least",
            made.gap * (1 - 1e-9),
        ),
        Finding(
            "largest |id| over r of (7)",
            float(np.linalg.norm(ids, axis=-1).max()) / (made.apart.largest + made.apart.distance / 4),
            "at most",
            1.0,
        ),
        Finding("largest rank of W_K, W_Q, W_V", ranks, "is", 1),
    ]


def forward(made: Any, X: ndarray, mask: ndarray | None = None) -> ndarray:
    """What the memoriser's network computes."""
    visible = None if mask is None else torch.from_numpy(mask)
    with torch.no_grad():
        out: ndarray = made.memory.network(torch.from_numpy(X), visible=visible).numpy()
    return out


@checks("rank1.corollary1")
def corollary_1(size: Size, build: Callable[..., Any] = memorize) -> list[Finding]:
    """Random labels, the stored Transformer run on every sequence; its size in independent numbers."""
    V, d, n, N = (30, 4, 6, 40) if size == "quick" else (200, 8, 10, 500)
    X = distinct(V, d, n, N)
    Y = np.random.default_rng(1).integers(1, 11, size=(N, n))
    made = build(X, Y)
    error = float(np.abs(forward(made, X) - Y[..., None]).max())
    counts = made.parameters()
    return [
        Finding(f"largest error on {N * n} labels 1..10", error, "below", 0.49),
        Finding("independent numbers against 4(s+d) + d(2nN+d)", counts["factored"], "at most", counts["paper"]),
    ]


@checks("rank1.corollary2")
def corollary_2(size: Size, build: Callable[..., Any] = memorize) -> list[Finding]:
    """Sequences with duplicates, labels that depend on order, the repaired encoding; and its separation."""
    rng = np.random.default_rng(2)
    d, n, N = (2, 4, 12) if size == "quick" else (3, 6, 60)
    X = rng.normal(size=(5, d))[rng.integers(0, 5, size=(N, n))]
    X = np.unique(X, axis=0)
    Y = rng.integers(1, 6, size=X.shape[:2])
    made = build(X, Y, positions="corollary")
    error = float(np.abs(forward(made, X) - Y[..., None]).max())
    least = math.inf
    for dim in (1, 2, 3, 8):
        tokens = np.vstack([np.full(dim, 0.99 / math.sqrt(dim)), np.full(dim, -0.99 / math.sqrt(dim))])
        apart = separation((tokens[:, None] + corollary_encoding(2, dim, 1.0, 1.9)[None]).reshape(-1, dim))
        least = min(least, apart.distance / 1.9, (5 + 2 * 1.9) / apart.largest, apart.smallest / 2.9)
    return [
        Finding(f"largest error on {Y.size} labels that depend on order", error, "below", 0.49),
        Finding(
            "smallest margin of the repaired encoding in (r_max + eps, (2n+1) r_max + n eps, eps)",
            least,
            "at least",
            1.0,
        ),
    ]


def placed(X: np.ndarray) -> np.ndarray:
    """Weighs every token by its place, so that no exchange of tokens commutes with it."""
    made: np.ndarray = np.arange(1.0, X.shape[1] + 1)[:, None] * X + X[:, :1]
    return made


@checks("rank1.proposition1")
def proposition_1(
    size: Size,
    build: Callable[..., Any] = approximate_equivariant,
    positional: Callable[..., Any] = approximate_function,
) -> list[Finding]:
    """Equal to the step function off the ramps, 0 outside the cube, error O(1/D); and the remark that positions lift
    equivariance, for a function of the order on another box."""
    rng = np.random.default_rng(3)
    off = outside = 0.0
    for name, d, n, D in (("mean_product", 1, 2, 8), ("wave", 1, 3, 3), ("wave", 2, 2, 2)):
        net = build(FUNCTIONS[name], d, n, D)
        X = rng.random((400, n, d))
        ramp = (np.mod(X, 1 / D) < 2 * net.delta).any((1, 2))
        off = max(off, float(np.abs(net(X) - step_function(FUNCTIONS[name], X, D))[~ramp].max()))
        far = X.copy()
        far[:, 0, 0] += rng.choice([-3.0, -1.0 - 1e-3, 1.0 + 1e-3, 50.0], size=len(X))
        outside = max(outside, float(np.abs(net(far)).max()))
    errors = [l2_error(build(FUNCTIONS["mean_product"], 1, 2, D), FUNCTIONS["mean_product"], 4000) for D in (8, 16)]
    box, net = (-1.0, 2.0), positional(placed, 1, 3, 5, box=(-1.0, 2.0))
    U = rng.random((400, 3, 1))
    U = U[~(np.mod(U, 1 / 5) < 2 * net.delta).any((1, 2))]
    X = box[0] + (box[1] - box[0]) * U
    ordered = float(np.abs(net(X) - step_function(placed, X, 5, box=box)).max())
    return [
        Finding("with positions, on [-1, 2]: distance from the step function", ordered, "at most", 1e-9),
        Finding("distance from the step function off the ramps", off, "at most", 1e-9),
        Finding("largest output outside the cube", outside, "at most", 1e-9),
        Finding("L2 error at D = 8 over that at D = 16 (first order: 2)", errors[0] / errors[1], "at least", 1.8),
    ]


@checks("rank1.appendixC")
def appendix_c(size: Size, build: Callable[..., float] = gap_bound) -> list[Finding]:
    """Prefixes of a set (what a causal mask makes) against the masked bound; and a causal network that memorises."""
    rng = np.random.default_rng(4)
    least = math.inf
    for _ in range(times(size, 500, 5000)):
        n = int(rng.integers(2, 13))  # e^(-2r) stays above the smallest float
        delta = (2 * math.log(n) + 3) * (1 + 1e-9)
        ladder = -np.cumsum(delta * (1 + rng.choice([1e-9, 0.3], size=n)))
        a = ladder - (ladder[0] + ladder[-1]) / 2
        prefix = a[: int(rng.integers(1, n))]
        least = min(least, abs(boltz_difference(a, prefix)) / build(a, prefix, "masked"))
    X = distinct(12, 2, 4, 10)
    Y = np.random.default_rng(5).integers(1, 5, size=(1, 4)).repeat(10, axis=0)
    error = float(np.abs(forward(memorize(X, Y, mask="causal"), X) - Y[..., None]).max())
    return [
        Finding("smallest gap of a set and its prefix over 0.9 (2 log n + 3) e^(-2r)", least, "above", 1.0),
        Finding("largest error of a causal network that memorises", error, "below", 0.49),
    ]
