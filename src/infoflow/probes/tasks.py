"""What an intervention costs: language modelling, masked tokens, retrieval, or a regression target.

A task returns per document a total and a count; the loss is sum(totals)/sum(counts), so nats per token, the share of
questions answered wrongly, or the mean squared error over the target's variance. Lower is better in all of them.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow.errors import InfoFlowError
from infoflow.probes.record import Batch


class Measured(NamedTuple):
    totals: Float[np.ndarray, " documents"]
    counts: Float[np.ndarray, " documents"]

    @property
    def loss(self) -> float:
        return float(self.totals.sum() / self.counts.sum())


class Measurement(Protocol):
    """What an intervention is priced by: a loss on the documents of one set, and its unit."""

    @property
    def unit(self) -> str: ...

    def measure(self, model: nn.Module) -> Measured: ...


@dataclass
class LanguageModelling:
    """-log p(next token), in nats, over the tokens of each document."""

    batches: list[Batch]
    unit: str = "nats per token"

    @torch.no_grad()
    def measure(self, model: nn.Module) -> Measured:
        parts = []
        for batch in self.batches:
            ids = batch.inputs["input_ids"]
            logits = _logits(batch.call(model))[:, :-1]
            shown = torch.ones_like(ids, dtype=torch.bool) if batch.shown is None else batch.shown
            parts.append(_nats(logits, ids[:, 1:], shown[:, 1:] & shown[:, :-1]))
        return _join(parts)


@dataclass
class MaskedTokens:
    """-log p(token) in nats at masked positions; the same 15% are masked in every measurement."""

    batches: list[Batch]
    mask_id: int
    rate: float = 0.15
    seed: int = 0
    unit: str = "nats per masked token"
    masked: list[tuple[Batch, Tensor, Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        self.masked = []
        for batch in self.batches:
            ids = batch.inputs["input_ids"]
            free = torch.ones_like(ids, dtype=torch.bool) if batch.shown is None else batch.shown.clone()
            if batch.sinks is not None:
                free &= ~batch.sinks
            hidden = (torch.rand(ids.shape, generator=generator).to(ids.device) < self.rate) & free
            inputs = {**batch.inputs, "input_ids": torch.where(hidden, self.mask_id, ids)}
            self.masked.append((Batch(inputs, batch.shown, batch.sinks), ids, hidden))

    @torch.no_grad()
    def measure(self, model: nn.Module) -> Measured:
        return _join([_nats(_logits(batch.call(model)), ids, hidden) for batch, ids, hidden in self.masked])


@dataclass
class Retrieval:
    """Share of questions whose own sentence is not the nearest of its pool, by cosine of the mean-pooled states.

    `pools[j]` holds (questions, sentences) as index arrays into the encoded texts; `answer[i]` is the sentence of
    question i. A pool is one document of the interval: its questions share their candidates. With a `temperature` the
    loss is -log softmax(cosine / temperature) of the own sentence instead: smooth, which a search needs.
    """

    questions: list[Batch]
    sentences: list[Batch]
    answer: Int[np.ndarray, " questions"]
    pools: list[tuple[np.ndarray, np.ndarray]]
    temperature: float | None = None

    @property
    def unit(self) -> str:
        return "error rate" if self.temperature is None else "nats per question"

    def measure(self, model: nn.Module) -> Measured:
        asked, found = encode(model, self.questions), encode(model, self.sentences)
        totals = []
        for rows, columns in self.pools:
            similar = asked[rows] @ found[columns].T
            own = torch.from_numpy(np.searchsorted(columns, self.answer[rows]))  # columns are sorted
            if self.temperature is None:
                totals.append(float((similar.argmax(1) != own).sum()))
            else:
                totals.append(float(nn.functional.cross_entropy(similar / self.temperature, own, reduction="sum")))
        return Measured(np.array(totals), np.array([float(len(rows)) for rows, _ in self.pools]))


@dataclass
class SquaredError:
    """Squared error over the variance of the target (NMSE): for models that were trained on one."""

    batches: list[Batch]
    targets: list[Tensor]
    unit: str = "NMSE"

    @torch.no_grad()
    def measure(self, model: nn.Module) -> Measured:
        variance = torch.cat(self.targets).double().var(0, unbiased=False).sum()
        errors = [
            (batch.call(model) - target).double().square().flatten(1 if target.ndim > 1 else 0)
            for batch, target in zip(self.batches, self.targets, strict=True)
        ]
        totals = torch.cat([e if e.ndim == 1 else e.sum(1) for e in errors]) / variance
        return Measured(totals.cpu().numpy(), np.ones(len(totals)))


@dataclass
class Drift:
    """1 - cosine of the pooled state with that of the model as it is: for encoders on text without questions."""

    batches: list[Batch]
    wanted: Float[Tensor, "texts E"]
    unit: str = "1 - cosine"

    def measure(self, model: nn.Module) -> Measured:
        moved = (1 - (encode(model, self.batches) * self.wanted).sum(-1)).double().numpy()
        return Measured(moved, np.ones(len(moved)))


def own_outputs(model: nn.Module, batches: list[Batch]) -> Measurement:
    """The task of staying what the model is: NMSE against its own outputs, or drift of its pooled states."""
    if "X" not in batches[0].inputs:
        return Drift(batches, encode(model, batches))
    with torch.no_grad():
        return SquaredError(batches, [batch.call(model) for batch in batches])


@torch.no_grad()
def encode(model: nn.Module, batches: list[Batch]) -> Float[Tensor, "texts E"]:
    """Mean of the last states over the shown tokens, scaled to length 1."""
    rows = []
    for batch in batches:
        states = batch.call(model)
        states = states if isinstance(states, Tensor) else states.last_hidden_state
        shown = torch.ones(states.shape[:2], device=states.device) if batch.shown is None else batch.shown
        weight = shown.unsqueeze(-1).to(states)
        rows.append(((states * weight).sum(1) / weight.sum(1)).float().cpu())
    return nn.functional.normalize(torch.cat(rows), dim=-1)


def _logits(output: object) -> Tensor:
    found = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(found, Tensor):
        raise InfoFlowError(
            f"expected a model with token logits for this task, got {type(output).__name__} without any."
        )
    return found


def _nats(logits: Tensor, ids: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    nats = nn.functional.cross_entropy(logits.transpose(1, 2).float(), ids, reduction="none")
    return (nats * counted).sum(1).double().cpu(), counted.sum(1).double().cpu()


def _join(parts: list[tuple[Tensor, Tensor]]) -> Measured:
    totals, counts = (torch.cat(column).numpy() for column in zip(*parts, strict=True))
    return Measured(totals, counts)
