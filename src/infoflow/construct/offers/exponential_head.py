"""The head of exponentials as a builder: D extrema through one uniform head, where no bound on the weights forbids it.

E >= D numbers in any heads, values e^{beta (f_i - 1)} from the encoder, and a read-out with one hidden layer of D N
tanh units; see `infoflow.construct.exponential_head`.
"""

import math
from typing import Any

from infoflow.architecture import Architecture
from infoflow.construct.offers.offer import Offer, Refusal, one_layer_reasons, weight_reasons
from infoflow.construct.separable import own_domain
from infoflow.flow.normal_form import Refused
from infoflow.targets.target import Target


def fits(
    target: Target,
    arch: Architecture | None,
    T: int,
    eps: float,
    weight_bound: float | None,
    domain: Any = None,
    rule: str = "exponential_head",
) -> Offer | Refusal:
    from infoflow.construct.exponential_head import exponential_head  # which imports this room

    try:
        own_domain(target, domain)
        head = exponential_head(target, T, eps)
    except Refused as refused:
        return Refusal.of("exponential_head", refused)
    D, width = head.head_dim, head.head_dim * head.units
    reasons = one_layer_reasons(arch, 1, D, width)
    if reasons:
        return Refusal("exponential_head", "architecture", tuple(reasons))
    reasons = weight_reasons(weight_bound, head.largest_log_weight, math.sqrt(D))
    if reasons:
        return Refusal("exponential_head", "weights", tuple(reasons))
    readout = f"one hidden layer of tanh units with weights up to e^{head.largest_log_weight:.4g}"
    return Offer("exponential_head", (1,), (D,), (width,), head.bound, (0.0,), readout, head)
