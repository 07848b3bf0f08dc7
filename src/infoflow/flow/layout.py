"""Which head does what in which layer, and which direction of the residual stream holds what.

    lay_out(target, T, arch) -> Layout      or Refused with every reason
    schedules(target, max_layers, max_heads) -> layouts with as few heads as possible, for `plan`

Directions of layer l: the features still needed (raw x, or a basis of what is needed), the scores b_v of vertices that
have received messages, values the CLS has already read, a constant, and what the heads of this layer retrieve:
rank numbers per message, one more when the child carries a score. E_l is their number rounded up to a multiple of h_l
(rule 3 of the construction); layer 1 needs no constant unless a child's score must be added to a key there. A message
that leaves out the token that asks, or fetches from a neighbour, needs T directions, one per position, and as many
keys: a matrix of penalties that is the same for all s != t in row t and different at s = t has rank T - 1 at least, so
no shorter code is fair to the other tokens (points on a circle would favour the opposite position).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from infoflow.architecture import Architecture
from infoflow.flow.jobs import Job, Schedule, assign, default_heads, least_layers, minimal_heads, with_factors
from infoflow.flow.normal_form import HELD, NormalForm, Refused, Term, normal_form
from infoflow.flow.rank import independent_rows
from infoflow.targets.target import Target

__all__ = ["LayerDirections", "Layout", "Refused", "lay_out", "schedules"]


@dataclass(frozen=True)
class LayerDirections:
    """The named directions of one layer, before and after its attention.

    `names[j]` names coordinate j. `basis` (feature coordinates x features) says what the first coordinates mean before
    scaling. `received[i]` are the coordinates that job i of the layer writes (messages, then reads).
    """

    names: tuple[str, ...]
    basis: Float[np.ndarray, "coordinates features"]
    slots: dict[tuple[int, int], int]  # (term, vertex) -> coordinate of b_v
    values: dict[tuple[int, int], int]  # (term, component) -> coordinate of what the CLS has read
    one: int | None  # constant: 1 for the tokens (and, without a flag, for the CLS)
    flag: int | None  # 1 for the CLS, 0 for the tokens
    received: tuple[tuple[int, ...], ...]
    codes: tuple[int, ...] = ()  # coordinates of the single positions, the last of the features

    @property
    def size(self) -> int:
        """Directions of the layer."""
        return len(self.names)


@dataclass(frozen=True)
class Layout:
    """Jobs and directions per layer; `embed` is the least E_l, a multiple of h_l."""

    form: NormalForm
    heads: tuple[int, ...]
    embed: tuple[int, ...]
    jobs: Schedule
    states: tuple[LayerDirections, ...]
    positions: str
    arch: Architecture | None = None

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.heads)

    @property
    def directions(self) -> tuple[tuple[str, ...], ...]:
        """Their names, layer by layer."""
        return tuple(state.names for state in self.states)

    @property
    def sizes(self) -> tuple[int, ...]:
        """E_l of the network that is built: the architecture's where one is given, else the least."""
        return self.embed if self.arch is None or self.arch.embed is None else self.arch.embed

    def layer_of(self, term: int, child: int | None) -> int:
        """Layer of the message from `child`, or of the read when child is None."""
        for jobs in self.jobs:
            for job in jobs:
                if job.term == term and (job.message.child if job.message else None) == child:
                    return job.layer
        raise KeyError((term, child))


def lay_out(
    target: Target, T: int, arch: Architecture | None = None, domain: Any = None, factors: Any = None
) -> Layout:
    """Root the trees, schedule the jobs on the heads, name the directions; Refused with every reason.

    `factors` (flow.jobs) are the low-rank factors of a network that exists already."""
    form = normal_form(target, T, domain)
    if factors:
        form = with_factors(form, factors)
    heads = arch.heads if arch is not None else default_heads(form)
    reasons = _architecture_reasons(form, arch) if arch is not None else []
    schedule = assign(form, heads)
    if schedule is None:
        raise Refused([*reasons, *_why_not(form, heads)], "architecture")
    positions = _positions(form, arch)
    states = tuple(_states(form, schedule, heads, positions))
    embed = tuple(_least_embed(state, jobs, form, h) for state, jobs, h in zip(states, schedule, heads, strict=True))
    if positions == "augmented":
        embed = (max(embed[0], _augmented_embed(states[0], form, heads[0])), *embed[1:])
    if arch is not None and arch.embed is not None:
        for layer, (have, need) in enumerate(zip(arch.embed, embed, strict=True), 1):
            if have < need:
                reasons.append(
                    f"layer {layer} has embed={have}, this schedule needs {need} "
                    f"({', '.join(states[layer - 1].names[:8])}{', ...' if states[layer - 1].size > 8 else ''})"
                )
    if reasons:
        raise Refused(reasons, "architecture")
    return Layout(form, heads, embed, schedule, states, positions, arch)


