"""From a layout to the heads of an information flow: edge messages by dynamic programming, reads of roots by the CLS.

A message from child w to parent v scores sign <left(x_t), right(x_s)> + b_w(s) with b_w(s) = sign u_w(x_s) + the
messages into w that token s has received: exactly what the token knows. The CLS reads the root r by b_r(s). Where
positions must differ, a token's own key is forbidden; the second largest subtracts its message (flow.normal_form).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from infoflow.architecture import Architecture
from infoflow.flow.layout import Layout, Refused, lay_out
from infoflow.flow.normal_form import HELD, Message, normal_form
from infoflow.flow.sets import FlowHead, GlobalHead, LayerInput, MaxHead, PositionHead, RowScores, Slot
from infoflow.targets import Extremum, KthLargest, PositionSum, Target, TreeScore, WholeSequence, tree_form
from infoflow.targets.comparison import compared


def flow_layout(target: Target, arch: Architecture, T: int) -> Layout:
    """The schedule of the target's jobs on these heads, whatever the embedding; Refused with every reason.

    Different positions need no position code here: a score of the framework is given t and s. A schedule does not see
    how long the sequence is, only the positions that the target names, so it is made for the shortest with these."""
    target = skeleton(target)
    T = min(T, _shortest(target))
    roomy = replace(arch, embed=None, width=None, kv_heads=None, rotary=False)
    if normal_form(target, T).single_positions and arch.positions == "none":
        roomy = replace(roomy, positions="additive")
    return lay_out(target, T, roomy)


def _shortest(target: Target) -> int:
    """A length at which every position the target names exists, and two more."""
    ends = [2]
    for term in (compared(term) for term in target.terms if not isinstance(term, WholeSequence)):
        sets = [term.positions] if isinstance(term, PositionSum) else getattr(term, "sets", None) or ()
        for named in sets:
            if isinstance(named, slice):
                ends += [abs(end) for end in (named.start, named.stop) if end is not None]
            elif named is not None:
                ends.append(named[-1] + 1)
    return 2 + max(ends)


def skeleton(target: Target) -> Target:
    """The target with a tree in place of every score of one or two tokens that has none.

    A head of the framework compares by any function of what both sides know: one of a token or of a pair is retrieved
    as a tree with that many vertices is, and the schedule depends on the vertices alone.
    """
    return replace(target, terms=tuple(_with_tree(term) for term in target.terms))


def _with_tree(term: Any) -> Any:
    if not isinstance(term, Extremum) or term.arity > 2 or tree_form(term.score) is not None:
        return term
    plain = TreeScore.linear(np.ones(term.dim)) if term.arity == 1 else TreeScore.bilinear(np.eye(term.dim))
    return replace(term, score=plain)


def program(target: Target, layout: Layout, cls_skip: bool = True) -> list[list[Slot]]:
    """The heads of every layer. With `cls_skip` the CLS moves only where the layout gives it a read; otherwise its idle
    heads compare constants, as an empty set makes them."""
    layers: list[list[list[FlowHead | None]]] = [[[None, None] for _ in range(h)] for h in layout.heads]
    for jobs in layout.jobs:
        for job in jobs:
            column = 0 if job.message is not None else 1
            layers[job.layer][job.head][column] = _head(target, layout, job.term, job.message)
    idle = None if cls_skip else MaxHead(lambda state: lambda rows: np.zeros((len(rows), state.T)))
    return [[Slot(tokens, cls if cls is not None else idle) for tokens, cls in slots] for slots in layers]


def global_program(arch: Architecture) -> list[list[Slot]]:
    """The CLS aggregates everything in the last layer with its first head; all else rests."""
    layers = [[Slot() for _ in range(h)] for h in arch.heads]
    layers[-1][0] = Slot(cls=GlobalHead())
    return layers


def choose(target: Target, arch: Architecture, T: int, cls_skip: bool = True) -> tuple[list[list[Slot]], str]:
    """The program for an architecture, and a note when no layout exists and the CLS aggregates globally instead."""
    try:
        return program(target, flow_layout(target, arch, T), cls_skip), ""
    except Refused as refused:
        return global_program(
            arch
        ), "global aggregation, since max-position retrieval has no layout here: " + "; ".join(refused.reasons)


def _head(target: Target, layout: Layout, index: int, message: Message | None) -> FlowHead:
    term = _compared(target, index)
    if isinstance(term, PositionSum):
        return PositionHead(term.positions)
    if message is None:
        root = layout.form.terms[index].root

        def read(state: LayerInput) -> RowScores:
            score = _known(state, layout, target, index, root)
            return lambda rows: np.broadcast_to(score, (len(rows), state.T))

        return MaxHead(read)
    if message.shift:
        return _neighbour(index, message.shift)
    child, excludes = message.child, message.excludes
    compare = _pair_scores(term, message)

    def retrieve(state: LayerInput) -> RowScores:
        pairs = compare(state.X)
        known = _known(state, layout, target, index, child)

        def scores(rows: np.ndarray) -> np.ndarray:
            found: np.ndarray = pairs(rows) + known
            if excludes:
                own = rows < state.T  # the CLS is no token and leaves out none
                found[np.flatnonzero(own), rows[own]] = -np.inf
            return found

        return scores

    return MaxHead(retrieve, name=(index, child))


def _neighbour(index: int, shift: int) -> FlowHead:
    """The token `shift` positions away, where there is one; the CLS stands nowhere."""

    def fetch(state: LayerInput) -> RowScores:
        def scores(rows: np.ndarray) -> np.ndarray:
            there = (rows + shift)[:, None] == np.arange(state.T)
            return np.where(there & (rows < state.T)[:, None], 0.0, -np.inf)

        return scores

    return MaxHead(fetch, name=(index, HELD))


def _pair_scores(term: object, message: Message) -> Callable[[np.ndarray], RowScores]:
    """X -> rows -> sign <left(x_t), right(x_s)> for the query positions t in rows and all keys s."""
    if isinstance(term, KthLargest):
        return lambda X: lambda rows: np.zeros((len(rows), len(X)))
    if _general(term):
        return lambda X: lambda rows: _all_pairs(term, message, X, rows)
    tree, sign = _tree(term)
    edge = next(e for e in tree.edges if {e.v, e.w} == {message.child, message.parent}).toward(message.parent)

    def of(X: np.ndarray) -> RowScores:
        queries = sign * edge.left(X)
        keys = np.ascontiguousarray(edge.right(X).T)
        return lambda rows: queries[rows] @ keys

    return of


def _general(term: object) -> bool:
    return isinstance(term, Extremum) and tree_form(term.score) is None


def _all_pairs(term: Any, message: Message, X: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """sign score with the parent at t and the child at s, for t in rows and all s; the CLS knows no pair."""
    parents = np.broadcast_to(X[np.minimum(rows, len(X) - 1)][:, None], (len(rows), *X.shape))
    children = np.broadcast_to(X, parents.shape)
    pair = (parents, children) if message.parent < message.child else (children, parents)
    scores: np.ndarray = (1.0 if term.kind == "max" else -1.0) * np.asarray(term.score(np.stack(pair, -2)))
    return scores


def _known(state: LayerInput, layout: Layout, target: Target, index: int, vertex: int) -> np.ndarray:
    """b_v(s) for every token s: its own score, the messages it has received, -inf where the vertex may not stand."""
    term = _compared(target, index)
    total = _own_score(term, layout.form.terms[index].root, vertex, state.X)
    for message in layout.form.terms[index].incoming(vertex):
        total = total + message.sign * state.best[index, message.child]
    if isinstance(term, Extremum) and term.sets is not None:
        allowed = np.zeros(state.T, dtype=bool)
        allowed[term.choices(state.T)[vertex]] = True
        total = np.where(allowed, total, -np.inf)
    return total


def _compared(target: Target, index: int) -> Extremum | KthLargest | PositionSum:
    return compared(target.terms[index])


def _own_score(term: object, root: int, vertex: int, X: np.ndarray) -> np.ndarray:
    """What every token contributes to b_v by itself. The root of a second largest has no score of its own."""
    if isinstance(term, KthLargest):
        return np.zeros(len(X)) if term.k == 2 and vertex == root else X @ term.direction
    if _general(term):
        assert isinstance(term, Extremum)
        sign = 1.0 if term.kind == "max" else -1.0
        return sign * np.asarray(term.score(X[:, None, :])) if term.arity == 1 else np.zeros(len(X))
    tree, sign = _tree(term)
    unary = tree.unary[vertex]
    return np.zeros(len(X)) if unary is None else sign * unary(X)[:, 0]


def _tree(term: object) -> tuple[TreeScore, float]:
    """The tree of an extremum that has a layout, and the sign that makes it a maximum."""
    assert isinstance(term, Extremum)
    tree = tree_form(term.score)
    assert tree is not None
    return tree, 1.0 if term.kind == "max" else -1.0
