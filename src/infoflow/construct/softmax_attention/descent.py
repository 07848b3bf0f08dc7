"""Theorem 4.2 / D.4 repaired: attention layers whose rows w_t follow gradient descent on data given in context.

The state has rows x (d), y, w (d), 1; columns are the n examples (and one more for a new x_u). One step is one
multi-head layer with a skip connection; head (r, +-, branch) adds -+ eta/(2 tau n) sum_i T(z_i) to row w_r, where
z_i = a w.x_i + b y_i +- a tau x_ir. The paper's function of (w.x, y) alone cannot do it: the factor x_ir is lost.

    |w~_T - w_T| <= sum_{t<T} rho^t eta sqrt(d) eps,   rho = max(|1 - eta mu|, |1 - eta Ls|)

as long as every argument stays in the tables' domain, which is checked at every step.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.certificates import Certificate, Claim, stated_limit
from infoflow.certificates.rules import UNIT
from infoflow.construct.softmax_attention.gradient_heads import Bounds, GradientHeads, one_variable
from infoflow.construct.softmax_attention.losses import Loss, find
from infoflow.construct.softmax_attention.ridge_polynomials import general_heads
from infoflow.construct.softmax_attention.table_head import Table, table, value_error
from infoflow.construct.softmax_attention.trajectory import DescentProblem, Reach, exact_descent, reach, spectrum
from infoflow.errors import InfoFlowError

ALLOWANCE = "; the heads' own error is allowed a quarter more, checked at every step"


@dataclass(frozen=True)
class DescentRun:
    """The weights after every step, by the network and by exact descent."""

    path: Float[Tensor, "steps_1 d"]
    exact: Float[Tensor, "steps_1 d"]

    @property
    def w(self) -> Float[Tensor, " d"]:
        """The network's weights after the last step."""
        return self.path[-1]

    @property
    def deviation(self) -> float:
        """Largest Euclidean distance from exact gradient descent over all steps."""
        return float((self.path - self.exact).norm(dim=1).max())


