"""predict: what an architecture can do with a target before training. Three answers: constructed, proved hard, open."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from infoflow import arguments
from infoflow.architecture import Architecture
from infoflow.flow.budget import budget
from infoflow.flow.layout import Layout, Refused, lay_out
from infoflow.flow.trace import check_length
from infoflow.targets import Extremum, PositionSum, Target, ValueAtExtremum, tree_form
from infoflow.targets.spelling import target_of
from infoflow.verdicts.bounds import Proved, lower_bounds
from infoflow.verdicts.estimate import Count, Counting, FlowEstimate, estimate_counting, estimate_flow
from infoflow.verdicts.temperature import Temperature, temperature

Verdict = Literal["constructed", "proved hard", "open"]


@dataclass(frozen=True)
class Constructed:
    """The network `build` makes inside this architecture: least embeddings, hidden widths (the read-out's last),
    inverse temperatures, and the certified bound on its error."""

    heads: tuple[int, ...]
    embed: tuple[int, ...]
    widths: tuple[int, ...]
    bound: float
    betas: tuple[float, ...]


@dataclass(frozen=True)
class Prediction:
    """The verdict with its kind, the framework's two estimates, the theorem and the construction behind it."""

    target: str
    arch: Architecture
    T: int
    eps: float
    weight_bound: float | None
    verdict: Verdict
    reasons: tuple[str, ...]
    counting: Counting
    flow: FlowEstimate
    proved: Proved | None
    constructed: Constructed | None
    temperature: Temperature | None = None

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self) | {"arch": str(self.arch)}
        if self.temperature is None:
            del fields["temperature"]
        return fields

    def __str__(self) -> str:
        from infoflow.verdicts.tables import prediction_table

        return prediction_table(self)


def predict(
    target: Target | str,
    arch: Architecture | str,
    T: int,
    eps: float = 1e-2,
    weight_bound: float | None = 1.0,
    count: Count = "ordered",
    with_temperature: bool = False,
) -> Prediction:
    """The two-step procedure, the theorems whose hypotheses hold here, and the construction that fits, if one does.

    `weight_bound` is the class every answer speaks of (None: unbounded weights, where no lower bound holds).
    """
    target, arch = target_of(target), Architecture.of(arch)
    check_call(target, T, eps, weight_bound)
    counted = estimate_counting(target, arch, T, count)
    constructed, layout, refusals = construction(target, arch, T, eps, weight_bound)
    flow = estimate_flow(target, arch, T, counted.dimension, layout)
    bounds, silent = lower_bounds(target, arch, T, eps, weight_bound)
    proved = bounds[0] if bounds else None
    verdict: Verdict = "open"
    if constructed is not None:
        verdict = "constructed"
    elif proved is not None and proved.width_at_eps is not None:
        verdict = "proved hard"
    reasons = [
        *_construction_reasons(constructed, refusals),
        *_occupancy_reasons(target),
        *_mask_reasons(target, arch),
        *_position_reasons(target, arch),
        *_bound_reasons(proved, arch, silent),
        *_estimate_reasons(target, counted, flow, T),
    ]
    return Prediction(
        target.spelling,
        arch,
        T,
        eps,
        weight_bound,
        verdict,
        tuple(reasons),
        counted,
        flow,
        proved,
        constructed,
        temperature(target, T) if with_temperature else None,
    )


def check_call(target: Target, T: int, eps: float, weight_bound: float | None) -> None:
    check_length(target, T)
    arguments.eps(eps)
    arguments.weight_bound(weight_bound)


def construction(
    target: Target, arch: Architecture, T: int, eps: float, weight_bound: float | None
) -> tuple[Constructed | None, Layout | None, tuple[str, ...]]:
    """What `build` would make and its layout, or every reason why it would refuse. Weights at most 1 also serve a
    larger bound."""
    bound = weight_bound if weight_bound is None or weight_bound < 1 else 1.0
    layout = None
    try:
        layout = lay_out(target, T, arch)
        spent = budget(target, T, eps, layout, weight_bound=bound)
    except Refused as refused:
        return None, layout, refused.reasons
    return Constructed(layout.heads, layout.embed, spent.widths, spent.bound, spent.betas), layout, ()


def _construction_reasons(constructed: Constructed | None, refusals: tuple[str, ...]) -> list[str]:
    if constructed is None:
        return [f"no construction: {reason}" for reason in refusals]
    widths = ",".join(map(str, constructed.widths))
    return [f"explicit weights exist: widths {widths}, certified error {constructed.bound:.3g}"]


def _occupancy_reasons(target: Target) -> list[str]:
    """Scores without a tree are out of reach of the layout, not of every network."""
    if all(not isinstance(t, Extremum) or tree_form(t.score) is not None for t in target.terms):
        return []
    return [
        "outside this architecture: for a Lipschitz score, one layer with O(eps^-d) heads of dimension 1 (one per cell "
        "of a grid) serves every T, so hardness for growing T needs E fixed and eps far below the grid"
    ]


def _mask_reasons(target: Target, arch: Architecture) -> list[str]:
    """Under a causal mask the pair (s, t) is seen from its later position only: x(s)'Ax(t) needs A there, x(t)'Ax(s)
    needs A'."""
    pairs = [t for t in target.terms if isinstance(t, Extremum) and t.arity == 2]
    if arch.mask != "causal" or arch.layers < 2 or not pairs:
        return []
    return [
        "causal mask: a pair is seen from its later position only; a pair score with A different from A' needs two "
        "heads, one for A and one for A', which the construction here does not use"
    ]


def _position_reasons(target: Target, arch: Architecture) -> list[str]:
    compared = [t.extremum if isinstance(t, ValueAtExtremum) else t for t in target.terms]
    named = any(isinstance(t, PositionSum) or (isinstance(t, Extremum) and t.sets is not None) for t in compared)
    if not named or arch.positions != "none":
        return []
    return [
        "no network of this architecture can: without a position code its output does not change when tokens are "
        "permuted, and the target's does; take positions=additive or augmented"
    ]


def _bound_reasons(proved: Proved | None, arch: Architecture, silent: list[str]) -> list[str]:
    if proved is None:
        return silent
    if proved.width_at_eps is None:
        return [
            f"{proved.statement}: exponent {proved.exponent}, but at eps={proved.eps:g} it excludes no width",
            *silent,
        ]
    reasons = [f"{proved.statement}: at eps={proved.eps:g} the read-out needs width {proved.width_at_eps:.3g} at least"]
    if arch.width is not None:
        relation = "below" if arch.width[-1] < proved.width_at_eps else "not below"
        reasons.append(f"the architecture's read-out width {arch.width[-1]} is {relation} that")
    return [*reasons, *silent]


def _estimate_reasons(target: Target, counted: Counting, flow: FlowEstimate, T: int) -> list[str]:
    reasons = []
    need = counted.required[counted.used]
    if need is not None:
        relation = "reaches" if counted.model >= need else "falls short of"
        reasons.append(
            f"estimate by counting ({counted.used}): max-position retrieval {relation} the {need} comparisons with "
            f"{counted.model}; smallest set {counted.smallest_set} of {T}, "
            + ("infeasible" if counted.exponent is None else f"exponent {counted.exponent}")
        )
    if target.comparison(T).decomposes and counted.order > 1:
        reasons.append(
            "the score is a sum over a tree: attention shares inner maximisations, so the count overstates the need"
        )
    way = "global aggregation by the CLS" if flow.modes[-1]["cls"] == "global" else "retrieval along the layout"
    reasons.append(f"estimate by flow: {way}, exponent {flow.exponent}")
    return reasons
