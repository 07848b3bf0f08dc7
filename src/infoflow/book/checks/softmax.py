"""Checks of the softmax-attention paper: constructions through their explicit matrices, against exact functions."""

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.book.entry import Finding, Size, times
from infoflow.book.registry import registry
from infoflow.book.statements.counts import counted, formula, head_formula
from infoflow.book.statements.exact_products import exact_product
from infoflow.book.statements.relu_attention import relu_attention
from infoflow.book.statements.ridge_fit import fit_ridge_relu
from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.attacks import probes_of_interval
from infoflow.construct.softmax_attention.bumps import ReluBumps, centres
from infoflow.construct.softmax_attention.descent import in_context_gd
from infoflow.construct.softmax_attention.descent_layer import explicit_rounding, explicit_step, state
from infoflow.construct.softmax_attention.expression import parse
from infoflow.construct.softmax_attention.grid import grid_approximator
from infoflow.construct.softmax_attention.in_context import in_context_truncated_linear
from infoflow.construct.softmax_attention.lemma_f1 import beta_pair, beta_unique
from infoflow.construct.softmax_attention.multi_head import multi_head_truncated_linear
from infoflow.construct.softmax_attention.relu_networks import two_layer_attention
from infoflow.construct.softmax_attention.summed_range import summed_range
from infoflow.construct.softmax_attention.trajectory import DescentProblem, exact_descent
from infoflow.construct.softmax_attention.truncated_linear import (
    clipped_relu,
    hard_tanh,
    on_anchors,
    relu,
    truncated_linear,
)

CHECKS, checks = registry()
F64 = torch.float64
Build = Callable[..., Any]


def uniform(seed: int, *shape: int) -> Tensor:
    """In [-1, 1]."""
    return 2 * torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64) - 1


def normal(seed: int, *shape: int) -> Tensor:
    """Normal numbers of a seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def largest(values: Tensor) -> float:
    """The largest absolute value; NaN counts as infinite."""
    return float(torch.nan_to_num(values.abs(), nan=math.inf).max())


@checks("softmax.F.1")
def lemma_f1(size: Size, build: Build = beta_unique, pair: Build = beta_pair) -> list[Finding]:
    """Softmax by direct evaluation on random scores and on those that attain the bound: all runners-up tied."""
    rng = np.random.default_rng(0)
    worst = {"unique": 0.0, "pair": 0.0, "l1": 0.0}
    for trial in range(times(size, 1000, 20_000)):
        n, eps = int(rng.integers(3, 60)), 10.0 ** rng.uniform(-6, -0.4)
        rest = -rng.exponential(size=n - 1) if trial % 2 else np.zeros(n - 1)
        scores = np.r_[rest.max() + rng.uniform(0.01, 3), rest]
        found = _softmax(build(scores[0] - rest.max(), n, eps) * scores)
        distance = np.abs(found - np.eye(n)[0])
        worst["unique"], worst["l1"] = (
            max(worst["unique"], distance.max() / eps),
            max(worst["l1"], distance.sum() / eps),
        )
        delta = float(rng.choice([0.0, 0.3, 2.0]))
        scores = np.r_[rest.max() + 1 + delta, rest.max() + 1, rest]
        beta = pair(1 + delta, n + 1, eps)
        first = 1 / (1 + math.exp(-beta * delta))
        expected = np.r_[first, 1 - first, np.zeros(n - 1)]
        worst["pair"] = max(worst["pair"], np.abs(_softmax(beta * scores) - expected).max() / eps)
    return [
        Finding("largest error over eps, one leader", worst["unique"], "at most", 1 + 1e-9),
        Finding("largest error over eps, two leaders", worst["pair"], "at most", 1 + 1e-9),
        Finding("largest l1 error over eps, one leader", worst["l1"], "at most", 2 + 1e-9),
        Finding("how nearly the bound is attained", worst["unique"], "at least", 0.99),
    ]


def _softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    result: np.ndarray = weights / weights.sum()
    return result


def through_matrices(head: Any, z: Tensor, d: int = 1) -> Tensor:
    """The head's explicit matrices at the pre-activations z, token by token in blocks of n."""
    n = head.n
    blocks = torch.cat([z, z[:1].expand(-len(z) % n)]).reshape(-1, 1, n)
    made: Tensor = head.explicit(blocks).reshape(-1)[: len(z)]
    return made


