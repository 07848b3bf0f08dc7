"""The best tuple of tokens: by dynamic programming for tree scores, by enumeration for scores without structure.

Trees take O(T^2) work per edge and bounded memory. Rooted at vertex 0, m_v(t) = u_v(x_t) + sum_{children c}
max_s [<left(x_t), right(x_s)> + m_c(s)] and the best score is max_t m_0(t). Rounding is monotone, so this maximum is,
bit for bit, the largest of the scores `TreeScore` computes. Ties: among equal scores the lexicographically first tuple
wins. Where each vertex has a larger number than its parent (all named targets) reading the first maximiser downwards
gives that tuple: the choices below a vertex are independent, and the vertex is the smallest of its subtree. For other
numberings t_0, t_1, ... are fixed one after the other.

Pairwise different positions in a tree: branch and bound over the relaxed programme, which asks only the ends of each
edge to differ. Where its winner repeats a position, t_a = t_b = p, every admissible tuple has t_a != p or t_b != p: two
children with one candidate fewer. A node is dropped when its relaxed optimum cannot beat the best admissible tuple of
its sequence, in value and then in lexicographic order, so the result is exact, ties included. All open nodes of all
sequences are searched in one batch.

Any other score: every tuple, in lexicographic order, block by block, the first best one kept.
"""

import math

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
from infoflow.targets.score import Edge, Score, TreeScore


def best_of_all_tuples(
    score: Score, X: Array, sign: int, choices: tuple[np.ndarray, ...], distinct: bool
) -> tuple[Array, Array]:
    """X (B, T, d); choices[v] the sorted positions t_v may take -> winners (B, k), sign * (their scores) (B,)."""
    X = detach(X)
    B, k, d = X.shape[0], score.arity, X.shape[2]
    cells = search_bytes(X) // (8 * k * d)  # tuples of one block, over all its sequences
    block = max(1, min(cells, math.prod(len(choice) for choice in choices), 4096))
    rows = max(1, cells // block)
    found = [_enumerate(score, X[low : low + rows], sign, choices, distinct, block) for low in range(0, B, rows)]
    if not found:
        return indices(np.zeros((0, k)), X), full((0,), 0.0, X)
    return concatenate([w for w, _ in found], 0), concatenate([v for _, v in found], 0)


def _enumerate(
    score: Score, X: Array, sign: int, choices: tuple[np.ndarray, ...], distinct: bool, block: int
) -> tuple[Array, Array]:
    B = X.shape[0]
    best, winners = full((B,), -np.inf, X), indices(np.zeros((B, score.arity)), X)
    for low in range(0, math.prod(len(choice) for choice in choices), block):
        tuples = tuples_at(choices, low, block)
        if distinct:
            tuples = tuples[all_different(tuples)]
        if len(tuples) == 0:
            continue
        positions = indices(tuples, X)
        values = sign * score(X[:, positions])  # (B, block, k, d) -> (B, block)
        first = values.argmax(-1)
        value = take(values, first[:, None], 1)[:, 0]
        better = value > best
        best = where(better, value, best)
        winners = where(better[:, None], positions[first], winners)
    return winners, best


def tuples_at(choices: tuple[np.ndarray, ...], low: int, count: int) -> np.ndarray:
    """Tuples number low, low + 1, ... (at most `count`) of the product of `choices`, in lexicographic order."""
    sizes = [len(choice) for choice in choices]
    number = np.arange(low, min(low + count, math.prod(sizes)), dtype=np.int64)
    columns = []
    for choice in reversed(choices):
        number, digit = np.divmod(number, len(choice))
        columns.append(choice[digit])
    return np.stack(columns[::-1], axis=-1)


def all_different(tuples: np.ndarray) -> np.ndarray:
    """Rows (n, k) whose entries are pairwise different."""
    ordered = np.sort(tuples, axis=-1)
    made: np.ndarray = (ordered[:, 1:] != ordered[:, :-1]).all(-1)
    return made


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


def best_distinct_tuples(score: TreeScore, X: Array, sign: int, allowed: Array) -> tuple[Array, Array]:
    """X (B, T, d), allowed (1, k, T) -> winners (B, k) with pairwise different entries and sign * scores (B,)."""
    winners, values = best_tuples(score, X, sign, allowed, apart=True)
    if score.arity <= 2:
        return winners, values
    found = _host(winners)
    open_rows = np.flatnonzero(~all_different(found))
    best: dict[int, tuple[float, tuple[int, ...]]] = {}
    value = _host(values)
    nodes: list[_Branch] = [(int(row), frozenset(), float(value[row]), tuple(found[row].tolist())) for row in open_rows]
    while nodes:
        children = [child for node in nodes if _promising(node, best) for child in _split(node)]
        nodes = _relax(score, X, sign, allowed, children, best)
    for row, (_, winner) in best.items():
        found[row] = winner
        value[row] = best[row][0]
    return indices(found, X), like(value, X)


# The sequence, closed (vertex, position) pairs, the relaxed best value and the tuple that has it.
_Branch = tuple[int, frozenset[tuple[int, int]], float, tuple[int, ...]]


def _promising(node: _Branch, best: dict[int, tuple[float, tuple[int, ...]]]) -> bool:
    row, _, bound, relaxed = node
    if bound == -np.inf:
        return False
    return row not in best or bound > best[row][0] or (bound == best[row][0] and relaxed < best[row][1])


def _split(node: _Branch) -> list[tuple[int, frozenset[tuple[int, int]]]]:
    """The two children that take the first repeated position away from one or the other of its vertices."""
    row, closed, _, relaxed = node
    for b, position in enumerate(relaxed):
        a = relaxed.index(position)
        if a < b:
            return [(row, closed | {(vertex, position)}) for vertex in (b, a)]
    return []


def _relax(
    score: TreeScore,
    X: Array,
    sign: int,
    allowed: Array,
    children: list[tuple[int, frozenset[tuple[int, int]]]],
    best: dict[int, tuple[float, tuple[int, ...]]],
) -> list[_Branch]:
    """Search all children at once; admissible winners update `best`, the others come back as open nodes."""
    if not children:
        return []
    masks = np.broadcast_to(_host(allowed), (len(children), *allowed.shape[1:])).copy()
    for number, (_, closed) in enumerate(children):
        for vertex, position in closed:
            masks[number, vertex, position] = False
    rows = indices([row for row, _ in children], X)
    winners, values = best_tuples(score, X[rows], sign, _mask(masks, X), apart=True)
    found, value = _host(winners), _host(values)
    still_open: list[_Branch] = []
    for number, different in enumerate(all_different(found)):
        row, closed = children[number]
        node: _Branch = (row, closed, float(value[number]), tuple(found[number].tolist()))
        if not different:
            still_open.append(node)
        elif _promising(node, best):
            best[row] = (node[2], node[3])
    return still_open


def _host(x: Array) -> np.ndarray:
    if not is_torch(x):
        return np.array(x)
    return np.array((x.double() if x.is_floating_point() else x).cpu().numpy())


def _mask(values: np.ndarray, X: Array) -> Array:
    return indices(values, X) > 0
