"""How many tokens a function compares at once, estimated on samples. Nothing here is a bound.

A function can be called and differentiated, not read. On samples X of its own law three things are seen:

- the active tokens (4): those with a non-zero derivative, exactly, by automatic differentiation;
- which of them act together: a non-zero mixed second derivative. The connected parts are the tuples that the function
  scores; a sum of D maxima over pairs shows D parts of two tokens;
- tokens without a derivative whose removal changes the value: they only choose. The k-th largest number has one active
  token and k - 1 that choose. This is looked for where the order of the tokens does not matter: a removal moves the
  tokens behind it.

The dimension of comparison is estimated as the largest part plus the choosing tokens, the median over the samples; the
number of trees as the number of parts, the largest over the samples (two tuples that share a token look like one part,
so the first may be too large and no sample shows more parts than there are). A function that chooses by thresholds may
show nothing.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Bool

from infoflow.errors import InfoFlowError
from infoflow.targets.target import Target

SAMPLES = 33  # an odd number, so that a median is one of the numbers seen
LONGEST = 32  # tokens of the samples: what a comparison takes does not depend on how many there are
MOST_TOGETHER = 8  # active tokens whose mixed derivatives are looked at
UNCHANGED = 1e-9  # of the values' size: what removing a token may change by rounding


@dataclass(frozen=True)
class SampledComparison:
    """What was seen on `samples` sequences of `length` tokens."""

    samples: int
    length: int
    active: int  # tokens with a derivative, the most that were seen
    dimension: int
    trees: int
    everything: bool  # every token has a derivative: no set of fewer tokens is enough
    ordered: bool  # the order of the tokens matters, so that tokens which only choose were not looked for

    def __str__(self) -> str:
        seen = f"estimated on {self.samples} samples of {self.length} tokens"
        if self.everything:
            return f"{seen}: every token has a derivative, so no smaller set is enough and nothing is compared"
        if not self.trees:
            return f"{seen}: no token has a derivative and none was seen to matter"
        tuples = f"{self.trees} comparison{'s' if self.trees != 1 else ''} of {self.dimension} token"
        choice = "; order matters, so tokens that only choose were not looked for" if self.ordered else ""
        return f"{seen}: {self.active} active, {tuples}{'s' if self.dimension != 1 else ''} at once{choice}"


@lru_cache(maxsize=64)
def estimate(target: Target, T: int) -> SampledComparison:
    """The estimate for sequences of T tokens, made at min(T, LONGEST) where the function takes such a length."""
    length = min(T, LONGEST)
    try:
        return _sampled(target, length)
    except InfoFlowError:
        if length == T:
            raise
        return _sampled(target, T)


def _sampled(target: Target, T: int) -> SampledComparison:
    X = target.sample(SAMPLES, T, seed=0)
    active = np.asarray(target.active(X))
    ordered = not _order_free(target, X)
    chosen = np.zeros(SAMPLES, dtype=int) if ordered else _choosing(target, X, active)
    parts = [_parts(links, row) for links, row in zip(_acting_together(target, X, active), active, strict=True)]
    dimension = [max(map(len, part), default=0) + int(c) for part, c in zip(parts, chosen, strict=True)]
    count = int(active.sum(1).max())
    return SampledComparison(
        SAMPLES,
        T,
        count,
        max(int(np.median(dimension)), 1),
        max(max(len(part), int(c > 0)) for part, c in zip(parts, chosen, strict=True)),
        bool(active.all(1).mean() > 0.5 and T > 1),
        ordered,
    )


def _order_free(target: Target, X: np.ndarray) -> bool:
    """Whether turning the sequences round leaves the values alone."""
    values = np.asarray(target(X))
    turned = np.asarray(target(np.ascontiguousarray(X[:, ::-1])))
    return bool(np.abs(turned - values).max() <= UNCHANGED * (1 + np.abs(values).max()))


def _choosing(target: Target, X: np.ndarray, active: Bool[np.ndarray, "B T"]) -> np.ndarray:
    """For each sample, how many tokens without a derivative change the value when they are taken away; 0 where the
    function does not take a shorter sequence."""
    B, T, d = X.shape
    if T < 2:
        return np.zeros(B, dtype=int)
    kept = np.array([[s for s in range(T) if s != t] for t in range(T)])
    try:
        without = np.asarray(target(X[:, kept].reshape(B * T, T - 1, d))).reshape(B, T, -1)
    except InfoFlowError:
        return np.zeros(B, dtype=int)
    values = np.asarray(target(X)).reshape(B, 1, -1)
    moved = np.abs(without - values).max(-1) > UNCHANGED * (1 + np.abs(values).max())
    result: np.ndarray = (moved & ~active).sum(1)
    return result


def _acting_together(target: Target, X: np.ndarray, active: Bool[np.ndarray, "B T"]) -> Bool[np.ndarray, "B T T"]:
    """Pairs of tokens with a non-zero mixed second derivative, for the first MOST_TOGETHER active tokens."""
    import torch

    B, T, d = X.shape
    links = np.zeros((B, T, T), dtype=bool)
    leaf = torch.from_numpy(X).requires_grad_()
    generator = torch.Generator().manual_seed(0)
    value = target(leaf).reshape(B, -1)
    mixed = (value * torch.randn(value.shape[1], generator=generator, dtype=leaf.dtype)).sum()  # of all outputs
    slopes = _derivative(mixed, leaf)
    for j in range(min(MOST_TOGETHER, T)):
        rows = [(b, order[j]) for b in range(B) if len(order := np.flatnonzero(active[b])) > j]
        if not rows:
            break
        b, s = (torch.tensor(list(column)) for column in zip(*rows, strict=True))
        direction = torch.randn(d, generator=generator, dtype=leaf.dtype)
        second = _derivative((slopes[b, s] * direction).sum(), leaf)
        links[b.numpy(), s.numpy()] = (second[b] != 0).any(-1).detach().numpy()
    return links


def _derivative(value: Any, leaf: Any) -> Any:
    """d value / d leaf, again differentiable; zero where the value does not depend on it (or not smoothly twice)."""
    import torch

    if not value.requires_grad:
        return torch.zeros_like(leaf)
    (slope,) = torch.autograd.grad(value, leaf, create_graph=True, allow_unused=True)
    return torch.zeros_like(leaf) if slope is None else slope


def _parts(links: Bool[np.ndarray, "T T"], active: Bool[np.ndarray, " T"]) -> list[set[int]]:
    """Connected parts of the active tokens."""
    left, parts = set(np.flatnonzero(active).tolist()), []
    while left:
        part, open_ = set(), {left.pop()}
        while open_:
            t = open_.pop()
            part.add(t)
            near = {s for s in left if links[t, s] or links[s, t]}
            left -= near
            open_ |= near
        parts.append(part)
    return parts
