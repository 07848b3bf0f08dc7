"""Look for the sequence on which a trained network is farthest from its target: the lower end of what certify prints.

The worst sequences have few different tokens (`gaps.py`: all losers coincide). Where the target asks for extrema alone,
a sequence of K distinct tokens with counts that sum to T is climbed as K d numbers on the softmax averages, which costs
nothing of T: many at once, with steps of every size, half of them anew from the best so far, moved and counted
otherwise. Then all T tokens and sequences of a few repeated ones are climbed on the network itself. What counts is the
stored network, in float64: the error that is returned is the network's own on the sequence that is returned.
"""

import time
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from infoflow.certificates.attack import CLIMBING, MEMORY, Attack, Region, attack, fits, starts
from infoflow.nn.transformer import ACTIVATIONS
from infoflow.proofs.reduce import Reduced
from infoflow.targets.target import Extremum, Target

BESIDE = 3  # distinct tokens of a climb on averages beside one winner of every term
MANY, STEPS, KEPT = 256, 100, 16  # climbs at once, their steps, the best that later ones start from
SHARE = 0.7  # of the time, for the climb on averages
KINDS = 6  # of starts, all drawn for every sequence


def patterns(T: int) -> list[list[int]]:
    """How often each distinct token stands in the sequence; [1] * T are all of them."""
    found = [[1] * T]
    for single in (1, 2, 3):
        if single + 1 < T:
            found.append([*[1] * single, T - single])
    if T >= 4:
        found += [[T // 2, T - T // 2], [1, T // 2, T - 1 - T // 2]]
    return found


def attack_trained(
    exact: nn.Module,
    heads: int,
    target: Target,
    region: Region,
    seconds: float,
    seed: int,
    reduced: Reduced | None = None,
) -> Attack | None:
    """The largest error of a network in float64 and its sequence (T, d); None where one does not fit in memory.

    With the reduced network most of the time goes to the climb on averages."""
    T = region.T
    if not fits(heads, 1, CLIMBING * T):
        return None
    best = Attack(0.0, np.zeros((T, target.dim)), 0)
    if reduced is not None and all(isinstance(term, Extremum) for term in target.terms):
        best = _on_averages(exact, reduced, target, region, SHARE * seconds, seed)
        seconds = (1.0 - SHARE) * seconds
    asked = patterns(T)
    most = MEMORY // (CLIMBING * max(heads, KINDS * target.dim) * T)
    end = time.monotonic() + seconds
    for number, counts in enumerate(asked):
        if best.tried and time.monotonic() > end:
            break  # sequences so long that one pattern took the time of all
        owner = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))

        def error(Y: Any, owner: torch.Tensor = owner) -> Any:
            X = Y[:, owner]
            return exact(X) - target(X)

        def slack(Y: Any, owner: torch.Tensor = owner) -> Any:
            return target.slack(Y[:, owner])

        found = attack(
            error,
            lambda Y: 0.0,
            Region(len(counts), region.low, region.high, slack if target.condition else None),
            seconds / len(asked),
            seed + number,
            max(1, min(64, most)),
        )
        larger = found._replace(worst=found.worst[owner.numpy()]) if found.error > best.error else best
        best = larger._replace(tried=best.tried + found.tried)
    return best if best.tried else None


class Climbed(NamedTuple):
    """One path's best: its error with the sign it was climbed for, K tokens, how often each stands there."""

    value: float
    tokens: np.ndarray
    counts: np.ndarray
    sign: float


def _on_averages(
    exact: nn.Module, reduced: Reduced, target: Target, region: Region, seconds: float, seed: int
) -> Attack:
    """Climb on a few tokens and their counts; the best of them are run through the network."""
    T, box = region.T, (region.low, region.high)
    rng, end = np.random.default_rng(seed), time.monotonic() + seconds
    K = min(T, len(target.terms) + BESIDE)
    error = _error_of_averages(reduced, target)
    pool: list[Climbed] = []
    rounds = 0
    while rounds == 0 or time.monotonic() < end:
        tokens = box[0] + (box[1] - box[0]) * starts(rng, MANY, K, target.dim, rounds)
        counts, signs = _counts(rng, MANY, K, T), np.where(np.arange(MANY) % 4 < 2, 1.0, -1.0)
        for row in range(0, MANY if pool else 0, 2):
            old = pool[rng.integers(len(pool))]
            size = 10.0 ** rng.uniform(-3, 0) * (box[1] - box[0])
            moved = rng.normal(size=old.tokens.shape) * (rng.random((K, 1)) < rng.choice([0.2, 1.0]))
            tokens[row], signs[row] = np.clip(old.tokens + size * moved, *box), old.sign
            counts[row] = old.counts if rng.random() < 0.6 else counts[row]
        rates = 10.0 ** rng.uniform(-2.5, -0.5, (MANY, 1, 1)) * (box[1] - box[0])
        pool = _best([*pool, *_climbed(error, tokens, counts, signs, box, rates, end)])
        rounds += 1
    found = [_run(exact, target, np.repeat(each.tokens, each.counts, axis=0)) for each in pool]
    off, X = max(found, key=lambda each: each[0])
    return Attack(off, X, MANY * rounds)


