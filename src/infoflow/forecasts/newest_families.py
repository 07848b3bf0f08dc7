"""Families of targets that no version of the forecast has met.

NEWEST was written after the sixth version of the forecast, by someone who had not seen how the seventh works; LATEST
was written after the seventh version, by someone who had not seen how the eighth works.
"""

import numpy as np
import torch

from infoflow.forecasts.draws import Drawn, Family, seed_of
from infoflow.targets import Extremum, KthLargest, Polynomial, PositionSum, Target, TreeScore, ValueAtExtremum, named
from infoflow.targets.score import Edge


def cubic_outer(rng: np.random.Generator) -> Drawn:
    """m_1^3 / 3 - m_1 m_2 + m_2^2 with m_i = max_t a_i'x(t), |a_i| = 1, normal tokens: an outer map of degree 3."""
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    terms = tuple(Extremum(TreeScore.linear(a)) for a in _units(seed, 2, d))
    outer = Polynomial(np.array([[3, 0], [1, 1], [0, 2]]), np.array([[1 / 3, -1.0, 1.0]]))
    return Drawn(Target(terms, outer, d, f"cubic_outer:d={d},seed={seed}", sampler="normal"), 2)


def ends_meet(rng: np.random.Generator) -> Drawn:
    """max over s <= k, t > T - k of x(s)'A x(t), less max over t <= k of a'x(t): clamped normal tokens.

    The first k tokens meet the last k, and nobody asks those between.
    """
    k, d, seed = int(rng.integers(2, 4)), int(rng.integers(1, 5)), seed_of(rng)
    draw = np.random.default_rng(seed)
    first, last = slice(None, k), slice(-k, None)
    pair = Extremum(TreeScore.bilinear(draw.standard_normal((d, d))), sets=(first, last))
    single = Extremum(TreeScore.linear(draw.standard_normal(d)), sets=(first,))
    outer = Polynomial.linear(np.array([[1.0, -1.0]]))
    spelling = f"ends_meet:k={k},d={d},seed={seed}"
    return Drawn(Target((pair, single), outer, d, spelling, sampler="clamped_normal"), 2, True)


def rise_to_peak(rng: np.random.Generator) -> Drawn:
    """a'x(t*) - b'x(t* - 1), t* = argmax_{t > 1} a'x(t), |a| = |b| = 1, uniform tokens on the box.

    The largest value less what is read of the token before it.
    """
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    a, b = _units(seed, 2, d)
    peak = Extremum(TreeScore.linear(a), sets=(slice(1, None),))
    terms = (peak, ValueAtExtremum(peak, Polynomial.linear(b[None]), name="before", shift=-1))
    outer = Polynomial.linear(np.array([[1.0, -1.0]]))
    return Drawn(Target(terms, outer, d, f"rise_to_peak:d={d},seed={seed}"), 2, True)


def first_mixes(rng: np.random.Generator) -> Drawn:
    """g max_t a'x(t) + (1 - g) max_t b'x(t), g = x_1(1), uniform tokens on the unit cube: the first token chooses."""
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    lines = np.random.default_rng(seed).standard_normal((2, d))
    one, other = (Extremum(TreeScore.linear(a)) for a in lines)
    powers = np.zeros((3, d + 2), dtype=int)  # of x_1(1), ..., x_d(1) and the two maxima
    powers[[0, 2], 0] = powers[0, d] = powers[[1, 2], d + 1] = 1
    outer = Polynomial(powers, np.array([[1.0, 1.0, -1.0]]))
    spelling = f"first_mixes:d={d},seed={seed}"
    return Drawn(Target((PositionSum((0,), d), one, other), outer, d, spelling, domain=(0.0, 1.0)), 3, True)


