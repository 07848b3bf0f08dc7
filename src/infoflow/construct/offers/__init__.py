"""Every builder of a target's network, asked in turn: what would it make, or why not. Numpy alone."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from infoflow.architecture import Architecture
from infoflow.construct.offers import compiled, exponential_head, memory_head, occupancy
from infoflow.construct.offers.offer import Builder, Offer, Refusal
from infoflow.targets.target import Target

__all__ = ["BUILDERS", "Builder", "Offer", "Refusal", "answers", "refusal_words"]

Fits = Callable[..., Offer | Refusal]
# In the order in which they are tried: the compiler's networks are the smallest, the occupancy networks the largest.
BUILDERS: dict[Builder, Fits] = {
    "compiler": compiled.fits,
    "exponential_head": exponential_head.fits,
    "memory_head": memory_head.fits,
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


def answers(
    target: Target,
    arch: Architecture | None,
    T: int,
    eps: float,
    weight_bound: float | None,
    domain: Any = None,
    rule: str = "chebyshev",
) -> Iterator[Offer | Refusal]:
    """What every builder answers, one after the other. A `rule` that is a builder's name asks that one alone."""
    for name, fits in BUILDERS.items():
        if rule == name or rule not in BUILDERS:
            try:
                yield fits(target, arch, T, eps, weight_bound, domain, rule)
            except ArithmeticError:  # an eps like 1e-308: sizes and coefficients are larger than any float
                yield Refusal(name, "accuracy", (f"eps={eps:g} asks for sizes that float64 does not hold",))
