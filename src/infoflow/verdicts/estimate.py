"""The framework's two steps in closed form: counting (a requirement) and the cheapest flow that learns (a cost)."""

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
    kind: str = "estimate"


@dataclass(frozen=True)
class FlowEstimate:
    """Step 2. One mode per layer for the tokens and one for the CLS; set sizes for layers 1..L (the tokens rest in the
    last one), (5) at those sizes, and the largest exponent of the cost law."""

    learns: bool
    modes: tuple[dict[str, Mode], ...]
    token_sets: tuple[int, ...]
    cls_sets: tuple[int, ...]
    count: int
    exponent: Fraction
    kind: str = "estimate"


def estimate_counting(target: Target, arch: Architecture, T: int, count: Count = "ordered") -> Counting:
    if count not in COUNTS:
        raise InfoFlowError(f"expected a count among {', '.join(COUNTS)}, got {count!r}.")
    found = target.comparison(T)
    required, b = found.required[count], found.dimension
    if required is None and count != "ordered":
        why = found.basis if count == "lower" else "it is not defined for this target"
        raise InfoFlowError(f"expected a count this target has, {count!r} is not one: {why}; take --count ordered.")
    model = counting.capacity_count(T, arch.heads, b)
    if required is None:
        return Counting(b, found.order, found.required, count, model, None, None, None)
    smallest = counting.smallest_set(required, T, arch.heads, b)
    exponent = counting.counting_exponent(required, T, target.dim, arch.heads, arch.embeds, b)
    return Counting(b, found.order, found.required, count, model, smallest, smallest <= T, exponent)


def estimate_flow(
    target: Target, arch: Architecture, T: int, dimension: int, layout: Layout | None = None
) -> FlowEstimate:
    """The cheapest flow that learns the target; `layout` is the one for this architecture, if it is known.

    Max-position retrieval along the layout; the update rule is an inclusion, so a position keeps only what is still of
    use. A token holds itself and, for every message it has received and not yet passed on, the positions below the
    child; the CLS holds the k positions of every tuple it has read. Otherwise the CLS aggregates all T tokens in the
    last layer: any earlier, or by the tokens, would cost at least as much.
    """
    everything = _global_flow(target, arch, T, dimension)
    try:
        layout = layout or flow_layout(target, arch, T)
    except Refused:
        return everything
    along = _layout_flow(target, arch, T, dimension, layout)
    return along if along.exponent <= everything.exponent else everything


def _layout_flow(target: Target, arch: Architecture, T: int, dimension: int, layout: Layout) -> FlowEstimate:
    tokens, cls, modes, costs = [], [], [], []
    a, d = 1, target.dim
    for l, (jobs, embed) in enumerate(zip(layout.jobs, arch.embeds, strict=True)):
        reads = [layout.form.terms[job.term] for job in jobs if job.message is None]
        named = {p for term in reads for p in term.positions or ()}
        token_mode: Mode = "max" if any(job.message is not None for job in jobs) else "skip"
        cls_mode: Mode = "specific" if named else "max" if reads else "skip"
        c = min(T, _read_positions(layout, l))
        costs.append(counting.mode_cost(cls_mode, T, d, embed, c, len(named), 1))
        if l < arch.layers - 1:
            a = min(T, 1 + _held_positions(layout, l))
            costs.append(counting.mode_cost(token_mode, T, d, embed, a))
        tokens.append(a)
        cls.append(c)
        modes.append({"tokens": token_mode, "cls": cls_mode})
    count = counting.model_count(T, arch.heads, tuple(tokens), tuple(cls), dimension)
    return FlowEstimate(True, tuple(modes), tuple(tokens), tuple(cls), count, max(costs))


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


def _global_flow(target: Target, arch: Architecture, T: int, dimension: int) -> FlowEstimate:
    L = arch.layers
    rest: dict[str, Mode] = {"tokens": "skip", "cls": "skip"}
    final: dict[str, Mode] = {"tokens": "skip", "cls": "global"}
    tokens, cls = (1,) * L, (0,) * (L - 1) + (T,)
    count = counting.model_count(T, arch.heads, tokens, cls, dimension)
    cost = counting.mode_cost("global", T, target.dim, arch.embeds[-1])
    return FlowEstimate(True, (rest,) * (L - 1) + (final,), tokens, cls, count, cost)
