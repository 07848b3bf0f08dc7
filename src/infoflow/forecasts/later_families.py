"""Families of targets that were written later, each group before the forecasts of its cells were made.

LATER was written after the fourth version of the forecast: terms, outer maps and scores that no version had met;
FURTHER after the fifth, which has learnt from the families of LATER; and FRESH after the sixth, which has learnt from
those of FURTHER.
"""

from math import log

import numpy as np
import torch

from infoflow.forecasts.draws import Drawn, Family, seed_of
from infoflow.targets import Extremum, KthLargest, Polynomial, Target, TreeScore, ValueAtExtremum, named
from infoflow.targets.score import Edge


def value_at_argmax(rng: np.random.Generator) -> Drawn:
    return Drawn(named.value_at_argmax(int(rng.integers(2, 6))), 1)


def closest_pair(rng: np.random.Generator) -> Drawn:
    return Drawn(named.closest_pair(int(rng.integers(1, 5))), 1)


def recall(rng: np.random.Generator) -> Drawn:
    return Drawn(named.recall(int(rng.integers(1, 5)), int(rng.integers(1, 3))), 1, True)


def after_match(rng: np.random.Generator) -> Drawn:
    return Drawn(named.after_match(int(rng.integers(1, 4))), 2, True)


def pair_ranges(rng: np.random.Generator) -> Drawn:
    """max_{s,t} x(s)'A x(t) - min_{s,t} x(s)'A x(t), normal tokens."""
    d, seed = int(rng.integers(2, 5)), seed_of(rng)
    score = TreeScore.bilinear(np.random.default_rng(seed).standard_normal((d, d)))
    terms = (Extremum(score, "max"), Extremum(score, "min"))
    outer = Polynomial.linear(np.array([[1.0, -1.0]]))
    return Drawn(Target(terms, outer, d, f"pair_ranges:d={d},seed={seed}", sampler="normal"), 2)


def squared_difference(rng: np.random.Generator) -> Drawn:
    """(max_t a'x(t) - max_t b'x(t))^2, normal tokens: an even function of a difference."""
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    terms = tuple(Extremum(TreeScore.linear(a)) for a in np.random.default_rng(seed).standard_normal((2, d)))
    outer = Polynomial(np.array([[2, 0], [1, 1], [0, 2]]), np.array([[1.0, -2.0, 1.0]]))
    return Drawn(Target(terms, outer, d, f"squared_difference:d={d},seed={seed}", sampler="normal"), 2)


def envelope(rng: np.random.Generator) -> Drawn:
    """All d coordinatewise maxima as d outputs, uniform tokens on the box."""
    d = int(rng.integers(2, 6))
    terms = tuple(Extremum(TreeScore.linear(unit)) for unit in np.eye(d))
    return Drawn(Target(terms, Polynomial.identity(d), d, f"envelope:d={d}"), d)


def cubic_maxima(rng: np.random.Generator) -> Drawn:
    """sum_i max_t sum_j (c_ij x_j(t)^3 + b_ij x_j(t)) on the box: scores that rise and fall."""
    D, d, seed = int(rng.integers(1, 4)), int(rng.integers(1, 4)), seed_of(rng)
    draw, powers = np.random.default_rng(seed), np.concatenate([3 * np.eye(d, dtype=int), np.eye(d, dtype=int)])
    scores = [np.concatenate([2 * draw.standard_normal(d), draw.standard_normal(d)])[None] for _ in range(D)]
    terms = [Extremum(TreeScore((Polynomial(powers, coefficients),), (), d)) for coefficients in scores]
    return Drawn(Target.sum(*terms, spelling=f"cubic_maxima:D={D},d={d},seed={seed}"), D)


def gap(rng: np.random.Generator) -> Drawn:
    """The largest first coordinate less the k-th largest, uniform tokens on the unit cube."""
    k, d = int(rng.integers(2, 5)), int(rng.integers(1, 3))
    terms = (KthLargest(1, np.eye(d)[0]), KthLargest(k, np.eye(d)[0]))
    outer = Polynomial.linear(np.array([[1.0, -1.0]]))
    return Drawn(Target(terms, outer, d, f"gap:k={k},d={d}", domain=(0.0, 1.0)), k)