def _error_of_averages(reduced: Reduced, target: Target) -> Any:
    """(tokens (B, K, d), log counts (B, K)) -> network - target of every output (B, outputs)."""
    tensor = {
        name: torch.from_numpy(getattr(reduced, name)) for name in ("queries", "weight", "bias", "output", "constant")
    }

    def error(Y: Any, logs: Any) -> Any:
        p = torch.softmax(Y @ tensor["queries"].T + logs[:, :, None], 1)  # (rows, tokens, heads)
        m = (p.transpose(1, 2) @ Y).flatten(1)
        units = ACTIVATIONS[reduced.activation](m @ tensor["weight"].T + tensor["bias"])
        return units @ tensor["output"].T + tensor["constant"] - target(Y).reshape(len(Y), -1)

    return error


def _climbed(
    error: Any,
    tokens: np.ndarray,
    counts: np.ndarray,
    signs: np.ndarray,
    box: tuple[np.ndarray, np.ndarray],
    rates: np.ndarray,
    end: float,
) -> list[Climbed]:
    """Projected Adam on sign (network - target) from every row, with steps that fall from `rates` to zero."""
    x, sign, rate = torch.from_numpy(tokens), torch.from_numpy(signs), torch.from_numpy(rates)
    low, high = (torch.from_numpy(side) for side in box)
    logs = torch.from_numpy(np.log(counts))
    mean, square = torch.zeros_like(x), torch.zeros_like(x)
    best, where = torch.full((len(x),), -torch.inf, dtype=torch.float64), x.clone()
    for step in range(1, STEPS + 1):
        x = x.requires_grad_(True)
        value = (sign[:, None] * error(x, logs)).amax(1)
        (slope,) = torch.autograd.grad(value.sum(), x)
        x, value, slope = x.detach(), torch.nan_to_num(value.detach(), nan=-torch.inf), torch.nan_to_num(slope)
        where = torch.where((value > best)[:, None, None], x, where)
        best = torch.maximum(value, best)
        if time.monotonic() > end:
            break
        mean, square = 0.8 * mean + 0.2 * slope, 0.95 * square + 0.05 * slope**2
        move = mean / (1 - 0.8**step) / ((square / (1 - 0.95**step)).sqrt() + 1e-12)
        x = torch.minimum(torch.maximum(x + rate * (1 - step / STEPS) ** 1.5 * move, low), high)
    return [Climbed(*each) for each in zip(best.tolist(), where.numpy(), counts, signs.tolist(), strict=True)]


def _best(found: list[Climbed]) -> list[Climbed]:
    """The best with different errors, the best first."""
    found = sorted(found, key=lambda each: -each.value)
    apart = [each for i, each in enumerate(found) if i == 0 or each.value < found[i - 1].value - 1e-9]
    return apart[:KEPT]


def _counts(rng: np.random.Generator, rows: int, K: int, T: int) -> np.ndarray:
    """(rows, K) counts that sum to T: the last one to three tokens are crowds, the others stand there once."""
    crowd = np.arange(K)[::-1] < rng.integers(1, 4, (rows, 1))
    shares = crowd * rng.gamma(0.5, size=(rows, K)) + 1e-300
    found = np.floor((T - K) * shares / shares.sum(1, keepdims=True)).astype(int)
    found[:, -1] += T - K - found.sum(1)
    return 1 + found


def _run(exact: nn.Module, target: Target, X: np.ndarray) -> tuple[float, np.ndarray]:
    """The network's own error on one sequence; an output that is no number is infinitely wrong."""
    tokens = torch.from_numpy(X[None])
    with torch.no_grad():
        off = (exact(tokens) - target(tokens)).abs()
    return float(torch.nan_to_num(off, nan=torch.inf).max()), X
