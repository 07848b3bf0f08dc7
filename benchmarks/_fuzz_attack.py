"""Is what a file is said to compute true? Every claim is tried on the loaded network with inputs drawn here.

Nothing of the proofs or of certify's own attacks is used: random points, corners, ties and random steps from the worst
place found. `found(...)` returns the largest error (the smallest gap for a contextual map) and the slack that comparing
in float64 needs.
"""

import copy
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from infoflow.construct.rank_one.equivariant import function_named
from infoflow.construct.softmax_attention.expression import parse as parse_expression
from infoflow.targets.named import parse


def found(
    kind: str, header: dict[str, Any], network: Any, seconds: float, rng: np.random.Generator
) -> tuple[float, float]:
    with torch.no_grad(), np.errstate(all="ignore"):
        return ATTACKS[kind](header, network, time.monotonic() + seconds, rng)


def _climb(
    error: Callable[[np.ndarray], np.ndarray],
    start: Callable[[int], np.ndarray],
    inside: Callable[[np.ndarray], np.ndarray],
    end: float,
    rng: np.random.Generator,
) -> float:
    """Random starts, then random steps from the worst input, until the time is over; NaN is infinitely wrong."""
    best, worst, round_number = -1.0, None, 0
    while round_number < 2 or time.monotonic() < end:
        if round_number % 2 == 0 or worst is None:
            X = start(round_number)
        else:
            scale = 10.0 ** -rng.uniform(0, 6)
            X = inside(worst + scale * rng.normal(size=(32, *worst.shape)))
        size = np.nan_to_num(error(X), nan=np.inf)
        top = int(size.argmax())
        if size[top] > best:
            best, worst = float(size[top]), X[top]
        round_number += 1
    return best


