"""Effective information sets: which input positions really reach a state, from patterns and from gradients.

From patterns: I(t, 0) = {t}; I(t, l) = I(t, l-1) with I(s, l-1) of every key s whose weight in some head is at least
the threshold (the paper's update rule with measured keys). From gradients: the positions s whose gradient norm
|d <u, x'_l(t)> / d x_0(s)|, u a random direction, is at least the threshold times the largest. Both are measurements of
one model on some inputs. The framework's size for the labelled heads stands beside them as an estimate:

    size_l = min(T, size_{l-1} (1 + heads that fetch one key + 4 per top-k head)), T as soon as a head is global.

Where the model was made for a target, the sizes `predict` gives for the same architecture stand there too: also an
estimate, of what the framework thinks is enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.probes.intervals import ratio_interval
from infoflow.probes.modes import TOP, HeadMode
from infoflow.probes.record import AnyRecording, Recording
from infoflow.probes.tap import Step
from infoflow.verdicts.predict import Prediction


class PatternSets:
    """Consumer: the sets of the documents of the current batch, and their mean size per layer and document."""

    def __init__(self, layers: int, documents: int, threshold: float) -> None:
        self.threshold = threshold
        self.sizes = np.zeros((layers, documents))
        self.sets: Tensor | None = None  # (B, rows, T) of 0 and 1

    def __call__(self, step: Step) -> None:
        B, _, Q, K = step.weights.shape
        if step.layer == 0:
            rows = step.before.shape[1]
            self.sets = torch.eye(rows, K, device=step.weights.device).repeat(B, 1, 1)  # a CLS row starts empty
        assert self.sets is not None
        fetched = (step.weights >= self.threshold).any(1).to(self.sets)
        own = self.sets[:, -Q:] if Q == 1 else self.sets[:, :Q]
        self.sets = ((own + fetched @ self.sets[:, :K]) > 0).to(self.sets)
        asked = step.counted().to(self.sets)
        mean = (self.sets.sum(-1) * asked).sum(1) / asked.sum(1).clamp(min=1)
        self.sizes[step.layer, step.document : step.document + B] = mean.cpu().numpy()


def gradient_sizes(recording: Recording, threshold: float, seed: int = 0) -> np.ndarray:
    """Mean size of the gradient sets, (layers, documents): one query drawn per document."""
    sizes = np.zeros((len(recording.heads), recording.documents))
    generator = torch.Generator().manual_seed(seed)
    start = 0
    for number, leaf, states in _passes_with_gradients(recording):
        shown = recording.batches[number].shown
        B = leaf.shape[0]
        for layer, (after, keys) in enumerate(states):
            size = after.shape[1] if shown is None else shown.sum(1).clamp(max=after.shape[1]).cpu()
            query = (torch.rand(B, generator=generator) * size).long().to(after.device)
            direction = torch.randn(B, after.shape[-1], generator=generator).to(after)
            value = (after[torch.arange(B, device=after.device), query] * direction).sum()
            (slope,) = torch.autograd.grad(value, leaf, retain_graph=True)
            norm = slope[:, :keys].norm(dim=-1)  # a CLS row is no token
            if shown is not None and shown.shape == norm.shape:
                norm = norm * shown
            inside = norm >= threshold * norm.amax(-1, keepdim=True).clamp(min=1e-30)
            sizes[layer, start : start + B] = inside.sum(-1).cpu().numpy()
        start += B
    return sizes


def _passes_with_gradients(recording: Recording) -> Any:
    """Run each batch with a graph from the first layer's input to the state behind every attention."""
    from infoflow.probes.adapters import watched
    from infoflow.probes.tap import Tap

    tap, model = Tap(), recording.model
    leaves: list[Tensor] = []

    def entry(layer: int, stream: Tensor) -> Tensor:
        if layer > 0:
            return stream
        leaves.append(stream.detach().requires_grad_(True))
        return leaves[-1]

    first = recording.batches[0].rows(slice(0, 1))
    with watched(model, tap, lambda: first.call(model)):
        tap.entry = entry
        for number, batch in enumerate(recording.batches):
            states: list[tuple[Tensor, int]] = []
            leaves.clear()
            tap.watch = partial(_keep_state, states)
            with torch.enable_grad():
                batch.call(model)
            yield number, leaves[0], states


def _keep_state(states: list[tuple[Tensor, int]], layer: int, found: dict[str, Any]) -> None:
    states.append((found["after"], found["weights"].shape[-1]))


@dataclass(frozen=True)
class EffectiveSets:
    """Sizes per layer with intervals over documents; `estimate` is the framework's, labelled so."""

    threshold: float
    patterns: list[tuple[float, float, float]]
    gradients: list[tuple[float, float, float]] | None
    estimate: list[int] | None
    predicted: dict[str, Any] | None = None  # token_sets, cls_sets of `predict`, by layer

    def to_json(self) -> dict[str, Any]:
        def rows(values: list[tuple[float, float, float]] | None) -> Any:
            return None if values is None else [{"size": v, "interval": [low, high]} for v, low, high in values]

        return {
            "threshold": self.threshold,
            "patterns": rows(self.patterns),
            "gradients": rows(self.gradients),
            "estimate": self.estimate,
            "predicted": self.predicted,
            "estimate_is": "an estimate: the framework's update rule for the labelled heads, not a bound",
        }


def effective_sets(
    recording: AnyRecording,
    threshold: float = 0.1,
    modes: Sequence[HeadMode] | None = None,
    gradients: bool = True,
    prediction: Prediction | None = None,
) -> EffectiveSets:
    """Measured set sizes per layer; gradients need a live model, the estimate needs labels, `prediction` a target."""
    sets = PatternSets(len(recording.heads), recording.documents, threshold)
    longest = [0]
    recording.feed(sets, lambda step: longest.__setitem__(0, max(longest[0], step.weights.shape[-1])))
    slopes = None
    if gradients and isinstance(recording, Recording):
        slopes = _intervals(gradient_sizes(recording, threshold))
    estimate = None if modes is None else framework_sizes(modes, longest[0])
    predicted = None
    if prediction is not None:
        flow = prediction.flow
        predicted = {"token_sets": list(flow.token_sets), "cls_sets": list(flow.cls_sets), "kind": flow.kind}
    return EffectiveSets(threshold, _intervals(sets.sizes), slopes, estimate, predicted)


def framework_sizes(modes: Sequence[HeadMode], T: int) -> list[int]:
    """The size of the framework's set after each layer, for heads with these labels: an estimate."""
    size, found = 1, []
    for layer in range(1 + max(mode.layer for mode in modes)):
        labels = [mode.label for mode in modes if mode.layer == layer]
        if "global" in labels or "mixed" in labels:  # a mixed head may fetch anything
            size = T
        one = sum(label in ("max", "position", "previous", "next", "sink") for label in labels)
        size = min(T, size * (1 + one + TOP * labels.count("top")))
        found.append(size)
    return found


def _intervals(sizes: np.ndarray) -> list[tuple[float, float, float]]:
    return [ratio_interval(row, np.ones(len(row))) for row in sizes]
