"""What a trained run leaves and where it is kept: `Result`, plain JSON, the `Summary` of several, and the `Store`.

A store is a folder in which every finished run is one JSON file named by its key:

    store.json                    the format; a store of another format is refused and left alone
    runs/KEY.json                 one finished run
    weights/KEY.safetensors       its best model, where weights are kept
    checkpoints/...               stacks on their way (see `checkpoint.py`)
    trained/...                   the calls that trained here: command, commit, versions, machine

Every file appears whole, by a rename, so a killed process leaves no half result, and any number of processes may write
at once: two of them that finish the same run write the same file. Nothing is made before the first result or
checkpoint, so a wrong call leaves no folder behind.
"""

import hashlib
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from infoflow import arguments
from infoflow.errors import InfoFlowError, JobError, unknown
from infoflow.files import remove_abandoned, write_json, write_record
from infoflow.nn import Transformer
from infoflow.nn.files import load
from infoflow.provenance import note
from infoflow.reading import json_of
from infoflow.report.html import Shown
from infoflow.train.run import key_of

FORMAT = 1
CHECKSUM = "checksum"
PARTS = ("runs", "weights", "checkpoints", "trained")  # folders of a store: files there are read, renamed and removed
_STATUS = ("ok", "diverged")
_FILE = re.compile(r"[0-9a-f]{24}\.json")  # a killed writer may leave temporary names: they are not results


@dataclass(frozen=True, repr=False)
class Result(Shown):
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
    test: float | None = None  # the error at `best` on samples that chose nothing, where the recipe draws some
    model: "nn.Module | None" = field(default=None, repr=False, compare=False)
    store: "Store | None" = field(default=None, repr=False, compare=False)

    @property
    def seed(self) -> int:
        """Of the run."""
        return int(self.identity["seed"])

    @property
    def score(self) -> float | None:
        """What is reported: the error on test samples where there are some, else the least validation error."""
        return self.best if self.test is None else self.test

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

    def __str__(self) -> str:
        name = self.identity.get("target") or self.identity.get("task", {}).get("name", "a task")
        best = "no finite error" if self.best is None else f"best {self.measure.upper()} {self.best:.2e}"
        return f"{name}, {self.identity.get('arch')}, seed {self.seed}: {best}, {self.status}"

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
        plain["curve_steps"] = _spaced(self.curve_steps)
        return {**plain, CHECKSUM: checksum(plain)}

    @classmethod
    def from_json(cls, payload: Any, store: "Store | None" = None) -> "Result":
        """Read back; anything but the fields of a result is refused, and one that changed since it was written."""
        if not isinstance(payload, dict) or set(payload) != {*PLAIN, CHECKSUM}:
            raise InfoFlowError(f"expected the fields {', '.join(PLAIN)} and {CHECKSUM}")
        if payload.pop(CHECKSUM) != checksum(payload):
            raise InfoFlowError("expected the checksum of a result to be that of its fields, it is not")
        payload["curve_steps"] = _steps(payload["curve_steps"], payload["curve"])
        result = cls(**payload, store=store)
        if not isinstance(result.metrics, dict) or not isinstance(result.kept, dict):
            raise InfoFlowError("expected a result's fields to have their types")
        curves = [result.curve, *result.metrics.values()]
        numbers = [result.best, result.final, result.test, result.seconds, result.baseline, *_list(result.tried)]
        numbers += [value for curve in curves for value in _list(curve)]
        plain = isinstance(result.key, str) and _identifies(result.identity) and result.status in _STATUS
        plain = plain and all(_name(name) for name in (result.measure, *result.metrics))
        whole = [result.steps, result.stacked, result.rollbacks, *_list(result.curve_steps)]
        whole += [0 if result.diverged_at is None else result.diverged_at]
        if not (plain and all(x is None or is_number(x) for x in numbers) and all(_count(x) for x in whole)):
            raise InfoFlowError("expected a result's fields to have their types")
        if any(len(curve) != len(result.curve_steps) for curve in curves) or not isinstance(result.choice, dict):
            raise InfoFlowError("expected a curve with a step for each value")
        return result


PLAIN = [entry.name for entry in fields(Result) if entry.name not in ("model", "store")]


