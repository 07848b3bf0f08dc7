"""The calibrated part of a forecast: from a question's quantities to the error that training ended at in known cells.

Theory gives floors, sharpness and sizes; how they combine with the number of steps is not derived but calibrated, by
kernel ridge regression on the cells of `calibration.json`. With z the standardised quantities of a cell, m of them,

    k(z, w) = exp(-|z - w|^2 / 2 m L) + <z, w> / 10 m,
    log10 NMSE = mean + sum_i c_i k(z, z_i),   (K + r I) c = y - mean,

smooth where cells are near and linear far from all of them. What reads that nobody aimed leave untold says how hard it
is to begin, which matters less the longer a run goes on: before it is standardised it is multiplied by a share that
falls linearly in the logarithm of the steps, between the ends of FADES. A large floor is taken at its word, for where
one is found networks end at it: of the 65 calibration cells of one layer and a linear encoder with a floor above 0.1,
the median one ended at 1.0 times its floor and nine in ten within 1.6 times. So the forecast is a weighted mean of the
floor (TRAINED of it where one layer reads an MLP encoder, whose trained features do better than random ones) and of
the regression, in logarithms; the floor's weight rises from nothing to WORD between the ends of RISING. Where layers
follow one another and the target's parts are not known, what tokens tell each other is not known either: there the
floor has no such say.

The interval is conformal. A cell's miss is its error less the forecast of a model that never saw its family of targets.
An interval reaches from the 0.1 to the 0.9 quantile of the misses of the NEAREST cells of its kind (with a floor that
has its full say, or without one: the former are far easier), times the factor with which
intervals made without a family cover eight in ten of that family's cells, over all families (`widening`). Two models
are calibrated: from theory's quantities alone, and with those of a pilot. The pilot's two are multiplied by PILOT after
they are standardised, for each says more than one of theory's; and the run is forecast to end no higher than its pilot.
"""

import json
import math
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import numpy as np

from infoflow.errors import InfoFlowError

RIDGE, REACH, LINEAR = 0.1, 2.0, 0.1  # r, L and the weight of the linear part
FADING, FADES = "untold, fading", ((840, 8_400), (1.0, 0.4))  # a quantity; steps, and its shares there
PILOT = 2.0  # the weight of a pilot's quantities
NEAREST = 80  # cells whose misses make the interval
COVERED = 0.8  # of the cells
RISING, WORD, TRAINED = (-2.0, -1.0), 0.7, 0.8
BELIEVED, HELD = -1.0, 0.7  # the rule of the first two registrations: at least HELD of a floor above 10^BELIEVED
HIGHEST = 0.02  # log10 of the largest forecast: a network that learned nothing has NMSE 1
WIDENINGS = np.geomspace(0.5, 4.0, 61)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Cells that were trained: quantities (N, m) and their names, log10 of the median NMSE (N,), the families (N,); and
    their misses, if they were found before (a regression for each family takes seconds)."""

    quantities: np.ndarray
    errors: np.ndarray
    families: np.ndarray
    names: tuple[str, ...]
    known_misses: np.ndarray | None = None
    pilot_weight: float | None = None  # of the columns behind those that are named; None: of earlier registrations

    def model(self, kept: np.ndarray | None = None) -> "Model":
        rows = np.arange(len(self.errors)) if kept is None else np.flatnonzero(kept)
        return Model.fit(self.quantities[rows], self.errors[rows], self.names, self.pilot_weight)

    def left_out(self, groups: np.ndarray) -> np.ndarray:
        """For each cell the forecast of a model that never saw its group."""
        found = np.empty(len(self.errors))
        for group in sorted(set(groups)):
            out = groups == group
            found[out] = self.model(~out)(self.quantities[out])
        return found

    @cached_property
    def misses(self) -> np.ndarray:
        """For each cell: its error less the forecast of a model that never saw its family."""
        return self.errors - self.left_out(self.families) if self.known_misses is None else self.known_misses

    @cached_property
    def raw_ends(self) -> np.ndarray:
        """(N, 2): for each cell the quantiles of the misses of its NEAREST cells of other families."""
        found = np.empty((len(self.errors), 2))
        for family in sorted(set(self.families)):
            out = self.families == family
            model, misses = self.model(~out), self.misses[~out]
            for i in np.flatnonzero(out):
                found[i] = _ends(misses[model.alike(self.quantities[i])])
        return found

    def widening(self, kept: np.ndarray | None = None) -> float:
        """The least factor on the raw ends with which they cover COVERED of the cells, families left out in turn."""
        rows = np.ones(len(self.errors), bool) if kept is None else kept
        ends, misses = self.raw_ends[rows], self.misses[rows]
        for factor in WIDENINGS:
            if np.mean((factor * ends[:, 0] <= misses) & (misses <= factor * ends[:, 1])) >= COVERED:
                return float(factor)
        return float(WIDENINGS[-1])

    def coverage(self) -> float:
        """Share of cells within intervals whose widening was chosen without the cell's family."""
        ends, inside = self.raw_ends, np.zeros(len(self.errors), bool)
        for family in sorted(set(self.families)):
            out = self.families == family
            low, high = (self.widening(~out) * ends[out]).T
            inside[out] = (low <= self.misses[out]) & (self.misses[out] <= high)
        return float(inside.mean())