def _sequences(rng: np.random.Generator, T: int, low: np.ndarray, high: np.ndarray) -> Callable[[int], np.ndarray]:
    def start(round_number: int) -> np.ndarray:
        count, d = max(1, min(32, 200_000 // (T * T))), len(low)
        unit = rng.uniform(size=(count, T, d))
        if round_number % 3 == 1:
            unit = rng.integers(0, 2, size=(count, T, d)).astype(float)
        if round_number % 3 == 2:
            unit = np.repeat(unit[:, :1], T, axis=1)
            unit[:, 0] = rng.integers(0, 2, size=(count, d))
        return low + (high - low) * unit

    return start


def _target(header: dict[str, Any], network: Any, end: float, rng: np.random.Generator) -> tuple[float, float]:
    """Networks of a target on a box: Transformers, occupancy networks, single heads."""
    target = parse(header["target"])
    own = [[target.domain[0]] * target.dim, [target.domain[1]] * target.dim]
    box = own if hasattr(network, "head") else header.get("domain") or own  # single heads have the target's own box
    low, high = (np.broadcast_to(np.asarray(side, dtype=np.float64), (target.dim,)) for side in box)
    network = copy.deepcopy(network).double() if isinstance(network, torch.nn.Module) else network  # as the claim says
    T = min(header["T"], 12) if header.get("rule") == "occupancy" else header["T"]
    if T * T * target.dim > 4_000_000:
        return 0.0, 0.0  # too long to be run here: certify does not run it either

    def error(X: np.ndarray) -> np.ndarray:
        gap = np.abs(network(torch.from_numpy(X)).numpy() - target(X)).reshape(len(X), -1).max(1)
        return np.where(target.slack(X) >= 0, gap, 0.0) if target.condition else gap  # claims of some inputs alone

    return _climb(error, _sequences(rng, T, low, high), lambda X: np.clip(X, low, high), end, rng), 0.0


def _memorizer(header: dict[str, Any], network: Any, end: float, rng: np.random.Generator) -> tuple[float, float]:
    tokens, real = network.contexts.tokens, network.contexts.tokens >= 0
    seen = np.ones((tokens.shape[1],) * 2, dtype=bool) if network.contexts.visible is None else network.contexts.visible
    out = network(torch.from_numpy(network.inputs), torch.from_numpy(seen & real[:, None])).numpy()
    wanted = network.labels[network.contexts.class_of]
    return float(np.nan_to_num(np.abs(out - wanted)[real], nan=np.inf).max()), 0.0


def _context_map(header: dict[str, Any], network: Any, end: float, rng: np.random.Generator) -> tuple[float, float]:
    """log10 of the smallest distance of the executed ids of different contexts, as float64 can see it."""
    tokens, vocabulary = network.contexts.tokens, network.contexts.vocabulary
    real = tokens >= 0
    X = vocabulary[tokens] * real[..., None]
    seen = np.ones((tokens.shape[1],) * 2, dtype=bool) if network.contexts.visible is None else network.contexts.visible
    ids = network(torch.from_numpy(X), torch.from_numpy(seen & real[:, None])).numpy()
    places: dict[Any, np.ndarray] = {}
    for i, k in zip(*np.nonzero(real), strict=True):
        counts = Counter(tokens[i][seen[k] & real[i]].tolist())
        share = math.gcd(*counts.values())
        places.setdefault((tokens[i, k], tuple(sorted((t, c // share) for t, c in counts.items()))), ids[i, k])
    states = np.array(list(places.values()))
    gaps = np.linalg.norm(states[:, None] - states[None], axis=2)[np.triu_indices(len(states), 1)]
    slack = 1e-12 * float(np.abs(states).max(initial=1.0))
    smallest = float(np.nan_to_num(gaps, nan=0.0).min(initial=np.inf)) + slack
    return math.log10(smallest) if smallest < math.inf else math.inf, 1e-9


def _equivariant(header: dict[str, Any], network: Any, end: float, rng: np.random.Generator) -> tuple[float, float]:
    d, n, D, delta = network.network.config.dim, header["n"], header["D"], header["delta"]
    f = function_named(header["function"], d, n)
    shift = 0.5 / D if header["labels"] == "centre" else 0.0

    def start(round_number: int) -> np.ndarray:
        cell = rng.integers(0, D, size=(64, n, d))
        edge = rng.choice([0.0, 0.5, 1.0], size=cell.shape) if round_number % 2 else rng.uniform(size=cell.shape)
        room = 1 / D - 2.1 * delta
        return (cell + 0.0) / D + 2.05 * delta + edge * room * (1 - 1e-9)

    def error(X: np.ndarray) -> np.ndarray:
        step = f((np.minimum(np.floor(X * D) + 1, D)) / D - shift)
        out = network.network(torch.from_numpy(np.ascontiguousarray(X))).numpy()
        return np.abs(out - step).reshape(len(X), -1).max(1)

    best = 0.0
    for round_number in range(1000):
        best = max(best, float(np.nan_to_num(error(start(round_number)), nan=np.inf).max()))
        if time.monotonic() > end:
            break
    return best, 0.0


def _codec(header: dict[str, Any], network: Any, end: float, rng: np.random.Generator) -> tuple[float, float]:
    m = header["m"]
    V = rng.uniform(size=(4000, m))
    miss = np.abs(network(V) - V)
    if header["slopes"] is not None:
        p = header["p"]
        sums = (miss**p).sum(1)
        return float(np.nan_to_num(sums.mean(), nan=np.inf) ** (1 / p)), 4 * float(sums.std() / 63) ** (1 / p)
    grid = rng.integers(0, 257, size=(2000, m)) / 256
    places = [V, grid, np.nextafter(grid, 0), rng.integers(0, 2, size=(64, m)).astype(float), np.ones((1, m))]
    return max(float(np.nan_to_num(np.abs(network(P) - P), nan=np.inf).max()) for P in places), 0.0


def _range(header: dict[str, Any], network: Any, end: float, rng: np.random.Generator) -> tuple[float, float]:
    """Tokens along w so that w.x + t runs over the interval, its anchors, its ends and far beyond."""
    a, b, n = header["a"], header["b"], int(header["n"])
    w, t = network.w.numpy(), network.t.numpy()
    rows = np.broadcast_to(w, (n, w.shape[-1])) if w.ndim == 1 else w
    square = np.maximum((rows**2).sum(1), 1e-300)
    best, slack = 0.0, 0.0
    for round_number in range(1000):
        reach = rng.choice([1.0, 1.2, 3.0, 100.0])
        z = (a + b) / 2 + (b - a) * reach * rng.uniform(-0.6, 0.6, size=(64, n))
        if round_number % 2:
            z = a + (b - a) * np.round(rng.uniform(size=(64, n)) * 997) / 997
        X = (z - t)[:, None, :] * (rows / square[:, None]).T[None]
        if header.get("radius") is not None:
            X = np.clip(X, -header["radius"], header["radius"])
        now = (rows.T[None] * X).sum(1) + t
        out = network(torch.from_numpy(np.ascontiguousarray(X))).numpy()
        best = max(best, float(np.nan_to_num(np.abs(out - np.clip(now, a, b)), nan=np.inf).max()))
        slack = max(slack, 1e-13 * float((np.abs(rows.T[None] * X).sum(1) + np.abs(t)).max()))
        if time.monotonic() > end:
            break
    return best, slack


def _grid(header: dict[str, Any], network: Any, end: float, rng: np.random.Generator) -> tuple[float, float]:
    d, n, B, g = int(header["d"]), int(header["n"]), float(header["B"]), int(header["g"])
    f = parse_expression(header["function"], d, n)
    count = max(4, min(2000, 20_000_000 // max(1, g ** min(d * n, 12))))

    def points(round_number: int) -> np.ndarray:
        X = rng.uniform(-B, B, size=(count, d, n))
        if round_number % 2:
            X = np.clip(np.round(X * g / B) * B / g + rng.choice([0.0, 1e-9, -1e-9]) * B, -B, B)
        return X

    def error(X: np.ndarray) -> np.ndarray:
        return np.nan_to_num(np.abs(network(torch.from_numpy(X)).numpy() - f(X)), nan=np.inf)

    if header["variant"] != "quadratic":
        square = np.concatenate([error(points(0)) ** 2 for _ in range(3)])
        volume = (2 * B) ** (d * n)
        noise = 5 * float(square.std()) / math.sqrt(len(square))
        return math.sqrt(volume * float(square.mean())), math.sqrt(volume * noise)
    best = 0.0
    for round_number in range(1000):
        best = max(best, float(error(points(round_number)).max()))
        if time.monotonic() > end:
            break
    return best, 0.0


SLOPES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "squared": lambda s, y: s - y,
    "logistic": lambda s, y: -y / (1 + np.exp(y * s)),
    "logcosh": lambda s, y: np.tanh(s - y),
    "huber": lambda s, y: np.clip(s - y, -1, 1),
}


def _descent(header: dict[str, Any], network: Any, end: float, rng: np.random.Generator) -> tuple[float, float]:
    """Gradient descent written again, step by step."""
    x, y, w = (t.numpy() for t in (network.problem.x, network.problem.y, network.problem.w0))
    path = network.run(network.problem).path.numpy()
    worst = 0.0
    for k in range(int(header["steps"])):
        w = w - header["eta"] * (x @ SLOPES[header["loss"]](w @ x, y) / len(y) + header["ridge"] * w)
        worst = max(worst, float(np.nan_to_num(np.linalg.norm(path[k + 1] - w), nan=np.inf)))
    return worst, 1e-13 * (1 + float(np.abs(path).max())) * header["steps"]


ATTACKS: dict[str, Callable[[dict[str, Any], Any, float, np.random.Generator], tuple[float, float]]] = {
    "transformer": _target,
    "occupancy": _target,
    "memory_head": _target,
    "exponential_head": _target,
    "memorizer": _memorizer,
    "context_map": _context_map,
    "equivariant": _equivariant,
    "codec": _codec,
    "truncated_linear": _range,
    "grid": _grid,
    "icgd": _descent,
}