@checks("softmax.3.4")
def theorem_3_4(size: Size, build: Build = on_anchors) -> list[Finding]:
    """Random intervals, grids and temperatures, at anchors, midpoints, ends and outside, through W_K, W_Q, W_V, W_O."""
    rng = random.Random(0)
    worst = printed = 0.0
    for trial in range(times(size, 60, 1000)):
        a = rng.uniform(-5, 5) * 10 ** rng.uniform(-2, 3)
        b = a + 10 ** rng.uniform(-2, 3)
        p, eps0 = rng.choice([4, 5, 8, 17, 40]), 10 ** rng.uniform(-6, math.log10(0.5))
        head = build([1.0], 0.0, Anchors(a, b, p, ("paper", "closed", "midpoint")[trial % 3]), eps0, n=4)
        z = probes_of_interval(head.anchors.first, head.anchors.spacing, p, a, b)
        z = z[(z - a).abs() <= 2 * (b - a)]
        error = largest(through_matrices(head, z) - z.clamp(a, b))
        worst = max(worst, error / (head.certificate.bound + head.explicit_rounding))
        if trial % 3 == 0:  # the paper's own grid
            printed = max(printed, error / ((b - a) / p + max(abs(a), abs(b)) * eps0 + head.explicit_rounding))
    w, t = normal(1, 4, 3), normal(2, 4)
    head = build(w, t, Anchors(-1.0, 2.0, 50), 1e-3, n=4)
    X = normal(3, 50, 3, 4)
    own = largest(head.explicit(X) - head.target(X)) / head.certificate.bound
    return [
        Finding("largest error over the bound dL + (b-a) eps0", worst, "at most", 1.0),
        Finding("largest error over the printed bound dL + M eps0, the paper's grid", printed, "at most", 1.0),
        Finding("largest error over the bound, weights per token", own, "at most", 1.0),
    ]


@checks("softmax.G.6")
def corollary_g6(size: Size, build: Build = truncated_linear) -> list[Finding]:
    """p from the corollary's formula and the error it was asked for."""
    worst, wrong = 0.0, 0
    for eps in (0.1, 0.05, 0.02)[: times(size, 2, 3)]:
        head = build([1.0], 0.0, -1.0, 2.0, eps, n=4)
        wrong += head.anchors.p != max(5, 3, math.ceil(2 * 3 / eps))
        z = probes_of_interval(head.anchors.first, head.anchors.spacing, head.anchors.p, -1.0, 2.0)
        z = z[(z > -4) & (z < 5)]
        worst = max(worst, largest(through_matrices(head, z) - z.clamp(-1, 2)) / eps)
    return [
        Finding("largest error over eps", worst, "at most", 1.0),
        Finding("choices of p that differ from max(n+1, 3, 2(b-a)/eps)", wrong, "is", 0),
    ]


def multi_head_error(build: Build, a: float, b: float, n: int, H: int, eps0: float) -> tuple[float, float]:
    """(largest error, bound) through the explicit heads, at anchors, head boundaries, midpoints and outside."""
    net = build([1.0], 0.0, a, b, n=n, H=H, eps0=eps0)
    z = probes_of_interval(a, net.spacing, net.p, a, b)
    z = z[(z - a).abs() <= 2 * (b - a)]
    return largest(through_matrices(net, z) - z.clamp(a, b)), net.certificate.bound + net.explicit_rounding


@checks("softmax.3.9")
def theorem_3_9(size: Size, build: Build = multi_head_truncated_linear) -> list[Finding]:
    """Heads that share the anchors, on intervals with and without 0, and gated heads with weights per token."""
    worst = 0.0
    for n, H in ((3, 1), (4, 3), (7, 5), (6, 16))[: times(size, 3, 4)]:
        for a, b in ((1.0, 2.0), (-3.0, 1.0), (-2.0, -1.0)):
            for eps0 in (0.5, 1e-3):
                error, bound = multi_head_error(build, a, b, n, H, eps0)
                worst = max(worst, error / bound)
    net = build(normal(0, 5, 3), normal(1, 5), -1.0, 1.0, n=5, H=4, radius=3.0)
    X = 3 * uniform(2, 100, 3, 5)
    gated = largest(net.explicit(X) - net.target(X)) / net.certificate.bound
    return [
        Finding("largest error over the bound dL/2 + M eps0", worst, "at most", 1.0),
        Finding("the same with weights per token and n H gated heads", gated, "at most", 1.0),
    ]


