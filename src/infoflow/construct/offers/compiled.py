"""The compiler as a builder: the layout of the target's jobs on the heads, the error budget within the widths."""

from typing import Any

from infoflow.architecture import Architecture
from infoflow.construct.offers.offer import Offer, Refusal
from infoflow.flow.budget import budget
from infoflow.flow.layout import Refused, lay_out
from infoflow.targets.target import Target

# Theorem 4 states one head dimension for both layers; the least second layer would be smaller.
STATED_SHAPES = {"min_pair": lambda d: Architecture(heads=(1, 1), embed=(2 * d, 2 * d))}
READOUT = "one hidden layer of tanh units"


def stated_shape(target: Target) -> Architecture | None:
    name = target.spelling.partition(":")[0]
    return STATED_SHAPES[name](target.dim) if name in STATED_SHAPES else None


def fits(
    target: Target,
    arch: Architecture | None,
    T: int,
    eps: float,
    weight_bound: float | None,
    domain: Any = None,
    rule: str = "chebyshev",
) -> Offer | Refusal:
    try:
        layout = lay_out(target, T, arch or stated_shape(target), domain)
        spent = budget(target, T, eps, layout, domain, weight_bound, rule)
    except Refused as refused:
        return Refusal.of("compiler", refused)
    plan = (layout, spent)
    return Offer("compiler", layout.heads, layout.embed, spent.widths, spent.bound, spent.betas, READOUT, plan)
