"""Jobs on (layer x head) slots: edge messages between tokens and reads by the CLS, with precedence.

A message runs after the messages into its child; a read runs after the messages into its root. Messages that leave out
the token that asks run in layer 1, where the position codes are. A head of a layer
serves at most one message (for the tokens) and one read (for the CLS), so depth can stand in for heads: eq. (6) with
D = 4 runs on heads (1,1,1,1,1), head l serving edge l for the tokens and reading slot l-1 for the CLS.

A network's file carries the low-rank factors it was built with, as a witness. A form x' A y = <psi x, phi y> has many
factorisations: signs, rotations, whatever a singular value decomposition of this or that library gives. A reader takes
the builder's and bounds |psi' phi - A| entry by entry, sup over the box of features at most 1; the sum enters the error
of the message, so nothing is trusted.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from infoflow import cost
from infoflow.errors import InfoFlowError
from infoflow.flow.normal_form import Message, NormalForm, Term

VECTORS_A_SECOND = 1e4  # head vectors tried in a second, measured on one core


@dataclass(frozen=True)
class Job:
    """One use of one head; layers and heads are 0-based here."""

    layer: int
    head: int
    term: int
    message: Message | None = None  # None: the CLS reads the root of the term

    @property
    def name(self) -> str:
        """As the layout's directions spell it."""
        return self.message.name if self.message is not None else f"term{self.term + 1}.read"


Schedule = tuple[tuple[Job, ...], ...]


def default_heads(form: NormalForm) -> tuple[int, ...]:
    """L = height + 1, one head per edge in the layer behind its child's height, the reads in the last layer."""
    layers = least_layers(form)
    heads = [0] * layers
    for term in form.terms:
        for message in term.sent:
            heads[0 if message.shift else term.height[message.child]] += 1
        heads[0 if term.positions is not None else layers - 1] += 1
    return tuple(max(h, 1) for h in heads)


def least_layers(form: NormalForm) -> int:
    """One for the reads, and one for every step of a message on the longest way, or of a fetch, to a root."""
    return 1 + max((max(term.height[term.root], int(term.fetch is not None)) for term in form.terms), default=0)


def assign(form: NormalForm, heads: tuple[int, ...]) -> Schedule | None:
    """Jobs for these heads, or None: messages as early as their priority allows, reads as late as the heads allow."""
    layers = len(heads)
    done: dict[tuple[int, int], int] = {}  # (term, child) -> layer
    waiting = [
        (not m.coded, -_distance(term, m.child), term.index, i, m)
        for term in form.terms
        for i, m in enumerate(term.sent)
    ]
    waiting.sort(key=lambda item: item[:4])
    placed: list[list[Job]] = [[] for _ in heads]
    for layer in range(layers - 1):
        ready = [w for w in waiting if _ready(form.terms[w[2]], w[4], done, layer)][: heads[layer]]
        for head, item in enumerate(ready):
            placed[layer].append(Job(layer, head, item[2], item[4]))
        for item in ready:
            done[item[2], item[4].child] = layer
        waiting = [w for w in waiting if w not in ready] if ready else waiting
    if waiting or not _place_reads(form, heads, done, placed):
        return None
    return tuple(tuple(jobs) for jobs in placed)


def _ready(term: Term, message: Message, done: dict[tuple[int, int], int], layer: int) -> bool:
    if message.coded and layer > 0:
        return False
    return all(done.get((term.index, m.child), layer) < layer for m in term.incoming(message.child))


def _distance(term: Term, vertex: int) -> int:
    """Messages on the way from `vertex` to the root: Hu's level, the priority of the list schedule."""
    parent = {m.child: m.parent for m in term.messages}
    steps = 0
    while vertex in parent:
        vertex, steps = parent[vertex], steps + 1
    return steps


def _place_reads(
    form: NormalForm, heads: tuple[int, ...], done: dict[tuple[int, int], int], placed: list[list[Job]]
) -> bool:
    layers = len(heads)
    free = [_free_heads(heads[layer], placed[layer]) for layer in range(layers)]
    reads = []
    for term in form.terms:
        if term.positions is not None:  # position codes live in the first layer
            if not free[0]:
                return False
            placed[0].append(Job(0, free[0].pop(0), term.index))
        else:
            before = [m.child for m in term.sent if m.parent == term.root]
            reads.append((max((done[term.index, child] + 1 for child in before), default=0), term.index))
    reads.sort(key=lambda item: (item[0], item[1]))
    for layer in range(layers - 1, -1, -1):
        chosen: list[int] = []
        while reads and len(chosen) < len(free[layer]) and reads[-1][0] <= layer:
            chosen.append(reads.pop()[1])
        for head, term_index in zip(free[layer], sorted(chosen), strict=False):
            placed[layer].append(Job(layer, head, term_index))
    return not reads


def _free_heads(count: int, jobs: list[Job]) -> list[int]:
    """Heads without a message first: sharing a head costs a flag direction."""
    busy = {job.head for job in jobs}
    return [h for h in range(count) if h not in busy] + [h for h in range(count) if h in busy]


