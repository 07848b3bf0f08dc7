"""Look for inputs of a box where a network is far from its target.

Starts: random, corners, ties (all tokens equal, two values), clusters, and one token apart from the rest; then
projected Adam ascent on both signs of the error. All in one batch, with a seed and a time budget. What it returns is a
lower bound of the true supremum. Where a claim speaks of part of the box only, `slack(X) >= 0`, errors count there
alone and inputs outside climb towards it.

What somebody stated and nobody proved is attacked as well: `steeper` looks for a pair of points that a Lipschitz
constant does not allow.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from infoflow.progress import Progress

MEMORY = 2**30  # bytes of attention maps in one batch
STEPS = 60  # of the ascent from one start
STEP_LENGTHS = 10.0 ** -np.arange(1, 6)  # from a point to its neighbour, in shares of the range of the points
SLACK = 1e-9  # share of the values: far above the rounding of a function in float64
CLIMBING, LOOKING = 48, 16  # bytes a pair of tokens and head, with gradients and without


class Region(NamedTuple):
    """Sequences of T tokens in a box; where a claim speaks of part of it, those with slack(X) >= 0."""

    T: int
    low: np.ndarray
    high: np.ndarray
    slack: Callable[[Any], Any] | None = None


class Attack(NamedTuple):
    """The largest error that was found, where, and after how many inputs."""

    error: float
    worst: np.ndarray  # (T, d), the input that attains it
    tried: int  # inputs that were evaluated where the claim speaks


def attack(
    network: Callable[[Any], Any],
    target: Callable[[Any], Any],
    region: Region,
    seconds: float = 10.0,
    seed: int = 0,
    batch: int = 64,
    climb: bool = True,
) -> Attack:
    """`climb`: follow the gradient from every start; without it the starts alone are tried, which takes less memory."""
    import torch

    rng = np.random.default_rng(seed)
    box = lo, hi = torch.as_tensor(region.low).double(), torch.as_tensor(region.high).double()
    T, d, room = region.T, len(region.low), region.slack or _everywhere
    best, worst, tried = 0.0, np.zeros((T, d)), 0
    begin = time.monotonic()
    end = begin + seconds
    round_number = 0
    with Progress("attack", int(100 * seconds)) as bar:
        while round_number == 0 or time.monotonic() < end:
            X = lo + (hi - lo) * torch.as_tensor(starts(rng, batch, T, d, round_number))
            rate = 0.3 * 10.0 ** -(round_number % 3)
            walk = _ascend(network, target, room, X, box, rate, end) if climb else None
            for found, where, counted in walk or _look(network, target, room, X):
                tried += counted
                if found > best:
                    best, worst = found, where
                bar.update(int(100 * (time.monotonic() - begin)), f"largest error {best:.4g}")
            round_number += 1
    return Attack(best, worst, tried)


def batch_of(heads: int, T: int, most: int = 64) -> int:
    """Sequences whose attention maps, gradients and pair scores (about six numbers of 8 bytes a pair) fit in MEMORY."""
    return max(1, min(most, MEMORY // (CLIMBING * heads * T * T)))


def fits(heads: int, T: int, bytes_a_pair: int) -> bool:
    """One sequence's attention maps fit in MEMORY."""
    return bytes_a_pair * heads * T * T <= MEMORY


def starts(rng: np.random.Generator, batch: int, T: int, d: int, round_number: int) -> np.ndarray:
    """Starting points in the unit box (batch, T, d): a sixth of each kind; later rounds draw new ones."""
    kinds = [
        rng.uniform(size=(batch, T, d)),
        rng.integers(0, 2, size=(batch, T, d)).astype(float),
        np.repeat(rng.uniform(size=(batch, 1, d)), T, axis=1),
        np.take_along_axis(
            rng.integers(0, 2, size=(batch, 3, d)).astype(float), rng.integers(0, 3, size=(batch, T, 1)), axis=1
        ),
        np.clip(
            rng.uniform(size=(batch, 1, d)) + rng.normal(scale=10.0 ** -(1 + round_number % 4), size=(batch, T, d)),
            0,
            1,
        ),
    ]
    apart = np.repeat(rng.integers(0, 2, size=(batch, 1, d)).astype(float), T, axis=1)
    apart[:, 0] = 1.0 - apart[:, 0]
    kinds.append(apart)
    which = (np.arange(batch) + batch * round_number) % len(kinds)
    return np.stack([kinds[k][i] for i, k in enumerate(which)])


