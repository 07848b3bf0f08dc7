"""Training and validation data from a seed, exact labels, and the order in which each model sees them.

Tokens are drawn by numpy from the recipe's `data_seed` (so every device and every cluster node sees the same data) and
labelled by the target itself, in float64, from the tokens as the network sees them (after rounding to the dtype).
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.errors import InfoFlowError
from infoflow.targets import Target
from infoflow.train.recipe import Recipe


@dataclass(frozen=True)
class Data:
    """Tokens with coordinates before positions (N, d, T), standardised labels (N, o); the same for validation."""

    X: Float[Tensor, "N d T"]
    y: Float[Tensor, "N o"]
    X_validation: Float[Tensor, "V d T"]
    y_validation: Float[Tensor, "V o"]
    mean: Float[Tensor, " o"]
    deviation: float  # one number for all outputs, so that the NMSE of standardised labels is the NMSE
    variance: float  # of the standardised validation labels: what the NMSE divides by


def make_data(target: Target, T: int, recipe: Recipe, device: torch.device) -> Data:
    dtype = getattr(torch, recipe.dtype)
    streams = np.random.SeedSequence(recipe.data_seed).spawn(2)
    X, y = _draw(target, T, recipe.samples, np.random.default_rng(streams[0]), device, dtype)
    X_validation, y_validation = _draw(target, T, recipe.validation, np.random.default_rng(streams[1]), device, dtype)
    mean = y.mean(0)
    deviation = float((y - mean).square().mean().sqrt())
    if not deviation > 0:
        raise InfoFlowError(f"expected labels that vary, {target.spelling} is constant on the samples at T={T}.")
    y, y_validation = (y - mean) / deviation, (y_validation - mean) / deviation
    variance = float((y_validation - y_validation.mean(0)).square().mean())
    return Data(X, y.to(dtype), X_validation, y_validation.to(dtype), mean, deviation, variance)


def _draw(
    target: Target, T: int, count: int, generator: np.random.Generator, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    tokens = torch.from_numpy(target.sample(count, T, generator=generator)).to(dtype).to(device)
    with torch.no_grad():
        labels = target(tokens.to(torch.float64))
    labels = labels.unsqueeze(-1) if labels.ndim == 1 else labels
    return tokens.transpose(-1, -2).contiguous(), labels


def epoch_order(seeds: Int[Tensor, " M"], epoch: int, samples: int) -> Int[Tensor, "M samples"]:
    """A permutation for each (seed, epoch), the same on every device: the argsort of a 64-bit hash of the triple."""
    counter = torch.arange(samples, device=seeds.device)
    return torch.argsort(_mix(_mix(_mix(seeds) + epoch).unsqueeze(1) + counter), dim=1, stable=True)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 on wrapping int64 arithmetic."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x
