"""Scores: what an extremum compares. A score takes k tokens and gives one number.

`TreeScore` is the compiler's grammar: sum_v u_v(x_v) + sum_{(v,w) in edges} <left(x_v), right(x_w)> with the edges a
tree on the k vertices (k = 1 has no edge). `NormOfSum` is |x_1 + ... + x_k|^2, a tree only for k <= 2. `CallableScore`
is anything else. Every score has a gradient with respect to its tokens; the active index set is read from it.

Bounds of scores over the box [low, high]^d: ranges by interval arithmetic, Lipschitz constants per token. Every bound
is widened by a factor that exceeds the rounding of its own computation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from infoflow import arguments
from infoflow.errors import InfoFlowError
from infoflow.targets.arrays import Array, concatenate, dot, is_torch, stack, sum_of_tokens
from infoflow.targets.polynomial import Polynomial


@runtime_checkable
class Score(Protocol):
    """A number for every tuple of `arity` tokens of `dim` coordinates."""

    @property
    def arity(self) -> int:
        """Tokens of a tuple."""

    @property
    def dim(self) -> int:
        """Coordinates of a token."""

    def __call__(self, tokens: Array) -> Array:
        """tokens (..., k, d), numpy or torch -> (...)."""
        ...

    def gradient(self, tokens: Array) -> Array:
        """tokens (..., k, d) -> d score / d token, (..., k, d)."""
        ...


@dataclass(frozen=True, eq=False)
class Edge:
    """<left(x_v), right(x_w)>, vertices 0-based; the rank is the number of features."""

    v: int
    w: int
    left: Polynomial
    right: Polynomial

    @property
    def rank(self) -> int:
        """Products that it sums."""
        return self.left.outputs

    def toward(self, parent: int) -> "Edge":
        """The same edge written with `parent` as v."""
        return self if self.v == parent else Edge(self.w, self.v, self.right, self.left)


@dataclass(frozen=True, eq=False)
class TreeScore:
    """sum_v unary[v](x_v) + sum_e <left(x_v), right(x_w)>; `unary[v]` is None or has one output."""

    unary: tuple[Polynomial | None, ...]
    edges: tuple[Edge, ...]
    dim: int

    def __post_init__(self) -> None:
        _check_tree(self.arity, self.edges)

    @property
    def arity(self) -> int:
        """Vertices."""
        return len(self.unary)

    def rooted(self, root: int) -> tuple[tuple[int, Edge | None], ...]:
        """Vertices from the root outwards, each with its edge toward the parent (parent as v; None at the root)."""
        found: list[tuple[int, Edge | None]] = [(root, None)]
        for vertex, above in found:
            parent = -1 if above is None else above.v
            for edge in self.edges:
                if vertex in (edge.v, edge.w):
                    away = edge.toward(vertex)
                    if away.w != parent:
                        found.append((away.w, away))
        return tuple(found)

    def __call__(self, tokens: Array) -> Array:
        """Added up from the leaves to vertex 0, the operations of the search, so that both agree to the last bit."""
        at: list[Array] = [tokens[..., v, :] for v in range(self.arity)]
        total = [0 * x[..., 0] if u is None else u(x)[..., 0] for u, x in zip(self.unary, at, strict=True)]
        for child, edge in reversed(self.rooted(0)):
            if edge is not None:
                message = dot(edge.left(at[edge.v]), edge.right(at[child])) + total[child]
                total[edge.v] = total[edge.v] + message
        return total[0]

    def gradient(self, tokens: Array) -> Array:
        """By every coordinate of every token of the tuple."""
        at: list[Array] = [tokens[..., v, :] for v in range(self.arity)]
        parts: list[list[Array]] = []
        for i in range(self.dim):
            slope = [
                0 * x[..., 0] if u is None else u.derivative(i)(x)[..., 0] for u, x in zip(self.unary, at, strict=True)
            ]
            for e in self.edges:
                slope[e.v] = slope[e.v] + dot(e.left.derivative(i)(at[e.v]), e.right(at[e.w]))
                slope[e.w] = slope[e.w] + dot(e.left(at[e.v]), e.right.derivative(i)(at[e.w]))
            parts.append(slope)
        return stack([stack(slope, -1) for slope in parts], -1)

    @classmethod
    def linear(cls, a: Any) -> "TreeScore":
        """a'x, arity 1."""
        weight = arguments.array("the direction", a)
        if weight.ndim != 1 or not len(weight):
            raise InfoFlowError(f"expected a direction of d numbers, got shape {weight.shape}.")
        return cls((Polynomial.linear(weight[None, :]),), (), weight.shape[0])

    @classmethod
    def bilinear(cls, A: Any, constant: float = 0.0, scale: float = 1.0) -> "TreeScore":
        """constant + scale * x_1' A x_2, arity 2, rank-reduced when A has low rank."""
        left, right = factor(scale * arguments.array("the matrix", A))
        d = left.inputs
        unary = Polynomial.constant(constant, d) if constant else None
        return cls((unary, None), (Edge(0, 1, left, right),), d)


