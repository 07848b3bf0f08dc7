"""predict: what an architecture can do with a target before training. Three answers: constructed, proved hard, open."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any, Literal

from infoflow import arguments
from infoflow.architecture import Architecture
from infoflow.compiler.offer import Builder, Offer, Question, Refusal
from infoflow.construct.builders import answers, refusal_words
from infoflow.report.html import Shown
from infoflow.targets import CallableScore, Extremum, OuterNetwork, PositionSum, Target, ValueAtExtremum, tree_form
from infoflow.targets.named import TargetLike, target_of
from infoflow.verdicts.bounds import ProvedWidth, lower_bounds
from infoflow.verdicts.estimate import (
    WAYS,
    Count,
    Counting,
    FlowEstimate,
    estimate_counting,
    estimate_flow,
    least_embed,
)
from infoflow.verdicts.temperature import Temperature, temperature

Verdict = Literal["constructed", "proved hard", "open"]


@dataclass(frozen=True)
class Constructed:
    """The network `build` makes inside this architecture: who builds it, its least embeddings, hidden widths (the
    read-out's last), certified bound on the error, inverse temperatures, and its read-out in words."""

    builder: Builder
    heads: tuple[int, ...]
    embed: tuple[int, ...]
    widths: tuple[int, ...]
    bound: float
    betas: tuple[float, ...]
    readout: str

    @classmethod
    def of(cls, offer: Offer) -> "Constructed":
        """What the user is told of an offer."""
        return cls(offer.builder, offer.heads, offer.embed, offer.widths, offer.bound, offer.betas, offer.readout)


@dataclass(frozen=True, repr=False)
class Prediction(Shown):
    """The verdict with its kind, the framework's two estimates, the theorem and the construction behind it.

    `embed` is the architecture's; where it leaves that open, the least that serves: the construction's, or the one at
    which the cheapest flow costs nothing. The estimates are made with it. `refusals` holds what every builder that does
    not serve says, `also` the builders that could stand in for the one of `constructed`.
    """

    target: str
    arch: Architecture
    T: int
    eps: float
    weight_bound: float | None
    verdict: Verdict
    reasons: tuple[str, ...]
    embed: tuple[int, ...]
    counting: Counting
    flow: FlowEstimate
    proved: ProvedWidth | None
    constructed: Constructed | None
    also: tuple[Builder, ...]
    refusals: tuple[Refusal, ...]
    temperature: Temperature | None = None

    def to_json(self) -> dict[str, Any]:
        """As `infoflow predict --json` prints it."""
        fields = asdict(self) | {"arch": str(self.arch)}
        if self.temperature is None:
            del fields["temperature"]
        return fields

    def __str__(self) -> str:
        return _table(self)


def predict(
    target: TargetLike,
    arch: Architecture | str,
    T: int,
    eps: float = 1e-2,
    weight_bound: float | None = 1.0,
    count: Count = "ordered",
    with_temperature: bool = False,
) -> Prediction:
    """The two-step procedure, the theorems whose hypotheses hold here, and the construction that fits, if one does.

    `constructed` exactly when `build(target, T, eps, arch, weight_bound=weight_bound)` succeeds: every builder is asked
    (`construct.builders`). `proved hard` exactly when embed and width are stated and a theorem, all of whose hypotheses
    were checked, needs a wider read-out. `weight_bound` is the class every answer speaks of (None: unbounded weights,
    where no lower bound holds). An unstated embed or width means some (`Architecture`).
    """
    target, arch = target_of(target), Architecture.of(arch)
    check_call(target, T, eps, weight_bound)
    T, eps = int(T), float(eps)  # numpy's numbers are numbers
    offers, refusals = ask(target, arch, T, eps, weight_bound)
    constructed = Constructed.of(offers[0]) if offers else None
    embed = _embed(target, arch, T, constructed, count)
    sized = arch.with_(embed=embed)
    counted = estimate_counting(target, sized, T, count)
    flow = estimate_flow(target, sized, T, count)
    bounds, silent = lower_bounds(target, arch, T, eps, weight_bound)
    proved = bounds[0] if bounds else None
    verdict: Verdict = "open"
    if constructed is not None:
        verdict = "constructed"
    elif proved is not None and excludes(proved, arch):
        verdict = "proved hard"
    reasons = [
        *_construction_reasons(offers, refusals, target),
        *([] if constructed is not None else _occupancy_reasons(target)),
        *_mask_reasons(target, arch),
        *_position_reasons(target, arch),
        *_bound_reasons(proved, arch, silent),
        *_estimate_reasons(target, counted, flow, T, constructed),
    ]
    return Prediction(
        target.spelling,
        arch,
        T,
        eps,
        weight_bound,
        verdict,
        tuple(reasons),
        embed,
        counted,
        flow,
        proved,
        constructed,
        tuple(offer.builder for offer in offers[1:]),
        refusals,
        temperature(target, T) if with_temperature else None,
    )


def check_call(target: Target, T: int, eps: float, weight_bound: float | None) -> None:
    """Refuse a length, an error or a weight class that makes no sense."""
    target.check_length(T)
    arguments.eps(eps)
    arguments.weight_bound(weight_bound)


def ask(
    target: Target, arch: Architecture, T: int, eps: float, weight_bound: float | None
) -> tuple[list[Offer], tuple[Refusal, ...]]:
    """What all builders offer, the first being what `build` makes, and what the others say."""
    found = list(answers(Question(target, T, eps, arch, weight_bound)))
    return [a for a in found if isinstance(a, Offer)], tuple(a for a in found if isinstance(a, Refusal))


def excludes(proved: ProvedWidth, arch: Architecture) -> bool:
    """The theorem speaks about this architecture: its stated read-out is narrower than the proved width."""
    return arch.width is not None and proved.width_at_eps is not None and arch.width[-1] < proved.width_at_eps


def _embed(
    target: Target, arch: Architecture, T: int, constructed: Constructed | None, count: Count
) -> tuple[int, ...]:
    if arch.embed is not None:
        return arch.embed
    if constructed is None:
        return least_embed(target, arch, T, count)
    return tuple(-(-total // h) * h for total, h in zip(constructed.embed, arch.heads, strict=True))


def _construction_reasons(offers: list[Offer], refusals: tuple[Refusal, ...], target: Target) -> list[str]:
    if not offers:
        return [f"no construction: {reason}" for reason in refusal_words(refusals)]
    first, *others = offers
    widths = ",".join(map(str, first.widths))
    made = f"explicit weights exist ({first.builder}): widths {widths}, certified error {first.bound:.3g}"
    where = f" on inputs {target.condition}" if target.condition else ""
    reasons = [f"{made}{where}; the read-out is {first.readout}"]
    if isinstance(target.outer, OuterNetwork):
        reasons.append("certified if the outer map has the Lipschitz constant and the error that its author states")
    if any(isinstance(t, Extremum) and isinstance(t.score, CallableScore) for t in target.terms):
        reasons.append("certified if the scores have the Lipschitz constants that their author states")
    if others:
        reasons.append(f"also built by: {', '.join(offer.builder for offer in others)}")
    return reasons


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
    """A second layer under a causal mask, and rotary heads, tell positions apart without a code."""
    compared = [t.extremum if isinstance(t, ValueAtExtremum) else t for t in target.terms]
    named = any(isinstance(t, PositionSum) or (isinstance(t, Extremum) and t.sets is not None) for t in compared)
    ordered = arch.positions != "none" or arch.rotary or (arch.mask == "causal" and arch.layers > 1)
    if not named or ordered:
        return []
    return [
        "without a position code the output does not change when tokens are permuted, so no network of this "
        "architecture follows a target that does; take positions=additive or augmented"
    ]


def _bound_reasons(proved: ProvedWidth | None, arch: Architecture, silent: list[str]) -> list[str]:
    if proved is None:
        return silent
    if proved.width_at_eps is None:
        return [
            f"{proved.statement}: exponent {proved.exponent}, but at eps={proved.eps:g} it excludes no width",
            *silent,
        ]
    below = f"every read-out width below {proved.width_at_eps:.3g} is excluded"
    reasons = [f"{proved.statement}: at eps={proved.eps:g} {below}"]
    if arch.width is None:
        reasons.append("the architecture leaves its width open, so a wide enough read-out is not excluded")
    else:
        relation = "below" if excludes(proved, arch) else "not below"
        reasons.append(f"the architecture's read-out width {arch.width[-1]} is {relation} that")
    return [*reasons, *silent]


def _estimate_reasons(
    target: Target, counted: Counting, flow: FlowEstimate, T: int, constructed: Constructed | None
) -> list[str]:
    reasons = [f"the number of tokens compared at once is {counted.basis}"] if counted.estimated else []
    need = counted.required[counted.used]
    if need is not None:
        relation = "reaches" if counted.model >= need else "falls short of"
        reasons.append(
            f"estimate by counting ({counted.used}): max-position retrieval {relation} the {need} comparisons with "
            f"{counted.model}; smallest set {counted.smallest_set} of {T}, "
            + ("infeasible" if counted.exponent is None else f"exponent {counted.exponent}")
        )
        if counted.exponent is None and (constructed is not None or flow.exponent == 0):
            reasons.append(
                "the count is too strict here: equation (5) runs one comparison tree inside a set, and a feed-forward "
                "block that holds all tokens runs as many as the target has"
            )
    if target.comparison(T).decomposes and counted.order > 1:
        reasons.append(
            "the score is a sum over a tree: attention shares inner maximisations, so the count overstates the need"
        )
    reasons.append(f"estimate by flow: {WAYS[flow.way]}, exponent {flow.exponent}")
    return reasons


def _table(p: Prediction) -> str:
    """The prediction in plain text: a line for every part of the verdict, then its reasons."""
    weights = "unbounded" if p.weight_bound is None else f"at most {p.weight_bound:g}"
    lines = [
        f"{p.target}  {p.arch}  T={p.T}  eps={p.eps:g}  weights {weights}",
        "",
        f"verdict      {p.verdict}",
    ]
    if p.constructed is not None:
        c = p.constructed
        sizes = f"embed {_list(c.embed)}, widths {_list(c.widths)}"
        lines.append(f"constructed  by the {c.builder}: {sizes}, certified error {c.bound:.3g}")
    if p.proved is not None:
        width = (
            "no width excluded at this eps"
            if p.proved.width_at_eps is None
            else f"every read-out width below {p.proved.width_at_eps:.3g} is excluded"
        )
        lines.append(f"proved       {width}, exponent {p.proved.exponent}")
    if p.arch.embed is None:
        why = "construction" if p.constructed is not None else "cheapest flow"
        lines.append(f"embed        left open; {_list(p.embed)} is the least that serves the {why}")
    k = p.counting
    seen = " (estimated)" if k.estimated else ""
    if k.required[k.used] is None:
        counted = f"no {k.used} count for this target"
    else:
        exponent = "infeasible" if k.exponent is None else f"exponent {k.exponent}"
        counted = f"dimension {k.dimension}{seen}, order {k.order}{seen}, set of {k.smallest_set}, {exponent}"
    lines.append(f"counting     {counted}  ({k.kind})")
    modes = "; ".join(f"layer {l}: {m['tokens']}/{m['cls']}" for l, m in enumerate(p.flow.modes, 1))
    lines.append(f"flow         {modes} (tokens/CLS), exponent {p.flow.exponent}  ({p.flow.kind})")
    if p.temperature is not None:
        lines += _temperature_lines(p.temperature)
    lines.append("")
    says = p.proved is not None and p.proved.width_at_eps is not None
    notes = [f"the bound assumes: {'; '.join(p.proved.assumes)}"] if says and p.proved is not None else []
    for reason in (*p.reasons, *notes):
        lines += wrap(reason, 110, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)


def _temperature_lines(found: Any) -> list[str]:
    parts = [
        f"NMSE {level:g} at beta {'-' if beta is None else f'{beta:.3g}'} ({'-' if std is None else f'{std:.3g}'} std)"
        for level, beta, std in zip(found.nmse_at, found.beta, found.logit_std, strict=True)
    ]
    return [f"temperature  {', '.join(parts)}"]


def _list(values: Sequence[int]) -> str:
    return ",".join(map(str, values))
