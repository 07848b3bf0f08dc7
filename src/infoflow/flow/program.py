"""From a layout to the heads of an information flow: edge messages by dynamic programming, reads of roots by the CLS.

A message from child w to parent v scores sign <left(x_t), right(x_s)> + b_w(s) with b_w(s) = sign u_w(x_s) + the
messages into w that token s has received: exactly what the token knows. The CLS reads the root r by b_r(s).
"""

from dataclasses import replace

import numpy as np

from infoflow.architecture import Architecture
from infoflow.flow.layout import Layout, Refused, lay_out
from infoflow.flow.normal_form import Message
from infoflow.flow.sets import GlobalHead, Head, MaxHead, PositionHead, RowScores, Slot, State
from infoflow.targets import Extremum, KthLargest, PositionSum, Target, TreeScore, tree_form

PLENTY = 10**6  # directions per head: a flow is limited by heads, its cost by the embedding


def flow_layout(target: Target, arch: Architecture, T: int) -> Layout:
    """The schedule of the target's jobs on these heads, whatever the embedding; Refused with every reason."""
    roomy = replace(arch, embed=tuple(h * PLENTY for h in arch.heads), width=None, kv_heads=None, rotary=False)
    return lay_out(target, T, roomy)


def program(target: Target, layout: Layout, cls_skip: bool = True) -> list[list[Slot]]:
    """The heads of every layer. With `cls_skip` the CLS moves only where the layout gives it a read; otherwise its idle
    heads compare constants, as an empty set makes them."""
    layers: list[list[list[Head | None]]] = [[[None, None] for _ in range(h)] for h in layout.heads]
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


def _head(target: Target, layout: Layout, index: int, message: Message | None) -> Head:
    term = target.terms[index]
    if isinstance(term, PositionSum):
        return PositionHead(term.positions)
    tree, sign = _tree(term)
    if message is None:
        root = layout.form.terms[index].root

        def read(state: State) -> RowScores:
            score = _known(state, layout, target, index, root)
            return lambda rows: np.broadcast_to(score, (len(rows), state.T))

        return MaxHead(read)
    child, parent = message.child, message.parent
    edge = next(e for e in tree.edges if {e.v, e.w} == {child, parent}).toward(parent)

    def retrieve(state: State) -> RowScores:
        queries = sign * edge.left(state.X)
        keys = np.ascontiguousarray(edge.right(state.X).T)
        known = _known(state, layout, target, index, child)
        if not known.any():
            return lambda rows: queries[rows] @ keys
        return lambda rows: queries[rows] @ keys + known

    return MaxHead(retrieve, name=(index, child))


def _known(state: State, layout: Layout, target: Target, index: int, vertex: int) -> np.ndarray:
    """b_v(s) for every token s: its own score, the messages it has received, -inf where the vertex may not stand."""
    term = target.terms[index]
    tree, sign = _tree(term)
    unary = tree.unary[vertex]
    total: np.ndarray = np.zeros(state.T) if unary is None else sign * unary(state.X)[:, 0]
    for message in layout.form.terms[index].incoming(vertex):
        total = total + state.best[index, message.child]
    if isinstance(term, Extremum) and term.sets is not None and term.sets[vertex] is not None:
        allowed = np.zeros(state.T, dtype=bool)
        allowed[list(term.sets[vertex] or ())] = True
        total = np.where(allowed, total, -np.inf)
    return total


def _tree(term: object) -> tuple[TreeScore, float]:
    """The tree of a term that has a layout, and the sign that makes it a maximum."""
    if isinstance(term, KthLargest):
        return TreeScore.linear(term.direction), 1.0
    assert isinstance(term, Extremum)
    tree = tree_form(term.score)
    assert tree is not None
    return tree, 1.0 if term.kind == "max" else -1.0
