"""Look for the sequence on which a trained network is farthest from its target: the lower end of what certify prints.

The worst sequences have few different tokens (`gaps.py`: all losers coincide), so beside all T tokens the attack climbs
on sequences of a few distinct tokens, repeated: 1, 2 or 3 single ones and the rest equal, or even shares. It runs the
stored network itself, in float64, and shares nothing with the bound but the target.
"""

import copy
from typing import Any

import numpy as np
import torch

from infoflow.certificates.attack import CLIMBING, MEMORY, Attack, attack, fits
from infoflow.nn import Transformer
from infoflow.targets.target import Target


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
    network: Transformer, target: Target, T: int, low: np.ndarray, high: np.ndarray, seconds: float, seed: int
) -> Attack | None:
    """The largest error found and its sequence (T, d); None where one sequence does not fit in memory."""
    heads = max(network.config.heads)
    if not fits(heads, 1, CLIMBING * T):
        return None
    exact = copy.deepcopy(network).double().requires_grad_(False)
    asked = patterns(T)
    best: Attack | None = None
    tried = 0
    for number, counts in enumerate(asked):
        owner = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))

        def error(Y: Any, owner: torch.Tensor = owner) -> Any:
            X = Y[:, owner]
            return exact(X) - target(X)

        def slack(Y: Any, owner: torch.Tensor = owner) -> Any:
            return target.slack(Y[:, owner])

        found = attack(
            error,
            lambda Y: 0.0,
            len(counts),
            low,
            high,
            seconds / len(asked),
            seed + number,
            max(1, min(64, MEMORY // (CLIMBING * heads * T))),
            slack=slack if target.condition else None,
        )
        tried += found.tried
        if best is None or found.error > best.error:
            best = found._replace(worst=found.worst[owner.numpy()])
    assert best is not None
    return best._replace(tried=tried) if tried else None