@dataclass(frozen=True)
class InContextDescent:
    """Attention layers that descend on a loss, one step each, with a bound on how far they end from exact descent."""

    loss: Loss
    d: int
    n: int
    eta: float
    steps: int
    ridge: float
    kind: str
    p: int
    gradient_heads: GradientHeads
    domain: Reach
    identity: Table  # the read-out at a new x_u
    problem: DescentProblem | None  # the data the domain was made for
    tau: float | None = None  # as the caller gave it
    knots: int = 32

    @property
    def heads_per_step(self) -> int:
        """2 heads per coordinate and branch piece, and one for the ridge term."""
        return self.d * self.gradient_heads.per_coordinate + (1 if self.ridge else 0)

    @property
    def heads(self) -> int:
        """Heads of all layers together."""
        return self.steps * self.heads_per_step

    def gradient(self, problem: DescentProblem, w: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
        """The attention layer's gradient, structure exploited."""
        parts = self.gradient_heads.coordinates(w @ problem.x, problem.y, problem.x)
        return parts.sum(1) / self.n + self.ridge * w

    def run(self, problem: DescentProblem) -> DescentRun:
        """Descend on a problem of this size, and keep every step beside the exact one."""
        self.expect(problem)
        w, path = problem.w0, [problem.w0]
        for _ in range(self.steps):
            w = w - self.eta * self.gradient(problem, w)
            path.append(w)
        return DescentRun(torch.stack(path), exact_descent(self.loss, problem, self.eta, self.steps, self.ridge))

    def predict(self, problem: DescentProblem, x_u: Float[Tensor, " d"]) -> float:
        """w_T . x_u, read by one more table head at the new column."""
        z = self.run(problem).w @ x_u
        self.identity.check(z)
        return float(self.identity(z))

    @property
    def prediction_error(self) -> float:
        """Of the read-out head: aliasing of the identity's table, and rounding."""
        built = self.identity
        return value_error(built.spacing, built.c, 1.0, 0.0) + built.rounding

    def propagated(self, problem: DescentProblem) -> float | None:
        """The bound on |w~_T - w_T| for this data; None when the loss's bounds are not known."""
        eps = self.gradient_heads.error
        mu, smoothness = spectrum(self.loss, problem, self.ridge)
        if eps is None or not math.isfinite(smoothness):
            return None
        if self.loss.convex:
            rho = max(abs(1 - self.eta * mu), abs(1 - self.eta * smoothness))
        else:
            rho = 1 + self.eta * smoothness
        slopes = self.gradient_heads.entry * (1 + self.domain.arguments)  # of every loss here, at most
        rounding = self.eta * (self.d + self.n) * math.sqrt(self.d) * slopes + self.domain.weights + 1
        step = self.eta * math.sqrt(self.d) * eps + 16 * UNIT * rounding
        if rho > 1 and self.steps * math.log(rho) > 700:
            return None
        return step * (self.steps if rho == 1 else (rho**self.steps - 1) / (rho - 1))

    def save(self, path: str | Path) -> Path:
        """The call that made it and its numbers; `load` makes it again and compares."""
        from infoflow.construct.softmax_attention.saving import save_descent

        return save_descent(self, path)

    @cached_property
    def certificate(self) -> Certificate:
        """The bound on |w - exact w| after the last step, for the data it was built for."""
        bound = None if self.problem is None else self.propagated(self.problem)
        eps = self.gradient_heads.error
        assumptions = [f"domain |z| <= {self.domain.arguments:g}, {self.domain.source}"]
        if bound is None:
            assumptions.append("no bound: derivative bounds of the loss, or data, were not given")
        inputs = f"every one of {self.steps} steps on the given data"
        return Certificate(
            Claim("|w - w of exact gradient descent|", stated_limit(bound), inputs),
            bound,
            "float64 with rounding allowance",
            tuple(assumptions),
            parts={} if eps is None else {"one gradient coordinate": eps},
        )

    def check(self, certificate: Certificate, seed: int = 0, seconds: float = 5.0) -> Certificate:
        """One run on the data the claim speaks of: there is no other input to attack with."""
        if self.problem is None:
            raise InfoFlowError("expected a network built with data, got one without; call run on a problem instead.")
        deviation = self.run(self.problem).deviation
        found = replace(certificate, measured={**certificate.measured, "deviation on the data": deviation})
        if found.bound is None or deviation <= found.bound:
            return found
        return found.against(f"the run deviates by {deviation:.6g}, the bound is {found.bound:.6g}")

    def expect(self, problem: DescentProblem) -> None:
        """Refuse data of another size, or outside what the tables cover."""
        if problem.x.shape != (self.d, self.n):
            raise InfoFlowError(
                f"expected x of shape ({self.d}, {self.n}), got {tuple(problem.x.shape)}; rebuild for this size."
            )
        largest = float(problem.x.abs().max())
        if largest > self.gradient_heads.entry * (1 + 1e-12):
            raise InfoFlowError(
                f"expected entries of x within {self.gradient_heads.entry:g}, got {largest:g}; rebuild with this data."
            )
        _check_labels(self.loss, problem)


def in_context_gd(
    loss: str | Loss,
    d: int,
    n: int,
    eta: float,
    steps: int,
    heads: str = "soft",
    *,
    data: DescentProblem | None = None,
    bounds: Bounds | None = None,
    ridge: float = 0.0,
    p: int = 256,
    tau: float | None = None,
    knots: int = 32,
    directions: int = 9,
    lipschitz: tuple[float, float] | None = None,
) -> InContextDescent:
    """Layers for `steps` steps of gradient descent. Give `data` (the domain follows a priori) or `bounds`."""
    chosen = find(loss)
    _check_call(d, n, eta, steps, ridge, p)
    if tau is not None and not 0 < tau < math.inf:
        raise InfoFlowError(f"expected tau (the step of the central difference) above 0, got {tau}; correct it.")
    if (data is None) == (bounds is None):
        raise InfoFlowError("expected either data or bounds, got both or neither; the tables need a domain.")

    def build(limits: Bounds, source: str, weights: float = 0.0) -> InContextDescent:
        if chosen.form == "general":
            built = general_heads(chosen, p, limits, directions, lipschitz)
        else:
            built = one_variable(chosen, heads, p, limits.arguments, limits.entry, tau, knots)
        far = 2 * (limits.arguments + limits.labels)
        identity = table(lambda z: z, -far, far, p, 0.25)
        domain = Reach(limits.arguments, source, weights)
        return InContextDescent(chosen, d, n, eta, steps, ridge, heads, p, built, domain, identity, data, tau, knots)

    if data is None:
        assert bounds is not None
        return build(bounds, "given by the caller")
    if data.x.shape != (d, n):
        raise InfoFlowError(f"expected x of shape ({d}, {n}), got {tuple(data.x.shape)}; correct d, n or the data.")
    _check_labels(chosen, data)
    entry, labels = float(data.x.abs().max()), float(data.y.abs().max())
    far = reach(chosen, data, eta, steps, ridge)
    slack = 1e-3 * far.arguments + 1e-9
    for _ in range(12):  # room for the heads' own error, which grows with the room
        net = build(Bounds(far.arguments + slack, entry, labels), far.source, far.weights)
        own = net.certificate.bound
        strays = math.inf if own is None else own * float(data.norms.max())
        if strays <= slack:
            return net
        if strays > far.arguments:
            break
        slack = 1.5 * strays
    return build(Bounds(1.25 * far.arguments + 1e-9, entry, labels), far.source + ALLOWANCE, far.weights)


def _check_labels(loss: Loss, problem: DescentProblem) -> None:
    if loss.form == "margin" and not bool((problem.y.abs() == 1).all()):
        raise InfoFlowError(f"expected labels -1 or +1 for the {loss.name} loss, got others; relabel the data.")


def _check_call(d: int, n: int, eta: float, steps: int, ridge: float, p: int) -> None:
    if d < 1 or n < 1 or steps < 1:
        raise InfoFlowError(f"expected d, n, steps >= 1, got d={d}, n={n}, steps={steps}; correct them.")
    if not 0 < eta < math.inf or not 0 <= ridge < math.inf:
        raise InfoFlowError(f"expected eta > 0 and ridge >= 0, got eta={eta}, ridge={ridge}; correct them.")
    if steps > 10**6 or p > 10**7:
        raise InfoFlowError(f"expected at most 10^6 steps and 10^7 anchors, got {steps} and {p}; lower them.")
    if p < n + 1:
        raise InfoFlowError(f"expected p >= n + 1 anchors (a column per example and for x_u), got p={p}; raise p.")
