"""Losses l(w.x, y) for descent in context, by form.

    residual   l = psi(s - y)
    margin     l = phi(y s), y in {-1, +1}
    general    l(s, y), any C^1 function

A table head needs a function of one variable; the form says which. `sup(R)` bounds |psi^(j)| on [-R, R], as far as the
derivatives exist and the user knows them; `curvature` bounds l'' in s; both enter the error bound, nothing is sampled.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.construct.softmax_attention.table_head import Derivatives
from infoflow.errors import InfoFlowError, unknown

Scalar = Callable[[Float[Tensor, " ..."]], Float[Tensor, " ..."]]
Pair = Callable[[Float[Tensor, " ..."], Float[Tensor, " ..."]], Float[Tensor, " ..."]]
FORMS = ("residual", "margin", "general")


@dataclass(frozen=True)
class Loss:
    """`value` and `slope` take one argument (residual, margin) or two (general); `slope` is the derivative in s."""

    name: str
    form: str
    value: Callable[..., Tensor]
    slope: Callable[..., Tensor]
    second: Scalar | None = None  # psi'': lets a table remove its smoothing bias
    sup: Callable[[float], Derivatives] | None = None
    curvature: float | None = None
    convex: bool = False

    def slopes(self, s: Float[Tensor, " ..."], y: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
        """dl/ds at every prediction s with its label y."""
        if self.form == "general":
            return self.slope(s, y)
        return self.slope(s - y) if self.form == "residual" else y * self.slope(y * s)


SQUARED = Loss(
    "squared",
    "residual",
    lambda r: r**2 / 2,
    lambda r: r,
    torch.ones_like,
    lambda R: Derivatives(R, 1.0, 0.0, 0.0, 0.0),
    1.0,
    True,
)
# log(1 + exp(-m)): derivatives are polynomials in the sigmoid with suprema 1, 1/4, 1/(6 sqrt 3), 1/8, 0.12769
LOGISTIC = Loss(
    "logistic",
    "margin",
    lambda m: torch.nn.functional.softplus(-m),
    lambda m: -torch.sigmoid(-m),
    lambda m: torch.sigmoid(m) * torch.sigmoid(-m),
    lambda R: Derivatives(1.0, 0.25, 0.09623, 0.125, 0.12769),
    0.25,
    True,
)
# log cosh r: polynomials in tanh with suprema 1, 1, 4/(3 sqrt 3), 2, 4.0859
LOGCOSH = Loss(
    "logcosh",
    "residual",
    lambda r: r.abs() + torch.nn.functional.softplus(-2 * r.abs()) - math.log(2),
    torch.tanh,
    lambda r: 1 - torch.tanh(r) ** 2,
    lambda R: Derivatives(1.0, 1.0, 0.76981, 2.0, 4.0859),
    1.0,
    True,
)
# r^2/2 inside [-1, 1], |r| - 1/2 outside: psi' is only Lipschitz
HUBER = Loss(
    "huber",
    "residual",
    lambda r: torch.where(r.abs() <= 1, r**2 / 2, r.abs() - 0.5),
    lambda r: r.clamp(-1, 1),
    None,
    lambda R: Derivatives(1.0, 1.0),
    1.0,
    True,
)
NAMED = {loss.name: loss for loss in (SQUARED, LOGISTIC, LOGCOSH, HUBER)}


def find(loss: str | Loss) -> Loss:
    """A named loss, or a user's own after a check that it has what its form needs."""
    if isinstance(loss, str):
        if loss not in NAMED:
            raise unknown("loss", loss, list(NAMED))
        return NAMED[loss]
    if not isinstance(loss, Loss):
        raise InfoFlowError(f"expected a loss name or a Loss, got {type(loss).__name__}; known: {', '.join(NAMED)}.")
    if loss.form not in FORMS:
        raise unknown("loss form", loss.form, list(FORMS))
    _check_form(loss)
    return loss


def _check_form(loss: Loss) -> None:
    """Call value and slope as the form says, and compare slope with a difference quotient at a few places."""
    s = torch.linspace(-1.03, 0.97, 9, dtype=torch.float64)
    arguments = (s, torch.full_like(s, 0.5)) if loss.form == "general" else (s,)
    for name in ("value", "slope"):
        try:
            out = getattr(loss, name)(*arguments)
        except TypeError as problem:
            raise InfoFlowError(
                f"expected {name} of a {loss.form} loss to take {len(arguments)} argument(s), got: {problem}."
            ) from None
        if not isinstance(out, Tensor) or out.shape != s.shape or not bool(torch.isfinite(out).all()):
            raise InfoFlowError(f"expected {name} to return finite numbers, one per argument; correct {name}.")
    step = 1e-5
    ahead, behind = ((s + sign * step, *arguments[1:]) for sign in (1, -1))
    quotient = (loss.value(*ahead) - loss.value(*behind)) / (2 * step)
    if float((quotient - loss.slope(*arguments)).abs().max()) > 1e-3:
        raise InfoFlowError("expected slope to be the derivative of value in s, got something else; correct slope.")
