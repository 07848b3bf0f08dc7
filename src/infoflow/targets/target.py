"""Target: an outer map over extrema of scores, on a box with a law of inputs. This is asked of a Transformer."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from infoflow import arguments, cost
from infoflow.architecture import Architecture
from infoflow.arguments import shown
from infoflow.errors import InfoFlowError, unknown
from infoflow.report.html import Shown
from infoflow.targets.arrays import (
    CHUNK_BYTES,
    QUIET,
    Array,
    all_finite,
    as_tokens,
    concatenate,
    detach,
    dot,
    full,
    gather_tokens,
    indices,
    smallest,
    stack,
)
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import differentiate
from infoflow.targets.terms import Extremum, KthLargest, PositionSum, Term, ValueAtExtremum, WholeSequence

if TYPE_CHECKING:
    from infoflow.targets.comparison import Comparison

__all__ = [
    "Extremum",
    "KthLargest",
    "OuterNetwork",
    "PositionSum",
    "Target",
    "Term",
    "ValueAtExtremum",
    "WholeSequence",
]
# The input laws of the papers.
SAMPLERS: dict[str, str] = {
    "uniform": "independent, uniform on the domain in every coordinate",
    "normal": "independent, N(0, I)",
    "clamped_normal": "independent, N(0, 2 I), then the norm clamped to [0.2, 4] by rescaling (C.5)",
}
SHORTEST, LONGEST = 0.2, 4.0  # norms of the clamped normal law (C.5)


@dataclass(frozen=True, eq=False)
class OuterNetwork:
    """An outer map given as a function, with the error it is stated to have and its sup-norm Lipschitz constant."""

    function: Callable[[Any], Any]  # (..., values) -> (..., outputs), numpy or torch
    lipschitz: float
    error: float = 0.0
    outputs: int = 1

    def __call__(self, values: Array) -> Array:
        return self.function(values)


@dataclass(frozen=True, eq=False, repr=False)
class Target(Shown):
    """F(X) = outer(term values), X (..., T, d) -> (...) or (..., outputs) for a vector-valued target.

    `spelling` (`pairwise_max:D=4,d=4,seed=0`) is the identity of a named target: it is what files and results record.
    `domain` is the box the theorems speak of; `sampler` names the input law of the paper's experiments.
    X may be a numpy array or a torch tensor on any device; values are exact and differentiable, with the gradient at
    the winning tokens only. Ties: the lexicographically first tuple wins.
    """

    terms: tuple[Term, ...]
    outer: Polynomial | OuterNetwork
    dim: int
    spelling: str = ""
    domain: tuple[float, float] = (-1.0, 1.0)
    sampler: str = "uniform"
    stated_shape: Architecture | None = None  # the one a theorem states for it, built where no other is asked for

    def __post_init__(self) -> None:
        if not self.terms:
            raise InfoFlowError("expected at least one term in a target, got none.")
        for term in self.terms:
            if term.dim != self.dim:
                raise InfoFlowError(f"expected terms on tokens of dimension {self.dim}, got one of {term.dim}.")
        if isinstance(self.outer, Polynomial) and self.outer.inputs != self.values:
            raise InfoFlowError(f"expected an outer map of {self.values} values, got one of {self.outer.inputs}.")
        object.__setattr__(self, "domain", arguments.interval("domain", self.domain))
        check_sampler(self.sampler)

    @classmethod
    def sum(cls, *terms: Term, **options: Any) -> "Target":
        """The sum of the given terms (each value with weight one)."""
        if not terms:
            raise InfoFlowError("expected at least one term in a target, got none.")
        for term in terms:
            if not isinstance(term, Term):
                raise InfoFlowError(f"expected terms such as Extremum(...), got {arguments.shown(term)}.")
        values = sum(term.values for term in terms)
        return cls(terms, Polynomial.linear(np.ones((1, values))), terms[0].dim, **options)

    def __str__(self) -> str:
        named = self.spelling or f"a target of {len(self.terms)} term{'s' * (len(self.terms) > 1)}"
        low, high = self.domain
        return f"{named} on tokens of [{low:g}, {high:g}]^{self.dim}"

    @property
    def arity(self) -> int:
        """The largest number of tokens one term looks at together."""
        return max(term.arity for term in self.terms)

    @property
    def values(self) -> int:
        """Number of values the outer map takes."""
        return sum(term.values for term in self.terms)

    @property
    def outputs(self) -> int:
        """Numbers a sequence."""
        return self.outer.outputs

    def check_length(self, T: int) -> None:
        """Refuse a sequence length this target is not defined for."""
        arguments.integer("T", T)
        for term in self.terms:
            term.check_length(T)

    @QUIET
    def __call__(self, X: Array) -> Array:
        """X (..., T, d) -> (...), or (..., outputs) when the target has several outputs."""
        X = as_tokens(X, self.dim)
        result = self.outer(self._term_values(X))
        _refuse_overflow(result)
        return result[..., 0] if self.outputs == 1 else result

    @QUIET
    def term_values(self, X: Array) -> Array:
        """X (..., T, d) -> (..., values): the value of each term, vector-valued terms spread out."""
        return self._term_values(as_tokens(X, self.dim))

    @QUIET
    def winners(self, X: Array) -> tuple[Array, ...]:
        """X (..., T, d) -> for each term its winning positions (..., arity), 0-based; all T for a function of them."""
        parts, lead = self._parts(detach(as_tokens(X, self.dim)))
        found = [self._find(part)[0] for part in parts]
        return tuple(
            concatenate([positions[number] for positions in found], 0).reshape((*lead, found[0][number].shape[-1]))
            for number in range(len(self.terms))
        )

    @QUIET
    def active(self, X: Array) -> Array:
        """The active index set (4) as a boolean (..., T): positions whose token has a non-zero derivative.

        dF/dx(t) = sum_j d outer / d value_j * sum of d score_j / d x_v over the vertices v that sit on t; where terms
        tie, the winning tuple stands for all of them.
        """
        parts, lead = self._parts(detach(as_tokens(X, self.dim)))
        found = [(self._gradient(part) != 0).any(-1) for part in parts]
        return concatenate(found, 0).reshape((*lead, X.shape[-2]))

    @QUIET
    def gradient(self, X: Array) -> Array:
        """X (..., T, d) -> the derivatives of every output with respect to every token, (..., T, outputs * d)."""
        parts, lead = self._parts(detach(as_tokens(X, self.dim)))
        found = [self._gradient(part) for part in parts]
        return concatenate(found, 0).reshape((*lead, X.shape[-2], self.outputs * self.dim))

    @property
    def margin(self) -> float | None:
        """The least margin of the terms read at an extremum: certificates speak of inputs whose winners lead by theirs.
        None where the target is continuous and every input of the box counts."""
        return min((term.margin for term in self.terms if isinstance(term, ValueAtExtremum)), default=None)

    @property
    def condition(self) -> str:
        """Which inputs of the box a certificate speaks of, in words; empty for all of them."""
        if self.margin is None:
            return ""
        leads = [
            f"{term.margin:g}" + (f" (term {number})" if len(self.terms) > 1 else "")
            for number, term in enumerate(self.terms, 1)
            if isinstance(term, ValueAtExtremum)
        ]
        return f"whose best score leads by at least {', '.join(leads)}"

    @QUIET
    def slack(self, X: Array) -> Array:
        """X (..., T, d) -> (...): the least lead - margin over the terms read at an extremum, inf where there is none.

        Certificates speak of the inputs with slack >= 0. Differentiable in X."""
        X = as_tokens(X, self.dim)
        parts, lead = self._parts(X)
        found = []
        for part in parts:
            least = full((part.shape[0],), np.inf, part)
            for term in self.terms:
                if isinstance(term, ValueAtExtremum):
                    least = smallest(stack([least, term.lead(part) - term.margin], -1))
            found.append(least)
        return concatenate(found, 0).reshape(lead)

    def sample(
        self,
        batch: int | tuple[int, ...],
        T: int,
        seed: int = 0,
        generator: Any = None,
        kind: str = "numpy",
        device: Any = None,
        dtype: Any = None,
    ) -> Array:
        """Inputs (batch, T, d) from the law named by `sampler`; a generator, when given, stands in for the seed."""
        self.check_length(T)
        lead = tuple(batch) if isinstance(batch, tuple) else (batch,)
        shape = (*(arguments.integer("batch", size, 0) for size in lead), int(T), self.dim)
        cost.memory(16 * math.prod(shape), f"a sample of shape {shape}", "batch or T")
        seed = arguments.seed(seed)
        return draw(self.sampler, shape, self.domain, RandomSource(kind, seed, generator, device, dtype))

    def comparison(self, T: int) -> "Comparison":
        """Dimension, order and number of comparison at length T."""
        from infoflow.targets.comparison import comparison

        return comparison(self, T)

    def head_count_hypotheses(self, T: int | None = None) -> tuple[bool, tuple[str, ...]]:
        """Whether the head-count theorem speaks about this target, and the reasons why not."""
        from infoflow.targets.comparison import head_count_hypotheses

        return head_count_hypotheses(self, T)

    def _parts(self, X: Array) -> tuple[list[Array], tuple[int, ...]]:
        """X (..., T, d) as a list of (B, T, d) of bounded size, at least one, and the leading shape."""
        T, d = X.shape[-2:]
        self.check_length(T)
        batch = math.prod(X.shape[:-2])
        seconds = batch * sum(term.search_seconds(T) for term in self.terms)
        cost.work(seconds, 1.0, f"finding the winners of {batch} input{'s' * (batch != 1)} of T={T} tokens", "T")
        flat = X.reshape((batch, T, d))
        rows = max(1, CHUNK_BYTES // (8 * T * d * self.outputs))
        return [flat[low : low + rows] for low in range(0, max(1, flat.shape[0]), rows)], tuple(X.shape[:-2])

    def _term_values(self, X: Array) -> Array:
        parts, lead = self._parts(X)
        found = [self._find(part)[2] for part in parts]
        return concatenate(found, 0).reshape((*lead, self.values))

    def _find(self, X: Array) -> tuple[list[Array], list[Array], Array]:
        """X (B, T, d) -> for each term its winning positions (B, k) and tokens (B, k, d); all values (B, values)."""
        positions = [term.winners(X) for term in self.terms]
        tokens = [gather_tokens(X, where) for where in positions]
        values = concatenate([term.value(at) for term, at in zip(self.terms, tokens, strict=True)], -1)
        _refuse_overflow(values)
        return positions, tokens, values

    def _gradient(self, X: Array) -> Array:
        """X (B, T, d) -> dF_o / dx(t) as (B, T, outputs * d), from the winning tokens alone."""
        places, tokens, values = self._find(X)
        T = indices(np.arange(X.shape[1]), X)
        columns = []
        for outer_slope in self._outer_gradient(values):
            total, first = None, 0
            for term, positions, at in zip(self.terms, places, tokens, strict=True):
                weight = outer_slope[:, first : first + term.values]
                first += term.values
                slope = (weight[:, :, None, None] * term.gradient(at)).sum(1)  # (B, k, d)
                if isinstance(term, WholeSequence):  # its tokens stand where they stand
                    total = slope if total is None else total + slope
                    continue
                for v in range(positions.shape[1]):
                    here = (T[None, :] == positions[:, v : v + 1])[:, :, None]
                    part = here * slope[:, v][:, None, :]
                    total = part if total is None else total + part
            columns.append(total)
        return concatenate(columns, -1)

    def _outer_gradient(self, values: Array) -> list[Array]:
        """For each output its derivatives with respect to the term values, (B, values)."""
        if isinstance(self.outer, Polynomial):
            partial = [self.outer.derivative(j)(values) for j in range(self.values)]
            return [concatenate([p[:, o : o + 1] for p in partial], -1) for o in range(self.outputs)]
        outer = self.outer

        def output(o: int) -> Callable[[Array], Array]:
            return lambda v: outer(v)[..., o]

        return [differentiate(output(o), values) for o in range(self.outputs)]


def _refuse_overflow(values: Array) -> None:
    if not all_finite(detach(values)):
        raise InfoFlowError("expected tokens small enough for the target, its value overflows; scale them down.")


def check_sampler(sampler: str) -> None:
    """Refuse the name of no sampler."""
    if not isinstance(sampler, str) or sampler not in SAMPLERS:
        raise unknown("sampler", sampler, list(SAMPLERS))


class RandomSource(NamedTuple):
    """Where random numbers come from: numpy draws from a Generator, torch from a torch.Generator on the device, both
    from a fresh one of this seed where none is given."""

    kind: str = "numpy"
    seed: int = 0
    generator: Any = None
    device: Any = None
    dtype: Any = None


def draw(sampler: str, shape: tuple[int, ...], domain: tuple[float, float], source: RandomSource) -> Array:
    """`shape` (..., d) from the law."""
    check_sampler(sampler)
    if source.kind not in ("numpy", "torch"):
        raise InfoFlowError(f"expected kind 'numpy' or 'torch', got {source.kind!r}.")
    raw = (_numpy if source.kind == "numpy" else _torch)(sampler, shape, source)
    if sampler == "uniform":
        return domain[0] + (domain[1] - domain[0]) * raw
    return _clamp(2**0.5 * raw) if sampler == "clamped_normal" else raw


def _numpy(sampler: str, shape: tuple[int, ...], source: RandomSource) -> np.ndarray:
    generator = source.generator if source.generator is not None else np.random.default_rng(source.seed)
    try:
        wanted = np.dtype(np.float64 if source.dtype is None else source.dtype)
    except TypeError:
        wanted = np.dtype(object)
    if wanted.kind != "f":
        raise InfoFlowError(f"expected a floating-point dtype of numpy, got {shown(source.dtype)}.")
    raw = generator.random(shape) if sampler == "uniform" else generator.standard_normal(shape)
    return raw.astype(wanted, copy=False)


def _torch(sampler: str, shape: tuple[int, ...], source: RandomSource) -> Any:
    import torch

    _, seed, generator, device, dtype = source
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InfoFlowError(f"expected a floating-point dtype of torch, got {shown(dtype)}.")
    if generator is None:
        generator = torch.Generator(device=device or "cpu").manual_seed(seed)
    fill = torch.rand if sampler == "uniform" else torch.randn
    drawn = fill(shape, generator=generator, device=device or generator.device, dtype=dtype)
    return drawn.double() if dtype is None else drawn  # as numpy's, and as the weights that `build` writes


def _clamp(x: Array) -> Array:
    """Each token scaled so that its norm lies in [SHORTEST, LONGEST]; the zero token, of probability zero, stays."""
    norm = dot(x, x)[..., None] ** 0.5
    return x * (norm.clip(SHORTEST, LONGEST) / (norm + (norm == 0)))
