"""What of the information sets ends up in the value: the part of I(t, l) that the heads of the layout read on.

A token keeps everything it has met (`trace`), the value needs less: of a token's messages only those that a later head
reads at the place where it looks. Followed backwards from the reads of the CLS:

    content(i, w; t) = {t, s} u content of the messages into w at s,   s = the winner of the message from child w at t
    a read of term i at r uses, at r, its own token and content(i, w; r) of every message w into the root.

Up to the layer that forms a message, the token's own value is what is used; behind it, the message. A term that is read
at its winner (a value at an argmax, fixed positions) uses the winner's token alone: the score only says who wins.
"""

from dataclasses import dataclass, field

import numpy as np

from infoflow.flow.layout import Layout
from infoflow.flow.normal_form import Message, Term
from infoflow.flow.sets import LayerSets

Used = list[list[set[int]]]  # [layer 0..L][row 0..T, the CLS last], 0-based members


@dataclass
class _Walk:
    layout: Layout
    steps: tuple[LayerSets, ...]
    T: int
    used: Used = field(init=False)

    def __post_init__(self) -> None:
        self.used = [[set() for _ in range(self.T + 1)] for _ in range(len(self.steps))]

    def head_of(self, term: int, message: Message | None) -> tuple[int, int]:
        """(layer, head), 0-based."""
        for jobs in self.layout.jobs:
            for job in jobs:
                if job.term == term and job.message is message:
                    return job.layer, job.head
        raise KeyError((term, message))

    def content(self, term: Term, message: Message, t: int) -> set[int]:
        """The tokens whose values are in the message that token t has received."""
        layer, head = self.head_of(term.index, message)
        s = int(self.steps[layer + 1].winners[t, head])
        found = {t} if bool(np.any(message.psi)) and message.rank else set()
        if (bool(np.any(message.phi)) and message.rank) or bool(np.any(term.unary[message.child])):
            found.add(s)
        return found.union(*(self.content(term, m, s) for m in term.incoming(message.child)))

    def need(self, term: Term, vertex: int, t: int, until: int) -> set[int]:
        """b_vertex at token t is read by layer `until` (0-based): mark the states that carry it, return its content."""
        own = bool(np.any(term.unary[vertex]))
        found: set[int] = {t} if own else set()
        for layer in range(until + 1):
            self.used[layer][t] |= found
        for message in term.incoming(vertex):
            content = self.content(term, message, t)
            formed, head = self.head_of(term.index, message)
            for layer in range(until + 1):
                self.used[layer][t] |= content if layer > formed else content & {t}
            self.need(term, message.child, int(self.steps[formed + 1].winners[t, head]), formed)
            if bool(np.any(message.phi)) and message.rank:  # the child's own value is a factor of the edge
                s = int(self.steps[formed + 1].winners[t, head])
                for layer in range(formed + 1):
                    self.used[layer][s].add(s)
            found |= content
        return found

    def read(self, term: Term) -> None:
        layer, head = self.head_of(term.index, None)
        if term.positions is not None:
            found = set(term.positions)
            for t in found:
                for l in range(layer + 1):
                    self.used[l][t].add(t)
        else:
            r = int(self.steps[layer + 1].winners[self.T, head])
            if term.reads is not None:
                found = {r}
                for l in range(layer + 1):
                    self.used[l][r].add(r)
            else:
                found = self.need(term, term.root, r, layer)
        for l in range(layer + 1, len(self.steps)):
            self.used[l][self.T] |= found


def used_sets(layout: Layout, steps: tuple[LayerSets, ...], T: int) -> Used:
    """Layer by layer and row by row, the CLS in the last row."""
    walk = _Walk(layout, steps, T)
    for term in layout.form.terms:
        walk.read(term)
    return walk.used
