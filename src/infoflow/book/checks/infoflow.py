"""Checks of the InfoFlow paper: networks under attack, counts against loops, trees against brute force."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
import torch

from infoflow.book.entry import Finding, Size, times
from infoflow.book.formulas import repaired_47
from infoflow.book.registry import registry
from infoflow.book.statements.proposition_two import star_rows
from infoflow.certificates.attack import Region, attack
from infoflow.certificates.rules import softmax_gap, worst_scores
from infoflow.construct.builders import build as build_network
from infoflow.construct.codec import codec, heaviside_by_tanh, sizes
from infoflow.flow.counting import (
    attention_count,
    capacity_count,
    cls_capacity,
    counting_exponent,
    mode_cost,
    model_count,
    one_layer_count,
    token_capacity,
)
from infoflow.flow.sets import MaxHead, Slot, set_score, simulate, unpack
from infoflow.flow.trace import trace
from infoflow.refutations.twins import codec_twins
from infoflow.targets.named import min_pair, pairwise_max, sum_of_maxima, triangle_center
from infoflow.targets.target import Target
from infoflow.targets.trees import ComparisonTree, comparison_trees, covers
from infoflow.verdicts.bounds import theorem_5_log_width
from infoflow.verdicts.pigeonhole import STEPS, log_width

CHECKS, checks = registry()
Build = Callable[..., Any]


def attacked(network: Any, target: Target, T: int, size: Size) -> float:
    """The largest error found on the target's box."""
    low, high = (np.full(target.dim, edge) for edge in target.domain)
    return attack(network, target, Region(T, low, high), seconds=0.4 if size == "quick" else 10.0, batch=16).error


def largest_weight(network: Any) -> float:
    """Of all parameters."""
    return max(float(p.abs().max()) for p in network.parameters())


@checks("infoflow.theorem1")
def theorem_1(size: Size, build: Build = build_network, width: Build = log_width) -> list[Finding]:
    """Part 2: built networks under attack. Part 1: the pigeonhole's width against every grid, by exact counting."""
    target = min_pair()
    worst = weight = 0.0
    shapes = set()
    for T, eps in ((4, 0.5), (16, 0.1), (64, 0.02))[: times(size, 2, 3)]:
        network = build(target, T, eps)
        bound = min(network.header["certificate"]["bound"], eps)
        worst, weight = max(worst, attacked(network, target, T, size) / bound), max(weight, largest_weight(network))
        shapes |= {(network.config.heads, max(network.config.head_dims))}
    widths = [sum(build(target, 4, eps).config.widths) for eps in (1e-1, 1e-3)]
    scores = [max(worst_scores(T, 3.0)) - _soft(worst_scores(T, 3.0), 3.0) for T in (2, 16, 1024)]
    sharp = min(score / softmax_gap(T, 3.0) for score, T in zip(scores, (2, 16, 1024), strict=True))
    ours, exact = math.exp(width(0.05, 62, 1, 6, 1e-4)), brute_width(0.05, 62, 1, 6, 1e-4)
    return [
        Finding("attacked error over the certified bound, heads (1, 1), head dimension 6", worst, "at most", 1.0),
        Finding("largest weight", weight, "at most", 1.0),
        Finding("architectures other than heads (1, 1), dimension at most 6", len(shapes - {((1, 1), 6)}), "is", 0),
        Finding("width at eps = 1e-3 over eps = 1e-1 (the theorem allows 100)", widths[1] / widths[0], "at most", 10),
        Finding("how nearly the softmax constant W((T-1)/e)/beta is attained", sharp, "at least", 1 - 1e-9),
        Finding("pigeonhole width over the best of all grids, counted exactly", ours / exact, "at most", 1 + 1e-6),
    ]


def _soft(scores: list[float], beta: float) -> float:
    weights = np.exp(beta * (np.array(scores) - max(scores)))
    return float(weights @ np.array(scores) / weights.sum())


