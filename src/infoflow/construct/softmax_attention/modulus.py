"""How much a function can change: from interval gradients or the user's Lipschitz constant, never from samples."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from infoflow.construct.softmax_attention.expression import Expression
from infoflow.errors import InfoFlowError


@dataclass(frozen=True)
class Modulus:
    """`total` = sum of the partial bounds (|f(X) - f(Y)| <= total |X - Y|_inf), `oscillation` = sup f - inf f.

    With `partials` known, E|f(X) - f(v)| <= sum_j K_j E|x_j - v_j| for a random v; with a Lipschitz constant alone the
    expectation of the largest coordinate is bounded by the sum over the N coordinates.
    """

    total: float
    oscillation: float
    spread: float  # sup of E|f(X) - f(v)| when each E|x_j - v_j| <= 1

    @property
    def known(self) -> bool:
        """Whether f's variation is bounded at all."""
        return math.isfinite(self.total) and math.isfinite(self.oscillation)


UNKNOWN = Modulus(math.inf, math.inf, math.inf)


def of_expression(f: Expression, B: float) -> Modulus:
    """The modulus of a written function from bounds on its partial derivatives and its range."""
    partials: Float[ndarray, "d n"] = f.partial_bounds(B)
    low, high = f.range_bounds(B)
    total = float(partials.sum() * (1 + 1e-12))
    width = (high - low) * (1 + 1e-12) if np.isfinite([low, high]).all() else math.inf
    return Modulus(total, min(width, 2 * B * total), total)


def of_lipschitz(constant: float, N: int, B: float) -> Modulus:
    """`constant` is with respect to the largest entry: |f(X) - f(Y)| <= constant |X - Y|_inf, entry by entry of f."""
    if not 0 <= constant < math.inf:
        raise InfoFlowError(f"expected a finite Lipschitz constant, got {constant}; give one >= 0.")
    return Modulus(constant, 2 * B * constant, constant * N)


def on_tensors(f: Expression, X: Float[Tensor, "... d n"]) -> Float[Tensor, " ..."]:
    """A written function on a torch tensor."""
    return torch.from_numpy(np.ascontiguousarray(f(X.numpy())))
