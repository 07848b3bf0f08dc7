"""Where a head that interpolates errs most: anchors, midpoints, ends, and a random search from the worst of them."""

import time
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.errors import InfoFlowError

LIMIT = 20_000  # anchors visited one by one; beyond it, the ends and a random part


def probes_of_interval(first: float, spacing: float, p: int, a: float, b: float) -> Float[Tensor, " points"]:
    """Anchors, midpoints, both by +-1e-9 and +-spacing/1000, quarter points, both ends, far outside."""
    if p <= LIMIT:
        k = torch.arange(-2, p + 2, dtype=torch.float64)
    else:
        near = torch.arange(-2, LIMIT // 2, dtype=torch.float64)
        k = torch.cat([near, float(p) + torch.arange(-(LIMIT // 2), 2)])  # a file may name a p beyond int64
    anchors = first + spacing * k
    shifts = torch.tensor([0, 0.5, 0.25, 0.75, 0.499, 0.501, 0.001, 0.999], dtype=torch.float64) * spacing
    points = (anchors[:, None] + shifts).reshape(-1)
    width = b - a
    ends = torch.tensor([a, b, a - width, b + width, a - 1e6 * width, b + 1e6 * width], dtype=torch.float64)
    points = torch.cat([points, ends])
    return torch.cat([points, points - 1e-9 * width, points + 1e-9 * width])


def worst(
    error: Callable[[Float[Tensor, " points"]], Float[Tensor, " points"]],
    points: Float[Tensor, " points"],
    seed: int,
    seconds: float,
) -> float:
    """The largest error: at the given points, then by random steps of shrinking size from the worst ones."""
    if not seconds > 0:
        raise InfoFlowError(f"expected a positive time for the attack, got {seconds}; give seconds > 0.")
    generator = torch.Generator().manual_seed(seed)
    start = time.monotonic()
    found = error(points)
    best = found.max()
    leaders = points[torch.topk(found, min(64, len(points))).indices]
    reach = float(points.abs().quantile(0.5)) if len(points) < 1_000_000 else float(points.abs().median())
    for scale in (1e-2, 1e-4, 1e-6):
        if time.monotonic() - start > seconds:
            break
        step = torch.randn(64, len(leaders), generator=generator, dtype=points.dtype) * scale * max(reach, 1e-12)
        trial = (leaders + step).reshape(-1)
        best = torch.maximum(best, error(trial).max())
    return float(best)
