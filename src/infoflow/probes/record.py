"""Recordings: what every attention layer of a model saw, streamed one layer of one batch at a time.

    recording = record(model, inputs)            # nothing has run yet
    recording.feed(consumer, ...)                # runs the model; each consumer is called with every Step
    recording.save(folder); load(folder)         # the same stream from disk, without the model

A consumer is any function of a `Step`. Statistics are consumers with a state; several share one pass. A recording can
be fed again: it runs (or reads) again, and holds the inputs and one layer of one batch, nothing more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from infoflow.arguments import shown
from infoflow.errors import InfoFlowError
from infoflow.files import write_json
from infoflow.nn import Transformer
from infoflow.nn import files as nn_files
from infoflow.probes.adapters import heads_of, watched
from infoflow.probes.tap import Step, Tap
from infoflow.reading import json_of

Consumer = Callable[[Step], None]


@dataclass
class Batch:
    """Documents that run together. `inputs` are the model's keyword arguments, or ("X", tensor) for one positional."""

    inputs: dict[str, Tensor]
    shown: Bool[Tensor, "B T"] | None = None  # False at padding
    sinks: Bool[Tensor, "B T"] | None = None  # first and separator tokens, where the input is language
    kinds: Int[Tensor, "B T"] | None = None  # equal numbers for tokens of one kind, where vectors hold more than that

    @cached_property
    def ids(self) -> Int[Tensor, "B T"] | None:
        """Equal numbers for equal tokens; None where the input is neither vectors nor token numbers."""
        if self.kinds is not None:
            return self.kinds
        if "input_ids" in self.inputs:
            return self.inputs["input_ids"]
        X = self.inputs.get("X")
        if X is None or not X.is_floating_point():
            return X
        return None if X.ndim != 3 else torch.unique(X.flatten(0, 1), dim=0, return_inverse=True)[1].view(X.shape[:2])

    @property
    def size(self) -> int:
        return len(next(iter(self.inputs.values())))

    def call(self, model: nn.Module) -> Any:
        return model(self.inputs["X"]) if "X" in self.inputs else model(**self.inputs)

    def rows(self, keep: slice) -> "Batch":
        cut = {name: value[keep] for name, value in self.inputs.items()}
        return Batch(cut, *(None if x is None else x[keep] for x in (self.shown, self.sinks, self.kinds)))

    def to(self, device: torch.device | str) -> "Batch":
        moved = {name: value.to(device) for name, value in self.inputs.items()}
        return Batch(moved, *(None if x is None else x.to(device) for x in (self.shown, self.sinks, self.kinds)))


def as_batches(inputs: Any) -> list[Batch]:
    """A tensor, a mapping of tensors, a Batch, or a sequence of these."""
    if isinstance(inputs, (Tensor, Batch, Mapping)):
        inputs = [inputs]
    if isinstance(inputs, str) or not isinstance(inputs, Iterable):
        raise InfoFlowError(f"expected tensors, or mappings of tensors, to run, got {shown(inputs)}.")
    batches = [_as_batch(item) for item in inputs]
    if not batches or any(not batch.inputs or batch.size == 0 for batch in batches):
        raise InfoFlowError("expected at least one document to run, got none; give a non-empty input.")
    return batches


def _as_batch(item: Any) -> Batch:
    if isinstance(item, Batch):
        return item
    if isinstance(item, Tensor):
        return Batch({"X": item})
    if isinstance(item, Mapping):
        inputs = {name: value for name, value in item.items() if isinstance(value, Tensor)}
        mask = inputs.get("attention_mask")
        return Batch(inputs, None if mask is None else mask.bool())
    raise InfoFlowError(f"expected a tensor, a mapping of tensors or a Batch, got {type(item).__name__}.")


class Recording:
    """A stream of steps from a live model."""

    def __init__(self, model: nn.Module, batches: list[Batch]) -> None:
        self.model, self.batches = model, batches
        self.heads = heads_of(model)
        self.documents = sum(batch.size for batch in batches)

    def feed(self, *consumers: Consumer) -> None:
        """Run the model over all batches, without gradients; each consumer sees every step, in order."""
        with torch.no_grad():
            for steps in self.passes():
                steps(*consumers)

    def passes(self, edit: Any = None) -> Iterator[Callable[..., Any]]:
        """One callable per batch: `steps(*consumers)` runs that batch and returns the model's output."""
        tap = Tap(edit)
        first = self.batches[0].rows(slice(0, 1))
        with watched(self.model, tap, lambda: first.call(self.model)):
            document = 0
            for batch in self.batches:
                yield _pass(self.model, tap, batch, document)
                document += batch.size

    def save(self, folder: str | Path) -> Path:
        """One safetensors file per step, then `recording.json`: a folder without that is no recording."""
        path = Path(folder)
        count = 0

        def write(step: Step) -> None:
            nonlocal count
            _write_step(path / f"step-{count:06d}.safetensors", step)
            count += 1

        self.feed(write)
        header = {"format": 1, "heads": list(self.heads), "documents": self.documents, "steps": count}
        write_json(path / "recording.json", header)
        return path


