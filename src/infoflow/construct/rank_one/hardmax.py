"""Theorem 1 as it holds: no one-layer hardmax attention is a contextual mapping, for n >= 4.

On a line of tokens alpha v the scores of a head for the query alpha' v are c alpha' alpha with c = (W_K v).(W_Q v):
hardmax picks the largest or the smallest coefficient, or, which the printed proof forgets, everything at once when
c alpha' = 0 (the average). So maximum, minimum and sum are all a head can see, and for n >= 4 two multisets share them:

    (1, 3, 6, 10) and (1, 4, 5, 10)      whatever the weights: the tokens 1 and 10 collide.

For n = 2 heads with c > 0 and c < 0 reveal the whole set; for n = 3 a zero-score head adds the sum: Theorem 1 is false
there. Ties are split evenly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from infoflow import arguments, cost
from infoflow.errors import InfoFlowError, unknown

Layer = Callable[[Float[ndarray, "n d"]], Float[ndarray, "n d"]]
TIE = (
    1e-9  # scores closer than this, relative to |W_K x||W_Q x|, tie: c = 0 in real numbers is rounding noise in float64
)


@dataclass(frozen=True)
class HardmaxHead:
    """The matrices of one head of (5)."""

    W_O: Float[ndarray, "d s"]
    W_V: Float[ndarray, "s d"]
    W_K: Float[ndarray, "s d"]
    W_Q: Float[ndarray, "s d"]


@dataclass(frozen=True)
class HardmaxLayer:
    """(5): Z + sum_i W_O (W_V Z) hardmax((W_K Z)^T (W_Q Z)), tokens as rows, even split over ties."""

    heads: Sequence[HardmaxHead]

    def __call__(self, Z: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        out = Z.copy()
        for head in self.heads:
            keys, queries = Z @ head.W_K.T, Z @ head.W_Q.T
            scores = queries @ keys.T
            scale = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(keys, axis=1)[None, :]
            top = scores >= scores.max(1, keepdims=True) - TIE * scale.max(1, keepdims=True)
            average = (top @ Z) / top.sum(
                1, keepdims=True
            )  # of tokens, not of values: sums of small integers are exact
            out += average @ head.W_V.T @ head.W_O.T
        return out


@dataclass(frozen=True)
class HardmaxCollision:
    """Two sequences with different token sets on which no hardmax layer can tell the tokens at `positions` apart."""

    first: Float[ndarray, "n d"]
    second: Float[ndarray, "n d"]
    positions: tuple[int, ...]  # from 0; the same token stands there in both

    def verify(self, layer: Layer) -> float:
        """The largest difference of the outputs at the colliding positions, relative to the larger output."""
        one, other = np.asarray(layer(self.first)), np.asarray(layer(self.second))
        rows = list(self.positions)
        scale = max(np.abs(one[rows]).max(), np.abs(other[rows]).max(), 1e-300)
        return float(np.abs(one[rows] - other[rows]).max() / scale)


def hardmax_collision(d: int, n: int, v: Float[ndarray, " d"] | None = None) -> HardmaxCollision:
    """The weight-independent pair: v (1, 3, 6, 10) and v (1, 4, 5, 10), longer n with common tokens strictly inside."""
    arguments.integer("d", d)
    arguments.integer("n", n, 0)
    cost.memory(32 * (n * n + n * d + d * d), f"{n} tokens of dimension {d} and their scores", "n or d")
    if n < 4:
        raise InfoFlowError(
            f"expected n >= 4, got {n}: for n = 2 and n = 3 Theorem 1 is false (heads that see maximum, minimum "
            "and sum know the whole set); take n >= 4."
        )
    line = np.ones(d) if v is None else arguments.array("v", v)
    if line.shape != (d,) or not np.isfinite(line).all() or not line.any():
        raise InfoFlowError(f"expected a non-zero vector of {d} numbers, got {line.tolist()}.")
    power = 1 << max(n - 4, 1).bit_length()
    common = 2 + np.arange(n - 4) / power  # dyadic, strictly between 1 and 3
    first, second = np.r_[1, 3, 6, 10, common], np.r_[1, 4, 5, 10, common]
    return HardmaxCollision(np.outer(first, line), np.outer(second, line), (0, 3, *range(4, n)))


def separating_layer(n: int) -> HardmaxLayer:
    """d = 1 counterexamples to Theorem 1: heads that see maximum and minimum (n = 2), and the mean as well (n = 3)."""
    one = np.ones((1, 1))

    def head(amount: float, sign: float) -> HardmaxHead:
        return HardmaxHead(amount * one, one, sign * one, one)

    if n == 2:
        return HardmaxLayer([head(0.1, 1.0), head(0.01, -1.0)])
    if n == 3:  # the middle counts 0.001, the minimum 0.006, the maximum 0.036 after the mean has had its share
        return HardmaxLayer([head(0.035, 1.0), head(0.005, -1.0), head(0.003, 0.0)])
    raise InfoFlowError(f"expected n = 2 or n = 3, got {n}; for n >= 4 Theorem 1 holds.")


def context_gap(layer: Layer, tokens: int, n: int) -> tuple[int, float]:
    """(contexts, smallest distance of ids) over all n-subsets of {1, .., tokens}, d = 1."""
    outputs = [layer(np.array(subset, dtype=float)[:, None])[:, 0] for subset in combinations(range(1, tokens + 1), n)]
    ids = np.sort(np.concatenate(outputs))
    return len(ids), float(np.diff(ids).min())


def random_layer(d: int, heads: int, rng: np.random.Generator) -> HardmaxLayer:
    """Random heads; every third has zero scores, every third a skew W_K^T W_Q (c = 0 without being 0)."""
    made = []
    for index in range(heads):
        W_O, W_V, W_K, W_Q = (rng.standard_normal((d, d)) for _ in range(4))
        if index % 3 == 1:
            W_K = np.zeros((d, d))
        elif index % 3 == 2:
            W_K, W_Q = np.eye(d), W_Q - W_Q.T
        made.append(HardmaxHead(W_O, W_V, W_K, W_Q))
    return HardmaxLayer(made)


DEFAULTS = {"d": 3, "n": 5, "layers": 500, "heads": 6}


def run(options: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """What `infoflow refute hardmax --d 3 --n 5` reports: the pair and its check on random layers, or why there is
    none."""
    for name in options:
        if name not in DEFAULTS:
            raise unknown("option", f"--{name}", [f"--{known}" for known in DEFAULTS])
    values = {}
    for name, default in DEFAULTS.items():
        try:
            values[name] = int(options.get(name, default))
        except (TypeError, ValueError):
            raise InfoFlowError(f"expected --{name} to be an integer, got {options[name]!r}.") from None
    d, n, layers, heads = (values[name] for name in DEFAULTS)
    if n in (2, 3):
        contexts, gap = context_gap(separating_layer(n), 6, n)
        return {"d": 1, "n": n, "collision": False, "contexts": contexts, "gap": gap}
    pair = hardmax_collision(d, n)
    if layers < 1 or heads < 1:
        raise InfoFlowError(f"expected at least one layer and one head, got {layers} and {heads}.")
    rng = np.random.default_rng(seed)
    worst = max(pair.verify(random_layer(d, heads, rng)) for _ in range(layers))
    return {
        "d": d,
        "n": n,
        "collision": True,
        "first": pair.first.tolist(),
        "second": pair.second.tolist(),
        "positions": [k + 1 for k in pair.positions],
        "layers": layers,
        "heads": heads,
        "largest_relative_difference": worst,
    }


def text(report: dict[str, Any]) -> str:
    """The collision, or why there is none, in words."""
    if not report["collision"]:
        return (
            f"n = {report['n']}: no collision. Theorem 1 is false here: a hardmax layer whose heads see maximum, "
            f"minimum{' and mean' if report['n'] == 3 else ''} gives all {report['contexts']} contexts over {{1..6}} "
            f"ids at least {report['gap']:.3g} apart."
        )
    rows = "\n".join(f"  {name}: {[row[0] for row in report[name]]} times (1, .., 1)" for name in ("first", "second"))
    positions = ", ".join(str(k) for k in report["positions"])
    return (
        f"Two sequences of {report['n']} tokens in dimension {report['d']}, different token sets:\n{rows}\n"
        f"Every hardmax layer gives the tokens at positions {positions} the same output in both: "
        "same minimum, maximum, sum.\n"
        f"Checked on {report['layers']} random layers of {report['heads']} heads, zero and skew ones among them: "
        f"largest relative difference {report['largest_relative_difference']:.2g}."
    )
