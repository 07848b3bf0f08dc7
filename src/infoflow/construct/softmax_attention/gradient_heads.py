"""Tables that compute l'(w.x, y) u through a central difference in w_r: the heads of one gradient coordinate.

    l'(s, y) u = [l(s + tau u, y) - l(s - tau u, y)] / (2 tau) + R

A head sees z = a w.x_i + b y_i +- a tau x_ir. With T its response, u the size of x_ir, the coordinate errs by at most

  soft  u sup|T' - F'| + FD + rounding/tau          (the quotient is u times a mean of T'; nothing is divided by tau)
  hard  Lip(F) D (1/2 + tail(c))/tau + FD
  relu  (h^2 sup F''/16 + sum_j |c_j| D_j (1/2 + tail))/tau + FD      (chords of a convex F lie on one side)

  FD = tau^2 u^3 sup|F'''|/6, or tau u^2 sup|F''|/2 where F''' is not known.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.construct.softmax_attention.losses import Loss
from infoflow.construct.softmax_attention.table_head import Derivatives, Table, extension, slope_error, table
from infoflow.construct.softmax_attention.window import tail
from infoflow.errors import InfoFlowError, unknown

KINDS = ("soft", "hard", "relu")
HARD = 12.0  # c of a head that selects: e^-12 = 6e-6 of the weight leaves the nearest anchor
SOFT_SHARPNESS = (0.2, 0.25, 0.3, 0.4, 0.5, 0.7)


@dataclass(frozen=True)
class Bounds:
    """A domain given by hand: |loss argument| <= arguments, |x_ir| <= entry, |y_i| <= labels."""

    arguments: float
    entry: float
    labels: float = 1.0


@dataclass(frozen=True)
class Branch:
    """One ridge direction: F(a s + b y) is the weighted sum of the pieces' tables, up to a constant."""

    a: float
    b: float
    pieces: tuple[tuple[float, Table], ...]

    def __call__(self, z: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
        total = torch.zeros_like(z)
        for weight, piece in self.pieces:
            total = total + weight * piece(z)
        return total

    def check(self, z: Float[Tensor, " ..."]) -> None:
        """Refuse arguments that one of its tables does not cover."""
        for _, piece in self.pieces:
            piece.check(z)


@dataclass(frozen=True)
class GradientHeads:
    """Everything one gradient coordinate needs; `error` bounds its error for |x_ir| <= `entry`, None if unproved."""

    branches: tuple[Branch, ...]
    tau: float
    entry: float
    error: float | None

    @property
    def per_coordinate(self) -> int:
        """Heads for one coordinate of the gradient: each piece is asked ahead and behind."""
        return 2 * sum(len(branch.pieces) for branch in self.branches)

    def coordinates(
        self, s: Float[Tensor, "... n"], y: Float[Tensor, "... n"], x: Float[Tensor, "... d n"]
    ) -> Float[Tensor, "... d n"]:
        """l'(s_i, y_i) x_ir for all r and i; refuses arguments the tables do not cover."""
        total = torch.zeros_like(x)
        for branch in self.branches:
            z = (branch.a * s + branch.b * y)[..., None, :]
            shift = branch.a * self.tau * x
            both = torch.stack([z + shift, z - shift])
            branch.check(both)
            ahead, behind = branch(both)
            total = total + (ahead - behind) / (2 * self.tau)
        return total


def one_variable(
    loss: Loss, kind: str, p: int, reach: float, entry: float, tau: float | None, knots: int = 32
) -> GradientHeads:
    """Heads for a residual or margin loss whose argument stays within `reach`; tau and c make the bound smallest."""
    if kind not in KINDS:
        raise unknown("kind of heads", kind, list(KINDS))
    steps = [entry_scale(entry) * 10 ** (k / 3) for k in range(-14, 4)] if tau is None else [tau]
    sharpnesses = SOFT_SHARPNESS if kind == "soft" else (HARD,)
    if loss.sup is None:  # no bound to make small
        steps, sharpnesses = [0.01 * entry_scale(entry) if tau is None else tau], sharpnesses[2:3] or sharpnesses
    asked = _Asked(kind, p, reach, entry, knots + knots % 2)
    candidates = []
    problem: InfoFlowError | None = None
    for step in steps:
        for c in sharpnesses:
            try:
                candidates.append(_heads(loss, asked, step, c))
            except InfoFlowError as refused:
                problem = refused
    if not candidates:
        assert problem is not None
        raise problem
    return min(candidates, key=lambda heads: math.inf if heads.error is None else heads.error)


def entry_scale(entry: float) -> float:
    """The size of a step that moves the argument by about one."""
    return 1 / entry if entry > 0 else 1.0


class _Asked(NamedTuple):
    """What the heads of a loss are asked to be."""

    kind: str
    p: int  # anchors of a head
    reach: float  # of the loss's argument
    entry: float  # largest |x_ir|
    knots: int  # of the relu kind; even, so that 0 is one: a margin loss is convex on either side of 0


def _heads(loss: Loss, asked: _Asked, tau: float, c: float) -> GradientHeads:
    kind, p, reach, entry, _ = asked
    inner = reach + tau * entry
    if loss.form == "margin":
        F, second, kappa, half = _two_sided(loss, inner, p, c)
        a, b = 1.0, kappa
    else:
        F, second, half = loss.value, loss.second, inner
        a, b = 1.0, -1.0
    sup = loss.sup(half + _beyond(half, p, c)) if loss.sup is not None else None
    if kind == "relu":
        return _relu_heads(F, (a, b), half, asked, tau, sup, loss.convex)
    remainder = _difference_error(sup, entry, tau)
    options = []
    for corrected in (False, True) if kind == "soft" and second is not None else (False,):
        built = table(F, -half, half, p, c, second if corrected else None)
        error = None
        if sup is not None and remainder is not None:
            if kind == "soft":
                main = entry * slope_error(built.spacing, c, sup, corrected)
            else:
                main = sup.first * built.spacing * (0.5 + tail(c)) / tau
            error = main + remainder + built.rounding / tau
        options.append(GradientHeads((Branch(a, b, ((1.0, built),)),), tau, entry, error))
    return min(options, key=lambda heads: math.inf if heads.error is None else heads.error)


def _beyond(half: float, p: int, c: float) -> float:
    """How far a table's anchors extend past its range."""
    steps = p - 1 - 2 * extension(c)
    return extension(c) * 2 * half / steps if steps >= 1 else 0.0


def _difference_error(sup: Derivatives | None, entry: float, tau: float) -> float | None:
    if sup is None:
        return None
    options = []
    if sup.third is not None:
        options.append(tau**2 * entry**3 * sup.third / 6)
    if sup.second is not None:
        options.append(tau * entry**2 * sup.second / 2)
    return min(options) if options else None


def _two_sided(
    loss: Loss, inner: float, p: int, c: float
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor] | None, float, float]:
    """F(z) = phi(z - kappa) for z > 0 and phi(-(z + kappa)) for z <= 0, so that z = s + kappa y carries the label.

    kappa = inner + m, where m keeps the window of anchors of one label out of the other's: m >= extension D.
    """
    width = extension(c)
    steps = p - 1 - 2 * width
    if steps <= 2 * width:
        raise InfoFlowError(f"expected more than {4 * width + 1} anchors for a margin loss at c={c:g}, got p={p}.")
    margin = 4 * width * inner / (steps - 2 * width) * (1 + 1e-9)
    kappa = inner + margin

    def two_sided(phi: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda z: torch.where(z > 0, phi(z - kappa), phi(-(z + kappa)))

    second = None if loss.second is None else two_sided(loss.second)
    return two_sided(loss.value), second, kappa, kappa + inner


def _relu_heads(
    F: Callable[[Tensor], Tensor],
    slopes_of: tuple[float, float],
    half: float,
    asked: _Asked,
    tau: float,
    sup: Derivatives | None,
    convex: bool,
) -> GradientHeads:
    """F ~ F(lo) + sum_j c_j ReLU(z - z_j); each ReLU is a hard head with anchors on [z_j, hi] (Theorem D.1)."""
    p, entry, knots = asked.p, asked.entry, asked.knots
    if p < 3 or not 2 <= knots <= 10_000:
        raise InfoFlowError(f"expected p >= 3 anchors and 2 to 10000 knots, got p={p}, knots={knots}; correct them.")
    z = torch.linspace(-half, half, knots + 1, dtype=torch.float64)
    slopes = F(z).diff() / z.diff()
    weights = torch.cat([slopes[:1], slopes.diff()])
    pieces = []
    heads_error = 0.0
    for weight, knot in zip(weights.tolist(), z[:-1].tolist(), strict=True):
        spacing = (half - knot) / (p - 1)
        values = spacing * torch.arange(p, dtype=torch.float64)
        pieces.append((weight, Table(values, knot, spacing, HARD, -half, half)))
        heads_error += abs(weight) * (spacing * (0.5 + tail(HARD)) + pieces[-1][1].rounding)
    remainder = _difference_error(sup, entry, tau)
    error = None
    if sup is not None and sup.second is not None and remainder is not None:
        chord = (2 * half / knots) ** 2 * sup.second / (16 if convex else 8)
        error = (chord + heads_error) / tau + remainder
    return GradientHeads((Branch(*slopes_of, tuple(pieces)),), tau, entry, error)
