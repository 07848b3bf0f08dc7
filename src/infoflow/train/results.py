"""What a trained run leaves: `Result`, plain JSON, and the `Summary` of several."""

import hashlib
import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from infoflow.errors import InfoFlowError, unknown

if TYPE_CHECKING:
    from torch import nn

    from infoflow.train.store import Store

_STATUS = ("ok", "diverged")


@dataclass(frozen=True)
class Result:
    """One trained model. Its error is the first metric of its task on the validation samples (NMSE for a target: 1 is
    the best constant); None where it was not finite."""

    key: str  # of the run: `Run.key`
    identity: dict[str, Any]  # `Run.identity()`: target or task, arch, T, seed, recipe
    status: str  # "ok", or "diverged": frozen at its last finite weights
    best: float | None  # the least error seen, and the weights that are kept
    final: float | None
    curve: list[float | None]  # the error at each evaluation
    curve_steps: list[int]
    steps: int  # of the recipe
    diverged_at: int | None  # step of the evaluation that found it frozen
    seconds: float  # wall clock of the stack it was trained in
    stacked: int  # models in that stack
    choice: dict[str, Any]  # what the engine chose: device, kernel, stack, workers, threads
    rollbacks: int = 0  # times it returned to its best weights
    tried: list[float | None] = field(default_factory=list)  # least error of each start, where there were several
    measure: str = "nmse"  # the name of the error
    baseline: float | None = 1.0  # what the best constant answer reaches in it, where that is known
    metrics: dict[str, list[float | None]] = field(default_factory=dict)  # the other metrics at each evaluation
    kept: dict[str, Any] = field(default_factory=dict)  # what else the task keeps of a model
    model: "nn.Module | None" = field(default=None, repr=False, compare=False)
    store: "Store | None" = field(default=None, repr=False, compare=False)

    @property
    def seed(self) -> int:
        return int(self.identity["seed"])

    @property
    def collapsed(self) -> bool:
        """Whether it had learned (an error below half the best constant's) and ends as a constant (above 0.9 of it):
        the rate was too high for it."""
        if self.best is None or self.baseline is None or self.unlearned:
            return False
        return self.final is None or self.final > 0.9 * self.baseline

    @property
    def unlearned(self) -> bool:
        """Whether it never came below half the error of the best constant (for NMSE, half the labels' variance)."""
        return self.best is None or (self.baseline is not None and self.best >= 0.5 * self.baseline)

    def curve_of(self, name: str) -> list[float | None]:
        """A metric at each evaluation, by its name."""
        if name == self.measure:
            return self.curve
        if name not in self.metrics:
            raise unknown("metric", name, [self.measure, *self.metrics])
        return self.metrics[name]

    def network(self) -> Any:
        """The model at its best evaluation, in the task's own units."""
        if self.model is not None:
            return self.model
        if self.store is not None:
            return self.store.network(self.key)
        raise InfoFlowError(f"expected the weights of run {self.key}, none were kept; train with keep_weights=True.")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON with a checksum over all of it."""
        plain = {name: getattr(self, name) for name in PLAIN}
        return {**plain, CHECKSUM: checksum(plain)}

    @classmethod
    def from_json(cls, payload: Any, store: "Store | None" = None) -> "Result":
        """Read back; anything but the fields of a result is refused, and one that changed since it was written. Those
        with a default, and the checksum of a result from before there was one, may be absent."""
        if not isinstance(payload, dict) or not set(NEEDED) <= set(payload) - {CHECKSUM} <= set(PLAIN):
            raise InfoFlowError(f"expected the fields {', '.join(PLAIN)}")
        stated = payload.pop(CHECKSUM, None)
        if stated is not None and stated != checksum(payload):
            raise InfoFlowError("expected the checksum of a result to be that of its fields, it is not")
        result = cls(**payload, store=store)
        if not isinstance(result.metrics, dict) or not isinstance(result.kept, dict):
            raise InfoFlowError("expected a result's fields to have their types")
        curves = [result.curve, *result.metrics.values()]
        numbers = [result.best, result.final, result.seconds, result.baseline, *_list(result.tried)]
        numbers += [value for curve in curves for value in _list(curve)]
        plain = isinstance(result.key, str) and isinstance(result.identity, dict) and result.status in _STATUS
        whole = [result.steps, result.stacked, result.rollbacks, *_list(result.curve_steps)]
        if not (plain and all(_number(x) for x in numbers) and all(type(x) is int for x in whole)):
            raise InfoFlowError("expected a result's fields to have their types")
        if any(len(curve) != len(result.curve_steps) for curve in curves) or not isinstance(result.choice, dict):
            raise InfoFlowError("expected a curve with a step for each value")
        return result


CHECKSUM = "checksum"
PLAIN = [entry.name for entry in fields(Result) if entry.name not in ("model", "store")]
NEEDED = [e.name for e in fields(Result) if e.default is MISSING and e.default_factory is MISSING]


@dataclass(frozen=True)
class Summary:
    """Least error over models: those without a finite value are counted as failed and left out."""

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
    """Mean, median and quartiles of the least error; unfinished runs (None) are not counted at all.

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


def checksum(plain: dict[str, Any]) -> str:
    """Of plain JSON values, however they are ordered and indented."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:24]


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [object()]


def _number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value))
