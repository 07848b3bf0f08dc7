"""Checks of the head-count slides: the dense class, the transition at D heads, and the head that remembers."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import torch

from infoflow.architecture import Architecture
from infoflow.book.checks.infoflow import attacked, brute_width
from infoflow.book.density import dense_retrieval
from infoflow.book.entry import Finding, Size, times
from infoflow.book.formulas import corollary_1_margin
from infoflow.book.registry import registry
from infoflow.construct.builders import build as build_network
from infoflow.construct.single_heads import memory_head
from infoflow.targets.named import d_retrieval, separated_points
from infoflow.verdicts.bounds import head_count
from infoflow.verdicts.intrinsic import intrinsic

CHECKS, checks = registry()
Build = Callable[..., Any]


def ordered_wave(X: np.ndarray) -> np.ndarray:
    """Depends on the order; Lipschitz constant at most 1 in the largest change of a coordinate."""
    weights = np.arange(1, X.shape[1] + 1) / np.arange(1, X.shape[1] + 1).sum()
    made: np.ndarray = np.sin(X[..., 0] @ weights)
    return made


def middle_token(X: np.ndarray) -> np.ndarray:
    """The median of the first coordinates: no order, but repeats count; Lipschitz constant 1."""
    made: np.ndarray = np.median(X[..., 0], 1)
    return made


@checks("heads.density")
def density(size: Size, build: Build = dense_retrieval) -> list[Finding]:
    """A function of the order and one that no permutation changes, approximated by retrieval targets; tokens that
    coincide are the hard inputs."""
    worst, errors = 0.0, []
    rng = np.random.default_rng(0)
    for T, g in ((5, 3), (5, 6), (6, 4))[: times(size, 2, 3)]:
        made = build(ordered_wave, T, 1, 4.5 / g, 1.0)
        X = _two_values(rng, times(size, 60, 400), T)
        error = float(np.abs(made(X) - ordered_wave(X)).max())
        worst = max(worst, error / made.eps)
        errors.append(error)
    eps, T = 0.75, 5
    same = build(middle_token, T, 1, eps, 1.0)
    X = _two_values(rng, times(size, 60, 400), T)
    found = same(X)
    return [
        Finding("largest error over eps", worst, "at most", 1.0),
        Finding("error with eps = 0.75 over that with eps = 1.5", errors[1] / errors[0], "at most", 0.75),
        Finding("smallest set over T/4", min(len(s) for s in made.sets) / (made.T / 4), "at least", 1.0),
        Finding(
            f"median of {T} tokens, D = {same.dimension}: error over eps",
            float(np.abs(found - middle_token(X)).max()) / eps,
            "at most",
            1.0,
        ),
        Finding(
            "median: largest change under a permutation",
            float(np.abs(same(X[:60, rng.permutation(T)]) - found[:60]).max()),
            "at most",
            1e-12,
        ),
    ]


def _two_values(rng: np.random.Generator, count: int, T: int) -> np.ndarray:
    """Sequences in [0, 1]; every second one has two values only."""
    X = rng.random((count, T, 1))
    X[::2] = rng.random((len(X[::2]), 2, 1))[:, rng.integers(0, 2, size=T)]
    return X


@checks("heads.corollary1")
def corollary_1(
    size: Size,
    build: Build = corollary_1_margin,
    cost: Build = intrinsic,
    network: Build = build_network,
    bound: Build = head_count,
) -> list[Finding]:
    """The exponent that a second representation would force, at the shortest T the corollary admits and n = 2; and
    what `intrinsic` says of heads and cost against networks that are built and against the proved lower bound."""
    most = times(size, 20, 100)
    least = min((build(D1, D2, 2), D1, D2) for D1, D2 in combinations(range(1, most), 2))
    T, far, rates, others = 256, 0.0, [], 0
    for D in range(1, times(size, 3, 4)):
        target, said = d_retrieval(D=D, d=2, seed=0), cost(D, T)
        built = [network(target, T, eps) for eps in (0.2, 0.2 / 16)]
        others += sum(made.config.heads != (said.heads,) for made in built)
        few, many = (sum(int((weights != 0).sum()) for weights in made.parameters()) for made in built)
        rates.append(math.log(many / few) / math.log(16) / said.exponent(said.heads))
        for h in range(1, D):
            proved = bound(target, Architecture(heads=(h,), embed=(2 * h,)), T, 1e-4, 1.0).exponent
            far = max(far, abs(float(proved - said.exponent(h))))
    return [
        Finding(f"smallest exponent k, at D = ({least[1]}, {least[2]}), n = 2", float(least[0]), "at least", 14),
        Finding("built networks with other than the D heads of `intrinsic`", others, "is", 0),
        Finding("measured exponent of their parameters over gamma = 1", max(rates), "at most", 1.0),
        Finding("exponent with fewer heads against the proved one, T = 256", far, "is", 0),
    ]


@checks("heads.transition")
def transition(size: Size, build: Build = build_network) -> list[Finding]:
    """h = D heads of dimension 1 in one layer, under attack; the width does not see T."""
    worst, widths, shapes = 0.0, set(), set()
    target = d_retrieval(D=2, d=2, seed=0)
    for T in (8, 64):
        network = build(target, T, 0.05)
        worst = max(worst, attacked(network, target, T, size) / network.header["certificate"]["bound"])
        widths |= {network.config.widths}
        shapes |= {(network.config.heads, network.config.head_dims)}
    return [
        Finding("attacked error over the certified bound, D = 2 heads", worst, "at most", 1.0),
        Finding("different widths over T in (8, 64)", len(widths), "is", 1),
        Finding("shapes other than 2 heads of dimension 1", len(shapes - {((2,), (1,))}), "is", 0),
    ]


@checks("heads.transition.lower")
def transition_lower(size: Size, build: Build = head_count) -> list[Finding]:
    """The exponent by its formula; the width that a one-head layer needs against the best of all grids, counted
    exactly: the target moves by |x - z_i|^2/d up to half the least distance of the minimisers."""
    wrong, low, high = 0, math.inf, 0.0
    for D, T, n, eps in ((2, 64, 1, 1e-4), (4, 64, 1, 1e-5), (4, 128, 2, 1e-6), (3, 256, 1, 1e-4))[: times(size, 2, 4)]:
        found = build(d_retrieval(D=D, d=2, seed=0), Architecture(heads=(1,), embed=(n,)), T, eps, 1.0)
        wrong += found.exponent != (Fraction(T, 4) - 1 - D + 1) / ((n + 1) + 1) - 1
        points = separated_points(D, 2, 0)
        reach = min(min(float(np.linalg.norm(x - y)) for x, y in combinations(points, 2)), 1.0) / 2
        ratio = (found.width_at_eps or 0.0) / brute_width(reach**2 / 2, T - 1 - (D - 1), 1, n, eps)
        low, high = min(low, ratio), max(high, ratio)
    return [
        Finding("exponents that differ from (T/4 - h - D + 1)/((n+1)h + 1) - 1", wrong, "is", 0),
        Finding("proved width over the best of all grids, at most", high, "at most", 1 + 1e-6),
        Finding("proved width over the best of all grids, at least", low, "at least", 0.5),
    ]


@checks("heads.single")
def single(size: Size, build: Build = memory_head) -> list[Finding]:
    """The CLS state gives every token back, and the five-layer ReLU read-out stays within its bound."""
    target = d_retrieval(D=2, d=1, seed=0)
    generator = torch.Generator().manual_seed(0)
    lost, worst, sizes = 0.0, 0.0, []
    for eps in (0.2, 0.05, 0.02)[: times(size, 2, 3)]:
        head = build(target, 8, eps)
        X = torch.rand(times(size, 500, 4000), 8, 1, generator=generator, dtype=torch.float64)
        X[::2] = X[::2, :1] + 0.03 * (X[::2] - 0.5)
        X = X.clamp(0, 1)
        lost = max(lost, float((head.recall(head.remember(X)) - X).abs().max()))
        worst = max(worst, float((head(X) - target(X)).abs().max()) / min(head.bound, eps))
        sizes.append(head.parameters_bottleneck / head.parameters_merged)
    return [
        Finding("largest error of the read-out over its bound", worst, "at most", 1.0),
        Finding("largest error of a token read back from the state", lost, "at most", 1e-14),
        Finding("parameters with a linear bottleneck over those without", max(sizes), "below", 1.0),
    ]
