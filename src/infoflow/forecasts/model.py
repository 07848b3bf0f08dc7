"""The calibrated part of a forecast: from a question's quantities to the error that training ended at in known cells.

Theory gives floors and sizes; how they combine with the number of steps is not derived but calibrated, by kernel ridge
regression on the cells of `calibration.json`. With z the standardised quantities of a cell, m their number,

    k(z, w) = exp(-|z - w|^2 / 2 m) + <z, w> / 10 m,
    log10 NMSE = mean + sum_i c_i k(z, z_i),   (K + r I) c = y - mean,

smooth where cells are near and linear far from all of them. A floor of at least 10^BELIEVED is taken at its word: the
forecast is at least HELD times it (of the cells with such floors nine in ten ended above 0.4 times theirs). The
interval comes from what the model gets wrong when a whole target is left out of its calibration: the quantiles of those
misses among the NEAREST cells.
"""

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from infoflow.forecasts.quantities import NAMES

RIDGE = 0.1  # r; between 0.03 and 0.3 leaving targets out gives the same rank correlation within 0.01
LINEAR = 0.1
NEAREST = 60  # cells whose misses make the interval
MISSED = (0.1, 0.9)  # quantiles: an interval for eight in ten
BELIEVED, HELD = -1.0, 0.7
HIGHEST = 0.02  # log10 of the largest forecast: a network that learned nothing has NMSE 1


@dataclass(frozen=True, eq=False)
class Calibration:
    """Cells that were trained: quantities (N, m), log10 of the median NMSE (N,), and the target of each."""

    quantities: np.ndarray
    errors: np.ndarray
    targets: tuple[str, ...]

    def model(self, kept: np.ndarray | None = None) -> "Model":
        rows = np.arange(len(self.errors)) if kept is None else np.flatnonzero(kept)
        return Model.fit(self.quantities[rows], self.errors[rows])

    def misses(self) -> np.ndarray:
        """For each cell: its error less the forecast of a model that never saw its target."""
        found = np.empty(len(self.errors))
        names = np.array(self.targets)
        for name in sorted(set(self.targets)):
            out = names == name
            found[out] = self.errors[out] - self.model(~out)(self.quantities[out])
        return found


@dataclass(frozen=True, eq=False)
class Model:
    mean: np.ndarray
    deviation: np.ndarray
    known: np.ndarray  # standardised quantities of the cells
    middle: float
    weights: np.ndarray

    @classmethod
    def fit(cls, quantities: np.ndarray, errors: np.ndarray) -> "Model":
        mean, deviation = quantities.mean(0), np.maximum(quantities.std(0), 1e-9)
        known = (quantities - mean) / deviation
        middle = float(errors.mean())
        weights = np.linalg.solve(_kernel(known, known) + RIDGE * np.eye(len(errors)), errors - middle)
        return cls(mean, deviation, known, middle, weights)

    def __call__(self, quantities: np.ndarray) -> np.ndarray:
        z = (quantities - self.mean) / self.deviation
        found = self.middle + _kernel(z, self.known) @ self.weights
        least = quantities[:, NAMES.index("least floor")]
        return np.minimum(np.where(least >= BELIEVED, np.maximum(found, least + math.log10(HELD)), found), HIGHEST)

    def nearest(self, quantities: np.ndarray) -> np.ndarray:
        z = (quantities - self.mean) / self.deviation
        return np.argsort(((self.known - z) ** 2).sum(1))


def _kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    squares = ((a[:, None] - b[None]) ** 2).sum(-1)
    m = a.shape[1]
    return np.exp(-squares / (2 * m)) + LINEAR * (a @ b.T) / m


@dataclass(frozen=True)
class Estimate:
    """log10 of the NMSE: the forecast and the ends of its interval; the cells that are most like the question."""

    middle: float
    low: float
    high: float
    alike: tuple[int, ...]


class Calibrated:
    """The model fitted to all cells, with the misses of the models that left targets out."""

    def __init__(self, calibration: Calibration, cells: list[dict[str, Any]]) -> None:
        self.calibration, self.cells = calibration, cells
        self.model, self.misses = calibration.model(), calibration.misses()

    def __call__(self, quantities: list[float]) -> Estimate:
        row = np.array(quantities)
        middle = float(self.model(row[None])[0])
        alike = self.model.nearest(row)[:NEAREST]
        below, above = np.quantile(self.misses[alike], MISSED)
        low, high = middle + min(float(below), 0.0), middle + max(float(above), 0.0)
        return Estimate(middle, low, min(high, HIGHEST), tuple(int(i) for i in alike[:3]))


@cache
def calibrated() -> Calibrated:
    """From the cells that ship with the package."""
    payload = json.loads(files("infoflow.forecasts").joinpath("calibration.json").read_text(encoding="utf-8"))
    assert tuple(payload["quantities"]) == NAMES
    rows = np.array([cell["quantities"] for cell in payload["cells"]])
    errors = np.array([cell["log10_nmse"] for cell in payload["cells"]])
    targets = tuple(cell["target"] for cell in payload["cells"])
    return Calibrated(Calibration(rows, errors, targets), payload["cells"])