@checks("softmax.3.10")
def corollary_3_10(size: Size, build: Build = multi_head_truncated_linear) -> list[Finding]:
    """Error against the number of heads: halves when H doubles."""
    heads = [2, 4, 8, 16, 32][: times(size, 4, 5)]
    errors = [multi_head_error(build, 0.0, 2.0, 6, H, 0.01)[0] for H in heads]
    slope = float(np.polyfit(np.log(heads), np.log(errors), 1)[0])
    return [Finding("distance of the slope of log error in log H from -1", abs(slope + 1), "at most", 0.1)]


@checks("softmax.G.14")
def lemma_g14(size: Size, build: Build = summed_range) -> list[Finding]:
    """Random cases through the explicit head; the other columns are exactly 0."""
    rng = random.Random(0)
    worst = other = 0.0
    for case in range(times(size, 100, 600)):
        d, n = rng.randint(1, 3), rng.randint(1, 4)
        a = rng.uniform(-3, 3)
        b = a + 10 ** rng.uniform(-1, 1)
        w, t = normal(case, d), normal(case + 1, n)
        anchors = Anchors(a, b, rng.choice([3, 4, 8, 30]) + n)
        head = build(w, t, anchors, eps0=10 ** rng.uniform(-5, -0.4), n_out=3, column=1)
        X = normal(case + 2, 10, d, n) * (b - a) / 2
        out = head.explicit(X)
        expected = (w @ X + t).clamp(a, b).sum(-1)
        worst = max(worst, largest(out[:, 0, 1] - expected) / (head.certificate.bound + head.explicit_rounding))
        other = max(other, largest(out[:, 0, [0, 2]]))
    return [
        Finding("largest error over n (dL + (b-a) eps0)", worst, "at most", 1.0),
        Finding("largest entry of the other columns", other, "is", 0.0),
    ]


def wave(x: Tensor) -> Tensor:
    """On [-1, 1]^2 its modulus of continuity is at most 4 h in the sup norm, and it stays within 2."""
    return torch.sin(2 * x[..., 0]) + x[..., 0] * x[..., 1]


@checks("softmax.3.11")
def lemma_3_11(size: Size, build: Build = ReluBumps) -> list[Finding]:
    """The two-hidden-layer ReLU network, weight by weight, in L_1, L_2 and L_4."""
    x = uniform(0, times(size, 2000, 20_000), 2)
    worst, errors = 0.0, []
    for g in (4, 8, 16, 32)[: times(size, 3, 4)]:
        net = build(wave, 2, g, 0.02)
        gap = (net.explicit(x) - wave(x)).abs()
        for p in (1.0, 2.0, 4.0):
            worst = max(worst, float((4 * gap.pow(p).mean()) ** (1 / p)) / net.bound(4 / g, 2.0, p))
        errors.append(float((4 * gap.square().mean()).sqrt()))
    return [
        Finding("largest L_p error over the bound", worst, "at most", 1.0),
        Finding("L_2 error at the finest grid over the coarsest", errors[-1] / errors[0], "below", 0.6),
    ]


SCALAR = parse("sin(2*x11)+x11*x12", 1, 2)


def sequence(X: Tensor) -> Tensor:
    """A 2 x 2 function with Lipschitz constant 3 in the sup norm."""
    return torch.stack([X[:, 0] * X[:, 1], torch.sin(X[:, 0] + 2 * X[:, 1])], 1)


def grid_findings(size: Size, build: Build, variant: str, scalar: bool) -> list[Finding]:
    """L2 distance against the Minkowski bound, and the largest error off the shells, through explicit matrices."""
    worst = core = read = 0.0
    for g in (2, 4, 8)[: times(size, 2, 3)] if scalar else (2, 3)[: times(size, 1, 2)]:
        net = build(SCALAR, 1, 2, g, variant) if scalar else build(sequence, 2, 2, g, variant, lipschitz=3.0)
        X = net.sample(times(size, 600, 3000) if scalar else times(size, 200, 400), 0)
        exact = net.f(X)
        out = net.explicit(X)
        gap = (out - exact).abs().reshape(len(X), -1).amax(1)
        worst = max(worst, math.sqrt(net.volume) * float(gap.square().mean().sqrt()) / net.certificate.bound)
        inside = (((X * g + g) % 2 - 1).abs() <= 1 - net.delta).reshape(len(X), -1).all(1)
        core = max(core, largest(gap[inside]) / net.core_bound)
        cell = net.f(centres(1.0, g)[((X + 1) * g / 2).floor().clamp(0, g - 1).long()])
        read = max(read, largest((out - cell)[inside]) / (net.modulus.oscillation * net.eps1))
    return [
        Finding("L2 error over the bound", worst, "at most", 1.0),
        Finding("largest error off the shells over omega(B/g) + osc eps1", core, "at most", 1.0),
        Finding("distance from f at the centre of the cell, off the shells, over osc eps1", read, "at most", 1.0),
    ]