def schedules(target: Target, max_layers: int, max_heads: int, T: int = 2, domain: Any = None) -> Iterator[Layout]:
    """Layouts on every head vector that cannot be lowered anywhere, shallow ones first.

    None is deeper than there are messages and reads: a layer without one can be left out, and every measure falls.
    """
    form = normal_form(target, T, domain)
    max_layers = min(max_layers, sum(len(term.sent) + 1 for term in form.terms))
    positions = _positions(form, None)
    for heads in minimal_heads(form, max_layers, max_heads):
        schedule = assign(form, heads)
        assert schedule is not None
        states = tuple(_states(form, schedule, heads, positions))
        embed = tuple(_least_embed(s, jobs, form, h) for s, jobs, h in zip(states, schedule, heads, strict=True))
        yield Layout(form, heads, embed, schedule, states, positions)


def _architecture_reasons(form: NormalForm, arch: Architecture) -> list[str]:
    reasons = []
    if arch.rotary:
        reasons.append("the architecture has rotary positions, which turn the keys the construction fixes")
    if arch.kv_heads is not None and arch.kv_heads != arch.heads:
        reasons.append("the architecture groups key-value heads; every retrieval needs its own keys")
    if form.single_positions and arch.positions == "none":
        reasons.append(
            "the target asks for different positions and the architecture has no position code by which a token could "
            "know itself from others (positions=additive or augmented)"
        )
    elif form.position_features and arch.positions == "none":
        reasons.append("the target names positions and the architecture has none (positions=additive or augmented)")
    if arch.mask == "causal":
        for term in form.terms:
            if term.shift > 0:
                reasons.append(
                    f"under a causal mask no token sees what stands behind it, which term {term.index + 1} reads"
                )
            if any(m.excludes for m in term.messages):
                reasons.append(
                    f"under a causal mask position 1 sees no other position, so term {term.index + 1} has no pair there"
                )
            elif term.messages and not _symmetric_pair(term):
                m = term.messages[0]
                reasons.append(
                    f"under a causal mask position 1 never sees position 2, so term {term.index + 1} misses the tuple "
                    f"with vertex {m.parent + 1} at position 1 and vertex {m.child + 1} at position 2"
                )
    return reasons


def _symmetric_pair(term: Term) -> bool:
    """A pair score with score(x, y) = score(y, x): every unordered pair is seen from its later position."""
    if len(term.messages) != 1:
        return False
    form = term.messages[0].psi.T @ term.messages[0].phi
    return bool(np.array_equal(form, form.T) and np.array_equal(term.unary[0], term.unary[1]))


def _why_not(form: NormalForm, heads: tuple[int, ...]) -> list[str]:
    chain = least_layers(form)
    messages = sum(len(term.sent) for term in form.terms)
    if len(heads) < chain:
        return [f"the tree of the target needs {chain} layers (height + 1), the architecture has {len(heads)}"]
    return [
        f"the construction {f'sends {messages} messages and ' if messages else ''}makes {len(form.terms)} reads, more "
        f"than heads={','.join(map(str, heads))} can serve (one message and one read a head; messages go through "
        + (
            "the layers before the last, those that leave out a token through the first"
            if form.single_positions
            else "the layers before the last"
        )
        + f"); heads={','.join(map(str, default_heads(form)))} fits"
    ]


def _positions(form: NormalForm, arch: Architecture | None) -> str:
    """What is written: a joint encoder contains the additive code."""
    if arch is not None and arch.positions != "joint":
        return arch.positions
    return "additive" if form.position_features else "none"