def minimal_heads(form: NormalForm, max_layers: int, max_heads: int) -> Iterator[tuple[int, ...]]:
    """Every head vector within the limits that can be scheduled and none of whose entries can be lowered."""

    @cache
    def possible(heads: tuple[int, ...]) -> bool:
        return assign(form, heads) is not None

    chain = least_layers(form)
    messages = sum(len(term.sent) for term in form.terms)
    jobs = messages + len(form.terms)
    vectors = sum(_count_prefixes(layers - 1, max_heads, jobs) for layers in range(chain, max_layers + 1))
    what = f"trying {vectors:.3g} ways to spread {jobs} messages and reads over up to {max_layers} layers"
    cost.work(vectors, VECTORS_A_SECOND, what, "max_layers or max_heads")
    for layers in range(chain, max_layers + 1):
        prefixes = _prefixes(layers - 1, max_heads, messages + len(form.terms))
        found = np.zeros((0, layers), dtype=int)
        # small sums first: a vector above one that was found is new only if its last layer can be smaller
        for prefix in sorted((p for p in prefixes if sum(p) >= messages), key=sum):  # the last layer sends no messages
            below = found[(found[:, :-1] <= np.array(prefix, dtype=int)).all(axis=1), -1]
            most = int(below.min(initial=max_heads + 1)) - 1
            last = next((h for h in range(1, most + 1) if possible((*prefix, h))), None)
            if last is not None and not any(map(possible, _lower((*prefix, last)))):
                found = np.vstack([found, (*prefix, last)])
        yield from sorted(tuple(int(h) for h in row) for row in found)


def _lower(heads: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The head vectors with one entry lowered by 1."""
    return ((*heads[:i], h - 1, *heads[i + 1 :]) for i, h in enumerate(heads) if h > 1)


def _count_prefixes(layers: int, max_heads: int, total: int) -> float:
    """At least as many as `_prefixes` gives: entries from 1 on, at most `total` - 1 above that together."""
    most = math.comb(max(total, 1) - 1 + layers, layers)
    return float(min(most, min(max_heads, max(total, 1)) ** layers, 10**300))


def _prefixes(layers: int, max_heads: int, total: int) -> Iterator[tuple[int, ...]]:
    """Head vectors of `layers` entries whose sum does not exceed what there is to do."""
    if layers == 0:
        yield ()
        return
    for first in range(1, min(max_heads, max(total, 1)) + 1):
        for rest in _prefixes(layers - 1, max_heads, total - first + 1):
            yield (first, *rest)


SAME_FORM = 1e-9  # factors further from the target's form than this share of it belong to another target


def factors_of(form: NormalForm) -> list[dict[str, Any]]:
    """Plain values for the messages neither of whose factors is a selection of coordinates; those have one form."""
    return [
        {"term": term.index + 1, "child": m.child + 1, "psi": m.psi.tolist(), "phi": m.phi.tolist()}
        for term in form.terms
        for m in term.messages
        if not (_selects(m.psi) or _selects(m.phi))
    ]


def with_factors(form: NormalForm, factors: Any) -> NormalForm:
    """The form with the messages factored as stated, each difference added to the message's defect."""
    stated = _parse(factors, len(form.features))
    terms = []
    for term in form.terms:
        messages = [
            _refactored(m, *stated[key]) if (key := (term.index, m.child)) in stated else m for m in term.messages
        ]
        terms.append(replace(term, messages=tuple(messages)))
    return replace(form, terms=tuple(terms))


def _refactored(message: Message, psi: np.ndarray, phi: np.ndarray) -> Message:
    wanted = message.psi.T @ message.phi
    off = float(np.abs(psi.T @ phi - wanted).sum())
    if not off <= SAME_FORM * float(np.abs(wanted).sum()):
        return message
    bound = min(float((np.abs(psi).sum(1) * np.abs(phi).sum(1)).sum()), float(np.abs(psi.T @ phi).sum()))
    return replace(message, psi=psi, phi=phi, bound=max(bound, message.bound), defect=message.defect + off)


def _parse(factors: Any, features: int) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    """A file is hostile until it is read: shapes and finite numbers, or one sentence."""
    result = {}
    try:
        for entry in factors:
            psi, phi = (np.array(entry[name], dtype=np.float64) for name in ("psi", "phi"))
            if psi.shape != phi.shape or psi.ndim != 2 or psi.shape[1] != features or not len(psi):
                raise ValueError
            if not math.isfinite(float(np.abs(psi).sum() + np.abs(phi).sum())):
                raise ValueError
            result[int(entry["term"]) - 1, int(entry["child"]) - 1] = (psi, phi)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise InfoFlowError(
            f"expected factors as rows of {features} finite numbers with term and child, the header has others; "
            "build the network again."
        ) from None
    return result


def _selects(rows: np.ndarray) -> bool:
    """Every row is a multiple of a unit vector."""
    return bool((np.count_nonzero(rows, axis=1) <= 1).all())
