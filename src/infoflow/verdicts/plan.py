"""plan: the cheapest architectures for a target, and why no cheaper one."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from infoflow import arguments, cost
from infoflow.architecture import MOST_HEADS, Architecture
from infoflow.errors import InfoFlowError
from infoflow.flow.layout import Layout, Refused, schedules
from infoflow.flow.program import skeleton
from infoflow.report.html import Shown, columns
from infoflow.targets import Target
from infoflow.targets.named import TargetLike, target_of
from infoflow.verdicts.estimate import WAYS, Count, estimate_flow, least_embed
from infoflow.verdicts.predict import check_call

SECONDS_A_SHAPE, SECONDS_A_LAYER = 3e-4, 1.5e-5  # of one count and of each layer in it, measured on one core
MEASURES = ("layers", "total heads", "sum of embed", "parameters")


@dataclass(frozen=True)
class PlannedShape:
    """One architecture. `parameters` counts the Section 3 model with the widths of the paper's experiments
    (`Architecture.filled`); `reason` says what it is best in, or what it trades, and which jobs fill its heads."""

    heads: tuple[int, ...]
    embed: tuple[int, ...]
    parameters: int
    reason: str

    @property
    def arch(self) -> Architecture:
        """It as an architecture."""
        return Architecture(self.heads, self.embed)

    @property
    def measures(self) -> tuple[int, int, int, int]:
        """What plans are compared by."""
        return len(self.heads), sum(self.heads), sum(self.embed), self.parameters


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """Architectures none of which is beaten in layers, total heads, sum of E and parameters together.

    `kind` is "layout" where explicit weights follow (`predict` gives widths at an eps), "estimate" where only counting
    speaks.
    """

    target: str
    T: int
    kind: Literal["layout", "estimate"]
    options: tuple[PlannedShape, ...]
    reasons: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As `infoflow plan --json` prints it."""
        return asdict(self)

    def __str__(self) -> str:
        head = ["heads", "embed", "layers", "total heads", "sum of embed", "parameters", "why"]
        rows = [[_join(o.heads), _join(o.embed), *o.measures, o.reason] for o in self.options]
        notes = "\n".join(f"- {reason}" for reason in self.reasons)
        return f"{self.target}  T={self.T}  ({self.kind})\n\n{columns(head, rows)}\n\n{notes}"


def plan(
    target: TargetLike,
    T: int,
    max_layers: int = 6,
    max_heads: int = 8,
    weight_bound: float | None = 1.0,
    count: Count = "ordered",
) -> Plan:
    """Pareto-best architectures over (layers, total heads, sum of E, parameters).

    Tree scores: every schedule of their messages and reads on layer-by-head slots that cannot be lowered anywhere, with
    the least embeddings. Other targets: the smallest architectures whose cheapest flow costs nothing, an estimate.
    """
    target = target_of(target)
    check_call(target, T, 1e-2, weight_bound)
    T = int(T)
    arguments.integer("max_layers", max_layers)
    arguments.integer("max_heads", max_heads)
    try:
        layouts = list(schedules(target, max_layers, max_heads, T))
    except Refused as refused:
        return _by_estimate(target, T, max_layers, max_heads, count, refused.reasons)
    if not layouts:
        raise InfoFlowError(
            f"expected room for the target's messages and reads, found no schedule with at most {max_layers} layers "
            f"of at most {max_heads} heads; raise --max-layers or --max-heads."
        )
    found = [(layout.heads, layout.embed, _jobs(layout)) for layout in layouts]
    options = _pareto([_option(target, T, *item) for item in found])
    height = max(max(term.height) for term in layouts[0].form.terms) + 1
    reasons = [
        f"no fewer than {height} layer{'s' * (height > 1)}: the tallest tree has height {height - 1}, a message per "
        "layer, then a read",
        "in every schedule each head is needed: lowering any one leaves a message or a read without a place",
        "embeddings are the least that hold what is carried and retrieved; widths follow from eps (see predict)",
    ]
    return Plan(target.spelling, T, "layout", _explain(options), tuple(reasons))