@dataclass(frozen=True, eq=False)
class NormOfSum:
    """|x_1 + ... + x_k|^2."""

    arity: int
    dim: int

    def __post_init__(self) -> None:
        arguments.integer("arity", self.arity)
        arguments.integer("dim", self.dim)

    def __call__(self, tokens: Array) -> Array:
        total = sum_of_tokens(tokens)
        return dot(total, total)

    def gradient(self, tokens: Array) -> Array:
        """Twice the sum, for every token of the tuple."""
        return concatenate([2 * sum_of_tokens(tokens)[..., None, :]] * self.arity, -2)


@dataclass(frozen=True, eq=False)
class CallableScore:
    """Any batched function of k tokens, written so that it takes numpy arrays and torch tensors.

    `lipschitz` (with respect to each token's Euclidean norm) opens the occupancy construction.
    """

    function: Callable[[Any], Any]
    arity: int
    dim: int
    lipschitz: float | None = None

    def __call__(self, tokens: Array) -> Array:
        values = self.function(tokens)
        if tuple(getattr(values, "shape", ())) != tuple(tokens.shape[:-2]):
            raise InfoFlowError(
                f"expected the score function to map {tuple(tokens.shape)} to {tuple(tokens.shape[:-2])}, "
                f"got {tuple(getattr(values, 'shape', ()))}."
            )
        return values

    def gradient(self, tokens: Array) -> Array:
        """By automatic differentiation, in torch."""
        return differentiate(self, tokens)


def differentiate(function: Callable[[Array], Array], x: Array) -> Array:
    """Gradient of sum(function(x)) by torch, given back as the kind of x; zero where the function ignores x."""
    import torch

    with torch.enable_grad():
        leaf = (x.detach().clone() if is_torch(x) else torch.tensor(x)).requires_grad_()
        try:
            value = function(leaf).sum()
        except (TypeError, RuntimeError, AttributeError) as error:
            raise InfoFlowError(f"expected a function that takes torch tensors too, it failed with: {error}") from None
        (slope,) = torch.autograd.grad(value, leaf, allow_unused=True) if value.requires_grad else (None,)
    slope = torch.zeros_like(leaf) if slope is None else slope
    return slope if is_torch(x) else slope.numpy()


def factor(A: np.ndarray) -> tuple[Polynomial, Polynomial]:
    """A = L' R with as few rows as the rank of A: <L x, R y> = x' A y. Full rank keeps L = I, R = A."""
    if A.ndim != 2 or not len(A) or A.shape[0] != A.shape[1]:
        raise InfoFlowError(f"expected a square matrix, got shape {A.shape}.")
    d = A.shape[0]
    rank = int(np.linalg.matrix_rank(A)) if np.abs(A).max() > 0 else 0
    if rank == d:
        return Polynomial.identity(d), Polynomial.linear(A)
    u, s, vt = np.linalg.svd(A)
    rank = max(rank, 1)
    return Polynomial.linear(u[:, :rank].T), Polynomial.linear(s[:rank, None] * vt[:rank])


def tree_form(score: Score) -> TreeScore | None:
    """The score as a TreeScore when it decomposes over a tree, else None."""
    if isinstance(score, TreeScore):
        return score
    if isinstance(score, NormOfSum) and score.arity <= 2:
        square = Polynomial.quadratic(np.eye(score.dim))
        if score.arity == 1:
            return TreeScore((square,), (), score.dim)
        left, right = factor(2.0 * np.eye(score.dim))
        return TreeScore((square, square), (Edge(0, 1, left, right),), score.dim)
    return None


def _check_tree(k: int, edges: tuple[Edge, ...]) -> None:
    if k < 1:
        raise InfoFlowError("expected a score over at least one token.")
    parent = list(range(k))

    def find(v: int) -> int:
        while parent[v] != v:
            v = parent[v]
        return v

    for edge in edges:
        if not (0 <= edge.v < k and 0 <= edge.w < k) or edge.left.outputs != edge.right.outputs:
            raise InfoFlowError(f"expected edges between the {k} vertices with equal ranks, got ({edge.v}, {edge.w}).")
        a, b = find(edge.v), find(edge.w)
        if a == b:
            raise InfoFlowError(f"expected the edges to form a tree, edge ({edge.v + 1}, {edge.w + 1}) closes a cycle.")
        parent[a] = b
    if len(edges) != k - 1:
        raise InfoFlowError(f"expected {k - 1} edges for a tree on {k} vertices, got {len(edges)}.")


