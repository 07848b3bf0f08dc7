"""Families of targets that no version of the forecast has met.

NEWEST was written after the sixth version of the forecast, by someone who had not seen how the seventh works.
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
