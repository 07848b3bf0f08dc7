"""The input laws of the papers: uniform on the domain, standard normal, and the clamped normal of C.5."""

from typing import Any, NamedTuple

import numpy as np

from infoflow.arguments import shown
from infoflow.errors import InfoFlowError, unknown
from infoflow.targets.arrays import Array, dot

SAMPLERS: dict[str, str] = {
    "uniform": "independent, uniform on the domain in every coordinate",
    "normal": "independent, N(0, I)",
    "clamped_normal": "independent, N(0, 2 I), then the norm clamped to [0.2, 4] by rescaling (C.5)",
}
SHORTEST, LONGEST = 0.2, 4.0  # C.5


def check_sampler(sampler: str) -> None:
    """Refuse the name of no sampler."""
    if not isinstance(sampler, str) or sampler not in SAMPLERS:
        raise unknown("sampler", sampler, list(SAMPLERS))


class RandomSource(NamedTuple):
    """Where random numbers come from: numpy draws from a Generator, torch from a torch.Generator on the device, both
    from a fresh one of this seed where none is given."""

    kind: str = "numpy"
    seed: int = 0
    generator: Any = None
    device: Any = None
    dtype: Any = None


def draw(sampler: str, shape: tuple[int, ...], domain: tuple[float, float], source: RandomSource) -> Array:
    """`shape` (..., d) from the law."""
    check_sampler(sampler)
    if source.kind not in ("numpy", "torch"):
        raise InfoFlowError(f"expected kind 'numpy' or 'torch', got {source.kind!r}.")
    raw = (_numpy if source.kind == "numpy" else _torch)(sampler, shape, source)
    if sampler == "uniform":
        return domain[0] + (domain[1] - domain[0]) * raw
    return _clamp(2**0.5 * raw) if sampler == "clamped_normal" else raw


def _numpy(sampler: str, shape: tuple[int, ...], source: RandomSource) -> np.ndarray:
    generator = source.generator if source.generator is not None else np.random.default_rng(source.seed)
    try:
        wanted = np.dtype(np.float64 if source.dtype is None else source.dtype)
    except TypeError:
        wanted = np.dtype(object)
    if wanted.kind != "f":
        raise InfoFlowError(f"expected a floating-point dtype of numpy, got {shown(source.dtype)}.")
    raw = generator.random(shape) if sampler == "uniform" else generator.standard_normal(shape)
    return raw.astype(wanted, copy=False)


def _torch(sampler: str, shape: tuple[int, ...], source: RandomSource) -> Any:
    import torch

    _, seed, generator, device, dtype = source
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InfoFlowError(f"expected a floating-point dtype of torch, got {shown(dtype)}.")
    if generator is None:
        generator = torch.Generator(device=device or "cpu").manual_seed(seed)
    fill = torch.rand if sampler == "uniform" else torch.randn
    drawn = fill(shape, generator=generator, device=device or generator.device, dtype=dtype)
    return drawn.double() if dtype is None else drawn  # as numpy's, and as the weights that `build` writes


def _clamp(x: Array) -> Array:
    """Each token scaled so that its norm lies in [SHORTEST, LONGEST]; the zero token, of probability zero, stays."""
    norm = dot(x, x)[..., None] ** 0.5
    return x * (norm.clip(SHORTEST, LONGEST) / (norm + (norm == 0)))