@dataclass(frozen=True, eq=False)
class Model:
    mean: np.ndarray
    deviation: np.ndarray
    known: np.ndarray  # standardised quantities of the cells
    middle: float
    weights: np.ndarray
    names: tuple[str, ...]
    pilot_weight: float | None = None

    @classmethod
    def fit(
        cls, quantities: np.ndarray, errors: np.ndarray, names: tuple[str, ...], pilot_weight: float | None = None
    ) -> "Model":
        seen = _faded(quantities, names)
        mean, deviation = seen.mean(0), np.maximum(seen.std(0), 1e-9)
        deviation[len(names) :] /= pilot_weight or 1.0
        known = (seen - mean) / deviation
        middle = float(errors.mean())
        weights = np.linalg.solve(_kernel(known, known) + RIDGE * np.eye(len(errors)), errors - middle)
        return cls(mean, deviation, known, middle, weights, names, pilot_weight)

    def __call__(self, quantities: np.ndarray) -> np.ndarray:
        z = self._standard(quantities)
        found = self.middle + _kernel(z, self.known) @ self.weights
        found = np.minimum(self._believed(found, dict(zip(self.names, quantities.T, strict=False))), HIGHEST)
        pilot = quantities[:, len(self.names) :]
        return found if self.pilot_weight is None or not pilot.size else np.minimum(found, pilot[:, 0])

    def _standard(self, quantities: np.ndarray) -> np.ndarray:
        return (_faded(quantities, self.names) - self.mean) / self.deviation

    @staticmethod
    def _believed(found: np.ndarray, known: dict[str, np.ndarray]) -> np.ndarray:
        if "least floor" in known:
            floor = known["least floor"]
            return np.where(floor >= BELIEVED, np.maximum(found, floor + math.log10(HELD)), found)
        weight = WORD * np.clip((known["floor"] - RISING[0]) / (RISING[1] - RISING[0]), 0.0, 1.0)
        weight = weight * (1.0 - known.get("parts not known", 0.0) * (1.0 - known["one layer"]))
        better = math.log10(TRAINED) * known["one layer"] * known["mlp encoder"]
        return (1 - weight) * found + weight * (known["floor"] + better)

    def nearest(self, quantities: np.ndarray) -> np.ndarray:
        z = self._standard(quantities)
        return np.argsort(((self.known - z) ** 2).sum(1), kind="stable")

    def alike(self, quantities: np.ndarray) -> np.ndarray:
        """The NEAREST cells of the same kind, from whose misses the interval is made."""
        order = self.nearest(quantities)
        if "floor" not in self.names:
            return order[:NEAREST]
        column = self.names.index("floor")
        floors = self.known[:, column] * self.deviation[column] + self.mean[column]
        return order[(floors[order] >= RISING[1]) == (quantities[column] >= RISING[1])][:NEAREST]


