"""How much a state, and the output through it, changes when one token is drawn again: Sobol indices by intervention.

For a document X, a source s and a fresh token x' of its law let X' be X with x(s) replaced. With attention frozen at X
(content) or free, and for the state behind layer l at row t, the effect of s is

    held(t, l, s) = E |state'(t, l) - state(t, l)|^2 / (2 Var state(t, l))
    used(t, l, s) = E |y[state(t, l) <- state'(t, l)] - y|^2 / (2 Var y)

The second puts that state alone in place, everything else as for X, and looks at the output y. Resampling all of X
gives 1 on average over X, whatever the state. Each is a mean over draws, with its standard error. Layer 0 is the
embedding. At l = L there is the output alone: used(l = L) is the effect of s on y along all ways.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from infoflow.probes.law import Variances, tokens_of
from infoflow.probes.record import Batch
from infoflow.probes.rerun import Ran, Rerun
from infoflow.progress import Progress

NOTHING = 1e-16  # of a state's variance: a change below it is rounding, and its way to the output is not followed
TOGETHER = 1 << 24  # numbers of one layer's streams and attention weights held at once
EffectKind = Literal["content", "free"]


@dataclass(frozen=True)
class Mean:
    """Means over draws and their standard errors, one array per layer (0 .. L-1)."""

    value: list[Float[np.ndarray, "rows T"]]
    error: list[Float[np.ndarray, "rows T"]]


@dataclass(frozen=True)
class Effects:
    """The effects of every source on every state (`held`), on the output through it (`used`) and on the output."""

    held: Mean
    used: Mean | None  # None where there were too many states to put in place one by one
    output: Float[np.ndarray, " T"]
    output_error: Float[np.ndarray, " T"]


class Moments:
    """Running first and second moments over draws."""

    def __init__(self, *shape: int) -> None:
        self.total, self.squares = np.zeros(shape), np.zeros(shape)

    def add(self, where: Any, values: np.ndarray) -> None:
        """Several draws may fall on one place."""
        np.add.at(self.total, where, values)
        np.add.at(self.squares, where, values**2)

    def mean(self, draws: int) -> tuple[np.ndarray, np.ndarray]:
        mean = self.total / draws
        spread = np.sqrt(np.maximum(self.squares / draws - mean**2, 0) / max(draws - 1, 1))
        return mean, spread


@dataclass
class Stage:
    """A document under measurement: its own pass, the draws for its tokens, the variances."""

    rerun: Rerun
    document: Batch
    draws: Tensor  # (R, T, ..)
    scale: Variances

    def __post_init__(self) -> None:
        self.base: Ran = self.rerun.run(self.document)
        self.T = tokens_of(self.document)[1].shape[1]
        self.rows = [stream.shape[1] for stream in self.base.streams]
        fixed = self.document.sinks
        self.sources = [s for s in range(self.T) if fixed is None or not bool(fixed[0, s])]

    @property
    def layers(self) -> int:
        return len(self.base.streams)

    def batch_size(self, frozen: bool) -> int:
        """Variants run together."""
        widest = max(stream[0].numel() for stream in self.base.streams)
        looks = 0 if frozen else max(weights[0].numel() for weights in self.base.weights)
        return max(1, TOGETHER // max(4 * widest + looks, 1))

    def variants(self, groups: list[list[int]], numbers: list[int]) -> Batch:
        """Row j: the document with the tokens of groups[j] taken from draw numbers[j]."""
        name, tokens = tokens_of(self.document)
        changed = tokens.repeat(len(groups), *(1,) * (tokens.ndim - 1))
        for row, (group, number) in enumerate(zip(groups, numbers, strict=True)):
            changed[row, group] = self.draws[number, group]
        others = {key: value.expand(len(groups), *value.shape[1:]) for key, value in self.document.inputs.items()}
        return Batch({**others, name: changed})

    def output_change(self, output: Tensor) -> Float[np.ndarray, " N"]:
        change = (output - self.base.output).double().square().sum(-1)
        return (change / (2 * self.scale.output)).cpu().numpy()

    def joint(
        self, groups: list[list[int]], frozen: bool, carriers: list[Tensor] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The effect on the output of drawing all tokens of a group again, and its standard error, group by group.

        With `carriers` (for every layer True at some heads) the others fetch what they fetched for the document."""
        R = len(self.draws)
        pairs = [(number, draw) for number in range(len(groups)) for draw in range(R)]
        sums = Moments(len(groups))
        for part in chunks(pairs, self.batch_size(frozen)):
            ran = self.rerun.run(
                self.variants([groups[n] for n, _ in part], [r for _, r in part]),
                frozen=self.base.weights if frozen else None,
                carriers=None if carriers is None else (carriers, self.base.values),
            )
            sums.add([n for n, _ in part], self.output_change(ran.output))
        return sums.mean(R)


def chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def effects(stage: Stage, kind: EffectKind, interior: bool = True) -> Effects:
    """Every source, every state: T R passes, and with `interior` one more for every state that changed."""
    frozen, R, T = kind == "content", len(stage.draws), stage.T
    held = [Moments(rows, T) for rows in stage.rows]
    used = [Moments(rows, T) for rows in stage.rows]
    output = Moments(T)
    pairs = [(s, r) for s in stage.sources for r in range(R)]
    weights = stage.base.weights if frozen else None
    done = 0
    with Progress(f"{kind} sets", len(pairs)) as bar:
        for part in chunks(pairs, stage.batch_size(frozen)):
            sources = np.array([s for s, _ in part])
            ran = stage.rerun.run(stage.variants([[s] for s, _ in part], [r for _, r in part]), frozen=weights)
            output.add(sources, stage.output_change(ran.output))
            for layer, stream in enumerate(ran.streams):
                ratio = _state_change(stage, layer, stream)
                held[layer].add((slice(None), sources), ratio.T)
                if interior:
                    _through(stage, layer, stream, ratio, sources, weights, used[layer])
            done += len(part)
            bar.update(done)
    seen = [sums.mean(R) for sums in held]
    through = [sums.mean(R) for sums in used]
    return Effects(
        Mean([mean for mean, _ in seen], [error for _, error in seen]),
        Mean([mean for mean, _ in through], [error for _, error in through]) if interior else None,
        *output.mean(R),
    )


def _state_change(stage: Stage, layer: int, stream: Tensor) -> Float[np.ndarray, "N rows"]:
    """|change|^2 / (2 Var) of every state; 0 where the law leaves a state as it is."""
    change = (stream - stage.base.streams[layer]).double().square().sum(-1).cpu().numpy()
    variance = stage.scale.of(layer, change.shape[1])
    known = variance > 0
    return np.where(known, change / np.where(known, 2 * variance, 1.0), 0.0)


def _through(
    stage: Stage,
    layer: int,
    stream: Tensor,
    ratio: Float[np.ndarray, "N rows"],
    sources: np.ndarray,
    weights: list[Tensor] | None,
    used: Moments,
) -> None:
    """Put every changed state in place alone, and add up what the output does."""
    base = stage.base.streams[layer]
    variants, rows = np.nonzero(ratio > NOTHING)
    for part in chunks(list(range(len(variants))), stage.batch_size(weights is not None)):
        v, t = variants[part], rows[part]
        streams = base.repeat(len(part), 1, 1)
        streams[range(len(part)), t] = stream[v, t]
        ran = stage.rerun.run(stage.document, frozen=weights, patched=(layer, streams))
        used.add((t, sources[v]), stage.output_change(ran.output))