def minimax(rng: np.random.Generator) -> Drawn:
    """max_s min_t x(s)'A x(t), normal tokens, as a function of the whole sequence: its parts are not told."""
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    A = torch.from_numpy(np.random.default_rng(seed).standard_normal((d, d)))

    def worst_partner(X: torch.Tensor) -> torch.Tensor:
        return (X @ A.to(X) @ X.transpose(-1, -2)).amin(-1).amax(-1)

    return Drawn(named.function(worst_partner, d, name=f"minimax:d={d},seed={seed}", sampler="normal"), 1)


def wave(rng: np.random.Generator) -> Drawn:
    """max_t sin(3 a'x(t)) cos(b'x(t)), normal tokens: a score of one's own that is no polynomial."""
    d, seed = int(rng.integers(1, 4)), seed_of(rng)
    a, b = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, d)))

    def score(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(3.0 * x[..., 0, :] @ a.to(x)) * torch.cos(x[..., 0, :] @ b.to(x))

    return Drawn(named.function(score, d, 1, "max", name=f"wave:d={d},seed={seed}", sampler="normal"), 1)


def scatter(rng: np.random.Generator) -> Drawn:
    """The mean squared distance of the tokens from their mean, as a function of the whole sequence: no extremum."""
    d = int(rng.integers(1, 5))

    def spread(X: torch.Tensor) -> torch.Tensor:
        return (X - X.mean(-2, keepdim=True)).square().mean(-2).sum(-1)

    return Drawn(named.function(spread, d, name=f"scatter:d={d}", sampler="normal"), 1)


def soft_maximum(rng: np.random.Generator) -> Drawn:
    """log mean_t exp(4 a'x(t)) / 4, |a| = 1, normal tokens: a maximum that is not sharp."""
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    direction = np.random.default_rng(seed).standard_normal(d)
    a = torch.from_numpy(4.0 * direction / np.linalg.norm(direction))

    def softest(X: torch.Tensor) -> torch.Tensor:
        return ((X @ a.to(X)).logsumexp(-1) - log(X.shape[-2])) / 4.0

    return Drawn(named.function(softest, d, name=f"soft_maximum:d={d},seed={seed}", sampler="normal"), 1)


def middle(rng: np.random.Generator) -> Drawn:
    """The median of the first coordinate, uniform tokens on the box, as a function of the whole sequence."""
    d = int(rng.integers(1, 4))

    def median(X: torch.Tensor) -> torch.Tensor:
        return X[..., 0].quantile(0.5, dim=-1)

    return Drawn(named.function(median, d, name=f"middle:d={d}"), 1)


def values_of_two(rng: np.random.Generator) -> Drawn:
    """<read(x(s)), read(x(t))> at s = argmax x_1 and t = argmin x_1, read drops x_1: uniform tokens on the box."""
    d = int(rng.integers(2, 4))
    score = TreeScore.linear(np.eye(d)[0])
    read = Polynomial.linear(np.eye(d)[1:])
    terms = tuple(ValueAtExtremum(Extremum(score, kind), read, name=kind) for kind in ("max", "min"))
    k = d - 1
    powers = np.concatenate([np.eye(k, dtype=int), np.eye(k, dtype=int)], 1)
    return Drawn(Target(terms, Polynomial(powers, np.ones((1, k))), d, f"values_of_two:d={d}"), 2)


def share_above(rng: np.random.Generator) -> Drawn:
    """The share of tokens with a'x(t) > 1/2, |a| = 1, normal tokens: a count, no extremum and not continuous."""
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    direction = np.random.default_rng(seed).standard_normal(d)
    a = torch.from_numpy(direction / np.linalg.norm(direction))

    def share(X: torch.Tensor) -> torch.Tensor:
        return (X @ a.to(X) > 0.5).to(X.dtype).mean(-1)

    return Drawn(named.function(share, d, name=f"share_above:d={d},seed={seed}", sampler="normal"), 1)


def best_match(rng: np.random.Generator) -> Drawn:
    """max over s != t of the cosine of x(s) and x(t), normal tokens: a score of pairs that is no polynomial."""
    d = int(rng.integers(2, 5))

    def cosine(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cosine_similarity(x[..., 0, :], x[..., 1, :], dim=-1)

    return Drawn(named.function(cosine, d, 2, "max", distinct=True, name=f"best_match:d={d}", sampler="normal"), 1)


def nearest_to_points(rng: np.random.Generator) -> Drawn:
    """(min_t |x(t) - p|^2) (min_t |x(t) - q|^2), two points of the box, uniform tokens: a product of two retrievals."""
    d, seed = int(rng.integers(1, 4)), seed_of(rng)
    terms = []
    for p in np.random.default_rng(seed).uniform(-0.8, 0.8, (2, d)):
        square = Polynomial.quadratic(np.eye(d), -2 * p, float(p @ p))
        terms.append(Extremum(TreeScore((square,), (), d), "min"))
    outer = Polynomial(np.array([[1, 1]]), np.array([[1.0]]))
    return Drawn(Target(tuple(terms), outer, d, f"nearest_to_points:d={d},seed={seed}"), 2)


def mean_distance(rng: np.random.Generator) -> Drawn:
    """The mean over pairs of |x(s) - x(t)|, normal tokens: every token meets every other, and none wins."""
    d = int(rng.integers(1, 4))

    def mean(X: torch.Tensor) -> torch.Tensor:
        return (X[..., :, None, :] - X[..., None, :, :]).square().sum(-1).add(1e-12).sqrt().mean((-1, -2))

    return Drawn(named.function(mean, d, name=f"mean_distance:d={d}", sampler="normal"), 1)


def largest_step(rng: np.random.Generator) -> Drawn:
    """max_t |x(t + 1) - x(t)|^2, uniform tokens on the box: neighbours, so positions count."""
    d = int(rng.integers(1, 4))

    def step(X: torch.Tensor) -> torch.Tensor:
        return X.diff(dim=-2).square().sum(-1).amax(-1)

    return Drawn(named.function(step, d, name=f"largest_step:d={d}"), 1, True)


def last_to_others(rng: np.random.Generator) -> Drawn:
    """max_t x(t)'A x(T), normal tokens: the last token asks all of them."""
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    A = torch.from_numpy(np.random.default_rng(seed).standard_normal((d, d)))

    def asked(X: torch.Tensor) -> torch.Tensor:
        return (X @ A.to(X) @ X[..., -1, :, None])[..., 0].amax(-1)

    return Drawn(named.function(asked, d, name=f"last_to_others:d={d},seed={seed}", sampler="normal"), 1, True)


def longest(rng: np.random.Generator) -> Drawn:
    """max_t |x(t)|_1 + max_t |x(t)|_inf, uniform tokens on the box: scores with corners."""
    d = int(rng.integers(1, 5))

    def norms(X: torch.Tensor) -> torch.Tensor:
        return X.abs().sum(-1).amax(-1) + X.abs().amax(-1).amax(-1)

    return Drawn(named.function(norms, d, name=f"longest:d={d}"), 2)


def alternating(rng: np.random.Generator) -> Drawn:
    """sum_i (-1)^i max_t a_i'x(t), uniform tokens on the box: maxima that cancel in the mean."""
    D, d, seed = int(rng.integers(2, 6)), int(rng.integers(1, 6)), seed_of(rng)
    terms = tuple(Extremum(TreeScore.linear(a)) for a in np.random.default_rng(seed).standard_normal((D, d)))
    signs = (-1.0) ** np.arange(D)[None]
    return Drawn(Target(terms, Polynomial.linear(signs), d, f"alternating:D={D},d={d},seed={seed}"), D)


def triple_product(rng: np.random.Generator) -> Drawn:
    """max over three positions of <a, x(r)> <b, x(s)> + <b, x(s)> <c, x(t)>, normal tokens: a path of rank one."""
    d, seed = int(rng.integers(2, 4)), seed_of(rng)
    a, b, c = np.random.default_rng(seed).standard_normal((3, d))
    edges = tuple(Edge(u, v, Polynomial.linear(p[None]), Polynomial.linear(q[None]))
                  for u, v, p, q in ((0, 1, a, b), (2, 1, c, b)))  # fmt: skip
    score = TreeScore((None, None, None), edges, d)
    return Drawn(Target.sum(Extremum(score), spelling=f"triple_product:d={d},seed={seed}", sampler="normal"), 2)


def top_two(rng: np.random.Generator) -> Drawn:
    """The largest and half the second largest a'x(t), |a| = 1, uniform tokens on the box."""
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    direction = np.random.default_rng(seed).standard_normal(d)
    direction /= np.linalg.norm(direction)
    terms = (KthLargest(1, direction), KthLargest(2, direction))
    outer = Polynomial.linear(np.array([[1.0, 0.5]]))
    return Drawn(Target(terms, outer, d, f"top_two:d={d},seed={seed}"), 2)


def opposed(rng: np.random.Generator) -> Drawn:
    """(max_t a'x(t)) (min_t b'x(t)), normal tokens."""
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    a, b = np.random.default_rng(seed).standard_normal((2, d))
    terms = (Extremum(TreeScore.linear(a)), Extremum(TreeScore.linear(b), "min"))
    outer = Polynomial(np.array([[1, 1]]), np.array([[1.0]]))
    return Drawn(Target(terms, outer, d, f"opposed:d={d},seed={seed}", sampler="normal"), 2)


def three_arities(rng: np.random.Generator) -> Drawn:
    """max_t a'x(t) + max_{s,t} x(s)'A x(t) + max_{r,s,t} (x(r)'B x(s) + x(s)'B x(t)) / 2, normal tokens."""
    d, seed = int(rng.integers(2, 4)), seed_of(rng)
    draw = np.random.default_rng(seed)
    a, A, B = draw.standard_normal(d), draw.standard_normal((d, d)), draw.standard_normal((d, d)) / 2
    edges = tuple(Edge(u, v, Polynomial.linear(B), Polynomial.linear(np.eye(d))) for u, v in ((0, 1), (1, 2)))
    scores = (TreeScore.linear(a), TreeScore.bilinear(A), TreeScore((None,) * 3, edges, d))
    spelling = f"three_arities:d={d},seed={seed}"
    return Drawn(Target.sum(*map(Extremum, scores), spelling=spelling, sampler="normal"), 3)


def in_ellipses(rng: np.random.Generator) -> Drawn:
    """sum_i min_t (x(t) - p_i)'Q_i (x(t) - p_i), Q_i positive definite, uniform tokens on the box."""
    D, d, seed = int(rng.integers(1, 4)), int(rng.integers(1, 4)), seed_of(rng)
    draw = np.random.default_rng(seed)
    terms = []
    for _ in range(D):
        p, root = draw.uniform(-0.8, 0.8, d), draw.standard_normal((d, d))
        Q = root @ root.T + 0.2 * np.eye(d)
        square = Polynomial.quadratic(Q, -2 * Q @ p, float(p @ Q @ p))
        terms.append(Extremum(TreeScore((square,), (), d), "min"))
    return Drawn(Target.sum(*terms, spelling=f"in_ellipses:D={D},d={d},seed={seed}"), D)


def read_at_ends(rng: np.random.Generator) -> Drawn:
    """x_2 of the token whose x_1 is largest, less x_2 of the one whose x_1 is smallest: uniform tokens on the box."""
    d = int(rng.integers(2, 5))
    score, read = TreeScore.linear(np.eye(d)[0]), Polynomial.linear(np.eye(d)[1:2])
    terms = tuple(ValueAtExtremum(Extremum(score, kind), read, name=kind) for kind in ("max", "min"))
    return Drawn(Target(terms, Polynomial.linear(np.array([[1.0, -1.0]])), d, f"read_at_ends:d={d}"), 2)


def two_apart(rng: np.random.Generator) -> Drawn:
    """max over s != t of a'x(s) + b'x(t) + a'x(s) b'x(t), uniform tokens on the box."""
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    a, b = np.random.default_rng(seed).standard_normal((2, d))
    left, right = Polynomial.linear(a[None]), Polynomial.linear(b[None])
    score = TreeScore((left, right), (Edge(0, 1, left, right),), d)
    return Drawn(Target.sum(Extremum(score, distinct=True), spelling=f"two_apart:d={d},seed={seed}"), 2)


def fourth_power(rng: np.random.Generator) -> Drawn:
    """The mean of (a'x(t))^4, |a| = 1, normal tokens, as a function of the whole sequence."""
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    direction = np.random.default_rng(seed).standard_normal(d)
    a = torch.from_numpy(direction / np.linalg.norm(direction))

    def power(X: torch.Tensor) -> torch.Tensor:
        return (X @ a.to(X)).pow(4).mean(-1)

    return Drawn(named.function(power, d, name=f"fourth_power:d={d},seed={seed}", sampler="normal"), 1)


def rectified(rng: np.random.Generator) -> Drawn:
    """The mean of max(0, a'x(t)) less that of max(0, b'x(t)), normal tokens."""
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    ab = torch.from_numpy(np.random.default_rng(seed).standard_normal((d, 2)))

    def mean(X: torch.Tensor) -> torch.Tensor:
        found = (X @ ab.to(X)).relu().mean(-2)
        return found[..., 0] - found[..., 1]

    return Drawn(named.function(mean, d, name=f"rectified:d={d},seed={seed}", sampler="normal"), 1)


def far_from_first(rng: np.random.Generator) -> Drawn:
    """max_t |x(t) - x(1)|^2, uniform tokens on the box: the first token is compared with all."""
    d = int(rng.integers(1, 5))

    def far(X: torch.Tensor) -> torch.Tensor:
        return (X - X[..., :1, :]).square().sum(-1).amax(-1)

    return Drawn(named.function(far, d, name=f"far_from_first:d={d}"), 1, True)


def saturated(rng: np.random.Generator) -> Drawn:
    """tanh(sqrt(T) times the mean of a'x(t)), |a| = 2, normal tokens: which side has the majority."""
    d, seed = int(rng.integers(1, 6)), seed_of(rng)
    direction = np.random.default_rng(seed).standard_normal(d)
    a = torch.from_numpy(2.0 * direction / np.linalg.norm(direction))

    def side(X: torch.Tensor) -> torch.Tensor:
        return torch.tanh((X @ a.to(X)).mean(-1) * X.shape[-2] ** 0.5)

    return Drawn(named.function(side, d, name=f"saturated:d={d},seed={seed}", sampler="normal"), 1)


def range_of_lengths(rng: np.random.Generator) -> Drawn:
    """max_t |x(t)| - min_t |x(t)|, normal tokens, as a function of the whole sequence."""
    d = int(rng.integers(1, 5))

    def lengths(X: torch.Tensor) -> torch.Tensor:
        found = X.square().sum(-1).add(1e-12).sqrt()
        return found.amax(-1) - found.amin(-1)

    return Drawn(named.function(lengths, d, name=f"range_of_lengths:d={d}", sampler="normal"), 2)


def best_three(rng: np.random.Generator) -> Drawn:
    """The mean of the three largest a'x(t), |a| = 1, normal tokens, as a function of the whole sequence."""
    d, seed = int(rng.integers(1, 5)), seed_of(rng)
    direction = np.random.default_rng(seed).standard_normal(d)
    a = torch.from_numpy(direction / np.linalg.norm(direction))

    def mean(X: torch.Tensor) -> torch.Tensor:
        return (X @ a.to(X)).topk(min(3, X.shape[-2]), dim=-1).values.mean(-1)

    return Drawn(named.function(mean, d, name=f"best_three:d={d},seed={seed}", sampler="normal"), 3)


LATER: tuple[Family, ...] = (
    value_at_argmax,
    closest_pair,
    recall,
    after_match,
    pair_ranges,
    squared_difference,
    envelope,
    cubic_maxima,
    gap,
    minimax,
    wave,
    scatter,
)
FURTHER: tuple[Family, ...] = (
    soft_maximum,
    middle,
    values_of_two,
    share_above,
    best_match,
    nearest_to_points,
    mean_distance,
    largest_step,
    last_to_others,
    longest,
    alternating,
    triple_product,
)
FRESH: tuple[Family, ...] = (
    top_two,
    opposed,
    three_arities,
    in_ellipses,
    read_at_ends,
    two_apart,
    fourth_power,
    rectified,
    far_from_first,
    saturated,
    range_of_lengths,
    best_three,
)