@dataclass(frozen=True)
class Summary:
    """The score over models: those without a finite value are counted as failed and left out."""

    models: int
    failed: int  # diverged, or never finite
    unlearned: int  # never learned; their best value still enters
    collapsed: int  # learned, then fell back to a constant; their best value still enters
    mean: float | None
    median: float | None
    quartiles: tuple[float, float] | None
    best: float | None
    worst: float | None
    deviation: float | None = None  # standard, of one model

    def to_json(self) -> dict[str, Any]:
        """As a table row keeps it."""
        return asdict(self)

    def quartiles_text(self) -> str:
        """The middle half in words."""
        return "-" if self.quartiles is None else "{:.2e} .. {:.2e}".format(*self.quartiles)


def summary(
    results: Iterable[Result | None], score: Callable[[Result], float | None] = lambda result: result.score
) -> Summary:
    """Mean, median and quartiles of the score; unfinished runs (None) are not counted at all.

    A diverged model counts as failed; its best value before that still enters the statistics when it is finite.
    """
    found = [result for result in results if result is not None]
    values = sorted(value for result in found if (value := score(result)) is not None)
    failed = sum(result.status != "ok" or result.best is None for result in found)
    unlearned = sum(result.unlearned for result in found)
    collapsed = sum(result.collapsed for result in found)
    if not values:
        return Summary(len(found), failed, unlearned, collapsed, None, None, None, None, None)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    middle = (statistics.fmean(values), statistics.median(values), (low, high))
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Summary(len(found), failed, unlearned, collapsed, *middle, values[0], values[-1], deviation)


def checksum(plain: dict[str, Any]) -> str:
    """Of plain JSON values, however they are ordered and indented."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:24]


def _spaced(steps: list[int]) -> list[int] | dict[str, int]:
    """Steps at equal distances, as nearly all are, by the first and the distance; others as they are."""
    every = steps[1] - steps[0] if len(steps) > 1 else 0
    if every > 0 and steps == list(range(steps[0], steps[-1] + 1, every)):
        return {"first": steps[0], "every": every}
    return steps


def _steps(stored: Any, curve: Any) -> Any:
    """What `_spaced` wrote, a step for each value of the curve."""
    if not isinstance(stored, dict):
        return stored
    if set(stored) != {"first", "every"} or any(type(value) is not int for value in stored.values()):
        raise InfoFlowError("expected the steps of a curve as a list, or by their first and every")
    return [stored["first"] + stored["every"] * place for place in range(len(_list(curve)))]


def finite(value: float) -> float | None:
    """The number, or None where JSON has none for it."""
    return value if math.isfinite(value) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [object()]


def is_number(value: Any) -> bool:
    """Whether a value of JSON is a number that floating point can hold."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= arguments.LARGEST


def _name(value: Any) -> bool:
    """Whether it can be shown: a terminal obeys what cannot."""
    return isinstance(value, str) and value.isprintable()


def _identifies(identity: Any) -> bool:
    """Whether it has the fields of `Run.identity`."""
    if not isinstance(identity, dict) or not isinstance(identity.get("recipe"), dict):
        return False
    task = identity.get("task", {"name": identity.get("target")})
    named = isinstance(task, dict) and _name(task.get("name"))
    shaped = identity.get("arch", 0) is None or _name(identity.get("arch"))
    return named and shaped and _count(identity.get("T") or 0) and type(identity.get("seed")) is int


