"""What reads that nobody has aimed leave untold: how much a target gives training to start from.

Before the first step a head reads somewhere. Take many such reads of the tokens z(t) and of their products,

    m_j = sum_t softmax_t(b_j k_j'z(t)) z(t),   k_j random, b_j = 1, 3, 10, 30,

and the best read-out of all of them (ridge regression on the m_j, on means, and on random GELU features of both). What
it leaves of the target's variance is `untold`. Where that is little (0.03 for a largest product of two projections),
every step has a slope to follow; where it is nearly everything (0.8 to 1 for the closest pair of eight tokens or more),
the heads that the target needs must be found in the dark, and short runs do not find them, however low the floor is. No
step of descent is made, and nothing here depends on the architecture but whether it tells positions apart.

Training finds soon which directions of a token matter at all. So the tokens may be multiplied first by a root of the
mean outer product of the target's slopes (`states.steep`), as if that had been found: of a smooth function of one
projection of five-dimensional tokens, random reads then leave 1e-4 instead of 3e-2.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from infoflow import cost
from infoflow.forecasts.states import names_positions, steep
from infoflow.targets import Target

SAMPLES, FITTED, SEED = 3_000, 2_400, 11
READS, READS_OF_PRODUCTS = 64, 32
HEAT = (1.0, 3.0, 10.0, 30.0)  # of the reads in turn
FEATURES, GAIN = 400, 1.5  # random GELU features of what is read
RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # the best of them is taken: there is one number to find
LONGEST = 64  # tokens: a longer sequence is judged by this many
FLAT = 1e-4  # directions in which the target changes less, as a share of the steepest (squared), are left out


@lru_cache(maxsize=256)
def untold(target: Target, T: int, positions: bool, directed: bool = True) -> float:
    """The share of the target's variance that the best read-out of random reads leaves; `directed`: of reads in the
    directions in which the target changes."""
    T, d = T if names_positions(target) else min(T, LONGEST), target.dim
    width = d + d * (d + 1) // 2 + positions * T
    needed = 4.0 * SAMPLES * (T * (2 * width + READS) + 2 * READS * width)
    cost.memory(needed, f"random reads of T={T} tokens", "T or d")
    X = target.sample(SAMPLES, T, seed=SEED)
    y = torch.from_numpy(np.asarray(target(X))).reshape(SAMPLES, -1)
    generator = torch.Generator().manual_seed(0)
    tokens = _standard(torch.from_numpy(X).float(), (0, 1))
    if directed:
        tokens = _directed(tokens, steep(target, X))
    row, column = torch.triu_indices(tokens.shape[-1], tokens.shape[-1])
    products = tokens[..., row] * tokens[..., column]
    known = tokens
    if positions:
        known = torch.cat([tokens, min(T, 12) ** 0.5 * torch.eye(T).expand(SAMPLES, -1, -1)], -1)
    reads = [
        tokens.mean(1),
        products.mean(1),
        _reads(known, tokens, READS, generator),
        _reads(torch.cat([known, products], -1), tokens, READS_OF_PRODUCTS, generator),
    ]
    seen = _standard(torch.cat(reads, -1), (0,))
    directions = GAIN * torch.randn(seen.shape[-1], FEATURES, generator=generator) / seen.shape[-1] ** 0.5
    bent = torch.nn.functional.gelu(seen @ directions + torch.randn(FEATURES, generator=generator))
    return _left(torch.cat([torch.ones(SAMPLES, 1), seen, bent], -1).double(), y.double())


def _directed(tokens: Tensor, root: Tensor) -> Tensor:
    """The tokens in the directions in which the target changes, all together of deviation one."""
    shares = root.square().sum(0)
    found = tokens @ root[:, shares > FLAT * shares.max()]
    return found / found.std().clamp_min(1e-9)


def _reads(known: Tensor, tokens: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(N, count d): averages of the tokens by scores that are random linear functions of what is known of them."""
    keys = torch.randn(count, known.shape[-1], generator=generator) / known.shape[-1] ** 0.5
    keys = keys * torch.tensor(HEAT).repeat(count // len(HEAT)).unsqueeze(1)
    weights = torch.softmax(torch.einsum("hp,ntp->nht", keys, known), -1)
    return (weights @ tokens).flatten(1)


def _left(features: Tensor, y: Tensor) -> float:
    """Of the variance of y on samples that no regression was fitted to, by the best ridge."""
    fitted, rest = features[:FITTED], y[FITTED:]
    values, vectors = torch.linalg.eigh(fitted.T @ fitted)
    wanted, seen = vectors.T @ (fitted.T @ (y[:FITTED] - y[:FITTED].mean(0))), features[FITTED:] @ vectors
    variance = (rest - rest.mean(0)).square().mean()
    if not variance > 0:
        return 0.0
    found = []
    for ridge in RIDGES:
        answer = seen @ (wanted / (values.clamp_min(0.0) + ridge * FITTED).unsqueeze(1)) + y[:FITTED].mean(0)
        found.append(float((answer - rest).square().mean() / variance))
    return min(found)


def _standard(x: Tensor, over: tuple[int, ...]) -> Tensor:
    return (x - x.mean(over)) / x.std(over).clamp_min(1e-6)
