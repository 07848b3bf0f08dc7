"""What a trained run leaves: `Result`, plain JSON, and the `Summary` of several."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from infoflow.errors import InfoFlowError

if TYPE_CHECKING:
    from infoflow.nn import Transformer
    from infoflow.train.store import Store

_STATUS = ("ok", "diverged")


@dataclass(frozen=True)
class Result:
    """One trained model. Errors are validation NMSE: 1 is the best constant; None where it was not finite."""

    key: str  # of the run: `Run.key`
    identity: dict[str, Any]  # `Run.identity()`: target, arch, T, seed, recipe
    status: str  # "ok", or "diverged": frozen at its last finite weights
    best: float | None  # the least NMSE seen, and the weights that are kept
    final: float | None
    curve: list[float | None]  # NMSE at each evaluation
    curve_steps: list[int]
    steps: int  # of the recipe
    diverged_at: int | None  # step of the evaluation that found it frozen
    seconds: float  # wall clock of the stack it was trained in
    stacked: int  # models in that stack
    choice: dict[str, Any]  # what the engine chose: device, kernel, stack, workers, threads
    rollbacks: int = 0  # times it returned to its best weights
    tried: list[float | None] = field(default_factory=list)  # best NMSE of each start, where there were several
    model: "Transformer | None" = field(default=None, repr=False, compare=False)
    store: "Store | None" = field(default=None, repr=False, compare=False)

    @property
    def seed(self) -> int:
        return int(self.identity["seed"])

    @property
    def collapsed(self) -> bool:
        """Whether it had learned (NMSE below 1/2) and ends as a constant (above 0.9): the rate was too high for it."""
        return self.best is not None and self.best < 0.5 and (self.final is None or self.final > 0.9)

    @property
    def unlearned(self) -> bool:
        """Whether it never came below half the variance of the labels."""
        return self.best is None or self.best >= 0.5

    def network(self) -> "Transformer":
        """The model at its best evaluation, in the target's own units."""
        if self.model is not None:
            return self.model
        if self.store is not None:
            return self.store.network(self.key)
        raise InfoFlowError(f"expected the weights of run {self.key}, none were kept; train with keep_weights=True.")

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in PLAIN}

    @classmethod
    def from_json(cls, payload: Any, store: "Store | None" = None) -> "Result":
        """Read back; anything but the fields of a result is refused."""
        if not isinstance(payload, dict) or {"rollbacks", "tried", *payload} != set(PLAIN):
            raise InfoFlowError(f"expected the fields {', '.join(PLAIN)}")
        result = cls(**payload, store=store)
        numbers = [result.best, result.final, result.seconds, *_list(result.curve), *_list(result.tried)]
        plain = isinstance(result.key, str) and isinstance(result.identity, dict) and result.status in _STATUS
        whole = [result.steps, result.stacked, result.rollbacks, *_list(result.curve_steps)]
        if not (plain and all(_number(x) for x in numbers) and all(type(x) is int for x in whole)):
            raise InfoFlowError("expected a result's fields to have their types")
        if len(result.curve) != len(result.curve_steps) or not isinstance(result.choice, dict):
            raise InfoFlowError("expected a curve with a step for each value")
        return result


PLAIN = [entry.name for entry in fields(Result) if entry.name not in ("model", "store")]


@dataclass(frozen=True)
class Summary:
    """Best validation NMSE over models: those without a finite value are counted as failed and left out."""

    models: int
    failed: int  # diverged, or never finite
    unlearned: int  # never learned; their best value still enters
    collapsed: int  # learned, then fell back to a constant; their best value still enters
    mean: float | None
    median: float | None
    quartiles: tuple[float, float] | None
    best: float | None
    worst: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def quartiles_text(self) -> str:
        return "-" if self.quartiles is None else "{:.2e} .. {:.2e}".format(*self.quartiles)


def summary(results: Iterable[Result | None]) -> Summary:
    """Mean, median and quartiles of the best NMSE; unfinished runs (None) are not counted at all.

    A diverged model counts as failed; its best value before that still enters the statistics when it is finite.
    """
    found = [result for result in results if result is not None]
    values = sorted(result.best for result in found if result.best is not None)
    failed = sum(result.status != "ok" or result.best is None for result in found)
    unlearned = sum(result.unlearned for result in found)
    collapsed = sum(result.collapsed for result in found)
    if not values:
        return Summary(len(found), failed, unlearned, collapsed, None, None, None, None, None)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    middle = (statistics.fmean(values), statistics.median(values), (low, high))
    return Summary(len(found), failed, unlearned, collapsed, *middle, values[0], values[-1])


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [object()]


def _number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value))
