"""How far gradient descent can travel, before it is run.

L(w) = mean_i l(w.x_i, y_i) + ridge |w|^2/2, convex with Hessian between mu and Ls. For eta <= 2/Ls the map
w -> w - eta grad L(w) does not expand distances, so for *any* point v

    |w_{t+1} - v| <= |w_t - v| + eta |grad L(v)|      and      |w_t - v| <= |w_0 - v| + t eta |grad L(v)|.

With v near a minimiser the second term vanishes; where no minimiser exists (separable data) v is the minimiser of
L + rho |w - w_0|^2/2 for the rho that makes the bound smallest. Then |w_t.x_i - v.x_i| <= R |x_i|.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.construct.softmax_attention.losses import Loss
from infoflow.errors import InfoFlowError

A_PRIORI = "a priori: descent with eta <= 2/smoothness does not expand distances to a fixed point"
FROM_RUN = "read off a run of exact gradient descent, with a margin of one quarter"


@dataclass(frozen=True)
class DescentProblem:
    """x is d x n (tokens are columns), y has n entries, w0 has d."""

    x: Float[Tensor, "d n"]
    y: Float[Tensor, " n"]
    w0: Float[Tensor, " d"]

    def __post_init__(self) -> None:
        d, n = self.x.shape if self.x.ndim == 2 else (0, 0)
        if d < 1 or n < 1 or self.y.shape != (n,) or self.w0.shape != (d,):
            raise InfoFlowError(
                f"expected x as d rows of n numbers, n labels and d weights, got shapes {tuple(self.x.shape)}, "
                f"{tuple(self.y.shape)}, {tuple(self.w0.shape)}."
            )
        for name in ("x", "y", "w0"):
            if not bool(torch.isfinite(getattr(self, name)).all()):
                raise InfoFlowError(f"expected finite numbers in {name}, got nan or infinity; correct the data.")

    @property
    def norms(self) -> Float[Tensor, " n"]:
        """|x_i| of every sample."""
        made: Tensor = self.x.norm(dim=0)
        return made


def gradient(loss: Loss, problem: DescentProblem, w: Float[Tensor, " d"], ridge: float = 0.0) -> Float[Tensor, " d"]:
    """Of the mean loss with ridge |w|^2 / 2, at w."""
    return problem.x @ loss.slopes(w @ problem.x, problem.y) / len(problem.y) + ridge * w


def exact_descent(
    loss: Loss, problem: DescentProblem, eta: float, steps: int, ridge: float
) -> Float[Tensor, "steps_1 d"]:
    """The weights of every step of exact gradient descent, the first included."""
    w = problem.w0
    path = [w]
    for _ in range(steps):
        w = w - eta * gradient(loss, problem, w, ridge)
        path.append(w)
    return torch.stack(path)


def spectrum(loss: Loss, problem: DescentProblem, ridge: float) -> tuple[float, float]:
    """(mu, Ls): bounds on the Hessian's eigenvalues. mu counts the data only where the curvature is constant."""
    eigenvalues = torch.linalg.eigvalsh(problem.x @ problem.x.mT / len(problem.y))
    slack = 1e-12 * float(eigenvalues[-1].clamp(min=1e-300))
    if loss.curvature is None:
        return ridge, float("inf")
    low = float(eigenvalues[0].clamp(min=0)) if loss.name == "squared" else 0.0
    return max(0.0, low - slack) + ridge, loss.curvature * (float(eigenvalues[-1]) + slack) + ridge


@dataclass(frozen=True)
class Reach:
    """`arguments` >= |w_t.x_i - y_i| (residual losses) or |w_t.x_i|, for all t and i; `source` says who says so."""

    arguments: float
    source: str
    weights: float = 0.0  # >= |w_t|


def reach(loss: Loss, problem: DescentProblem, eta: float, steps: int, ridge: float) -> Reach:
    """How large arguments and weights become on the way: proved where the loss is convex and the step small, else
    followed."""
    _, smoothness = spectrum(loss, problem, ridge)
    if loss.convex and eta * smoothness <= 2:
        arguments, weights = _a_priori(loss, problem, eta, steps, ridge)
        return Reach(arguments, A_PRIORI, weights)
    path = exact_descent(loss, problem, eta, steps, ridge)
    if not bool(torch.isfinite(path).all()):
        raise InfoFlowError(f"expected gradient descent to stay finite, but it diverges at eta={eta:g}; lower eta.")
    largest = float(_arguments(loss, problem, path).abs().max())
    return Reach(1.25 * largest, FROM_RUN, 1.25 * float(path.norm(dim=1).max()))


def _arguments(loss: Loss, problem: DescentProblem, w: Float[Tensor, "... d"]) -> Float[Tensor, "... n"]:
    s = w @ problem.x
    return s - problem.y if loss.form == "residual" else s


def _a_priori(loss: Loss, problem: DescentProblem, eta: float, steps: int, ridge: float) -> tuple[float, float]:
    """Bounds on the arguments and on |w_t|, for the best of a few points v."""
    best = (float("inf"), float("inf"))
    for rho in (0.0, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0):
        v = _minimise(loss, problem, ridge, rho)
        if v is None:
            continue
        rest = float(gradient(loss, problem, v, ridge).norm()) * (1 + 1e-9) + 1e-13
        radius = float((problem.w0 - v).norm()) + steps * eta * rest
        arguments = float((_arguments(loss, problem, v).abs() + radius * problem.norms).max())
        best = min(best, (arguments * (1 + 1e-9), float(v.norm()) + radius))
    return best


def _minimise(loss: Loss, problem: DescentProblem, ridge: float, rho: float) -> Float[Tensor, " d"] | None:
    """Newton's method on L + rho |w - w0|^2/2 with halved steps; any result is usable, a good one is tight."""
    w = problem.w0
    eye = torch.eye(len(w), dtype=w.dtype)

    def grad(point: Tensor) -> Tensor:
        return gradient(loss, problem, point, ridge) + rho * (point - problem.w0)

    for _ in range(40):
        s = (w @ problem.x).requires_grad_()
        (bend,) = torch.autograd.grad(loss.slopes(s, problem.y).sum(), s)
        hessian = (problem.x * bend) @ problem.x.mT / len(problem.y) + (ridge + rho + 1e-12) * eye
        slope = grad(w)
        step = torch.linalg.lstsq(hessian, slope).solution
        size = 1.0
        while size > 1e-4 and not float(grad(w - size * step).norm()) < float(slope.norm()):
            size /= 2
        if size <= 1e-4:
            break
        w = w - size * step
    return w if bool(torch.isfinite(w).all()) else None