WIDEN = 1e-12  # 9,000 times 2^-53: above the rounding of the sums it covers, which have fewer terms

Domain = tuple[float, float]


def polynomial_range(polynomial: Polynomial, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper), one entry per output, with lower <= p(x) <= upper on the box; monomial by monomial."""
    lower, upper = np.zeros(polynomial.outputs), np.zeros(polynomial.outputs)
    for exponent, column in zip(polynomial.exponents, polynomial.coefficients.T, strict=True):
        interval = (1.0, 1.0)
        for power in exponent:
            interval = _times(interval, _power(domain, int(power)))
        ends = np.outer(column, interval)
        lower, upper = lower + ends.min(1), upper + ends.max(1)
    slack = WIDEN * polynomial.bound(max(abs(domain[0]), abs(domain[1])))
    return lower - slack, upper + slack


def score_range(score: Score, domain: Domain) -> tuple[float, float]:
    """(lower, upper) with lower <= score <= upper for tokens in the box."""
    _check(domain)
    if isinstance(score, TreeScore):
        parts = [_pair(unary, domain)[0] for unary in score.unary if unary is not None]
        for edge in score.edges:
            features = zip(_pair(edge.left, domain), _pair(edge.right, domain), strict=True)
            parts.extend(_times(left, right) for left, right in features)
        low, high = sum(part[0] for part in parts), sum(part[1] for part in parts)
        slack = WIDEN * sum(max(abs(part[0]), abs(part[1])) for part in parts)
        return low - slack, high + slack
    if isinstance(score, NormOfSum):
        low, high = _power((score.arity * domain[0], score.arity * domain[1]), 2)
        return score.dim * low * (1 - WIDEN), score.dim * high * (1 + WIDEN)
    raise InfoFlowError("expected a tree score or a norm of a sum; the range of a general score is not known.")


def score_bound(score: Score, domain: Domain) -> float:
    """sup |score| over tokens in the box, from above."""
    low, high = score_range(score, domain)
    return max(abs(low), abs(high))


def lipschitz(score: Score, domain: Domain) -> tuple[float, ...]:
    """For each token a constant L_v with |score(.., x_v, ..) - score(.., y_v, ..)| <= L_v |x_v - y_v| on the box.

    L_v = sup |d score / d x_v|_2, at most the norm of the bounds of its coordinates. For |x_1 + .. + x_k|^2 it is
    2 |x_1 + .. + x_k| <= 2 k sqrt(d) max(|low|, |high|).
    """
    _check(domain)
    radius = max(abs(domain[0]), abs(domain[1]))
    if isinstance(score, NormOfSum):
        constant = 2 * score.arity * math.sqrt(score.dim) * radius * (1 + WIDEN)
        return (constant,) * score.arity
    if isinstance(score, TreeScore):
        slopes = np.zeros((score.arity, score.dim))
        for v, unary in enumerate(score.unary):
            if unary is not None:
                slopes[v] += unary.slopes(radius)[:, 0]
        for e in score.edges:
            slopes[e.v] += e.left.slopes(radius) @ e.right.bound(radius)
            slopes[e.w] += e.right.slopes(radius) @ e.left.bound(radius)
        return tuple(float(norm) * (1 + WIDEN) for norm in np.linalg.norm(slopes, axis=1))
    if isinstance(score, CallableScore) and score.lipschitz is not None:
        return (score.lipschitz,) * score.arity
    raise InfoFlowError("expected a score with a known Lipschitz constant; give `lipschitz` to the CallableScore.")


def _pair(polynomial: Polynomial, domain: Domain) -> list[tuple[float, float]]:
    """The range of each output as a pair of numbers."""
    lower, upper = polynomial_range(polynomial, domain)
    return list(zip(lower.tolist(), upper.tolist(), strict=True))


def _check(domain: Domain) -> None:
    if not domain[0] < domain[1] or not all(math.isfinite(end) for end in domain):
        raise InfoFlowError(f"expected a finite box (low, high) with low < high, got {domain}.")


def _times(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    products = [x * y for x in a for y in b]
    return float(min(products)), float(max(products))


def _power(interval: Domain, power: int) -> tuple[float, float]:
    ends = [float(end) ** power for end in interval]
    if power and power % 2 == 0 and interval[0] <= 0 <= interval[1]:
        return 0.0, max(ends)
    return min(ends), max(ends)
