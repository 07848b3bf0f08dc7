"""Scores: what an extremum compares. A score takes k tokens and gives one number.

`TreeScore` is the compiler's grammar: sum_v u_v(x_v) + sum_{(v,w) in edges} <left(x_v), right(x_w)> with the edges a
tree (or forest's absence: k = 1 has no edge) on the k vertices. `NormOfSum` is |x_1 + ... + x_k|^2, a tree only for
k <= 2. `CallableScore` is anything else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from infoflow.errors import InfoFlowError
from infoflow.targets.polynomial import Polynomial


@runtime_checkable
class Score(Protocol):
    @property
    def arity(self) -> int: ...
    @property
    def dim(self) -> int: ...
    def __call__(self, tokens: Any) -> Any:
        """tokens (..., k, d), numpy or torch -> (...)."""
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
        return len(self.unary)

    def __call__(self, tokens: Any) -> Any:
        total: Any = 0
        for vertex, unary in enumerate(self.unary):
            if unary is not None:
                total = total + unary(tokens[..., vertex, :])[..., 0]
        for edge in self.edges:
            total = total + (edge.left(tokens[..., edge.v, :]) * edge.right(tokens[..., edge.w, :])).sum(-1)
        return total

    @classmethod
    def linear(cls, a: Any) -> "TreeScore":
        """a'x, arity 1."""
        weight = np.asarray(a, dtype=np.float64)
        return cls((Polynomial.linear(weight[None, :]),), (), weight.shape[0])

    @classmethod
    def bilinear(cls, A: Any, constant: float = 0.0, scale: float = 1.0) -> "TreeScore":
        """constant + scale * x_1' A x_2, arity 2, rank-reduced when A has low rank."""
        left, right = factor(scale * np.asarray(A, dtype=np.float64))
        d = left.inputs
        unary = Polynomial.constant(constant, d) if constant else None
        return cls((unary, None), (Edge(0, 1, left, right),), d)


@dataclass(frozen=True, eq=False)
class NormOfSum:
    """|x_1 + ... + x_k|^2."""

    arity: int
    dim: int

    def __call__(self, tokens: Any) -> Any:
        total = tokens.sum(-2)
        return (total * total).sum(-1)


@dataclass(frozen=True, eq=False)
class CallableScore:
    """Any batched function of k tokens; `lipschitz` (with respect to each token's Euclidean norm) opens the
    occupancy construction."""

    function: Callable[[Any], Any]
    arity: int
    dim: int
    lipschitz: float | None = None

    def __call__(self, tokens: Any) -> Any:
        return self.function(tokens)


def factor(A: np.ndarray) -> tuple[Polynomial, Polynomial]:
    """A = L' R with as few rows as the rank of A: <L x, R y> = x' A y. Full rank keeps L = I, R = A."""
    d = A.shape[0]
    if A.ndim != 2 or A.shape[1] != d:
        raise InfoFlowError(f"expected a square matrix, got shape {A.shape}.")
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