@dataclass
class SavedRecording:
    """A stream of steps from disk."""

    folder: Path
    heads: tuple[int, ...]
    documents: int
    steps: int

    def feed(self, *consumers: Consumer) -> None:
        for number in range(self.steps):
            step = nn_files.load(self.folder / f"step-{number:06d}.safetensors")
            if not isinstance(step, Step) or step.layer >= len(self.heads):
                raise InfoFlowError(f"expected step {number} of a recording in {self.folder}, got something else.")
            for consumer in consumers:
                consumer(step)


AnyRecording = Recording | SavedRecording


@dataclass
class Keep:
    """A consumer that keeps every step: for small models, and for those who want the tensors themselves."""

    steps: list[Step] = field(default_factory=list)

    def __call__(self, step: Step) -> None:
        self.steps.append(step)


def record(model: nn.Module, inputs: Any) -> Recording:
    """A recording of `model` on `inputs`: X (B, T, d), a mapping with `input_ids`, a `Batch`, or a list of these.

    Works for `infoflow.nn.Transformer`, modules with `nn.MultiheadAttention` inside, and Hugging Face models.
    """
    return Recording(model, as_batches(inputs))


def load(folder: str | Path) -> SavedRecording:
    """A recording saved by `Recording.save`."""
    file = Path(folder) / "recording.json"
    try:
        header = json_of(file, "the header of a recording")
        heads = tuple(int(h) for h in header["heads"])
        documents, steps, version = (int(header[name]) for name in ("documents", "steps", "format"))
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise InfoFlowError(f"expected a recording in {folder}, could not read {file.name} ({error!r}).") from None
    if version != 1:
        raise InfoFlowError(
            f"expected a recording of format 1 in {folder}, got {version}; use the version that wrote it."
        )
    return SavedRecording(Path(folder), heads, documents, steps)


def batched(inputs: Iterable[Tensor], size: int) -> list[Batch]:
    """Cut tensors of documents into batches of at most `size`."""
    return [Batch({"X": part}) for tensor in inputs for part in tensor.split(size)]


def _pass(model: nn.Module, tap: Tap, batch: Batch, document: int) -> Callable[..., Any]:
    def run(*consumers: Consumer) -> Any:
        def watch(layer: int, found: dict[str, Any]) -> None:
            step = Step(layer=layer, document=document, **found)
            _describe(step, model, batch)
            for consumer in consumers:
                consumer(step)

        tap.watch = watch
        return batch.call(model)

    return run


def _describe(step: Step, model: nn.Module, batch: Batch) -> None:
    """Which queries count, which keys are sinks, and the tokens where they are vectors."""
    Q, K = step.weights.shape[-2:]
    if batch.shown is not None and batch.shown.shape[1] == Q:
        step.asked = batch.shown
    if batch.sinks is not None and batch.sinks.shape[1] == K:
        step.sinks = batch.sinks
    if batch.ids is not None and batch.ids.shape[1] == K:
        step.ids = batch.ids
    if isinstance(model, Transformer):
        step.tokens = batch.inputs["X"]
        if model.config.cls and Q > 1:  # the CLS row is no token: only the last layer, where it alone asks, counts it
            step.asked = torch.arange(Q, device=step.weights.device).expand(len(step.weights), Q) < K


_TENSORS = [f.name for f in fields(Step) if f.name not in ("layer", "document", "scale")]


def _write_step(path: Path, step: Step) -> None:
    tensors = {name: getattr(step, name) for name in _TENSORS if getattr(step, name) is not None}
    nn_files.write(path, "recording", tensors, {"layer": step.layer, "document": step.document, "scale": step.scale})


def step_from_saved(tensors: dict[str, Tensor], header: dict[str, Any]) -> Step:
    """The step of one saved file, checked: the shapes must fit each other."""
    extra = set(tensors) - set(_TENSORS)
    missing = {"before", "after", "q", "k", "v", "weights"} - set(tensors)
    if extra or missing:
        raise InfoFlowError(
            f"expected the tensors of a recorded step, got unknown {sorted(extra)}, missing {sorted(missing)}."
        )
    if any(not isinstance(header.get(name), int) for name in ("layer", "document")):
        raise InfoFlowError("expected layer and document numbers in the header of a recorded step, got none.")
    scale = header.get("scale")
    if not isinstance(scale, (int, float)):
        raise InfoFlowError(f"expected a number for scale in the header of a recorded step, got {scale!r}.")
    step = Step(layer=header["layer"], document=header["document"], scale=float(scale), **_whole(tensors))
    B, h, Q, K = step.weights.shape if step.weights.ndim == 4 else (0, 0, 0, 0)
    if (
        step.q.shape[:3] != (B, h, Q)
        or step.k.shape[:3] != (B, h, K)
        or step.v.shape[:3] != (B, h, K)
        or step.after.shape[:2] != (B, Q)
        or step.before.ndim != 3
        or step.layer < 0
        or step.document < 0
    ):
        raise InfoFlowError("expected tensors of one batch in a recorded step, got shapes that do not fit each other.")
    return step


def _whole(tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensors.get(name) for name in _TENSORS}
