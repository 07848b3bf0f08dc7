"""Any function as a target: `function(f, d)` for one of a whole sequence, `function(f, d, arity, extremum)` for the
best score over tuples of tokens.

    import infoflow as iflow
    spread = iflow.targets.function(lambda X: X.amax(-2).sum(-1) - X.amin(-2).sum(-1), d=3)

A function gets torch tensors (batched, differentiable) and gives one number a sequence, or `outputs` numbers. Values
and active index sets are exact, the sets by automatic differentiation (eq. (4) of the InfoFlow paper speaks of every
almost everywhere differentiable target). How many tokens a comparison takes cannot be read from a function: it is
estimated on samples (`targets.estimates`) and every output that uses it says so.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

import numpy as np

from infoflow.arguments import integer
from infoflow.errors import InfoFlowError
from infoflow.targets.arrays import Array, is_torch, on_host
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import CallableScore
from infoflow.targets.target import Target
from infoflow.targets.terms import Extremum, WholeSequence


def function(
    f: Callable[[Any], Any],
    d: int,
    arity: int | None = None,
    extremum: Literal["max", "min"] | None = None,
    *,
    outputs: int = 1,
    distinct: bool = False,
    lipschitz: float | None = None,
    domain: tuple[float, float] = (-1.0, 1.0),
    sampler: str = "uniform",
    name: str = "",
) -> Target:
    """A target from a function of torch tensors.

    Without `arity`, f maps whole sequences (..., T, d) to (...), or to (..., outputs). With `arity` k and `extremum`, f
    is a score: it maps k tokens (..., k, d) to (...), and the target is its largest or smallest value over all k-tuples
    of positions (`distinct`: of different positions). `lipschitz`, with respect to each token, opens the occupancy
    construction to `build`. `name` is its identity where results are stored: another function needs another name.
    Without one it has an identity of this process alone, so that no store answers for a function that has changed.
    """
    integer("d", d)
    if not callable(f):
        raise InfoFlowError(f"expected a function of torch tensors, got {type(f).__name__}.")
    if (arity is None) != (extremum is None):
        raise InfoFlowError(
            "expected arity and extremum together (a score of k tokens, its max or min over tuples), or neither (a "
            "function of the whole sequence)."
        )
    called = getattr(f, "__name__", type(f).__name__).strip("<>")
    identity = name or f"{called}@{uuid4().hex[:8]}"
    options: dict[str, Any] = {"domain": domain, "sampler": sampler, "spelling": f"function:{identity}"}
    if arity is None:
        if distinct or lipschitz is not None:
            raise InfoFlowError("expected distinct and lipschitz for a score of k tokens alone; give an arity.")
        term = WholeSequence(OnTensors(f), d, integer("outputs", outputs))
        return Target((term,), Polynomial.identity(outputs), d, **options)
    if outputs != 1:
        raise InfoFlowError(f"expected one output of an extremum, got outputs={outputs}.")
    score = CallableScore(OnTensors(f), integer("arity", arity), d, lipschitz)
    assert extremum is not None
    return Target.sum(Extremum(score, extremum, distinct=distinct), **options)


def of_callable(f: Callable[..., Any]) -> Target:
    """A plain function of whole sequences, `def F(X, d=3)`: the default of `d` is the dimension of its tokens."""
    try:
        stated = inspect.signature(f).parameters.get("d")
    except (TypeError, ValueError):
        stated = None
    called = getattr(f, "__name__", type(f).__name__)
    if stated is None or stated.default is inspect.Parameter.empty:
        raise InfoFlowError(
            f"expected the dimension of the tokens as a default of the function's argument d (def {called}(X, d=2)), "
            "got none; or pass infoflow.targets.function(f, d=2)."
        )
    return function(f, stated.default)


@dataclass(frozen=True, eq=False)
class OnTensors:
    """A function of tensors that takes arrays, too, and whose failures are one sentence."""

    function: Callable[[Any], Any]

    def __call__(self, x: Array) -> Array:
        import torch

        tensor = x if is_torch(x) else torch.from_numpy(np.ascontiguousarray(x))
        try:
            y = self.function(tensor)
        except InfoFlowError:
            raise
        except Exception as error:  # a stranger's function may raise anything
            line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise InfoFlowError(
                f"expected the function to take a tensor of shape {tuple(x.shape)}, it failed: {line}"
            ) from None
        if not isinstance(y, torch.Tensor):
            raise InfoFlowError(f"expected the function to return a tensor, got {type(y).__name__}.")
        return y if is_torch(x) else on_host(y)