@checks("softmax.3.12")
def lemma_3_12(size: Size, build: Build = grid_approximator) -> list[Finding]:
    """Scalar functions by two layers."""
    return grid_findings(size, build, "two-layer", scalar=True)


@checks("softmax.3.13")
def lemma_3_13(size: Size, build: Build = grid_approximator) -> list[Finding]:
    """Scalar functions by one layer and a softmax."""
    return grid_findings(size, build, "one-layer-softmax", scalar=True)


@checks("softmax.3.14")
def theorem_3_14(size: Size, build: Build = grid_approximator) -> list[Finding]:
    """Sequence functions by two layers."""
    return grid_findings(size, build, "two-layer", scalar=False)


@checks("softmax.3.15")
def corollary_3_15(size: Size, build: Build = grid_approximator) -> list[Finding]:
    """Sequence functions by one layer and a softmax."""
    return grid_findings(size, build, "one-layer-softmax", scalar=False)


@checks("softmax.E.1")
def remark_e1(size: Size, build: Build = grid_approximator) -> list[Finding]:
    """Heads, entries and non-zeros of built networks against the formulas; 2dg + dn heads give the paper's output."""
    wrong = 0
    for d, n, g in ((1, 2, 3), (2, 1, 5), (2, 2, 3))[: times(size, 2, 3)]:
        for paper in (False, True):
            net = build(parse("x11", d, n), d, n, g, paper_heads=paper)
            wrong += counted(net) != formula(d, n, g, net.p, paper)
            wrong += net.heads["built"] != head_formula(d, n, g, 1)["paper" if paper else "factored"]
    few, many = (build(sequence, 2, 2, 2, paper_heads=paper) for paper in (False, True))
    X = few.sample(20, 1)
    return [
        Finding("counts that differ from their formulas", wrong, "is", 0),
        Finding(
            "difference of outputs, 2dg heads against 2d g^(dn)",
            largest(few.explicit(X) - many.explicit(X)),
            "at most",
            1e-12,
        ),
        Finding("heads of layer 1, d = n = g = 2 (the paper's: 64)", len(few.first_layer()), "is", 8),
    ]


@checks("softmax.F.2")
def theorem_f2(size: Size, build: Build = two_layer_attention) -> list[Finding]:
    """Two targets, a certified ridge fit, two attention layers by explicit matrices: error against both bounds."""
    targets = [parse("x11*x12", 1, 2), parse("sin(x11+2*x12)", 1, 2)]
    X = uniform(0, times(size, 6, 20), 1, 2)
    wanted = torch.stack([torch.from_numpy(f(X.numpy())) for f in targets], 1)[:, None]
    worst, errors = 0.0, []
    for J, knots, p in ((4, 8, 60), (4, 8, 300), (8, 16, 400))[: times(size, 2, 3)]:
        network, certified = fit_ridge_relu(targets, J=J, knots=knots, grid=201)
        net = build(network, p1=p, p2=max(p, network.neurons), shape=(1, 2))
        error = largest(net.explicit(X) - wanted)
        worst = max(worst, error / (certified + net.certificate.bound + net.explicit_rounding))
        errors.append(error)
    return [
        Finding("largest error over eps_relu + |eta|_1 (eps2 + n eps1)", worst, "at most", 1.0),
        Finding("error with 300 anchors over that with 60", errors[1] / errors[0], "below", 0.7),
    ]


@checks("softmax.D.1")
def theorem_d1(size: Size, build: Build = in_context_truncated_linear) -> list[Finding]:
    """One head for every w and t that come with the input."""
    findings = []
    for bias in ("shared", "token"):
        net = build(3, 5, Anchors(-1.0, 1.0, 40), eps0=1e-3, bias=bias)
        X = normal(0, times(size, 100, 1000), 7, 5)
        X[:, 3:6] = X[:, 3:6, :1]
        if bias == "shared":
            X[:, 6] = X[:, 6, :1]
        z = (X[:, :3] * X[:, 3:6, :1]).sum(1) + X[:, 6]
        error = largest(net.explicit(X) - z.clamp(-1, 1))
        findings.append(Finding(f"largest error, {bias} bias, p = 40", error, "at most", net.certificate.bound + 1e-9))
    return findings


