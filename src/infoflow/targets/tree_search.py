"""The best tuple of a tree score by dynamic programming: O(T^2) work per edge, bounded memory.

Rooted at vertex 0, m_v(t) = u_v(x_t) + sum_{children c} max_s [<left(x_t), right(x_s)> + m_c(s)] and the best score is
max_t m_0(t). Rounding is monotone, so this maximum is, bit for bit, the largest of the scores `TreeScore` computes.

Ties. Among equal scores the lexicographically first tuple wins. Where each vertex has a larger number than its parent
(all named targets) reading the first maximiser downwards gives that tuple: the choices below a vertex are independent,
and the vertex is the smallest of its subtree. For other numberings t_0, t_1, ... are fixed one after the other.
"""

import numpy as np

from infoflow.targets.arrays import (
    Array,
    broadcast,
    concatenate,
    detach,
    full,
    in_threads,
    indices,
    is_torch,
    like,
    pair_dots,
    search_bytes,
    stack,
    take,
    where,
)
from infoflow.targets.score import Edge, TreeScore


def best_tuples(score: TreeScore, X: Array, sign: int, allowed: Array, apart: bool = False) -> tuple[Array, Array]:
    """X (B, T, d), allowed (B or 1, k, T) -> winners (B, k) and sign * (their scores) (B,), maximal.

    `apart` asks for different positions at the two ends of each edge (a relaxation of pairwise different).
    """
    X = detach(X)
    B, T = X.shape[0], X.shape[1]
    rows = max(1, search_bytes(X) // (8 * T * T))

    def search(low: int) -> tuple[Array, Array]:
        part = slice(low, low + rows)
        return _search(score, X[part], sign, allowed if allowed.shape[0] == 1 else allowed[part], apart)

    found = in_threads(search, range(0, B, rows)) if not is_torch(X) else [search(low) for low in range(0, B, rows)]
    if not found:
        return indices(np.zeros((0, score.arity)), X), full((0,), 0.0, X)
    return concatenate([winners for winners, _ in found], 0), concatenate([values for _, values in found], 0)


def _search(score: TreeScore, X: Array, sign: int, allowed: Array, apart: bool) -> tuple[Array, Array]:
    if all(edge is None or edge.v < vertex for vertex, edge in score.rooted(0)):
        return _pass(score, 0, X, sign, allowed, apart)
    winners, value = _pass(score, 0, X, sign, allowed, apart)
    for root in range(1, score.arity):
        allowed = _fix(allowed, root - 1, winners[:, root - 1], X)
        winners, _ = _pass(score, root, X, sign, allowed, apart)
    return winners, value


def _fix(allowed: Array, vertex: int, chosen: Array, X: Array) -> Array:
    """`allowed` with `vertex` restricted to the one position chosen for it in each sequence."""
    one = indices(np.arange(X.shape[1]), X)[None, :] == chosen[:, None]
    every = broadcast(allowed, (X.shape[0], *allowed.shape[1:]))
    return stack([one if v == vertex else every[:, v] for v in range(allowed.shape[1])], 1)


def best_at(score: TreeScore, X: Array, sign: int, allowed: Array, root: int, apart: bool) -> Array:
    """X (B, T, d) -> (B, T): the best sign * score of the tuples with t_root = t, for every t; -inf without a tuple.

    Differentiable in X."""
    return _climb(score, root, X, sign, allowed, apart)[0]


def _pass(score: TreeScore, root: int, X: Array, sign: int, allowed: Array, apart: bool) -> tuple[Array, Array]:
    best, choice = _climb(score, root, X, sign, allowed, apart)
    at = {root: best.argmax(-1)}
    for child, edge in score.rooted(root):
        if edge is not None:
            at[child] = take(choice[child], at[edge.v][:, None], 1)[:, 0]
    value = take(best, at[root][:, None], 1)[:, 0]
    return stack([at[v] for v in range(score.arity)], -1), value


def _climb(
    score: TreeScore, root: int, X: Array, sign: int, allowed: Array, apart: bool
) -> tuple[Array, dict[int, Array]]:
    """m_root (B, T), and for every other vertex the best position under each position of its parent."""
    closed = full((1,), -np.inf, X)[0]
    message: dict[int, Array] = {}
    choice: dict[int, Array] = {}
    for vertex, unary in enumerate(score.unary):
        own = full(tuple(X.shape[:2]), 0.0, X) if unary is None else sign * unary(X)[..., 0]
        message[vertex] = where(allowed[:, vertex], own, closed)
    for child, edge in reversed(score.rooted(root)):
        if edge is not None:
            value, choice[child] = respond(edge, X, sign, message[child], apart)
            message[edge.v] = message[edge.v] + value
    return message[root], choice


def respond(edge: Edge, X: Array, sign: int, below: Array, apart: bool) -> tuple[Array, Array]:
    """For each position t of the parent: max over s of sign <left(x_t), right(x_s)> + below(s), and the first s."""
    left, right = sign * edge.left(X), edge.right(X)
    B, T = X.shape[0], X.shape[1]
    rows = max(1, search_bytes(X) // (8 * B * T))
    best, first = [], []
    for low in range(0, T, rows):
        table = pair_dots(left[:, low : low + rows], right) + below[:, None, :]
        if apart:
            table = table + like(_diagonal(low, table.shape[1], T), X)
        winner = table.argmax(-1)
        first.append(winner)
        best.append(take(table, winner[..., None], -1)[..., 0])
    return concatenate(best, 1), concatenate(first, 1)


def _diagonal(low: int, rows: int, T: int) -> np.ndarray:
    """-inf where row low + r meets column low + r, 0 elsewhere."""
    out = np.zeros((rows, T))
    out[np.arange(rows), low + np.arange(rows)] = -np.inf
    return out