def _everywhere(X: Any) -> Any:
    return X.new_zeros(len(X))


def _ascend(network: Any, target: Any, slack: Any, X: Any, box: Any, start_rate: float, end: float) -> Any:
    """Projected Adam on s * (network - target), s = +1 and -1, where the claim speaks, on the slack elsewhere; yields
    the best error, where, and how many inputs counted, after every step."""
    import torch

    lo, hi = box
    half = (hi - lo) / 2
    for sign in (1.0, -1.0):
        x = X.clone().requires_grad_(True)
        rate = start_rate
        mean = torch.zeros_like(x)
        square = torch.zeros_like(x)
        for step in range(1, STEPS + 1):
            error = network(x) - target(x)
            flat = error.reshape(len(x), -1)
            room = slack(x)
            yield _worst(flat.detach(), x.detach(), room.detach())
            if time.monotonic() > end:
                break
            (gradient,) = torch.autograd.grad(torch.where(room >= 0, (sign * flat).amax(1), room).sum(), x)
            gradient = torch.nan_to_num(gradient)
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.99 * square + 0.01 * gradient**2
            move = mean / (1 - 0.9**step) / ((square / (1 - 0.99**step)).sqrt() + 1e-12)
            with torch.no_grad():
                x = torch.minimum(torch.maximum(x + rate * half * move, lo), hi).requires_grad_(True)
            rate *= 0.93


def _look(network: Any, target: Any, slack: Any, X: Any) -> Any:
    import torch

    with torch.no_grad():
        yield _worst((network(X) - target(X)).reshape(len(X), -1), X, slack(X))


def _worst(errors: Any, X: Any, room: Any) -> tuple[float, np.ndarray, int]:
    """The largest error that counts, its input, how many count; an output that is no number is infinitely wrong."""
    import torch

    size = torch.nan_to_num(errors.abs(), nan=torch.inf, posinf=torch.inf).amax(1)
    size = torch.where(room >= 0, size, 0.0)
    top = int(size.argmax())
    return float(size[top]), X[top].cpu().numpy(), int((room >= 0).sum())


def precision_errors(network: Any, target: Any, X: np.ndarray) -> dict[str, float]:
    """Largest error on the given inputs when the network runs in float32 and in bfloat16 (measured, not proved)."""
    import copy

    import torch

    tokens = torch.as_tensor(X, dtype=torch.float64)
    truth = target(tokens)
    result = {}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        low = copy.deepcopy(network).to(dtype)
        with torch.no_grad():
            value = low(tokens.to(dtype)).double()
        result[name] = float((value - truth).abs().max())
    return result


def steeper(
    function: Callable[[Any], Any],
    points: Float[np.ndarray, "k n"],
    constant: float,
    rng: np.random.Generator,
    box: tuple[Any, Any] | None = None,
    euclidean: bool = False,
    rounds: int = 4,
) -> str | None:
    """A pair with |f(x) - f(y)| > constant |x - y| in words, or None when no step from the points shows one.

    The norm of x - y is the largest entry, or the Euclidean one; of f the largest entry. Steps stay in the box where
    there is one. Every round starts from the steepest places of the last.
    """
    spread = float(np.ptp(points, axis=0).max(initial=0.0)) or 1.0
    here = points
    for _ in range(rounds):
        steps = rng.choice(STEP_LENGTHS, size=(len(here), 1)) * spread
        away = here + steps * rng.uniform(-1.0, 1.0, size=here.shape)
        away = away if box is None else np.clip(away, *box)
        before, after = (np.asarray(_numbers(function(x))).reshape(len(here), -1) for x in (here, away))
        change = np.abs(after - before).max(1)
        norms = np.linalg.norm(away - here, axis=1) if euclidean else np.abs(away - here).max(1)
        size = np.abs(before).max(1) + np.abs(after).max(1)
        slopes = change / np.maximum(norms, 1e-300)
        broken = change > constant * norms + SLACK * (size + constant * norms)
        if broken.any():
            at = int(np.where(broken, slopes, -np.inf).argmax())
            return f"a slope of {slopes[at]:.6g} where at most {constant:g} was stated"
        here = np.repeat(here[np.argsort(-slopes)[: max(len(here) // 4, 1)]], 4, axis=0)
    return None


def _numbers(values: Any) -> Any:
    return values.detach().numpy() if hasattr(values, "detach") else values
