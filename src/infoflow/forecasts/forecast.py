"""forecast: the error that training will end at, before training, with an interval and its parts."""

import math
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.forecasts.cells import EPOCHS, USUAL, WIDTHS
from infoflow.forecasts.model import Calibrated, calibrated
from infoflow.forecasts.pilots import pilot_quantities, run_pilot
from infoflow.forecasts.proved import Proved, proved_floor
from infoflow.forecasts.quantities import PILOT_NAMES, find_floors, quantities
from infoflow.forecasts.reads import Floors
from infoflow.report.html import Shown
from infoflow.targets import Target
from infoflow.targets.named import TargetLike, target_of
from infoflow.train.recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUCK = 4.0  # a start is stuck if it ends this many times above the least floor ...
LEARNT = 0.01  # ... and above this error
SEEN = 1e-3  # a floor below this is none: the search does not see further
VARIED = ("epochs", "steps", "encoder", "encoder_width", "data_seed", "validation", "evaluate_every")  # by the cells


@dataclass(frozen=True)
class Luck:
    """Share of the starts that end in a worse minimum, and where they end (None: none did)."""

    share: float
    ends: float | None


@dataclass(frozen=True)
class Parts:
    """Where the forecast error comes from, as NMSE: what heads cannot fetch, steps sharpen, the width express."""

    floor: float  # least error found in the reduced problem; below SEEN it only says that there is no large floor
    sharpness: float  # what the most steps of the calibration would still take away
    readout: float  # what the largest width of the calibration would take away
    luck: Luck
    proved: Proved | None = None  # a floor that no network of this class goes below

    @property
    def has_floor(self) -> bool:
        return self.floor >= SEEN


@dataclass(frozen=True, repr=False)
class Forecast(Shown):
    """The median NMSE over seeds that training is expected to end at, with an interval for eight in ten."""

    target: str
    arch: Architecture
    T: int
    steps: int
    nmse: float
    low: float
    high: float
    mode: str  # "theory": no step of this network was taken; "pilot": 5% of its steps were
    parts: Parts
    missed: tuple[float, ...]  # share of each term's variance that the best reads found do not tell
    curve: tuple[tuple[int, float, float, float], ...]  # steps, and the forecast with its interval there
    alike: tuple[str, ...]  # the calibration cells most like this question, with the error they ended at
    outside: tuple[str, ...]  # how the question differs from all that was calibrated
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"arch": str(self.arch)}

    def __str__(self) -> str:
        parts, luck = self.parts, self.parts.luck
        lines = [
            f"{self.target}  {self.arch}  T={self.T}  {self.steps:,} steps" + ", with a pilot" * (self.mode == "pilot"),
            f"forecast  NMSE {self.nmse:.2g}, eight in ten between {self.low:.2g} and {self.high:.2g}",
            _floor_line(parts),
            f"sharpness {parts.sharpness:.2g} of the forecast would go with {MOST_STEPS:,} steps",
            f"read-out  {parts.readout:.2g} of it would go with width {max(WIDTHS)}",
        ]
        if luck.ends is None:
            lines.append("luck      all starts of the reduced problem end alike")
        else:
            lines.append(f"luck      {luck.share:.0%} of the starts end in a worse minimum, near {luck.ends:.2g}")
        if parts.proved is not None:
            lines.append(f"proved    at least {parts.proved.bound:.3g}: {parts.proved.reason}")
        lines += [f"like      {cell}" for cell in self.alike]
        lines += [f"careful   {word}" for word in self.outside]
        return "\n".join(lines)

    def plot(self, path: str | Path) -> list[Path]:
        """The forecast against steps with its band: writes `path.svg` and `path.png`."""
        from infoflow.forecasts.figures import forecast_figure
        from infoflow.report.style import save

        return save(forecast_figure(self), Path(path))

    def figure(self) -> "Figure":
        """The picture a notebook shows below the text."""
        from infoflow.forecasts.figures import forecast_figure

        return forecast_figure(self)


def _floor_line(parts: Parts) -> str:
    if parts.has_floor:
        return f"floor     {parts.floor:.2g}: no read-out behind these reads was found to do better"
    return f"floor     none found: these reads can do {parts.floor:.2g} or better, below which the search does not see"


MOST_STEPS = max(EPOCHS) * USUAL.steps_per_epoch