def _faded(quantities: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    if FADING not in names:
        return quantities
    seen, steps = quantities.copy(), quantities[..., names.index("steps")]
    seen[..., names.index(FADING)] *= np.interp(steps, np.log10(FADES[0]), FADES[1])
    return seen


def _kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    m, inner = a.shape[1], a @ b.T
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * inner
    return np.exp(-np.maximum(squares, 0.0) / (2 * m * REACH)) + LINEAR * inner / m


def _ends(misses: np.ndarray) -> tuple[float, float]:
    """An interval always holds its forecast."""
    low, high = np.quantile(misses, ((1 - COVERED) / 2, (1 + COVERED) / 2))
    return min(float(low), 0.0), max(float(high), 0.0)


@dataclass(frozen=True)
class Estimate:
    """log10 of the NMSE: the forecast and the ends of its interval; the cells that are most like the question."""

    middle: float
    low: float
    high: float
    alike: tuple[int, ...]


class Calibrated:
    """The model fitted to all cells, with the misses of the models that left families out; `names` are those of the
    theory's quantities, which it takes first."""

    def __init__(self, payload: dict[str, Any], pilot: bool) -> None:
        self.cells, self.names = payload["cells"], tuple(payload["quantities"])
        if pilot:
            self.cells = [cell for cell in self.cells if cell["pilot"]]  # some were trained without one
        if not self.cells:
            raise ValueError("it has no cells")
        lists = [[*cell["quantities"], *(cell["pilot"] if pilot else ()), cell["log10_nmse"]] for cell in self.cells]
        numbers = np.array([list(map(float, each)) for each in lists if len(each) == len(lists[0])])
        if len(numbers) < len(lists) or len(lists[0]) <= len(self.names) or not np.isfinite(numbers).all():
            raise ValueError("a cell has not the quantities that are named, as finite numbers")
        rows, errors = numbers[:, :-1], numbers[:, -1]
        families = np.array([str(cell["family"]) for cell in self.cells])
        misses = None
        if all("misses" in cell for cell in self.cells):  # not in those of earlier registrations
            misses = np.array([float(cell["misses"][pilot]) for cell in self.cells])
            if not np.isfinite(misses).all():
                raise ValueError("a cell has no finite misses")
        weight = payload.get("pilot_weight") if pilot else None
        if weight is not None and not 0 < float(weight) < math.inf:
            raise ValueError("the weight of a pilot is not a positive number")
        self.calibration = Calibration(rows, errors, families, self.names, misses, weight and float(weight))
        self.widening = payload["widening"]["pilot" if pilot else "theory"]
        self.model = self.calibration.model()

    def __call__(self, quantities: list[float]) -> Estimate:
        row = np.array(quantities)
        middle = float(self.model(row[None])[0])
        low, high = (self.widening * end for end in _ends(self.calibration.misses[self.model.alike(row)]))
        alike = tuple(int(i) for i in self.model.nearest(row)[:3])
        return Estimate(middle, middle + low, min(middle + high, HIGHEST), alike)


def shipped() -> str:
    """The calibration that comes with the package."""
    return files("infoflow.forecasts").joinpath("calibration.json").read_text(encoding="utf-8")


@cache
def calibrated(pilot: bool = False, text: str = "") -> Calibrated:
    """From the cells of a calibration file, without `text` those of the package: of theory's quantities alone, or with
    a pilot's."""
    try:
        return Calibrated(json.loads(text or shipped()), pilot)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise InfoFlowError(f"expected the text of a calibration, got another: {error}.") from None