def kth_and_pair(rng: np.random.Generator) -> Drawn:
    """Two outputs, q + p and q p: q the k-th largest a'x(t), |a| = 1, and p = min_{s,t} x(s)'A x(t), normal tokens."""
    k, d, seed = int(rng.integers(2, 5)), int(rng.integers(2, 5)), seed_of(rng)
    A = np.random.default_rng(seed + 1).standard_normal((d, d)) / d
    terms = (KthLargest(k, _units(seed, 1, d)[0]), Extremum(TreeScore.bilinear(A), "min"))
    outer = Polynomial(np.array([[1, 0], [0, 1], [1, 1]]), np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    return Drawn(Target(terms, outer, d, f"kth_and_pair:k={k},d={d},seed={seed}", sampler="normal"), k + 1)


def biased_chain(rng: np.random.Generator) -> Drawn:
    """max_{r,s,t} a'x(r) + x(r)'A x(s) - |x(s) - p|^2 + x(s)'B x(t) + b'x(t), uniform tokens on the box.

    Three tokens in a row, each of which also counts for itself; the middle one is to be near p.
    """
    d, seed = int(rng.integers(1, 4)), seed_of(rng)
    draw = np.random.default_rng(seed)
    (a, b), p = draw.standard_normal((2, d)), draw.uniform(-0.8, 0.8, d)
    near = Polynomial.quadratic(-np.eye(d), 2 * p, -float(p @ p))
    unary = (Polynomial.linear(a[None]), near, Polynomial.linear(b[None]))
    one = Polynomial.identity(d)
    A, B = (Polynomial.linear(matrix) for matrix in draw.standard_normal((2, d, d)))
    score = TreeScore(unary, (Edge(0, 1, one, A), Edge(1, 2, one, B)), d)
    return Drawn(Target.sum(Extremum(score), spelling=f"biased_chain:d={d},seed={seed}"), 2)


def trimmed_mean(rng: np.random.Generator) -> Drawn:
    """The mean of a'x(t), |a| = 1, without the quarter (T // 4 tokens) at each end: clamped normal tokens.

    A function of the whole sequence.
    """
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    a = torch.from_numpy(_units(seed, 1, d)[0])

    def mean(X: torch.Tensor) -> torch.Tensor:
        cut = X.shape[-2] // 4
        return (X @ a.to(X)).sort(-1).values[..., cut : X.shape[-2] - cut].mean(-1)

    return Drawn(named.function(mean, d, name=f"trimmed_mean:d={d},seed={seed}", sampler="clamped_normal"), 1)


def top_eigenvalue(rng: np.random.Generator) -> Drawn:
    """The largest eigenvalue of mean_t C x(t) x(t)'C', normal tokens, C = 1 + G / 3 with G of N(0, 1) entries.

    A function of the whole sequence: the most that the cloud of the tokens C x(t) extends in any direction.
    """
    d, seed = int(rng.integers(2, 5)), seed_of(rng)
    C = torch.from_numpy(np.eye(d) + np.random.default_rng(seed).standard_normal((d, d)) / 3)

    def largest(X: torch.Tensor) -> torch.Tensor:
        Y = X @ C.to(X).T
        return torch.linalg.eigvalsh(Y.transpose(-1, -2) @ Y / X.shape[-2])[..., -1]

    return Drawn(named.function(largest, d, name=f"top_eigenvalue:d={d},seed={seed}", sampler="normal"), 1)


def busiest_window(rng: np.random.Generator) -> Drawn:
    """The largest sum of a'x(t) over w tokens in a row, over sqrt(w), |a| = 1, normal tokens: positions count."""
    w, d, seed = int(rng.integers(2, 5)), int(rng.integers(1, 5)), seed_of(rng)
    a = torch.from_numpy(_units(seed, 1, d)[0] / w**0.5)

    def busiest(X: torch.Tensor) -> torch.Tensor:
        return (X @ a.to(X)).unfold(-1, min(w, X.shape[-2]), 1).sum(-1).amax(-1)

    spelling = f"busiest_window:w={w},d={d},seed={seed}"
    return Drawn(named.function(busiest, d, name=spelling, sampler="normal"), w, True)


def kernel_regression(rng: np.random.Generator) -> Drawn:
    """sum_{t < T} w_t y(t) / sum_{t < T} w_t, w_t = exp(-h |u(t) - u(T)|^2), x = (u, y), uniform tokens on the box.

    The last token asks for the mean of y near its own u (its own y is not read).
    """
    d, h = int(rng.integers(2, 5)), int(rng.integers(1, 9))

    def regressed(X: torch.Tensor) -> torch.Tensor:
        far = (X[..., :-1, :-1] - X[..., -1:, :-1]).square().sum(-1)
        return (torch.softmax(-h * far, -1) * X[..., :-1, -1]).sum(-1)

    return Drawn(named.function(regressed, d, name=f"kernel_regression:h={h},d={d}"), 1, True)


def sawtooth(rng: np.random.Generator) -> Drawn:
    """max_t (f a'x(t) - floor(f a'x(t)) + b'x(t)), |a| = |b| = 1, uniform tokens on the box: a score that jumps."""
    f, d, seed = int(rng.integers(1, 4)), int(rng.integers(1, 4)), seed_of(rng)
    a, b = torch.from_numpy(_units(seed, 2, d))

    def score(x: torch.Tensor) -> torch.Tensor:
        rising = f * (x[..., 0, :] @ a.to(x))
        return rising - rising.floor() + x[..., 0, :] @ b.to(x)

    return Drawn(named.function(score, d, 1, "max", name=f"sawtooth:f={f},d={d},seed={seed}"), 1)


def agrees_with_first(rng: np.random.Generator) -> Drawn:
    """The share of t > 1 with a'x(t) of the same sign as a'x(1), normal tokens: a vote that the first one may turn."""
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    a = torch.from_numpy(_units(seed, 1, d)[0])

    def share(X: torch.Tensor) -> torch.Tensor:
        positive = X @ a.to(X) > 0
        return (positive[..., 1:] == positive[..., :1]).to(X.dtype).mean(-1)

    return Drawn(named.function(share, d, name=f"agrees_with_first:d={d},seed={seed}", sampler="normal"), 1, True)


def stepping_stones(rng: np.random.Generator) -> Drawn:
    """The least cost of a way from x(1) to x(T) by way of one or two tokens: uniform tokens on the box.

    min_s c(x(1), x(s)) + c(x(s), x(T)) where one stop is made, c(x, y) = sum_j w_j (x_j - y_j)^2, 1/2 < w_j < 2: a
    search between two given ends.
    """
    stops, d, seed = int(rng.integers(1, 3)), int(rng.integers(1, 4)), seed_of(rng)
    W = np.diag(np.random.default_rng(seed).uniform(0.5, 2.0, d))
    end, stop = (Polynomial.quadratic(count * W) for count in (1, 2))
    one, other = Polynomial.identity(d), Polynomial.linear(-2 * W)
    edges = tuple(Edge(v, v + 1, one, other) for v in range(stops + 1))
    score = TreeScore((end, *[stop] * stops, end), edges, d)
    way = Extremum(score, "min", sets=((0,), *[None] * stops, slice(-1, None)))
    return Drawn(Target.sum(way, spelling=f"stepping_stones:stops={stops},d={d},seed={seed}"), stops, True)


def first_two_ask(rng: np.random.Generator) -> Drawn:
    """(max_t x(1)'A x(t)) (max_t x(2)'B x(t)), uniform tokens on the box: two tokens ask all of them, each its own."""
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    scores = [TreeScore.bilinear(A) for A in np.random.default_rng(seed).standard_normal((2, d, d))]
    terms = tuple(Extremum(score, sets=((asks,), None)) for asks, score in enumerate(scores))
    outer = Polynomial(np.array([[1, 1]]), np.array([[1.0]]))
    return Drawn(Target(terms, outer, d, f"first_two_ask:d={d},seed={seed}"), 2, True)


def read_of_best_pair(rng: np.random.Generator) -> Drawn:
    """b'x(s*) c'x(t*), (s*, t*) = argmax_{s,t} x(s)'A x(t), |b| = |c| = 1, uniform tokens on the box.

    A pair is chosen by one score, and something else is read of both its tokens.
    """
    d, seed = int(rng.integers(2, 5)), seed_of(rng)
    pair = Extremum(TreeScore.bilinear(np.random.default_rng(seed + 1).standard_normal((d, d))))
    reads = [Polynomial.linear(b[None]) for b in _units(seed, 2, d)]
    terms = tuple(ValueAtExtremum(pair, read, v, name=f"read_{v + 1}") for v, read in enumerate(reads))
    outer = Polynomial(np.array([[1, 1]]), np.array([[1.0]]))
    return Drawn(Target(terms, outer, d, f"read_of_best_pair:d={d},seed={seed}"), 2)


def second_at_both_ends(rng: np.random.Generator) -> Drawn:
    """Two outputs, (p + q) / 2 and p - q: p the second largest, q the second smallest a'x(t), clamped normal tokens.

    Where the tokens lie and how widely, along |a| = 1 and whatever the two outermost do.
    """
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    a = _units(seed, 1, d)[0]
    outer = Polynomial.linear(np.array([[0.5, -0.5], [1.0, 1.0]]))  # of p and -q
    spelling = f"second_at_both_ends:d={d},seed={seed}"
    return Drawn(Target((KthLargest(2, a), KthLargest(2, -a)), outer, d, spelling, sampler="clamped_normal"), 4)


def fixed_interaction(rng: np.random.Generator) -> Drawn:
    """x(p)'A x(q) + (b'x(r))^2, |b| = 1, p, q, r three of the first four positions: normal tokens, products alone."""
    p, q, r = (int(position) for position in rng.permutation(4)[:3])
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    b, matrix = _units(seed, 1, d)[0], np.zeros((3 * d, 3 * d))
    matrix[:d, d : 2 * d] = np.random.default_rng(seed + 1).standard_normal((d, d)) / d**0.5
    matrix[2 * d :, 2 * d :] = np.outer(b, b)
    terms = tuple(PositionSum((position,), d) for position in (p, q, r))
    spelling = f"fixed_interaction:positions={p + 1}.{q + 1}.{r + 1},d={d},seed={seed}"
    return Drawn(Target(terms, Polynomial.quadratic(matrix), d, spelling, sampler="normal"), 3, True)


def near_shell(rng: np.random.Generator) -> Drawn:
    """max_t b'x(t) - 2 (sum_j c_j x_j(t)^2 - 1/2)^2, |b| = 1, uniform tokens on the box: a score of degree 4.

    The token is to lie on an ellipsoid (1/2 < c_j < 2) and there far along b.
    """
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    b, c, unit = _units(seed, 1, d)[0], np.random.default_rng(seed + 1).uniform(0.5, 2.0, d), np.eye(d, dtype=int)
    fourth = (2 * (unit[:, None] + unit[None])).reshape(-1, d)
    powers = np.concatenate([unit, 2 * unit, fourth, 0 * unit[:1]])
    score = Polynomial(powers, np.concatenate([b, 2 * c, -2 * np.outer(c, c).ravel(), [-0.5]])[None])
    return Drawn(Target.sum(Extremum(TreeScore((score,), (), d)), spelling=f"near_shell:d={d},seed={seed}"), 1)


def softmax_pool(rng: np.random.Generator) -> Drawn:
    """sum_t w_t b'x(t) / sum_t w_t, w_t = exp(h a'x(t)), |a| = |b| = 1, normal tokens: a smooth value at a maximum."""
    h, d, seed = int(rng.integers(1, 7)), int(rng.integers(2, 6)), seed_of(rng)
    a, b = torch.from_numpy(_units(seed, 2, d))

    def pooled(X: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(h * (X @ a.to(X)), -1) * (X @ b.to(X))).sum(-1)

    return Drawn(named.function(pooled, d, name=f"softmax_pool:h={h},d={d},seed={seed}", sampler="normal"), 1)


def correlation(rng: np.random.Generator) -> Drawn:
    """The correlation of a'x(t) with b'x(t) over the tokens, normal tokens: a ratio of aggregates, of no scale."""
    d, seed = int(rng.integers(2, 6)), seed_of(rng)
    ab = torch.from_numpy(_units(seed, 2, d).T.copy())

    def correlated(X: torch.Tensor) -> torch.Tensor:
        found = X @ ab.to(X)
        u, v = (found - found.mean(-2, keepdim=True)).unbind(-1)
        return (u * v).mean(-1) / (u.square().mean(-1) * v.square().mean(-1) + 1e-12).sqrt()

    return Drawn(named.function(correlated, d, name=f"correlation:d={d},seed={seed}", sampler="normal"), 1)


def mean_record(rng: np.random.Generator) -> Drawn:
    """The mean over s of max_{t <= s} a'x(t), |a| = 1, normal tokens: a running maximum, early ones count more."""
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    a = torch.from_numpy(_units(seed, 1, d)[0])

    def record(X: torch.Tensor) -> torch.Tensor:
        return (X @ a.to(X)).cummax(-1).values.mean(-1)

    return Drawn(named.function(record, d, name=f"mean_record:d={d},seed={seed}", sampler="normal"), 1, True)


def recurrent_state(rng: np.random.Generator) -> Drawn:
    """h(T), two outputs, of h(t) = tanh(R h(t - 1) + A x(t)), h(0) = 0, R 0.9 times a rotation, normal tokens.

    A recurrent network of two units with rows of A of length one: the last tokens count most, in their order.
    """
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    angle = np.random.default_rng(seed + 1).uniform(0, 2 * np.pi)
    turn = 0.9 * np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    A, R = torch.from_numpy(_units(seed, 2, d).T.copy()), torch.from_numpy(turn)

    def state(X: torch.Tensor) -> torch.Tensor:
        fed, turned = X @ A.to(X), R.to(X)
        h = torch.zeros_like(fed[..., 0, :])
        for t in range(X.shape[-2]):
            h = torch.tanh(h @ turned + fed[..., t, :])
        return h

    spelling = f"recurrent_state:d={d},seed={seed}"
    return Drawn(named.function(state, d, outputs=2, name=spelling, sampler="normal"), 2, True)


def lagged_product(rng: np.random.Generator) -> Drawn:
    """The mean of x(t)'A x(t + l) over t, |A|_F = 1, uniform tokens on the box: products of tokens l apart."""
    lag, d, seed = int(rng.integers(1, 4)), int(rng.integers(1, 5)), seed_of(rng)
    A = torch.from_numpy(_units(seed, 1, d * d).reshape(d, d))

    def mean(X: torch.Tensor) -> torch.Tensor:
        return ((X[..., :-lag, :] @ A.to(X)) * X[..., lag:, :]).sum(-1).mean(-1)

    return Drawn(named.function(mean, d, name=f"lagged_product:lag={lag},d={d},seed={seed}"), 1, True)


def signed_extreme(rng: np.random.Generator) -> Drawn:
    """a'x(t*), t* = argmax_t |a'x(t)|, |a| = 1, normal tokens: the one farthest from 0 with its sign, so it jumps."""
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    a = torch.from_numpy(_units(seed, 1, d)[0])

    def extreme(X: torch.Tensor) -> torch.Tensor:
        found = X @ a.to(X)
        return found.gather(-1, found.abs().argmax(-1, keepdim=True))[..., 0]

    return Drawn(named.function(extreme, d, name=f"signed_extreme:d={d},seed={seed}", sampler="normal"), 2)


def _units(seed: int, count: int, d: int) -> np.ndarray:
    """Random directions of length one, (count, d)."""
    found = np.random.default_rng(seed).standard_normal((count, d))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


NEWEST: tuple[Family, ...] = (
    cubic_outer,
    ends_meet,
    rise_to_peak,
    first_mixes,
    kth_and_pair,
    biased_chain,
    trimmed_mean,
    top_eigenvalue,
    busiest_window,
    kernel_regression,
    sawtooth,
    agrees_with_first,
)
LATEST: tuple[Family, ...] = (
    stepping_stones,
    first_two_ask,
    read_of_best_pair,
    second_at_both_ends,
    fixed_interaction,
    near_shell,
    softmax_pool,
    correlation,
    mean_record,
    recurrent_state,
    lagged_product,
    signed_extreme,
)