def forecast(
    target: TargetLike,
    arch: Architecture | str,
    T: int,
    recipe: Recipe | None = None,
    pilot: bool = False,
    device: str = "cpu",
) -> Forecast:
    """What `fit` with this recipe will reach. Without `pilot` no step of the network is trained.

    Floors come from the reduced problem of `reads.py` on samples of the target; how they, the sizes and the steps
    combine is calibrated on the cells of `model.py`. With `pilot`, four seeds are trained for 5% of the steps, and
    their errors join the quantities. Unstated sizes are filled in as `fit` fills them.
    """
    began = time.monotonic()
    target, recipe = target_of(target), recipe or Recipe()
    arch = checked(target, arch, T)
    found = find_floors(target, arch, T, recipe.encoder == "mlp")
    errors = run_pilot(target, arch, T, recipe, device) if pilot else None
    made = from_floors(found, target, arch, T, recipe, errors)
    return replace(made, seconds=time.monotonic() - began)


def checked(target: Target, arch: Architecture | str, T: int) -> Architecture:
    """The architecture with its sizes filled in, or one sentence about why it has no forecast."""
    arch = Architecture.of(arch).filled(len(target.terms))
    target.check_length(T)
    if arch.kv_heads is not None or arch.rotary:
        raise InfoFlowError(f"expected an architecture that `fit` trains, got {arch}; leave out kv_heads and rotary.")
    return arch


def from_floors(
    found: Floors,
    target: Target,
    arch: Architecture,
    T: int,
    recipe: Recipe,
    pilot: list[float] | None = None,
    calibration: str = "",
) -> Forecast:
    """The forecast that follows from floors (and a pilot's errors): what is left is arithmetic. Without the text of
    another calibration it is that of the package."""
    model = calibrated(pilot is not None, calibration)
    row = quantities(found, target, arch, T, recipe, model.names)
    row += pilot_quantities(pilot) if pilot is not None else []
    here = model(row)
    proved = proved_floor(target, arch, T, recipe.encoder == "mlp")
    least = proved.bound if proved is not None else 0.0
    nmse, low, high = (max(10**end, least) for end in (here.middle, here.low, here.high))
    return Forecast(
        target=target.spelling,
        arch=arch,
        T=T,
        steps=recipe.total_steps,
        nmse=nmse,
        low=low,
        high=high,
        mode="theory" if pilot is None else "pilot",
        parts=replace(_parts(found, row, nmse, model), proved=proved),
        missed=tuple(found.missed),
        curve=_curve(row, model) if pilot is None else (),
        alike=tuple(_told(model, i) for i in here.alike),
        outside=tuple(_outside(row, arch, recipe, model)),
        seconds=0.0,
    )


def _parts(found: Floors, row: list[float], nmse: float, model: Calibrated) -> Parts:
    sharper = 10 ** model(_changed(model, row, "steps", math.log10(MOST_STEPS))).middle
    wider = 10 ** model(_changed(model, row, "width", math.log10(max(WIDTHS)))).middle
    least = found.floor
    ends = found.sharp or found.ends  # a start that is only soft is not stuck
    stuck = sorted(end for end in ends if end > max(STUCK * min(ends), LEARNT))
    luck = Luck(len(stuck) / len(ends), stuck[len(stuck) // 2] if stuck else None)
    return Parts(least, max(nmse - sharper, 0.0), max(nmse - wider, 0.0), luck)


def _curve(row: list[float], model: Calibrated) -> tuple[tuple[int, float, float, float], ...]:
    points = []
    for epochs in (6, 10, 20, 40, 60, 120, 240):
        steps = epochs * USUAL.steps_per_epoch
        here = model(_changed(model, row, "steps", math.log10(steps)))
        points.append((steps, 10**here.middle, 10**here.low, 10**here.high))
    return tuple(points)


def _changed(model: Calibrated, row: list[float], name: str, value: float) -> list[float]:
    place = model.names.index(name)
    return [*row[:place], value, *row[place + 1 :]]


def _told(model: Calibrated, number: int) -> str:
    cell = model.cells[number]
    return f"{cell['target']} T={cell['T']} {cell['arch']}, {cell['epochs']} epochs: {10 ** cell['log10_nmse']:.2g}"


def _outside(row: list[float], arch: Architecture, recipe: Recipe, model: Calibrated) -> list[str]:
    """Quantities beyond those of all calibration cells, and options of the recipe that no cell varied."""
    least, most = model.calibration.quantities.min(0), model.calibration.quantities.max(0)
    words = [
        f"{name} is outside what was calibrated"
        for name, value, low, high in zip((*model.names, *PILOT_NAMES), row, least, most, strict=False)
        if not low - 0.02 <= value <= high + 0.02
    ]
    other = [
        f"{entry.name}={getattr(recipe, entry.name)} where the cells have {getattr(USUAL, entry.name)}"
        for entry in fields(Recipe)
        if entry.name not in VARIED and getattr(recipe, entry.name) != getattr(USUAL, entry.name)
    ]
    if arch.mask != "none":
        words.append("no cell has a mask")
    return [*words, *other]