def _option(target: Target, T: int, heads: tuple[int, ...], embed: tuple[int, ...], reason: str) -> PlannedShape:
    parameters = Architecture(heads, embed).filled().parameters(target.dim, target.outputs, T)
    return PlannedShape(heads, embed, parameters, reason)


def _jobs(layout: Layout) -> str:
    parts = []
    for layer, jobs in enumerate(layout.jobs, 1):
        messages = sum(job.message is not None for job in jobs)
        reads = len(jobs) - messages
        words = [f"{n} {name}{'s' if n > 1 else ''}" for n, name in ((messages, "message"), (reads, "read")) if n]
        parts.append(f"layer {layer}: {' + '.join(words) or 'idle'}")
    return ", ".join(parts)


def _by_estimate(
    target: Target, T: int, max_layers: int, max_heads: int, count: Count, refusals: tuple[str, ...]
) -> Plan:
    """The least embeddings at which the cheapest flow of `predict` costs nothing, for every head vector tried."""
    seconds = max_layers * max_heads * (SECONDS_A_SHAPE + SECONDS_A_LAYER * max_layers)
    what = f"counting for every architecture of up to {max_layers} layers of up to {max_heads} heads"
    cost.work(seconds, 1.0, what, "max_layers or max_heads")
    options = []
    for heads in _head_vectors(target, T, max_layers, max_heads):
        embed = least_embed(target, Architecture(heads), T, count)
        flow = estimate_flow(target, Architecture(heads, embed), T, count)
        options.append(_option(target, T, heads, embed, f"{WAYS[flow.way]}, sets of {max(flow.cls_sets)} positions"))
    reasons = [
        f"estimate ({count} count), not a construction: {'; '.join(refusals)}",
        "a set of M positions is charged M d / E - 1; these embeddings make that 0",
    ]
    found = target.comparison(T)
    if found.estimated:
        reasons.append(f"the number of tokens compared at once is {found.basis}")
    return Plan(target.spelling, T, "estimate", _explain(_pareto(options)), tuple(reasons))


def _head_vectors(target: Target, T: int, max_layers: int, max_heads: int) -> list[tuple[int, ...]]:
    """Equal heads in every layer, and what schedules the retrievals of a score of one or two tokens, if it has any."""
    shapes = ((layers, heads) for layers in range(1, max_layers + 1) for heads in range(1, max_heads + 1))
    vectors = [(heads,) * layers for layers, heads in shapes if layers * heads <= MOST_HEADS]
    try:
        return vectors + [layout.heads for layout in schedules(skeleton(target), max_layers, max_heads, T)]
    except Refused:
        return vectors


def _pareto(options: list[PlannedShape]) -> list[PlannedShape]:
    """Options that no other one equals or beats in every measure (the first of equals stays)."""
    kept: list[PlannedShape] = []
    for option in sorted(options, key=lambda o: (o.measures, o.heads)):
        if not any(all(a <= b for a, b in zip(k.measures, option.measures, strict=True)) for k in kept):
            kept.append(option)
    return kept


def _explain(options: list[PlannedShape]) -> tuple[PlannedShape, ...]:
    least = [min(values) for values in zip(*(option.measures for option in options), strict=True)]
    return tuple(
        PlannedShape(o.heads, o.embed, o.parameters, "; ".join([_praise(o, least), o.reason])) for o in options
    )


def _praise(option: PlannedShape, least: list[int]) -> str:
    best = list(_best_in(option, least))
    return "fewest " + ", ".join(best) if best else "between"


def _best_in(option: PlannedShape, least: list[int]) -> Iterator[str]:
    for name, value, low in zip(MEASURES, option.measures, least, strict=True):
        if value == low:
            yield name


def _join(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))