def problem(name: str, d: int = 3, n: int = 20) -> DescentProblem:
    """A small regression, or classification for the logistic loss."""
    x = normal(0, d, n) / d**0.5
    y = normal(1, d) @ x + 0.3 * normal(2, n)
    return DescentProblem(x, torch.sign(y) if name == "logistic" else y, torch.zeros(d, dtype=F64))


@checks("softmax.D.4")
def theorem_d4(size: Size, build: Build = in_context_gd) -> list[Finding]:
    """Attention layers by explicit matrices against gradient descent, step by step, for four losses."""
    findings = []
    steps = times(size, 3, 20)
    for name in ("squared", "logistic", "logcosh", "huber")[: times(size, 2, 4)]:
        data = problem(name)
        net = build(name, 3, 20, 0.5, steps, data=data, ridge=0.1)
        exact = exact_descent(net.loss, data, 0.5, steps, 0.1)
        bound = net.certificate.bound + steps * (1e-12 + explicit_rounding(net))
        S = state(data, data.w0)
        deviation = 0.0
        for t in range(steps):
            S = explicit_step(net, S)
            deviation = max(deviation, float((S[4:7, 0] - exact[t + 1]).norm()))
        findings.append(Finding(f"deviation after {steps} steps, {name} loss", deviation, "at most", bound))
    return findings


def activation(head: Any, exact: Callable[[Tensor], Tensor], most: float, eps: float, size: Size) -> list[Finding]:
    """The head's error against the activation it stands for, over eps."""
    z = torch.linspace(-3, most, times(size, 1001, 10_001), dtype=F64)
    return [Finding("largest error over eps", largest(through_matrices(head, z) - exact(z)) / eps, "at most", 1 + 1e-9)]


@checks("softmax.H.1")
def example_h1(size: Size, build: Build = relu) -> list[Finding]:
    """ReLU."""
    return activation(build([1.0], 0.0, 4.0, 0.1), torch.relu, 4.0, 0.1, size)


@checks("softmax.H.2")
def example_h2(size: Size, build: Build = hard_tanh) -> list[Finding]:
    """Hard tanh."""
    return activation(build([1.0], 0.0, 0.1), lambda z: z.clamp(-1, 1), 3.0, 0.1, size)


@checks("softmax.H.3")
def example_h3(size: Size, build: Build = clipped_relu) -> list[Finding]:
    """Clipped ReLU."""
    return activation(build([1.0], 0.0, 2.0, 0.1), lambda z: z.clamp(0, 2), 5.0, 0.1, size)


@checks("softmax.I.1")
def lemma_i1(size: Size, build: Build = exact_product) -> list[Finding]:
    """A X B for positive B over 15 orders of magnitude and for signed B."""
    worst = 0.0
    for seed in range(times(size, 20, 100)):
        A, B = normal(seed, 3, 2), normal(seed + 1, 4, 4)
        B = B if seed % 2 else 10 ** (3 * B.clamp(-4, 1))
        net = build(A, B)
        X = uniform(seed, 20, 2, 4)
        exact = torch.cat([A @ X @ B, torch.zeros(20, 3, 1, dtype=F64)], -1)  # the padding column should be 0
        worst = max(worst, largest(net.explicit(X) - exact) / net.certificate.bound)
    B = 10 ** torch.linspace(-12, 3, 16, dtype=F64).reshape(4, 4)
    eye = torch.eye(4, dtype=F64)
    relative = largest((build(eye, B).explicit(eye)[:, :4] - B) / B)
    return [
        Finding("largest error over the bound", worst, "at most", 1.0),
        Finding("largest relative error for entries 1e-12 to 1e3", relative, "at most", 1e-12),
    ]


@checks("softmax.I.2")
def theorem_i2(size: Size, build: Build = relu_attention) -> list[Finding]:
    """Three layers, and two merged ones, by explicit matrices against the ReLU network with biases."""
    findings = []
    for layers in (3, 2):
        worst = 0.0
        for beta in (10.0, 100.0, 1000.0)[: times(size, 2, 3)]:
            w, bias, signs = normal(0, 3, 6, 3, 2), normal(1, 3, 6), torch.sign(normal(2, 3, 6))
            net = build(w, bias, signs, layers=layers, beta=beta)
            X = torch.cat([uniform(3, 100, 2, 3), torch.zeros(1, 2, 3, dtype=F64)])
            S = torch.einsum("ikjd,bdj->bik", w, X) + bias
            worst = max(worst, largest(net.explicit(X) - (signs * torch.relu(S)).sum(-1)) / net.certificate.bound)
        findings.append(Finding(f"largest error over the bound, {layers} layers", worst, "at most", 1.0))
    return findings
