"""Floors that are proved: no network of the class does better, whatever its weights, widths and training.

Tokens of the sampler "normal" are independent and standard normal, and F = x(p_1) + ... + x(p_m) (eq. (57)).

* Without positions the network is a function of the multiset of tokens. Given the multiset every order is equally
  likely, so F is a sum of m of T numbers drawn without replacement: its variance is m (1 - m/T) S^2 a coordinate, with
  S^2 their sample variance, E S^2 = 1. Var F is m a coordinate, so the error is at least 1 - m/T.
* A linear encoder into E < d numbers hides d - E directions of every token, which are independent of the others:
  at least (d - E)/d of the variance stays.

Both together: what is seen is the multiset of E-dimensional projections, so the share that is seen is at most
(E/d)(m/T), and the error at least one minus that.
"""

from dataclasses import dataclass

import numpy as np

from infoflow.architecture import Architecture
from infoflow.targets import PositionSum, Target


@dataclass(frozen=True)
class Proved:
    """A lower bound on the NMSE over the target's own input law, and why it holds."""

    bound: float
    reason: str


def proved_floor(target: Target, arch: Architecture, T: int, mlp: bool) -> Proved | None:
    """The bound above; None where nothing is proved."""
    if len(target.terms) != 1 or not isinstance(target.terms[0], PositionSum) or target.sampler != "normal":
        return None
    some = np.random.default_rng(0).standard_normal((8, target.dim))
    if target.outputs != target.dim or not np.allclose(target.outer(some), some):
        return None
    m, d, E = len(target.terms[0].positions), target.dim, arch.embeds[0]
    seen, reasons = 1.0, []
    if arch.positions == "none" and arch.mask == "none" and m < T:
        seen *= m / T
        reasons.append("without positions the network sees a set of tokens, not their order")
    if not mlp and d > E:
        seen *= E / d
        reasons.append(f"a linear encoder into {E} numbers hides {d - E} of {d} directions")
    return Proved(1.0 - seen, " and ".join(reasons)) if reasons else None