class Store:
    """A folder of finished runs, one file each, their weights and the checkpoints of unfinished ones."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._check()

    def _check(self) -> None:
        marker = self.folder / "store.json"
        if not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise InfoFlowError(f"expected a folder for the store, {self.folder} is a file; take another path.")
        for part in PARTS:
            if (self.folder / part).is_symlink():
                raise InfoFlowError(
                    f"expected the folder {part} inside the store {self.folder}, it is a link to elsewhere; put the "
                    "whole store there."
                )
        if not marker.exists():
            if any(not path.name.startswith(".") for path in self.folder.iterdir()):
                raise InfoFlowError(
                    f"expected a store or an empty folder, {self.folder} holds other files; take another path."
                )
            return
        found = _json(marker)
        found = found.get("format") if isinstance(found, dict) else None
        if found != FORMAT:
            raise InfoFlowError(
                f"expected a store of format {FORMAT}, {self.folder} has format {found!r}; use the version that wrote "
                "it or another folder."
            )

    def prepare(self) -> None:
        """Make the folder and its marker, before the first file is written."""
        try:
            if not (self.folder / "store.json").exists():
                write_json(self.folder / "store.json", {"format": FORMAT})
        except OSError as error:
            raise JobError(f"expected to write the store {self.folder}, could not ({error.strerror}).") from None

    def note_training(self) -> None:
        """Keep the record of this call, which has trained here."""
        try:
            note(self.folder)
        except OSError as error:
            raise JobError(f"expected to write the store {self.folder}, could not ({error.strerror}).") from None

    def tidy(self) -> None:
        """Remove what killed writers left half-written."""
        for part in PARTS:
            remove_abandoned(self.folder / part)

    @property
    def checkpoints(self) -> Path:
        """The folder of states on their way."""
        return self.folder / "checkpoints"

    def get(self, key: str, with_weights: bool = False) -> Result | None:
        """The finished run of this key, or None (also None when its weights are asked for and were not kept)."""
        path = self.folder / "runs" / f"{key}.json"
        if not path.exists() or (with_weights and not self._weights(key).exists()):
            return None
        try:
            result = Result.from_json(_json(path), self)
        except InfoFlowError as error:
            raise InfoFlowError(f"expected a result in {path} ({error}); remove the file to train it again.") from None
        if result.key != key:
            raise InfoFlowError(f"expected run {key} in {path}, got {result.key!r}; remove the file to train it again.")
        if key_of(result.identity) != key:
            raise InfoFlowError(
                f"expected run {key} in {path}, its identity is that of another; remove the file to train it again."
            )
        return result

    def put(self, result: Result, network: nn.Module | None = None) -> None:
        """Keep a finished run; its weights are written first, so a result never promises weights that are not there."""
        self.prepare()
        try:
            if network is not None:
                assert isinstance(network, Transformer)  # `fit_many` asks before it trains
                about = {**network.header, "run": result.identity, result.measure: result.best}
                stated = tensor_checksum(network.state_dict(), {**about, "config": network.config.to_json()})
                network.save(self._weights(result.key), **about, checksum=stated)
            write_record(self.folder / "runs" / f"{result.key}.json", result.to_json())
        except OSError as error:
            raise JobError(f"expected to write the store {self.folder}, could not ({error.strerror}).") from None

    def network(self, key: str) -> Transformer:
        """The best model of a finished run whose weights were kept."""
        if not self._weights(key).exists():
            raise InfoFlowError(
                f"expected the weights of run {key} in {self.folder}, none were kept; train with keep_weights=True."
            )
        try:
            network: Transformer = load(self._weights(key))
            stated = network.header.pop(CHECKSUM, None)
            about = {**network.header, "config": network.config.to_json()}
            if stated != tensor_checksum(network.state_dict(), about):
                path = self._weights(key)
                raise InfoFlowError(f"expected the weights in {path} as they were written, their checksum differs.")
        except InfoFlowError as error:
            raise InfoFlowError(f"{str(error).rstrip('.')}; remove that file to train the run again.") from None
        return network

    def keys(self) -> list[str]:
        """Of every finished run."""
        folder = self.folder / "runs"
        return sorted(p.stem for p in folder.iterdir() if _FILE.fullmatch(p.name)) if folder.is_dir() else []

    def results(self) -> list[Result]:
        """Everything finished, by key."""
        return [result for key in self.keys() if (result := self.get(key)) is not None]

    def _weights(self, key: str) -> Path:
        return self.folder / "weights" / f"{key}.safetensors"


def tensor_checksum(tensors: dict[str, Tensor], state: dict[str, Any]) -> str:
    """SHA-256 over plain JSON values and every tensor with its name, type and shape."""
    made = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        made.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        made.update(tensor.flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return made.hexdigest()


def _json(path: Path) -> Any:
    try:
        return json_of(path)
    except InfoFlowError:
        raise InfoFlowError(f"expected JSON in {path}, could not read it; the store is damaged there.") from None
