"""Every builder of a target's network, asked in turn: what would it make, or why not; `build` writes the first offer.

Asking is numpy alone; torch is loaded where weights are written.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from infoflow import arguments
from infoflow.architecture import Architecture
from infoflow.certificates import Certified
from infoflow.compiler import budget as compiled
from infoflow.compiler import occupancy_plan as occupancy
from infoflow.compiler.offer import Builder, Fits, Offer, Question, Refusal
from infoflow.construct import single_head_plans
from infoflow.flow.layout import Refused
from infoflow.targets.named import TargetLike, target_of
from infoflow.targets.target import WholeSequence

RULES = ("chebyshev", "plain", "exponential_head", "memory_head", "occupancy")
BUILDABLE = (
    "build takes extrema of scores that are sums over a tree, k-th largest values (k <= 2), sums of fixed positions, "
    "values read at an extremum, and in low dimension extrema of scores with a Lipschitz constant"
)
# In the order in which they are tried: the compiler's networks are the smallest, the occupancy networks the largest.
BUILDERS: dict[Builder, Fits] = {
    "compiler": compiled.fits,
    "exponential_head": single_head_plans.fits_exponential,
    "memory_head": single_head_plans.fits_memory,
    "occupancy": occupancy.fits,
}


def refusal_words(refusals: Sequence[Refusal]) -> list[str]:
    """The reasons a person wants to read: the first builder's, and of the others those that one can do something about:
    a weight class that stands in the way alone, or anything where the first does not take this kind of target."""
    first, *others = refusals
    words = list(first.reasons)
    for other in others:
        if other.kind == "weights" or (first.kind == "target" and other.kind != "target"):
            words += [f"{other.builder}: {reason}" for reason in other.reasons]
    return words


def answers(asked: Question) -> Iterator[Offer | Refusal]:
    """What every builder answers, one after the other. A `rule` that is a builder's name asks that one alone."""
    for name, fits in BUILDERS.items():
        if asked.rule == name or asked.rule not in BUILDERS:
            try:
                yield fits(asked)
            except ArithmeticError:  # an eps like 1e-308: sizes and coefficients are larger than any float
                yield Refusal(name, "accuracy", (f"eps={asked.eps:g} asks for sizes that float64 does not hold",))


def build(
    target: TargetLike,
    T: int,
    eps: float,
    arch: Architecture | str | None = None,
    domain: Any = None,
    weight_bound: float | None = 1,
    rule: str = "chebyshev",
) -> Certified:
    """A network within eps of the target on the box, in float64, with `.certificate`; Refused with every reason.

    Every builder is asked in turn (`answers`) and the first that can serve writes its network: the compiler,
    the head of exponentials, the head that remembers, the occupancy network. `arch` is the architecture to fit into.
    `domain` is a box (low, high), numbers or one number per coordinate; the default is the target's own. `weight_bound`
    1 keeps everything Theorem 4 bounds by 1 at most 1 (beta is a field, not a weight), None lifts it. `rule` is
    "chebyshev" (width O(log^2 1/eps)) or "plain" (one slope, width Theta(1/eps)) for the compiler, or the name of
    another builder, which is then asked alone.
    """
    target = target_of(target)
    arch = None if arch is None else Architecture.of(arch)
    target.check_length(T)
    eps, rule = arguments.eps(eps), arguments.choice("rule", rule, RULES)
    asked = Question(target, int(T), eps, arch, arguments.weight_bound(weight_bound), domain, rule)
    refusals = []
    for answer in answers(asked):
        if isinstance(answer, Offer):
            return _write(answer, asked)
        refusals.append(answer)
    words = refusal_words(refusals)
    if any(isinstance(term, WholeSequence) for term in target.terms):
        words.append(BUILDABLE)
    raise Refused(words, refusals[0].kind)


def _write(offer: Offer, asked: Question) -> Certified:
    if offer.builder == "occupancy":
        from infoflow.compiler.occupancy import write_occupancy

        return write_occupancy(offer.plan)
    if offer.builder != "compiler":
        from infoflow.construct.single_heads import write_single_head

        return write_single_head(offer.builder, offer.plan, asked.target, asked.eps)
    from infoflow.compiler.compile import compiled

    return compiled(offer, asked)