def brute_width(span: float, free: int, H: int, n: int, eps: float) -> float:
    """max over s, m and N of (s - 2) eps c/(4 m E^(5/2)), c the largest integer with (c^n ceil(c/2))^H < N^m."""
    best = 0.0
    for s in STEPS:
        for m in range(1, free + 1):
            N = int(span / (s * eps) / m)
            if N < 2:
                continue
            c = int(N ** (m / (H * (n + 1)))) + 2
            while c > 1 and (c**n * -(-c // 2)) ** H >= N**m:
                c -= 1
            best = max(best, (s - 2) * eps * c / (4 * m * (H * n) ** 2.5))
    return best


@checks("infoflow.theorem2")
def theorem_2(size: Size, build: Build = theorem_5_log_width) -> list[Finding]:
    """(k-1) eps N^(m/(n+1))/(4 m n) with m = T - k + 1, N = floor(1/(16 m eps)): evaluated in integers, and its
    pigeonhole condition, for random sizes."""
    rng = np.random.default_rng(0)
    worst, broken, spoke = 0.0, 0, 0
    for _ in range(times(size, 500, 5000)):
        T, k, n = int(rng.integers(4, 80)), int(rng.integers(2, 5)), int(rng.integers(1, 7))
        eps = float(10.0 ** rng.uniform(-7, -2))
        found = build(T, k, n, eps)
        if not math.isfinite(found):
            continue
        spoke += 1
        m = T - k + 1
        N = int(1 / (16 * m * eps))
        exact = math.log(k - 1) + math.log(eps) + m * math.log(N) / (n + 1) - math.log(4 * m * n)
        worst = max(worst, abs(found - exact))
        broken += not (3 ** (n + 1) * N**m > 4 ** (n + 1) and 64 * m * eps < 1)
    example = math.exp(build(64, 2, 4, 1e-4))
    return [
        Finding("width at T = 64, k = 2, n = 4, eps = 1e-4", example, "at least", 1.04e5),
        Finding("largest distance of log width from its exact value", worst, "at most", 1e-9),
        Finding("cases where the pigeonhole condition fails", broken, "is", 0),
        Finding("cases in which the theorem speaks", spoke, "above", 0),
    ]


@checks("infoflow.theorem3")
def theorem_3(size: Size, build: Build = codec) -> list[Finding]:
    """Step codecs equal the truncation to L bits; tanh codecs keep their L_p bound; sizes grow like eps^-(m/n)."""
    rng = np.random.default_rng(0)
    wrong, worst, smooth = 0, 0.0, 0.0
    for m, n, eps in ((2, 1, 0.25), (3, 2, 0.25), (4, 2, 0.5))[: times(size, 2, 3)]:
        made = build(m, n, eps)
        V = rng.uniform(size=(500, m))
        V[:50] = np.round(V[:50] * 2**made.bits) / 2**made.bits
        wrong += int((made(V) != np.minimum(np.floor(V * 2**made.bits), 2**made.bits - 1) / 2**made.bits).sum())
        worst = max(worst, made.error(np.vstack([V, np.ones((1, m))]), math.inf) / eps)
        continuous = build(m, n, eps, "tanh")
        smooth = max(
            smooth, continuous.error(rng.uniform(size=(4000, m)), 2.0) / min(eps, continuous.certificate.bound)
        )
    asked = np.array([0.5, 0.25, 0.125, 0.0625])
    laws = [(m, n, [sum(sizes(m, n, e)[2:]) for e in asked]) for m, n in ((2, 1), (3, 2), (4, 2))]
    slopes = [abs(float(np.polyfit(np.log(1 / asked), np.log(units), 1)[0]) - m / n) for m, n, units in laws]
    return [
        Finding("outputs of the step codec that differ from the truncation to L bits", wrong, "is", 0),
        Finding("sup error of the step codec over eps", worst, "at most", 1.0),
        Finding("L_2 error of the tanh codec over its bound", smooth, "at most", 1.0),
        Finding("largest distance of the size's slope in 1/eps from m/n", max(slopes), "at most", 0.15),
    ]


@checks("infoflow.theorem3.lower")
def theorem_3_lower(size: Size, build: Build = codec_twins) -> list[Finding]:
    """Borsuk-Ulam, executed on the paper's own smooth codec and on random continuous encoders."""
    latent, least = 0.0, math.inf
    for m, n, eps in ((2, 1, 0.25), (3, 2, 0.5))[: times(size, 1, 2)]:
        made = codec(m, n, eps, "tanh")
        twins = build(made.encode, m, n)
        one, other = (made.encode(V[None])[0] for V in (twins.V, twins.W))
        latent = max(latent, float(np.abs(one - other).max()) / made.encoder.slope)
        least = min(least, max(twins.decoder_errors(made.decode, one)))
    rng = np.random.default_rng(0)
    for _ in range(times(size, 3, 20)):
        A, b, C = rng.normal(size=(3, 12)), rng.normal(size=12), rng.normal(size=(12, 2))
        twins = build(lambda V, A=A, b=b, C=C: np.tanh(V @ A + b) @ C, 3, 2)
        one, other = (np.tanh(V @ A + b) @ C for V in (twins.V, twins.W))
        latent = max(latent, float(np.abs(one - other).max()))
        least = min(least, float(np.abs(twins.V - twins.W).max()) / 2)
    return [
        Finding("least sup error of a decoder on one of the two twins", least, "at least", 0.5 - 1e-9),
        Finding("largest difference of the twins' latents, over the encoder's slope", latent, "at most", 1e-10),
    ]


@checks("infoflow.lemma1")
def lemma_1(size: Size, build: Build = heaviside_by_tanh) -> list[Finding]:
    """L_p distance by quadrature, for densities on [-1, 1/2] and an atom at 0."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(times(size, 40, 300)):
        delta, p = float(rng.uniform(0.02, 0.5)), float(rng.uniform(1, 4))
        density, atom = float(rng.uniform(0.1, 3)), float(rng.choice([0.0, rng.uniform(0, 2)]))
        unit = build(delta, p, 1.5 * density + atom, density, atom)
        near = min(20 / unit.B, 0.5)
        mass = 0.0
        for low, high in ((-1.0, -near), (-near, 0.0), (0.0, near), (near, 0.5)):
            x = low + (high - low) * (np.arange(4000) + 0.5) / 4000
            miss = np.abs((x >= 0) - (unit.A * np.tanh(unit.B * x + unit.C) + unit.D)) ** p
            mass += density * float(miss.mean()) * (high - low)
        mass += atom * (1 - (unit.A * math.tanh(unit.C) + unit.D)) ** p
        worst = max(worst, mass ** (1 / p) / delta)
    return [Finding("largest L_p distance over delta", worst, "below", 1.0)]


def loop_count(
    T: int, heads: tuple[int, ...], tokens: tuple[int, ...], cls: tuple[int, ...], b: int, trees: int
) -> int:
    """(5) position by position and head by head, an empty set counted as 0."""
    total = 0
    for l in range(len(heads) - 1):
        for _ in range(T):
            total += trees * max(0, tokens[l] ** b - 1) + sum(T - 1 for _ in range(heads[l]))
    for l in range(len(heads)):
        total += trees * max(0, cls[l] ** b - 1) + sum(T - 1 for _ in range(heads[l]))
    return total


@checks("infoflow.equation5")
def equation_5(size: Size, build: Build = model_count) -> list[Finding]:
    """The capacity formula against a brute count of drawn models."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(times(size, 300, 3000)):
        T, b, trees = int(rng.integers(1, 13)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
        heads = tuple(int(h) for h in rng.integers(1, 5, size=int(rng.integers(1, 5))))
        tokens, cls = token_capacity(heads, T), cls_capacity(heads, T)
        wrong += build(T, heads, tokens, cls, b, trees) != loop_count(T, heads, tokens, cls, b, trees)
    return [
        Finding("counts that differ from the loop over positions and heads", wrong, "is", 0),
        Finding(
            "comparisons of one head with global aggregation and D = 4 trees, T = 64",
            build(64, (1,), (), (64,), 1, 4),
            "at least",
            240,
        ),
    ]


@checks("infoflow.equation47")
def equation_47(size: Size, build: Build = repaired_47) -> list[Finding]:
    """The repaired bound is never below the count."""
    above, unequal = 0, 0
    for T, h1, h2 in product(range(1, times(size, 40, 120)), range(1, 6), range(1, 6)):
        count, bound = capacity_count(T, (h1, h2), 2), build(T, h1, h2)
        above += count > bound
        unequal += (h1 + 1) * (h2 + 1) - 1 <= T and count != bound
    return [
        Finding("cases in which the count exceeds the repaired bound", above, "is", 0),
        Finding("cases with room for the sets in which it does not equal it", unequal, "is", 0),
    ]


def least_heads(required: int, T: int) -> int:
    """The fewest heads in both layers whose capacity reaches what is required."""
    return next(h for h in range(1, 20) if capacity_count(T, (h, h), 2) >= required)


@checks("infoflow.proposition1")
def proposition_1(size: Size, build: Build = build_network) -> list[Finding]:
    """(D, D) heads: sets that contain the active set, and a network under attack; what counting alone gives."""
    D, T = 2, times(size, 8, 16)
    target = pairwise_max(D=D, d=2, seed=0)
    missed = 0
    for X in target.sample(times(size, 20, 200), T, seed=0):
        flow = trace(target, f"heads={D},{D}", X)
        missed += not set((np.flatnonzero(flow.active) + 1).tolist()) <= set(flow.members(T + 1, 2))
    network = build(target, T, 0.2)
    error = attacked(network, target, T, size)
    counts = [least_heads(required, 64) for required in (4 * (64**2 - 1), 4 * (comb(64, 2) - 1), comb(64, 2) - 8)]
    return [
        Finding(
            f"attacked error of the built network over its bound, heads {network.config.heads}",
            error / network.header["certificate"]["bound"],
            "at most",
            1.0,
        ),
        Finding("heads in layer 1 of the built network (D = 2)", network.config.heads[0], "is", D),
        Finding("inputs whose active set is not in the CLS set of heads (D, D)", missed, "is", 0),
        Finding("smallest (h, h) by counting, D = 4, ordered pairs", counts[0], "is", 4),
        Finding("the same with the best unordered trees", counts[1], "is", 2),
        Finding("the same with the proved lower bound", counts[2], "is", 1),
    ]


@checks("infoflow.proposition2")
def proposition_2(size: Size, build: Build = build_network) -> list[Finding]:
    """The star of three tokens: one width for all T and a proved error, where the count demands growing sets."""
    lengths = (8, 64, 128)[: times(size, 2, 3)]
    rows = star_rows(0.05, lengths, seconds=0.4 if size == "quick" else 10.0, build=build)
    last = rows[-1]
    return [
        Finding("attacked error over the certified bound", max(r.attacked / r.bound for r in rows), "at most", 1.0),
        Finding("largest certified bound (asked: 0.05)", max(r.bound for r in rows), "at most", 0.05),
        Finding(f"different shapes over T in {lengths}", len({(r.heads, r.widths) for r in rows}), "is", 1),
        Finding(f"set size the count demands at T = {last.T}, and heads reach", last.demanded, "above", last.reachable),
    ]


@checks("infoflow.triangle")
def triangle(size: Size, build: Build = build_network) -> list[Finding]:
    """One occupancy network for every T; and where the exact counting exponent turns positive."""
    target = triangle_center(1)
    network = build(target, 1024, 0.5, weight_bound=None)
    bound = min(network.certificate.bound, 0.5)
    rng = np.random.default_rng(0)
    worst = 0.0
    for T, batch in ((3, 20), (64, 4), (256, 2))[: times(size, 2, 3)]:
        for X in (rng.uniform(-1, 1, (batch, T, 1)), rng.choice([-1.0, 1.0], size=(batch, T, 1))):
            with torch.no_grad():
                error = np.abs(network(torch.from_numpy(X)).numpy() - target(X))
            worst = max(worst, float(error.max()) / bound)

    def first(count: Callable[[int], int]) -> int:
        return next(T for T in range(4, 400) if (counting_exponent(count(T), T, 2, (2, 2), (24, 24), 3) or 0) > 0)

    return [
        Finding("error of one network of 41 heads over its bound, all T", worst, "at most", 1.0),
        Finding("heads of the network", len(network.grid.centres), "is", 41),
        Finding(
            "first T with a positive exponent, heads (2, 2), E = 24, proved count",
            first(lambda T: comb(T, 3) - 3),
            "is",
            111,
        ),
        Finding("the same with ordered triples", first(lambda T: T**3 - 1), "is", 44),
    ]


def leaves_total(trees: tuple[ComparisonTree, ...]) -> int:
    """Comparisons of all trees together."""
    return sum(tree.size - 1 for tree in trees)


@checks("infoflow.appendixD.retrieval")
def retrieval_count(size: Size, build: Build = comparison_trees) -> list[Finding]:
    """D trees of T leaves find the winners; with D positions left out of one tree, winners placed there are missed."""
    D, T = 3, times(size, 8, 16)
    target = sum_of_maxima(D=D, d=4, seed=0)
    trees = build(target, T)
    X = target.sample(times(size, 30, 500), T, seed=0)
    missed = sum(not covers(trees, target, x) for x in X)
    kept = ComparisonTree.balanced([(t,) for t in range(T - D)], trees[0].functions[0])
    slipped = 0
    for x in X:
        flat = x * 1e-3  # all winners at the last D positions: far out along each direction
        flat[T - D :] = [10 * np.linalg.pinv(_directions(target))[:, i] for i in range(D)]
        slipped += covers((kept, *trees[1:]), target, flat)
    return [
        Finding("inputs on which the trees miss an active token", missed, "is", 0),
        Finding("comparisons, D(T-1)", leaves_total(trees), "is", D * (T - 1)),
        Finding("inputs that a tree without D positions still covers", slipped, "is", 0),
    ]


def _directions(target: Target) -> np.ndarray:
    return np.array([term.score.gradient(np.zeros((1, target.dim)))[0] for term in target.terms])  # type: ignore[union-attr]


@checks("infoflow.appendixD.triples")
def triple_count(size: Size, build: Build = comparison_trees) -> list[Finding]:
    """Ordered and unordered trees find the best triple; a tree without one triple misses it where it wins."""
    T = times(size, 6, 8)
    target = triangle_center(2)
    rng = np.random.default_rng(0)
    ordered, unordered = build(target, T), build(target, T, "unordered_distinct")
    X = rng.uniform(-1, 1, (times(size, 30, 100), T, 2))
    missed = sum(not covers(trees, target, x) for x in X for trees in (ordered, unordered))
    slipped = 0
    for triple in combinations(range(T), 3):
        rest = [leaf for leaf in unordered[0].leaves if leaf != triple]
        x = rng.uniform(0.5, 1, (T, 2))  # far from 0 in every sum but one
        x[list(triple)] = [[0.6, 0.1], [-0.5, 0.5], [-0.1, -0.6 + 1e-3]]
        slipped += covers((ComparisonTree.balanced(rest, unordered[0].functions[0]),), target, x)
    return [
        Finding("inputs on which a tree misses the best triple", missed, "is", 0),
        Finding("comparisons of the ordered tree, T^3 - 1", leaves_total(ordered), "is", T**3 - 1),
        Finding("comparisons of the unordered tree, C(T, 3) - 1", leaves_total(unordered), "is", comb(T, 3) - 1),
        Finding("triples that can be left out of the unordered tree", slipped, "is", 0),
    ]


EXAMPLE = np.array([[0, -1], [0.7, 0.7], [0, 1], [-0.2, -0.9]])


def example_flow(sign: float, run: Build = simulate) -> tuple[list[int], list[list[int]], list[int]]:
    """Appendix E: (winners of layer 1, sets behind it, CLS set), with scores `sign` times the printed ones."""
    first = set_score(lambda t, It, s, Is, X: sign * min(X[a] @ X[b] for a in It for b in Is) if It else 0.0)
    second = set_score(lambda t, It, s, Is, X: sign * min(X[a] @ X[b] for a in Is for b in Is))
    steps = run(EXAMPLE, [[Slot(MaxHead(first), None)], [Slot(None, MaxHead(second))]])
    sets = [[p + 1 for p in unpack(row)] for row in steps[1].sets[:4]]
    return [int(w) + 1 for w in steps[1].winners[:4, 0]], sets, [p + 1 for p in unpack(steps[2].sets[4])]


@checks("infoflow.appendixE")
def appendix_e(size: Size, build: Build = simulate) -> list[Finding]:
    """(65) to (67) with the sign turned, the active set by brute force."""
    winners, sets, read = example_flow(-1.0, build)
    best = min(product(range(4), repeat=2), key=lambda pair: float(EXAMPLE[pair[0]] @ EXAMPLE[pair[1]]))
    return [
        Finding("positions of the active set that the CLS set misses", len({p + 1 for p in best} - set(read)), "is", 0),
        Finding(
            "argmax positions that differ from (65)",
            sum(a != b for a, b in zip(winners, [3, 4, 1, 3], strict=True)),
            "is",
            0,
        ),
        Finding(
            "sets that differ from (66)",
            sum(a != b for a, b in zip(sets, [[1, 3], [2, 4], [1, 3], [3, 4]], strict=True)),
            "is",
            0,
        ),
    ]


@checks("infoflow.costlaw")
def cost_law(size: Size, build: Build = mode_cost, network: Build = build_network) -> list[Finding]:
    """The exponents of the three modes, and a compiled network that pays far less than they say."""
    wrong = 0
    for T, d, E, held, positions in product((4, 64), (1, 3), (2, 24), (1, 5), (1, 3)):
        modes = [
            (build("max", T, d, E, size=held), held),
            (build("global", T, d, E), T),
            (build("specific", T, d, E, positions=positions, source=held), positions * held),
        ]
        wrong += sum(found != max(Fraction(0), Fraction(tokens * d, E) - 1) for found, tokens in modes)
    target = pairwise_max(D=1, d=3, seed=0)
    networks = [network(target, 8, eps) for eps in (1e-1, 1e-3)]
    widths = [sum(each.config.widths) for each in networks]
    return [
        Finding("exponents that differ from |I| d/E - 1, T d/E - 1, |I'| max|I| d/E - 1", wrong, "is", 0),
        Finding("embedding of layer 2 of that network", networks[0].config.embed[1], "is", 2),
        Finding(
            "growth of a compiled width from eps = 0.1 to 0.001 (the law at E_2 = 2: 10,000)",
            widths[1] / widths[0],
            "below",
            100,
        ),
    ]


@checks("infoflow.section6")
def section_6(size: Size, build: Build = one_layer_count) -> list[Finding]:
    """One layer, dimension 1: s T - 1 comparisons; that forces s >= D exactly from T = D^2 on."""
    wrong = forced = 0
    for s, T in product(range(1, 12), range(12, times(size, 40, 200))):
        wrong += build(s, T) != s - 1 + attention_count((s,), T)
    for D, T in product(range(2, 8), range(8, times(size, 80, 300))):
        forced += (build(D - 1, T) < D * (T - D)) != (T >= D * D)
    return [
        Finding("counts that differ from s - 1 inside the set and s (T - 1) in attention", wrong, "is", 0),
        Finding("(D, T) where D - 1 heads are excluded other than for T >= D^2", forced, "is", 0),
    ]
