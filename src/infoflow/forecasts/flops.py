"""What a forecast and its rivals cost, in floating-point operations (a multiplication and an addition are two)."""

from infoflow.architecture import Architecture
from infoflow.forecasts import reads
from infoflow.forecasts.quantities import SAMPLES
from infoflow.forecasts.states import BENT
from infoflow.train.recipe import Recipe

BACKWARD = 3  # a step costs three forward passes


def forward(arch: Architecture, d: int, T: int, outputs: int = 1) -> float:
    """One sequence through the network: every token (and the CLS) meets each matrix, every pair of tokens each head."""
    maps = arch.with_(positions="none").parameters(d, outputs)
    pairs = sum(4 * E * (T + 1) ** 2 for E in arch.embeds)
    return 2.0 * maps * (T + 1) + pairs


def training(arch: Architecture, d: int, T: int, recipe: Recipe, outputs: int = 1) -> float:
    """One seed of a run."""
    return BACKWARD * recipe.total_steps * recipe.batch_size * forward(arch, d, T, outputs)


def theory(arch: Architecture, d: int, T: int) -> float:
    """The reduced problem of `reads.py`: its descents and measurements, reads and ridge regressions."""
    size = d + d * (d + 1) // 2 + BENT
    read = sum(4.0 * heads * T * size for heads in arch.heads)
    sequences = BACKWARD * reads.STEPS * 2 * reads.FITTED + 2 * len(reads.FACTORS) * SAMPLES
    width = reads.FEATURES + arch.embeds[-1]
    ridge = reads.STEPS * (2.0 * reads.FITTED * width**2 + width**3)
    return reads.starts_of(arch.layers) * (sequences * (read + 2.0 * width * reads.FEATURES) + ridge)
