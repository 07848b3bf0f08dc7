"""What the search needs of a model and a target: `state(X)` and `target(X)`, differentiable, checked at the door."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow import arguments, cost
from infoflow.errors import InfoFlowError, first_line
from infoflow.nn import Transformer
from infoflow.refutations.surrogate import Surrogate, surrogate_of
from infoflow.targets.target import Target

STARTS = 12  # pairs that the search begins with
MAP_BYTES = 24  # of an attention weight: a score, its weight and the gradient, all layers kept for the way back


@dataclass(frozen=True)
class Adapter:
    """The two functions that open any differentiable PyTorch model to `refute`.

    `state(X)`: (B, T, d) float64 -> (B, N), all that the read-out sees; `target(X)`: (B, T, d) -> (B,). `target` may be
    left out when `refute` is called with a Target.
    """

    state: Callable[[Tensor], Tensor]
    target: Callable[[Tensor], Tensor] | None = None
    dim: int | None = None  # None: the target's, or 1
    domain: tuple[float, float] = (-1.0, 1.0)


@dataclass(frozen=True)
class TwinProblem:
    """A state map R and a target F on the box [low, high]^{T d}."""

    state: Callable[[Tensor], Tensor]
    surrogate: Surrogate
    T: int
    dim: int
    low: float
    high: float

    def inputs(self, theta: Float[Tensor, "B Td"]) -> Float[Tensor, "B T d"]:
        """x = centre + half sin(theta): the box for free."""
        centre, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        made: Tensor = (centre + half * torch.sin(theta)).unflatten(-1, (self.T, self.dim))
        return made

    def states(self, theta: Float[Tensor, "B Td"]) -> Float[Tensor, "B N"]:
        """What the read-out sees, without gradients."""
        with torch.no_grad():
            return self.state(self.inputs(theta))

    def jacobian(self, theta: Float[Tensor, "B Td"]) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N Td"]]:
        """R and dR/dtheta for every point: N copies of the batch, one backward pass, so any autograd model will do."""
        B = theta.shape[0]
        N = self.states(theta[:1]).shape[-1]
        copies = theta.detach().repeat_interleave(N, 0).requires_grad_(True)
        R = self.state(self.inputs(copies))  # (B N, N)
        picked = (R * torch.eye(N, dtype=R.dtype).repeat(B, 1)).sum()  # copy i answers for coordinate i
        (slope,) = torch.autograd.grad(picked, copies)
        return R.detach()[::N], slope.unflatten(0, (B, N))

    def pairs(self, theta: Float[Tensor, "B Td"]) -> "TwinProblem":
        """The problem of pairs (Y, Z), 2 T tokens: state R(Y) - R(Z), target F(Y) - F(Z).

        States are counted in units of their largest norm at `theta`, at least 1, so that one tolerance fits all models.
        """
        unit = float(self.states(theta).norm(dim=-1).max().clamp(min=1.0))

        def apart(X: Float[Tensor, "B 2*T d"]) -> Float[Tensor, "2*B T d"]:
            made: Tensor = X.unflatten(1, (2, self.T)).flatten(0, 1)
            return made

        def difference(values: Float[Tensor, "2B ..."]) -> Float[Tensor, "B ..."]:
            first, second = values.unflatten(0, (-1, 2)).unbind(1)
            made: Tensor = first - second
            return made

        surrogate = Surrogate(
            value=lambda X: difference(self.surrogate.value(apart(X))),
            smooth=lambda X, sharpness: difference(self.surrogate.smooth(apart(X), sharpness.repeat_interleave(2))),
            noise=self.surrogate.noise,
        )
        return replace(self, state=lambda X: difference(self.state(apart(X))) / unit, surrogate=surrogate, T=2 * self.T)


def problem_of(
    model: Any, target: Any, T: int, domain: tuple[float, float] | None = None, seed: int = 0
) -> TwinProblem:
    """Validate model, target and T, and put them in one form; every refusal says what was expected."""
    T = arguments.integer("T", T)
    state, dim, box = _state_of(model, target)
    if isinstance(model, Transformer):
        config = model.config
        maps = 2 * STARTS * config.embed[-1] * sum(config.heads) * T * T
        cost.memory(MAP_BYTES * maps, f"the derivatives of {STARTS} pairs of inputs of T={T} tokens", "T")
    asked = target if target is not None else getattr(model, "target", None)
    if isinstance(asked, Target):
        if asked.dim != dim:
            raise InfoFlowError(f"expected a target on tokens of dimension {dim}, got dimension {asked.dim}.")
        asked.check_length(T)
        box = asked.domain
    elif not callable(asked):
        raise InfoFlowError("expected a Target or a function X -> (B,), got none; pass target=...")
    low, high = arguments.interval("domain", domain or box)
    problem = TwinProblem(state, surrogate_of(asked, T), T, dim, low, high)
    _check(problem, seed)
    return problem


def _state_of(model: Any, target: Any) -> tuple[Callable[[Tensor], Tensor], int, tuple[float, float]]:
    if isinstance(model, Transformer):
        config = model.config
        if not config.cls or model.stack:
            raise InfoFlowError("expected a single Transformer with a CLS token, got one without or a stack of models.")
        if config.encoder == "table":
            raise InfoFlowError("expected a Transformer on vectors, got one on a vocabulary: its inputs have no box.")
        if config.hard:
            raise InfoFlowError(
                "expected softmax attention (hardmax is not differentiable); try: infoflow refute hardmax."
            )
        double = copy.deepcopy(model).double().eval().requires_grad_(False).cpu()
        return (lambda X: double.represent(X)[..., 0, :]), config.dim, (-1.0, 1.0)
    if isinstance(model, nn.Module) and not hasattr(model, "state"):
        raise InfoFlowError(
            f"expected a Transformer or an Adapter, got {type(model).__name__}; wrap it: Adapter(state=...)."
        )
    if not callable(getattr(model, "state", None)):
        raise InfoFlowError(f"expected a model with state(X), got {type(model).__name__}; wrap it in an Adapter.")
    dim: Any = getattr(model, "dim", None) or getattr(target, "dim", 1)
    return model.state, int(dim), tuple(getattr(model, "domain", (-1.0, 1.0)))


def _check(problem: TwinProblem, seed: int) -> None:
    """Shapes, dtype, finiteness, no randomness, no mixing of the batch: what the continuation silently relies on."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.rand(3, problem.T * problem.dim, generator=generator, dtype=torch.float64) * 2 - 1
    X = problem.inputs(theta)
    shape = f"X of shape (3, {problem.T}, {problem.dim}) float64"
    results: dict[str, Tensor] = {}
    for name, function in (("state", problem.state), ("target", problem.surrogate.value)):
        try:
            y = function(X.clone().requires_grad_(True))
        except InfoFlowError:
            raise
        except Exception as error:  # a stranger's function may raise anything: it must become one sentence
            raise InfoFlowError(f"expected {name}(X) to accept {shape}, it failed: {first_line(error)}") from None
        if not isinstance(y, Tensor) or y.ndim != (2 if name == "state" else 1) or y.shape[0] != 3 or y.numel() == 0:
            got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            want = "(3, N)" if name == "state" else "(3,)"
            raise InfoFlowError(f"expected {name}(X) of shape {want} for {shape}, got {got}.")
        if y.dtype != torch.float64:
            raise InfoFlowError(f"expected {name}(X) in float64, got {y.dtype}; cast the model with .double().")
        if not torch.isfinite(y).all():
            raise InfoFlowError(f"expected finite values of {name}(X), got inf or nan; check the model on its domain.")
        if not y.requires_grad:
            raise InfoFlowError(f"expected a differentiable {name}(X), got a result without gradient.")
        results[name] = y.detach()
    again, alone = problem.state(X), problem.state(X[1:2])
    scale = 1e-9 * (1 + results["state"].abs().max())
    if (again - results["state"]).abs().max() > scale:
        raise InfoFlowError("expected a deterministic state(X), two calls differ; put the model in eval mode.")
    if (alone - results["state"][1:2]).abs().max() > scale:
        raise InfoFlowError("expected state(X) to treat each sequence alone, it mixes the batch; use eval mode.")
