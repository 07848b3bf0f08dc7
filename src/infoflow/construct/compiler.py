"""The compiler: a target becomes a Transformer with explicit weights and a certificate.

build(target, T, eps) reads like appendix A.1 of the InfoFlow paper, one pass a line:
validate and root the trees, allot heads and directions, spend the error, write the weights, attach the certificate.
"""

from typing import Any

from infoflow import arguments
from infoflow.architecture import Architecture
from infoflow.certificates import Certificate, error_claim
from infoflow.construct.offers import Offer, answers, refusal_words
from infoflow.construct.writer import write
from infoflow.flow.budget import Budget, weight_class
from infoflow.flow.factors import factors_of
from infoflow.flow.layout import Layout, Refused
from infoflow.flow.normal_form import box
from infoflow.nn import Transformer
from infoflow.targets.spelling import TargetLike, target_of
from infoflow.targets.target import OuterNetwork, Target, WholeSequence

RULES = ("chebyshev", "plain", "exponential_head", "memory_head", "occupancy")
ARITHMETIC = "float64 with rounding allowance"
ASSUMPTIONS = (
    "IEEE float64, round to nearest, exp and tanh within 4 units in the last place",
    "sums in any order",
)
BUILDABLE = (
    "build takes extrema of scores that are sums over a tree, k-th largest values (k <= 2), sums of fixed positions, "
    "values read at an extremum, and in low dimension extrema of scores with a Lipschitz constant"
)
DRAWN = 2**20  # numbers drawn at most to measure a share


def build(
    target: TargetLike,
    T: int,
    eps: float,
    arch: Architecture | str | None = None,
    domain: Any = None,
    weight_bound: float | None = 1,
    rule: str = "chebyshev",
) -> Any:
    """A network within eps of the target on the box, in float64, with `.certificate`; Refused with every reason.

    Every builder is asked in turn (`construct.offers`) and the first that can serve writes its network: the compiler,
    the head of exponentials, the head that remembers, the occupancy network. `arch` is the architecture to fit into.
    `domain` is a box (low, high), numbers or one number per coordinate; the default is the target's own. `weight_bound`
    1 keeps everything Theorem 4 bounds by 1 at most 1 (beta is a field, not a weight), None lifts it. `rule` is
    "chebyshev" (width O(log^2 1/eps)) or "plain" (one slope, width Theta(1/eps)) for the compiler, or the name of
    another builder, which is then asked alone.
    """
    target = target_of(target)
    arch = None if arch is None else Architecture.of(arch)
    target.check_length(T)
    T = int(T)
    eps, rule = arguments.eps(eps), arguments.choice("rule", rule, RULES)
    weight_bound = arguments.weight_bound(weight_bound)
    refusals = []
    for answer in answers(target, arch, T, eps, weight_bound, domain, rule):
        if isinstance(answer, Offer):
            return _write(answer, target, T, eps, domain, weight_bound, rule)
        refusals.append(answer)
    words = refusal_words(refusals)
    if any(isinstance(term, WholeSequence) for term in target.terms):
        words.append(BUILDABLE)
    raise Refused(words, refusals[0].kind)


def _write(offer: Offer, target: Target, T: int, eps: float, domain: Any, weight_bound: float | None, rule: str) -> Any:
    if offer.builder == "occupancy":
        from infoflow.construct.occupancy import write_occupancy

        return write_occupancy(offer.plan)
    if offer.builder != "compiler":
        from infoflow.construct.single_heads import write_single_head

        return write_single_head(offer.builder, offer.plan, target, eps)
    layout, plan = offer.plan
    written = weight_class(weight_bound)
    network = write(layout, plan, written)
    describe(network, layout, plan, T, eps, domain, written, rule)
    return _with_outer(network, target)


def describe(
    network: Transformer,
    layout: Layout,
    plan: Budget,
    T: int,
    eps: float,
    domain: Any,
    weight_bound: float | None,
    rule: str,
) -> None:
    """What the saved file says beside the tensors: plain JSON values."""
    target = layout.form.target
    low, high = box(target.domain if domain is None else domain, target.dim)
    claim = error_claim(target.spelling, float(eps), T, low.tolist(), high.tolist(), condition=target.condition)
    certificate = Certificate(
        claim,
        plan.bound,
        ARITHMETIC,
        ASSUMPTIONS,
        promises_of(target),
        parts=plan.parts,
        measured=counted_share(target, T),
    )
    network.header = {
        "target": target.spelling,
        "T": T,
        "eps": float(eps),
        "domain": [low.tolist(), high.tolist()],
        "weight_bound": weight_bound,
        "rule": rule,
        "slot_gain": plan.wiring.gain,
        "directions": [list(names) for names in layout.directions],
        "factors": factors_of(layout.form),
        "jobs": [[f"head {job.head + 1}: {job.name}" for job in jobs] for jobs in layout.jobs],
        "certificate": certificate.to_json(),
    }


def promises_of(target: Target) -> tuple[str, ...]:
    """What the author of a target states and nobody proves."""
    outer = target.outer
    if not isinstance(outer, OuterNetwork):
        return ()
    error = f" and errs by at most {outer.error:g}" if outer.error else ""
    return (f"the outer map has Lipschitz constant at most {outer.lipschitz:g}{error}, as its author states",)


def counted_share(target: Target, T: int, draws: int = 4096) -> dict[str, float]:
    """The share of inputs drawn from the target's own sampler that its certificates speak of, by name; measured. Empty
    where they speak of all."""
    if not target.condition:
        return {}
    rows = max(1, min(draws, DRAWN // (T * target.dim)))
    return {"share of sampled inputs that count": float((target.slack(target.sample(rows, T, seed=0)) >= 0).mean())}


def _with_outer(network: Transformer, target: Target) -> Any:
    if isinstance(target.outer, OuterNetwork):
        from infoflow.construct.outer import WithOuter

        return WithOuter(network, target)
    return network
