"""Look for the sequence on which a trained network is farthest from its target: the lower end of what certify prints.

The worst sequences have few different tokens (`gaps.py`: all losers coincide). So beside all T tokens the attack climbs
on sequences of a few distinct tokens, repeated; where the target asks for extrema alone, first on the softmax averages
of four tokens with multiplicities, which costs nothing of T. What counts is the stored network itself, in float64: the
error that is returned is the network's own on the sequence that is returned.
"""

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from infoflow.certificates.attack import CLIMBING, MEMORY, Attack, Region, attack, fits
from infoflow.nn.transformer import ACTIVATIONS
from infoflow.proofs.reduce import Reduced
from infoflow.targets.target import Extremum, Target

DISTINCT = 4  # tokens of the sequences that are climbed on the averages
MANY = 256  # of them at once
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
    T: int,
    low: np.ndarray,
    high: np.ndarray,
    seconds: float,
    seed: int,
    reduced: Reduced | None = None,
) -> Attack | None:
    """The largest error of a network in float64 and its sequence (T, d); None where one does not fit in memory.

    With the reduced network half of the time goes to the climb on averages."""
    if not fits(heads, 1, CLIMBING * T):
        return None
    best = Attack(0.0, np.zeros((T, target.dim)), 0)
    if reduced is not None and T > DISTINCT and all(isinstance(term, Extremum) for term in target.terms):
        seconds = 0.5 * seconds
        best = _on_averages(exact, reduced, target, T, low, high, seconds, seed)
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
            Region(len(counts), low, high, slack if target.condition else None),
            seconds / len(asked),
            seed + number,
            max(1, min(64, most)),
        )
        larger = found._replace(worst=found.worst[owner.numpy()]) if found.error > best.error else best
        best = larger._replace(tried=best.tried + found.tried)
    return best if best.tried else None


def _on_averages(
    exact: nn.Module,
    reduced: Reduced,
    target: Target,
    T: int,
    low: np.ndarray,
    high: np.ndarray,
    seconds: float,
    seed: int,
) -> Attack:
    """Climb on four tokens and their multiplicities; the best of them is run through the network."""
    tensor = {
        name: torch.from_numpy(getattr(reduced, name)) for name in ("queries", "weight", "bias", "output", "constant")
    }
    shares = _multiplicities(T)
    often = torch.tensor([shares[row % len(shares)] for row in range(MANY)], dtype=torch.float64)

    def error(Y: Any) -> Any:
        p = torch.softmax(Y @ tensor["queries"].T + often[: len(Y), :, None].log(), 1)  # (rows, tokens, heads)
        m = (p.transpose(1, 2) @ Y).flatten(1)
        units = ACTIVATIONS[reduced.activation](m @ tensor["weight"].T + tensor["bias"])
        values = units @ tensor["output"].T + tensor["constant"]
        return values - target(Y).reshape(len(Y), -1)

    found = attack(error, lambda Y: 0.0, Region(DISTINCT, low, high), seconds, seed, MANY)
    X = np.stack([np.repeat(found.worst, counts, axis=0) for counts in shares])
    tokens = torch.from_numpy(X)
    off = (exact(tokens) - target(tokens)).reshape(len(X), -1).abs().amax(1)
    return Attack(float(off.max()), X[int(off.argmax())], found.tried)


def _multiplicities(T: int) -> list[list[int]]:
    """Of four tokens: single ones and a crowd, two crowds, three, equal shares."""
    half, third, quarter = (T - 2) // 2, (T - 1) // 3, T // 4
    found = [[1, 1, 1, T - 3], [1, 1, half, T - 2 - half], [1, third, third, T - 1 - 2 * third]]
    return [*found, [quarter, quarter, quarter, T - 3 * quarter]]
