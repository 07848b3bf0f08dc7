"""Which architecture to train: the ones of least forecast error within a budget of parameters.

Forecasts of families that the model never saw are off by a factor of about 2 in the middle, so of two forecasts that
differ by less neither is the better one. Among those within ALIKE of the least, the first is the one with the most
heads in its first two layers, and of these the one with the fewest layers. On trained cells whose families were left
out this chose better than the least forecast, and than layers or all heads taken first (docs/forecast_record.md). Where
the order of the tokens matters, all candidates have a position code.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from infoflow import arguments
from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.forecasts.forecast import Forecast, forecast
from infoflow.progress import Progress
from infoflow.report.html import Shown
from infoflow.targets import Target
from infoflow.targets.named import TargetLike, target_of
from infoflow.train.recipe import Recipe

MOST = 15  # candidates that are forecast
ALIKE = 2.5  # times the least forecast: nothing is said by a smaller difference
ORDERED = 1e-6  # a value that changes by more than this share when tokens change places asks for their order
HEAD_DIMS = (12, 8, 6, 4, 3, 2, 1)
WIDTHS = (160, 128, 96, 64, 48, 32, 24, 16, 8)
WIDTH_OVER_EMBED = 2  # a width below this many times the embedding waits for a smaller head


@dataclass(frozen=True)
class Candidate:
    arch: str
    parameters: int
    nmse: float
    low: float
    high: float
    floor: float


@dataclass(frozen=True, repr=False)
class Choice(Shown):
    """Candidates within the budget, the one to train first (`preferred`)."""

    target: str
    T: int
    steps: int
    budget: int
    candidates: tuple[Candidate, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.target}  T={self.T}  {self.steps:,} steps  at most {self.budget:,} parameters",
            f"within {ALIKE:g} times the least forecast: most heads in the first two layers first, then fewest layers",
            f"{'forecast':>9} {'eight in ten':>19} {'floor':>8} {'parameters':>11}  architecture",
        ]
        for found in self.candidates:
            band = f"{found.low:.1e}..{found.high:.1e}"
            lines.append(f"{found.nmse:9.1e} {band:>19} {found.floor:8.0e} {found.parameters:11,}  {found.arch}")
        return "\n".join(lines)


def choose(target: TargetLike, T: int, parameters: int, recipe: Recipe | None = None, layers: int = 3) -> Choice:
    """Forecast up to MOST architectures of at most `parameters` parameters and put the one to train first.

    For each number of layers and heads a layer the largest head dimension and width that fit are taken.
    """
    target, recipe = target_of(target), recipe or Recipe()
    budget, layers = arguments.integer("parameters", parameters), arguments.integer("layers", layers)
    tried = list(candidates(target, T, budget, layers))
    if not tried:
        raise InfoFlowError(f"expected a budget that one head fits in, got {budget} parameters; allow more.")
    tried, found = tried[:MOST], []
    with Progress("forecasts", len(tried)) as bar:
        for arch in tried:
            found.append(_candidate(forecast(target, arch, T, recipe), target))
            bar.update(len(found), str(arch))
    ranked = preferred([candidate.nmse for candidate in found], tried)
    return Choice(target.spelling, T, recipe.total_steps, budget, tuple(found[i] for i in ranked))


def preferred(forecasts: Sequence[float], shapes: Sequence[Architecture]) -> list[int]:
    """Their numbers, the one to train first: forecasts within ALIKE of the least by heads and layers, then the rest."""
    least = min(forecasts)

    def place(i: int) -> tuple[bool, int, int, float]:
        alike = forecasts[i] <= ALIKE * least
        return not alike, -alike * sum(shapes[i].heads[:2]), alike * shapes[i].layers, forecasts[i]

    return sorted(range(len(forecasts)), key=place)


def candidates(target: Target, T: int, budget: int, layers: int) -> Iterator[Architecture]:
    """Heads in each layer from one to two more than there are terms, few layers first; fewer heads in later layers are
    left to `plan` without a forecast."""
    terms = min(len(target.terms), 6)
    positions = "additive" if ordered(target, T) else "none"
    for count in range(1, terms + 3):
        for depth in range(1, layers + 1):
            arch = _largest(target, T, budget, (count,) * depth, positions)
            if arch is not None:
                yield arch


def ordered(target: Target, T: int) -> bool:
    """Whether the target asks where a token stands: its values on samples change when the tokens change places."""
    X = target.sample(64, T, seed=0)
    other = np.random.default_rng(0).permuted(np.broadcast_to(np.arange(T), X.shape[:2]), axis=1)
    here, there = (np.asarray(target(each)) for each in (X, np.take_along_axis(X, other[..., None], axis=1)))
    return not np.allclose(here, there, rtol=ORDERED, atol=ORDERED * float(np.abs(here).max()))


def _largest(target: Target, T: int, budget: int, heads: tuple[int, ...], positions: str) -> Architecture | None:
    """The largest head dimension with a width of WIDTH_OVER_EMBED times the embedding, then the widest that fits."""
    for size in HEAD_DIMS:
        embed = tuple(size * h for h in heads)
        for width in WIDTHS:
            arch = Architecture(heads, embed, (width,) * len(heads)).with_(positions=positions)
            wide = width >= min(WIDTH_OVER_EMBED * embed[0], 64)
            if wide and arch.parameters(target.dim, target.outputs, T) <= budget:
                return arch
    return None


def _candidate(made: Forecast, target: Target) -> Candidate:
    count = made.arch.parameters(target.dim, target.outputs, made.T)
    return Candidate(str(made.arch), count, made.nmse, made.low, made.high, made.parts.floor)
