"""The framework's two steps in closed form: counting (a requirement) and the cheapest flow that learns (a cost)."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.flow import counting
from infoflow.flow.counting import Mode
from infoflow.flow.layout import Layout, Refused
from infoflow.flow.normal_form import Term
from infoflow.flow.program import flow_layout
from infoflow.targets import Target

Count = Literal["ordered", "unordered_with_repetition", "unordered_distinct", "lower"]
Way = Literal["layout", "sets", "global"]
WAYS: dict[Way, str] = {
    "layout": "retrieval along the layout",
    "sets": "max-position retrieval into sets that compare inside themselves",
    "global": "global aggregation by the CLS",
}
COUNTS: tuple[Count, ...] = ("ordered", "unordered_with_repetition", "unordered_distinct", "lower")


@dataclass(frozen=True)
class Counting:
    """Step 1. `model` is (5) at the largest sets of max-position retrieval; `smallest_set` the least M that reaches the
    requirement, `feasible` says M <= T, `exponent` is the least cost at which (5) reaches it (None: infeasible)."""

    dimension: int
    order: int
    required: dict[str, int | None]
    used: Count
    model: int
    smallest_set: int | None
    feasible: bool | None
    exponent: Fraction | None
    estimated: bool = False  # dimension and requirement are themselves estimates, made on samples
    basis: str = ""  # what was seen on them
    kind: str = "estimate"


@dataclass(frozen=True)
class FlowEstimate:
    """Step 2. One mode per layer for the tokens and one for the CLS; set sizes for layers 1..L (the tokens rest in the
    last one), (5) at those sizes, and the largest exponent of the cost law."""

    way: Way
    learns: bool
    modes: tuple[dict[str, Mode], ...]
    token_sets: tuple[int, ...]
    cls_sets: tuple[int, ...]
    count: int
    exponent: Fraction
    kind: str = "estimate"


def estimate_counting(target: Target, arch: Architecture, T: int, count: Count = "ordered") -> Counting:
    """The counting estimate: what the target requires against what the architecture can compare."""
    if count not in COUNTS:
        raise InfoFlowError(f"expected a count among {', '.join(COUNTS)}, got {count!r}.")
    found = target.comparison(T)
    required, b = found.required[count], found.dimension
    if required is None and count != "ordered":
        why = found.basis if count == "lower" else "it is not defined for this target"
        raise InfoFlowError(f"expected a count this target has, {count!r} is not one: {why}; take --count ordered.")
    model = counting.capacity_count(T, arch.heads, b)
    seen = (found.estimated, found.basis if found.estimated else "")
    if required is None:
        return Counting(b, found.order, found.required, count, model, None, None, None, *seen)
    smallest = counting.smallest_set(required, T, arch.heads, b)
    exponent = counting.counting_exponent(required, T, target.dim, arch.heads, arch.embeds, b)
    return Counting(b, found.order, found.required, count, model, smallest, smallest <= T, exponent, *seen)


def estimate_flow(target: Target, arch: Architecture, T: int, count: Count = "ordered") -> FlowEstimate:
    """The cheapest flow that learns the target.

    Max-position retrieval along the layout (any score of one or two tokens has one); the update rule is an inclusion,
    so a position keeps only what is still of use. A token holds itself and, for every message it has received and not
    yet passed on, the positions below the child; the CLS holds the k positions of every tuple it has read. A score of
    more tokens without a tree: max-position retrieval into sets that compare inside themselves, where these heads reach
    sets whose count is enough. Otherwise the CLS aggregates all T tokens in the last layer: any earlier, or by the
    tokens, would cost at least as much.
    """
    flows = list(_flows(target, arch, arch.embeds, T, count))
    return min(flows, key=lambda flow: flow.exponent)  # the first of equals


def least_embed(target: Target, arch: Architecture, T: int, count: Count = "ordered") -> tuple[int, ...]:
    """For an architecture that leaves its embeddings open: the least ones, as a sum, at which a flow costs nothing."""
    sizes = []
    for flow in _flows(target, arch, (target.dim,) * arch.layers, T, count):  # at E = d the sets are the least ones
        need = [max(1, *_moving(flow, l)) * target.dim for l in range(arch.layers)]
        sizes.append(tuple(-(-n // h) * h for n, h in zip(need, arch.heads, strict=True)))
    return min(sizes, key=sum)


def _moving(flow: FlowEstimate, l: int) -> tuple[int, int]:
    """Set sizes in layer l of the tokens and of the CLS, 0 where they rest."""
    tokens = flow.token_sets[l] if flow.modes[l]["tokens"] != "skip" else 0
    return tokens, flow.cls_sets[l] if flow.modes[l]["cls"] != "skip" else 0


def _flows(target: Target, arch: Architecture, embed: tuple[int, ...], T: int, count: Count) -> Iterator[FlowEstimate]:
    found = target.comparison(T)
    try:
        yield _layout_flow(target, embed, T, found.dimension, flow_layout(target, arch, T))
    except Refused as refused:
        required = found.required[count]
        if refused.kind == "target" and required is not None:
            yield from _set_flow(target, arch, embed, T, found.dimension, required, found.active)
    yield _global_flow(target, arch, embed, T, found.dimension)


def _set_flow(
    target: Target, arch: Architecture, embed: tuple[int, ...], T: int, dimension: int, required: int, active: int
) -> Iterator[FlowEstimate]:
    """Everybody retrieves with every head; the least cost at which the sets count enough, if they ever do, and the CLS
    ends with the `active` tokens that a function was seen to depend on."""
    shape = (T, target.dim, arch.heads, embed)
    tau = counting.counting_exponent(required, *shape, dimension, within_heads=True)
    if tau is None or counting.cls_capacity(arch.heads, T)[-1] < min(active, T):
        return
    tau = max(tau, counting.cost(min(active, T), target.dim, embed[-1]))
    tokens, cls = counting.sizes_at(tau, *shape, within_heads=True)
    both: dict[str, Mode] = {"tokens": "max", "cls": "max"}
    last: dict[str, Mode] = {"tokens": "skip", "cls": "max"}
    modes = (both,) * (arch.layers - 1) + (last,)
    count = counting.model_count(T, arch.heads, tokens, cls, dimension)
    yield FlowEstimate("sets", True, modes, tokens, cls, count, tau)


def _layout_flow(target: Target, embeds: tuple[int, ...], T: int, dimension: int, layout: Layout) -> FlowEstimate:
    tokens, cls, modes, costs = [], [], [], []
    a, d = 1, target.dim
    for l, (jobs, embed) in enumerate(zip(layout.jobs, embeds, strict=True)):
        reads = [layout.form.terms[job.term] for job in jobs if job.message is None]
        named = {p for term in reads for p in term.positions or ()}
        token_mode: Mode = "max" if any(job.message is not None for job in jobs) else "skip"
        cls_mode: Mode = "specific" if named else "max" if reads else "skip"
        c = min(T, _read_positions(layout, l))
        costs.append(counting.mode_cost(cls_mode, T, d, embed, c, len(named), 1))
        if l < layout.layers - 1:
            a = min(T, 1 + _held_positions(layout, l))
            costs.append(counting.mode_cost(token_mode, T, d, embed, a))
        tokens.append(a)
        cls.append(c)
        modes.append({"tokens": token_mode, "cls": cls_mode})
    count = counting.model_count(T, layout.heads, tuple(tokens), tuple(cls), dimension)
    return FlowEstimate("layout", True, tuple(modes), tuple(tokens), tuple(cls), count, max(costs))


def _read_positions(layout: Layout, layer: int) -> int:
    """Positions of all tuples the CLS has read up to this layer; of a tuple whose winner is read, the winner alone."""
    terms = [layout.form.terms[job.term] for jobs in layout.jobs[: layer + 1] for job in jobs if job.message is None]
    return sum(len(term.height) if term.reads is None else term.winners for term in terms)


def _held_positions(layout: Layout, layer: int) -> int:
    """Positions a token holds for messages it has received and not yet passed on behind this layer."""
    held = 0
    for job in (job for jobs in layout.jobs[: layer + 1] for job in jobs):
        if job.message is not None:
            term, v = layout.form.terms[job.term], job.message.parent
            if layout.layer_of(job.term, None if v == term.root else v) > layer:
                held += _below(term, job.message.child)
    return held


def _below(term: Term, vertex: int) -> int:
    """Vertices of the subtree at `vertex`."""
    return 1 + sum(_below(term, message.child) for message in term.incoming(vertex))


def _global_flow(target: Target, arch: Architecture, embed: tuple[int, ...], T: int, dimension: int) -> FlowEstimate:
    L = arch.layers
    rest: dict[str, Mode] = {"tokens": "skip", "cls": "skip"}
    final: dict[str, Mode] = {"tokens": "skip", "cls": "global"}
    tokens, cls = (1,) * L, (0,) * (L - 1) + (T,)
    count = counting.model_count(T, arch.heads, tokens, cls, dimension)
    cost = counting.mode_cost("global", T, target.dim, embed[-1])
    return FlowEstimate("global", True, (rest,) * (L - 1) + (final,), tokens, cls, count, cost)