def _states(form: NormalForm, schedule: Schedule, heads: tuple[int, ...], positions: str) -> Iterator[LayerDirections]:
    shared = any(len({job.head for job in jobs}) < len(jobs) for jobs in schedule[:-1])
    last_read = max(job.layer for jobs in schedule for job in jobs if job.message is None)
    for layer in range(len(schedule)):
        names: list[str] = []
        basis = _basis(form, schedule, layer, positions)
        names += _feature_names(form, basis)
        slots, values = {}, {}
        for term, vertex in _open_slots(form, schedule, layer):
            slots[term, vertex] = len(names)
            names.append(f"term{term + 1}.{f'next[{HELD - vertex + 1}]' if vertex <= HELD else f'score({vertex + 1})'}")
        for job in (j for earlier in schedule[:layer] for j in earlier if j.message is None):
            for k in range(form.terms[job.term].values):
                values[job.term, k] = len(names)
                names.append(_value_name(form.terms[job.term], k))
        one = flag = None
        if _needs_one(form, schedule, layer, shared):
            one = len(names)
            names.append("one")
        if shared and layer <= last_read:
            flag = len(names)
            names.append("cls")
        clean = [*range(len(basis)), *(j for j in (one, flag) if j is not None)]
        clean += [j for key, j in slots.items() if not _dirty(form, schedule, *key, layer)]
        received = _receive(form, schedule, layer, names, slots, clean)
        count = len(form.single_positions) if _excluding(schedule[layer]) else 0
        codes = tuple(range(len(basis) - count, len(basis)))
        yield LayerDirections(tuple(names), basis, slots, values, one, flag, received, codes)


def _excluding(jobs: tuple[Job, ...]) -> bool:
    return any(job.message is not None and job.message.coded for job in jobs)


def _value_name(term: Term, component: int) -> str:
    return f"term{term.index + 1}.value" + (f"[{component + 1}]" if term.values > 1 else "")


def _layer_of(schedule: Schedule, term: int, child: int | None) -> int:
    return next(
        job.layer
        for jobs in schedule
        for job in jobs
        if job.term == term and (job.message.child if job.message else None) == child
    )


def _first_incoming(form: NormalForm, schedule: Schedule, term: int, vertex: int) -> int | None:
    """Layer of the first message into a vertex: behind it the unary score lives in the slot."""
    layers = [_layer_of(schedule, term, m.child) for m in form.terms[term].incoming(vertex)]
    return min(layers, default=None)


def _open_slots(form: NormalForm, schedule: Schedule, layer: int) -> list[tuple[int, int]]:
    """Vertices whose score is held in a direction of this layer."""
    result = []
    for term in form.terms:
        for vertex in range(len(term.height)):
            first = _first_incoming(form, schedule, term.index, vertex)
            used = _layer_of(schedule, term.index, None if vertex == term.root else vertex)
            if first is not None and first < layer <= used:
                result.append((term.index, vertex))
        if term.fetch is not None:
            first, used = (_layer_of(schedule, term.index, child) for child in (HELD, None))
            result += [(term.index, HELD - k) for k in range(term.values) if first < layer <= used]
    return result


def _needs_one(form: NormalForm, schedule: Schedule, layer: int, shared: bool) -> bool:
    jobs = schedule[layer]
    adds = any(job.message is not None and form.terms[job.term].carries(job.message.child) for job in jobs)
    reads = any(job.message is None for job in jobs)
    return adds or (reads and not shared and len(schedule) > 1)


def needed(form: NormalForm, schedule: Schedule, layer: int) -> list[np.ndarray]:
    """Functionals on the features that this layer or a later one reads."""
    rows: list[np.ndarray] = []
    for jobs in schedule[layer:]:
        for job in jobs:
            term = form.terms[job.term]
            if job.message is not None and job.message.shift:
                assert term.reads is not None
                rows += list(term.reads)
                continue
            if job.message is not None:
                rows += [*job.message.psi, *job.message.phi]
                vertices = [job.message.child, job.message.parent]
            else:
                vertices = [term.root]
                rows += list(term.reads if term.reads is not None and term.fetch is None else ())
            for vertex in vertices:
                first = _first_incoming(form, schedule, term.index, vertex)
                if (first is None or first >= layer) and np.any(term.unary[vertex]):
                    rows.append(term.unary[vertex])
    return rows


def _unit(form: NormalForm, index: int) -> np.ndarray:
    made: np.ndarray = np.eye(len(form.features))[index]
    return made


