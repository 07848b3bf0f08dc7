"""Pairwise different positions in a tree score: branch and bound over the relaxed dynamic programme.

The relaxation asks only the ends of each edge to differ. Where its winner repeats a position, t_a = t_b = p, every
admissible tuple has t_a != p or t_b != p: two children with one candidate fewer. A node is dropped when its relaxed
optimum cannot beat the best admissible tuple of its sequence, in value and then in lexicographic order, so the result
is exact, ties included. All open nodes of all sequences are searched in one batch.
"""

import numpy as np

from infoflow.targets.arrays import Array, indices, is_torch, like
from infoflow.targets.enumeration import all_different
from infoflow.targets.score import TreeScore
from infoflow.targets.tree_search import best_tuples


def best_distinct_tuples(score: TreeScore, X: Array, sign: int, allowed: Array) -> tuple[Array, Array]:
    """X (B, T, d), allowed (1, k, T) -> winners (B, k) with pairwise different entries and sign * scores (B,)."""
    winners, values = best_tuples(score, X, sign, allowed, apart=True)
    if score.arity <= 2:
        return winners, values
    found = _host(winners)
    open_rows = np.flatnonzero(~all_different(found))
    best: dict[int, tuple[float, tuple[int, ...]]] = {}
    value = _host(values)
    nodes: list[Node] = [(int(row), frozenset(), float(value[row]), tuple(found[row].tolist())) for row in open_rows]
    while nodes:
        children = [child for node in nodes if _promising(node, best) for child in _split(node)]
        nodes = _relax(score, X, sign, allowed, children, best)
    for row, (_, winner) in best.items():
        found[row] = winner
        value[row] = best[row][0]
    return indices(found, X), like(value, X)


Node = tuple[
    int, frozenset[tuple[int, int]], float, tuple[int, ...]
]  # sequence, closed (vertex, position), relaxed best


def _promising(node: Node, best: dict[int, tuple[float, tuple[int, ...]]]) -> bool:
    row, _, bound, relaxed = node
    if bound == -np.inf:
        return False
    return row not in best or bound > best[row][0] or (bound == best[row][0] and relaxed < best[row][1])


def _split(node: Node) -> list[tuple[int, frozenset[tuple[int, int]]]]:
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
) -> list[Node]:
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
    still_open: list[Node] = []
    for number, different in enumerate(all_different(found)):
        row, closed = children[number]
        node: Node = (row, closed, float(value[number]), tuple(found[number].tolist()))
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
