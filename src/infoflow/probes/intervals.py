"""Bootstrap intervals over documents: documents are drawn again with replacement, never tokens."""

import numpy as np
from jaxtyping import Float

DRAWS = 1000
LEVEL = 0.95


def draws(documents: int, seed: int = 0, count: int = DRAWS) -> Float[np.ndarray, "count documents"]:
    """Multiplicities of the documents in each bootstrap draw."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(documents, np.full(documents, 1 / documents), size=count).astype(np.float64)


def ratio_interval(
    totals: Float[np.ndarray, " documents"], counts: Float[np.ndarray, " documents"], seed: int = 0
) -> tuple[float, float, float]:
    """sum(totals)/sum(counts) with the central 95% of its bootstrap law: (value, low, high).

    A draw without any count is left out; with fewer than two documents the interval is the whole line.
    """
    value = float(totals.sum() / counts.sum()) if counts.sum() else float("nan")
    if len(totals) < 2:
        return value, float("-inf"), float("inf")
    multiplicity = draws(len(totals), seed)
    below = multiplicity @ counts
    kept = below > 0
    ratios = (multiplicity @ totals)[kept] / below[kept]
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return value, float(low), float(high)
