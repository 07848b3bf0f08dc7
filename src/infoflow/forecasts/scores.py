"""How good forecasts are: rank correlation, the factor they are off by, within targets, with a bootstrap over families.

The factor of a cell is max(forecast/trained, trained/forecast). All errors here are decimal logarithms.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

DRAWS = 400  # of the bootstrap
FEWEST = 4  # cells of a target before its ranking counts


@dataclass(frozen=True)
class Scores:
    cells: int
    spearman: float
    within_target: float  # mean rank correlation within a target, over targets with FEWEST cells
    median_factor: float
    factor_at_90: float
    within_5: float
    within_3: float
    spearman_band: tuple[float, float]  # 5% and 95% of a bootstrap that draws families
    median_factor_band: tuple[float, float]


def score(forecast: np.ndarray, errors: np.ndarray, targets: np.ndarray, families: np.ndarray) -> Scores:
    off = np.abs(forecast - errors)
    groups = [np.flatnonzero(families == family) for family in sorted(set(families))]
    rng = np.random.default_rng(0)
    picks = [np.concatenate([groups[g] for g in rng.integers(len(groups), size=len(groups))]) for _ in range(DRAWS)]
    return Scores(
        cells=len(errors),
        spearman=round(rank_correlation(forecast, errors), 3),
        within_target=round(_within(forecast, errors, targets), 3),
        median_factor=round(10 ** float(np.median(off)), 2),
        factor_at_90=round(10 ** float(np.quantile(off, 0.9)), 1),
        within_5=round(float(np.mean(off < np.log10(5))), 3),
        within_3=round(float(np.mean(off < np.log10(3))), 3),
        spearman_band=_band(lambda rows: rank_correlation(forecast[rows], errors[rows]), picks),
        median_factor_band=_band(lambda rows: 10 ** float(np.median(off[rows])), picks),
    )


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's; 0 where one side does not vary."""
    from scipy.stats import rankdata

    x, y = rankdata(a), rankdata(b)
    if len(x) < 2 or x.std() == 0 or y.std() == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def line(known: np.ndarray, errors: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """A line through a known quantity and the errors, fitted without the group it speaks of; a plane for several."""
    columns = np.column_stack([np.ones(len(errors)), known])
    found = np.empty(len(errors))
    for group in sorted(set(groups)):
        out = groups == group
        fitted = columns[~out] if (~out).any() else columns
        wanted = errors[~out] if (~out).any() else errors
        found[out] = columns[out] @ np.linalg.lstsq(fitted, wanted, rcond=None)[0]
    return found


def others_mean(errors: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """For each cell the mean over the other cells of its target (of all other cells where there are none)."""
    found = np.empty(len(errors))
    for i in range(len(errors)):
        alike = (targets == targets[i]) & (np.arange(len(errors)) != i)
        found[i] = errors[alike].mean() if alike.any() else np.delete(errors, i).mean()
    return found


def _within(forecast: np.ndarray, errors: np.ndarray, targets: np.ndarray) -> float:
    found = []
    for target in sorted(set(targets)):
        rows = targets == target
        if rows.sum() >= FEWEST:
            found.append(rank_correlation(forecast[rows], errors[rows]))
    return float(np.mean(found)) if found else float("nan")


def _band(measure: Callable[[np.ndarray], float], picks: list[np.ndarray]) -> tuple[float, float]:
    low, high = np.quantile([measure(rows) for rows in picks], (0.05, 0.95))
    return round(float(low), 3), round(float(high), 3)