def _basis(form: NormalForm, schedule: Schedule, layer: int, positions: str) -> np.ndarray:
    """Raw coordinates where the linear functionals fill them, else a basis of what is needed; positions last."""
    rows = needed(form, schedule, layer)
    single = np.eye(len(form.features))[list(form.single_positions)] if _excluding(schedule[layer]) else ()
    if not rows:
        return np.array(single).reshape(len(single), len(form.features))
    stack = np.array(rows)
    monomials = [i for i in range(len(form.features)) if i not in form.position_features]
    tail: list[np.ndarray] = []
    if positions == "augmented":
        tail = [_unit(form, i) for i in form.position_features if stack[:, i].any()]
        stack = stack.copy()
        stack[:, list(form.position_features)] = 0.0
    linear = [i for i in monomials if _degree(form, i) == 1 and stack[:, i].any()]
    others = [i for i in range(len(form.features)) if i not in linear]
    pure = stack[~stack[:, others].any(axis=1)]
    units = []
    if linear and np.linalg.matrix_rank(pure[:, linear]) == len(linear):
        units = [_unit(form, i) for i in linear]
        stack = stack[stack[:, others].any(axis=1)]  # the units hold every purely linear row
    basis, _ = independent_rows(np.array([*units, *stack]))
    return np.array([*basis, *tail, *single]).reshape(-1, len(form.features))  # scores that are 0 need no coordinate


def _degree(form: NormalForm, index: int) -> int:
    return int(sum(form.features[index]))


def _feature_names(form: NormalForm, basis: np.ndarray) -> list[str]:
    names, counter = [], 0
    for row in basis:
        used = np.flatnonzero(row)
        feature = form.features[used[0]] if len(used) == 1 else None
        if isinstance(feature, tuple) and sum(feature) == 1:
            names.append(f"x[{feature.index(1) + 1}]")
        elif isinstance(feature, frozenset):
            names.append("position{" + ",".join(str(p + 1) for p in sorted(feature)) + "}")
        elif isinstance(feature, int):
            names.append(f"position[{feature + 1}]")
        else:
            counter += 1
            names.append(_score_name(form, row) or f"feature[{counter}]")
    return names


def _score_name(form: NormalForm, row: np.ndarray) -> str | None:
    for term in form.terms:
        for vertex, unary in enumerate(term.unary if term.positions is None else ()):
            size = np.abs(unary).max(initial=0.0)
            if size > 0 and np.allclose(unary / size, row, rtol=0, atol=1e-12):
                return f"term{term.index + 1}.score({vertex + 1})"
    return None


def _receive(
    form: NormalForm,
    schedule: Schedule,
    layer: int,
    names: list[str],
    slots: dict[tuple[int, int], int],
    clean: list[int],
) -> tuple[tuple[int, ...], ...]:
    """Where each job writes. Messages need directions that are 0 for the tokens; reads need directions whose CLS entry
    is a known constant (`clean`), and before the last layer ones that no token uses."""
    last = layer == len(schedule) - 1
    result: list[tuple[int, ...]] = []
    for job in schedule[layer]:
        term = form.terms[job.term]
        if job.message is not None:
            count = term.values if job.message.shift else job.message.rank + term.carries(job.message.child)
            result.append(tuple(range(len(names), len(names) + count)))
            names += [f"{job.name}[{k + 1}]" for k in range(count)]
            continue
        places: list[int] = []
        for k in range(term.values):
            own = slots.get((job.term, term.root))
            place = None
            if last:
                place = own if own in clean else (clean[0] if clean else None)
            if place is None:
                place = len(names)
                names.append(_value_name(term, k))
            else:
                clean.remove(place)
            places.append(place)
        result.append(tuple(places))
    return tuple(result)


def _dirty(form: NormalForm, schedule: Schedule, term: int, vertex: int, layer: int) -> bool:
    """The CLS entry of a slot is 0 unless a message adds the average of a child's score, or of what is fetched."""
    return vertex <= HELD or any(
        form.terms[term].carries(m.child) and _layer_of(schedule, term, m.child) < layer
        for m in form.terms[term].incoming(vertex)
    )


def _augmented_embed(state: LayerDirections, form: NormalForm, heads: int) -> int:
    """Token and position take a coordinate each at least, also where nobody reads one of them."""
    codes = len(form.position_features)
    return heads * -(-(max(state.size - codes, 1) + max(codes, 1)) // heads)


def _least_embed(state: LayerDirections, jobs: tuple[Job, ...], form: NormalForm, heads: int) -> int:
    """The least multiple of h_l that holds every direction and gives every head its keys and values."""
    per_head = [0] * heads
    for job in jobs:
        term = form.terms[job.term]
        if job.message is not None:
            codes = len(state.codes) if job.message.coded else 0
            numbers = job.message.rank + term.carries(job.message.child)
            per_head[job.head] += max(codes, term.values) if job.message.shift else numbers + codes
        else:
            per_head[job.head] += term.values
    return heads * max(-(-state.size // heads), *per_head, 1)
