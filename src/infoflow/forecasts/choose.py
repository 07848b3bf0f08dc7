"""Which architecture to train: the ones of least forecast error within a budget of parameters.

Forecasts of families that the model never saw are off by a factor of about 2 in the middle, so of two forecasts that
differ by less neither is the better one. Among those within ALIKE of the least, the first is the one with the fewest
layers, which trains soonest, and of these the one with the most heads, which luck harms least.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from infoflow import arguments
from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.forecasts.forecast import Forecast, forecast
from infoflow.progress import Progress
from infoflow.report.html import Shown
from infoflow.targets import PositionSum, Target
from infoflow.targets.named import TargetLike, target_of
from infoflow.train.recipe import Recipe

MOST = 15  # candidates that are forecast
ALIKE = 2.0  # times the least forecast: nothing is said by a smaller difference
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
            f"within {ALIKE:g} times the least forecast: fewest layers first, then most heads",
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
    """Their numbers, the one to train first: forecasts within ALIKE of the least by layers and heads, then the rest."""
    least = min(forecasts)

    def place(i: int) -> tuple[bool, int, int, float]:
        alike = forecasts[i] <= ALIKE * least
        return not alike, alike * shapes[i].layers, -alike * sum(shapes[i].heads), forecasts[i]

    return sorted(range(len(forecasts)), key=place)


def candidates(target: Target, T: int, budget: int, layers: int) -> Iterator[Architecture]:
    """Heads in each layer from one to two more than there are terms, few layers first; fewer heads in later layers are
    left to `plan` without a forecast."""
    terms = min(len(target.terms), 6)
    positions = "additive" if any(isinstance(term, PositionSum) for term in target.terms) else "none"
    for count in range(1, terms + 3):
        for depth in range(1, layers + 1):
            arch = _largest(target, T, budget, (count,) * depth)
            if arch is not None:
                yield arch.with_(positions=positions)


def _largest(target: Target, T: int, budget: int, heads: tuple[int, ...]) -> Architecture | None:
    """The largest head dimension with a width of WIDTH_OVER_EMBED times the embedding, then the widest that fits."""
    for size in HEAD_DIMS:
        embed = tuple(size * h for h in heads)
        for width in WIDTHS:
            arch = Architecture(heads, embed, (width,) * len(heads))
            extra = T * embed[0] if any(isinstance(term, PositionSum) for term in target.terms) else 0
            if (
                width >= min(WIDTH_OVER_EMBED * embed[0], 64)
                and arch.parameters(target.dim, target.outputs) + extra <= budget
            ):
                return arch
    return None


def _candidate(made: Forecast, target: Target) -> Candidate:
    count = made.arch.parameters(target.dim, target.outputs, made.T)
    return Candidate(str(made.arch), count, made.nmse, made.low, made.high, made.parts.floor)
