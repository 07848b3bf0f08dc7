"""Proposition 1, repaired: feed-forward, one rank-1 head, feed-forward, all with skips, for permutation-equivariant f.

F1, token by token, hidden width 2 D d + 6 d:

    e(z) = quant(z) + M (sum_t pen(z_t)) 1_d
    quant_t = sum_{j=0}^{D-1} [relu((z_t - j/D)/delta) - relu((z_t - j/D)/delta - 1)] / D        (57); (58) starts at 1
    pen     = [relu(-z/delta) - relu(-z/delta - 1)] + [relu((z-1)/delta) - relu((z-1)/delta - 1)]  (59) has wrong signs

and relu(z), relu(-z) with weights -1, +1 cancel the skip. The penalty is token-wise and positive ((60) sums over all
tokens, which no token-wise map can): tokens outside the cube become huge.

Attention: v = (1, D, .., D^{d-1}) makes the D^d grid tokens equally spaced; p >= 0, q = beta p, beta > 0,
W_O = A v/|v|^2 and t = v.H = p_k + A s_k. A token outside has p >= M v.1 = M p_max, weights do not decrease in p, so
s >= mean(p) >= M p_max / n: with M = 2 n (1+A)/A every token of such a sequence has t >= 2 (1+A) p_max, above every
regular id.

F2, hidden width 2 m + 2 d: a table on t over all (token, multiset) classes, duplicates too, with a plateau of 1/16 of
the gap around each id (rounding in F1 moves an id by far less), ramps between, and 0 beyond. It never leaves the range
of the labels and 0. Wider plateaus would make ramps steeper, and rounding with them.

On a box [a, b]^(d n) the same holds for u = (z - a)/(b - a), which the first layer of F1 computes: slopes over b - a.

Positions lift equivariance (the paper's remark before Corollary 2): the table E_k = (k - 1) e_d behind F1 moves the
grid tokens of place k to p + (k - 1) D^(d-1), so that n D^d tokens are equally spaced and no two places share one. Only
sequences with one token of each place are classes, n D^(d n) of them, and f need not commute with anything.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement, permutations, product
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from infoflow import arguments, cost
from infoflow.certificates.rules import UNIT
from infoflow.construct.rank_one.contexts import Contexts, contexts_of
from infoflow.construct.rank_one.head import RankOneHead, attention_average
from infoflow.construct.rank_one.network import BLOCK, set_head
from infoflow.construct.rank_one.search import relative_gap
from infoflow.construct.softmax_attention import expression
from infoflow.errors import InfoFlowError, unknown
from infoflow.nn import Transformer, TransformerConfig

Function = Callable[[Float[ndarray, "k n d"]], Float[ndarray, "k n d"]]
CLASS_LIMIT = 1_000_000


@dataclass(frozen=True)
class Equivariant:
    """The network, its table, and the numbers a reader wants."""

    network: Transformer
    d: int
    n: int
    D: int
    delta: float
    ids: Float[ndarray, " M"]  # t of every class, in increasing order
    contexts: Contexts  # all multisets of n grid tokens
    head: RankOneHead
    bound: float  # max |label|: the network's outputs stay within it
    box: tuple[float, float] = (0.0, 1.0)  # every coordinate of every token; 0 outside

    @property
    def classes(self) -> int:
        """(token, multiset) classes it tells apart."""
        return len(self.ids)

    @property
    def gap(self) -> float:
        """Smallest distance of ids over their range."""
        return relative_gap(self.ids)

    def __call__(self, X: Float[ndarray, "k n d"]) -> Float[ndarray, "k n d"]:
        """The dense network, in blocks."""
        step = max(8 * BLOCK // (2 * self.classes * self.n), 1)
        parts = []
        with torch.no_grad():
            for start in range(0, len(X), step):
                parts.append(self.network(torch.from_numpy(np.ascontiguousarray(X[start : start + step]))))
        return torch.cat(parts).numpy()

    @property
    def domain(self) -> float:
        """Beyond |z| = 2^45 delta the saturating differences of F1 lose the last bits; inside, all statements hold."""
        return 2.0**45 * self.delta * (self.box[1] - self.box[0])

    def strip_measure(self) -> float:
        """Share of the box with a coordinate on a ramp, at most d n (D + 2) delta."""
        return self.d * self.n * (self.D + 2) * self.delta


def approximate_equivariant(
    f: Function,
    d: int,
    n: int,
    D: int,
    labels: Literal["centre", "corner"] = "centre",
    delta: float | None = None,
    box: tuple[float, float] = (0.0, 1.0),
) -> Equivariant:
    """A network equal to the step function of f on D^d cells per token, off ramps of width delta (of the box), and 0
    outside the box; f must commute with permutations of tokens."""
    _check_sizes(f, d, n, D, labels, box)
    cells = D**d
    _check_classes(cells * math.comb(cells + n - 2, n - 1), d, n, D)
    grid = cell_corners(d, D)
    points = _points(grid, D, labels, box)
    return _approximate(f, grid_contexts(grid, n), points, D, delta, box, positions=False)


def approximate_function(
    f: Function,
    d: int,
    n: int,
    D: int,
    labels: Literal["centre", "corner"] = "centre",
    delta: float | None = None,
    box: tuple[float, float] = (0.0, 1.0),
) -> Equivariant:
    """The same for any f of sequences, with a table of positions: each place has grid tokens of its own."""
    _check_sizes(f, d, n, D, labels, box)
    _check_classes(n * D ** (d * n), d, n, D)
    grid = cell_corners(d, D)
    shifted = np.concatenate([grid + place * np.eye(d)[-1] for place in range(n)])
    cells = [np.arange(len(grid)) + place * len(grid) for place in range(n)]
    sequences = np.array(list(product(*cells)), dtype=np.int64)
    contexts = contexts_of(shifted, sequences, "none")
    points = _points(np.tile(grid, (n, 1)), D, labels, box)
    return _approximate(f, contexts, points, D, delta, box, positions=True)


def cell_corners(d: int, D: int) -> Float[ndarray, "cells d"]:
    """What quant emits: every coordinate from 1/D to 1."""
    return np.array(list(product(range(1, D + 1), repeat=d)))[:, ::-1] / D


def _points(corners: Float[ndarray, "tokens d"], D: int, labels: str, box: tuple[float, float]) -> ndarray:
    """Where f is asked: the centre or the corner of each cell, in the box."""
    return box[0] + (box[1] - box[0]) * (corners - (1 / (2 * D) if labels == "centre" else 0.0))


def _approximate(
    f: Function,
    contexts: Contexts,
    points: Float[ndarray, "tokens d"],
    D: int,
    delta: float | None,
    box: tuple[float, float],
    positions: bool,
) -> Equivariant:
    """The network whose tokens after F1 and positions are those of `contexts`; f is taken at `points`."""
    d, n = points.shape[1], contexts.length
    line = float(D) ** np.arange(d)
    beta, amplitude, t = _place_ids(contexts, line, n)
    low, high = box
    top = float((contexts.vocabulary @ line).max())
    reach = top * (1 + amplitude) * max(1.0, max(abs(low), abs(high)) / (high - low))
    delta = delta or ramp_width(d, n, D, reach, float(np.diff(np.sort(t)).min(initial=1.0)))
    if not 0 < delta < 1 / (2 * D):
        raise InfoFlowError(f"expected ramps narrower than half a cell, 0 < delta < {1 / (2 * D):.3g}, got {delta}.")
    values = _labels(f, contexts, points)
    network = _network(d, D, contexts.size, n if positions else 0)
    if network.position is not None:
        network.position.data = torch.arange(n, dtype=torch.float64).unsqueeze(1) * torch.eye(d).double()[-1]
    M = 2 * n * (1 + amplitude) / amplitude * top / float(line.sum())
    _fill_first(network, d, D, delta, M, box)
    head = RankOneHead(line, beta * line, amplitude * line / float(line @ line))
    set_head(network, head)
    _fill_second(network, line, t, values, 1.02 * (1 + amplitude) * top)
    return Equivariant(network, d, n, D, delta, np.sort(t), contexts, head, float(np.abs(values).max()), box)


def ramp_width(d: int, n: int, D: int, reach: float, gap: float) -> float:
    """A power of two, so that ramps are exact for dyadic D: as narrow as the strips' share of the error asks for,

        d n (D + 2) delta <= 1/(8 D)^2,

    but not so narrow that the rounding of F1, about 4 sqrt(D) u / delta times `reach`, leaves the plateau gap/32.
    """
    strips = 1 / (64 * D**2 * d * n * (D + 2))
    rounding = 128 * math.sqrt(D) * UNIT * reach / gap
    return 2.0 ** math.ceil(math.log2(max(min(strips, 2.0**-20), rounding)))


def _check_sizes(f: object, d: int, n: int, D: int, labels: str, box: tuple[float, float]) -> None:
    if not callable(f):
        raise InfoFlowError(f"expected a function of (k, n, d) arrays, got {arguments.shown(f)}.")
    for name, value in (("d", d), ("n", n), ("D", D)):
        arguments.integer(name, value)
    arguments.choice("labels", labels, ("centre", "corner"))
    if not (len(box) == 2 and all(math.isfinite(end) for end in box) and box[0] < box[1]):
        raise InfoFlowError(f"expected a box (low, high) with low < high, got {box}.")
    if d * math.log2(D) > 64 or n > 64:
        raise InfoFlowError(
            f"expected at most {CLASS_LIMIT} (token, multiset) classes, d={d}, n={n}, D={D} have far more; "
            "take a smaller D, d or n."
        )


def _check_classes(classes: int, d: int, n: int, D: int) -> None:
    if classes > CLASS_LIMIT:
        raise InfoFlowError(
            f"expected at most {CLASS_LIMIT} (token, multiset) classes, got {classes} for d={d}, n={n}, D={D}; "
            "take a smaller D, d or n."
        )


def grid_contexts(grid: Float[ndarray, "cells d"], n: int) -> Contexts:
    """All multisets of n grid tokens."""
    sets = np.array(list(combinations_with_replacement(range(len(grid)), n)), dtype=np.int64)
    return contexts_of(grid, sets, "none")


def _place_ids(contexts: Contexts, line: ndarray, n: int) -> tuple[float, float, Float[ndarray, " M"]]:
    """beta and A with the best relative gap of t = p_k + A s_k. For n = 2 and beta -> 0, A = 2/(cells - 1) is ideal:

    t = (1 + A/2) p_k + (A/2) p_o, and (1 + A/2)/(A/2) = cells makes all pairs equally spaced.
    """
    p = contexts.vocabulary @ line
    cells, top = len(p), float(p.max())
    if n == 1 or cells == 1:
        candidates = [(1.0, 1.0)]
    elif n == 2:
        candidates = [(1e-6, 2 / (cells - 1))]
    else:
        logits, ratios = np.geomspace(0.2, 4, 25), np.geomspace(0.3 / cells, 30.0, 25)
        candidates = [(float(logit), float(ratio)) for logit in logits for ratio in ratios]
    best: tuple[float, float, float, ndarray] | None = None
    averages: dict[float, ndarray] = {}
    for logit, amplitude in candidates:
        if logit not in averages:
            averages = {logit: attention_average(contexts, p, p * (logit / top**2))}
        t = p[contexts.query] + amplitude * averages[logit]
        gap = relative_gap(t)
        if best is None or gap > best[0]:
            best = (gap, logit / top**2, amplitude, t)
    assert best is not None
    if best[0] < 2.0**-44:
        raise InfoFlowError(
            f"expected ids that float64 can separate, got {contexts.size} classes {best[0]:.2g} of their range apart; "
            "take a smaller D, d or n."
        )
    return best[1], best[2], best[3]


def _labels(f: Function, contexts: Contexts, points: Float[ndarray, "tokens d"]) -> Float[ndarray, "M d"]:
    """f where its cell is asked (the corner L of (54), or its centre), for the first place of every class."""
    sequences, positions = np.divmod(contexts.first, contexts.length)
    out = np.empty((contexts.size, points.shape[1]))
    for start in range(0, contexts.size, 1 << 16):
        rows = sequences[start : start + (1 << 16)]
        values = np.asarray(f(points[contexts.tokens[rows]]), dtype=np.float64)
        if values.shape != (len(rows), contexts.length, points.shape[1]) or not np.isfinite(values).all():
            raise InfoFlowError(
                f"expected f to map (k, {contexts.length}, {points.shape[1]}) to finite numbers of that shape, "
                f"got shape {values.shape}."
            )
        out[start : start + (1 << 16)] = values[np.arange(len(rows)), positions[start : start + (1 << 16)]]
    return out


def _network(d: int, D: int, classes: int, length: int) -> Transformer:
    """`length` rows of positions, none for 0."""
    config = TransformerConfig(
        dim=d,
        heads=(1,),
        head_dims=(1,),
        streams=(d,),
        widths=(2 * classes + 2 * d,),
        outputs=d,
        scales=(1.0,),
        activation="relu",
        readout_skip=True,
        encoder="mlp",
        encoder_width=2 * D * d + 6 * d,
        encoder_skip=True,
        cls=False,
        positions="additive" if length else "none",
        length=length,
    )
    return Transformer(config).double()


def _fill_first(network: Transformer, d: int, D: int, delta: float, M: float, box: tuple[float, float]) -> None:
    """F1, unit by unit: (input coordinate, slope, bias, output column); all but the last two of u = (z - a)/(b - a)."""
    low, width = box[0], box[1] - box[0]
    units: list[tuple[int, float, float, ndarray]] = []
    for t in range(d):
        axis = np.eye(d)[t]
        for j in range(D):
            units.append((t, 1 / delta, -j / (D * delta), axis / D))
            units.append((t, 1 / delta, -j / (D * delta) - 1, -axis / D))
        for slope, bias in ((-1 / delta, 0.0), (1 / delta, -1 / delta)):
            units.append((t, slope, bias, np.full(d, M)))
            units.append((t, slope, bias - 1, np.full(d, -M)))
    units = [(t, slope / width, bias - slope * low / width, column) for t, slope, bias, column in units]
    for t, axis in enumerate(np.eye(d)):
        units.append((t, 1.0, 0.0, -axis))
        units.append((t, -1.0, 0.0, axis))
    encoder: Any = network.encoder
    first, last = encoder.maps
    weight = np.zeros((len(units), d))
    weight[np.arange(len(units)), [unit[0] for unit in units]] = [unit[1] for unit in units]
    first.weight.data = torch.from_numpy(weight)
    first.bias.data = torch.tensor([unit[2] for unit in units], dtype=torch.float64)
    last.weight.data = torch.from_numpy(np.array([unit[3] for unit in units]).T.copy())


def _fill_second(network: Transformer, line: ndarray, t: ndarray, values: Float[ndarray, "M d"], end: float) -> None:
    """F2: constant around each id, linear between, to 0 before `end`; 2 d units cancel the skip."""
    d = len(line)
    order = np.argsort(t)
    t, values = t[order], values[order]
    following = np.r_[t[1:], end]
    plateau = (following - t) / 16
    knots = np.stack([t + plateau, following - plateau], axis=1)  # each ramp runs between its two knots
    targets = np.vstack([values[1:], np.zeros(d)])
    slopes = (targets - values) / (knots[:, 1] - knots[:, 0])[:, None]
    flat = knots.ravel()
    coefficients = np.stack([slopes, -slopes], axis=1).reshape(-1, d)
    readout: Any = network.readout
    first, last = readout.maps
    eye = np.eye(d)
    first.weight.data = torch.from_numpy(np.vstack([np.tile(line, (len(flat), 1)), eye, -eye]))
    first.bias.data = torch.from_numpy(np.r_[-flat, np.zeros(2 * d)])
    last.weight.data = torch.from_numpy(np.hstack([coefficients.T, -eye, eye]).copy())
    last.bias.data = torch.from_numpy(values[0].copy())


def step_function(
    f: Function,
    X: Float[ndarray, "k n d"],
    D: int,
    labels: Literal["centre", "corner"] = "centre",
    box: tuple[float, float] = (0.0, 1.0),
) -> Float[ndarray, "k n d"]:
    """The piecewise constant approximation (54) with half-open cells, 0 outside the box."""
    low, high = box
    cell = np.minimum(np.floor((X - low) / (high - low) * D) + 1, D)  # z in [j/D, (j+1)/D) becomes (j+1)/D
    inside = ((low <= X) & (high >= X)).all((1, 2), keepdims=True)
    point = low + (high - low) * (cell / D - (1 / (2 * D) if labels == "centre" else 0.0))
    return np.where(inside, f(point), 0.0)


def l2_error(net: Equivariant, f: Function, points: int = 20_000, seed: int = 0) -> float:
    """sqrt of the mean over the box of the summed squared entry errors, by sampling."""
    width = max(net.network.config.encoder_width, *net.network.config.widths)
    cost.memory(24 * points * net.n * width, f"the network at {points} points", "points")
    low, high = net.box
    X = low + (high - low) * np.random.default_rng(seed).random((points, net.n, net.d))
    return float(np.sqrt(((net(X) - f(X)) ** 2).sum((1, 2)).mean()))


def _mean_product(X: Float[ndarray, "k n d"]) -> Float[ndarray, "k n d"]:
    made: ndarray = X * X.mean(1, keepdims=True)
    return made


def _wave(X: Float[ndarray, "k n d"]) -> Float[ndarray, "k n d"]:
    others = (X.sum(1, keepdims=True) - X) / max(X.shape[1] - 1, 1)
    wave: ndarray = np.sin(2 * np.pi * X) * np.exp(-others)
    return wave


# functions the command line offers by name; each maps (k, n, d) to (k, n, d) and commutes with permutations of tokens
FUNCTIONS: dict[str, Function] = {"mean_product": _mean_product, "wave": _wave}

MOST_OTHERS = 4  # tokens beside the own one whose orders an expression is averaged over


def function_named(text: str, d: int, n: int) -> Function:
    """A named function, or an expression of a token among the others.

    In an expression column 1 is the token itself and columns 2..n are the others (`x11*x12`, a safe grammar); for d > 1
    there are d of them, separated by `;`, one per coordinate. It is averaged over the (n - 1)! orders of the others, so
    that it commutes with permutations of tokens whatever is written.
    """
    if text in FUNCTIONS:
        return FUNCTIONS[text]
    if re.fullmatch(r"[A-Za-z_]*", text):
        raise unknown("function", text, list(FUNCTIONS))
    rows = [expression.parse(part, d, n) for part in text.split(";")]
    if len(rows) != d:
        raise InfoFlowError(f"expected {d} expressions separated by ';' (one per coordinate), got {len(rows)}.")
    if n - 1 > MOST_OTHERS:
        raise InfoFlowError(f"expected n of at most {MOST_OTHERS + 1} with an expression, got n={n}.")

    def function(X: Float[ndarray, "k n d"]) -> Float[ndarray, "k n d"]:
        columns = np.swapaxes(X, 1, 2)  # (k, d, n), tokens as columns
        out = np.zeros_like(X)
        for token in range(n):
            orders = list(permutations([other for other in range(n) if other != token]))
            for order in orders:
                seen = columns[:, :, [token, *order]]
                for i, row in enumerate(rows):
                    out[:, token, i] += row(seen) / len(orders)
        return out

    return function
