"""`trace(model, X)`: the information sets of a trained or built network, measured by intervention.

    iflow.trace(network, X)          X (T, d), or (B, T, d) for several documents; token numbers as {"input_ids": ...}

The threshold is that of the certificate where the network has one: two inputs of equal target differ by at most 2 eps
in the output, so an effect of up to (2 eps)^2 / (2 Var y) may be the network's error and says nothing. Else the printed
sets are those at 1%, and the sizes are swept from 0.1% to 10%.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from infoflow import arguments, targets
from infoflow.errors import InfoFlowError, unknown
from infoflow.flow.normal_form import box
from infoflow.nn import Transformer
from infoflow.probes.adapters import heads_of, is_hugging_face
from infoflow.probes.bracket import bracket
from infoflow.probes.effects import TOGETHER, Stage, effects
from infoflow.probes.halving import AUDIT, LongFlow, halving
from infoflow.probes.law import DOCUMENTS, Law, Sample, Variances, apart, tokens_of, variances
from infoflow.probes.measured import MIDDLE, MeasuredFlow, MeasuredFlows, Threshold
from infoflow.probes.record import Batch, as_batches
from infoflow.probes.rerun import Read, Rerun, logits_at, pooled, whole_output

MOST_PASSES = 1 << 21  # states put in place one by one; beyond it the effects through single states are left out
LONGEST = 1 << 23  # tokens that run through the network one source at a time; beyond it groups are halved
TOKENS, FEWEST = 1 << 16, 32  # for the variances: tokens of the law, and documents of long ones
LARGEST_THRESHOLD = 0.1  # a certificate that is coarser than the sweep says nothing


@dataclass(frozen=True)
class Settings:
    """How sets are measured."""

    draws: int = 32  # fresh tokens for each place
    seed: int = 0
    threshold: float | None = None  # None: of the certificate, else swept
    selection: bool = True  # also with attention free
    interior: bool | None = None  # through single states; None: where that is cheap enough
    exact: bool | None = None  # one source at a time; None: where that is cheap enough, else by halving groups
    read: Read | None = None  # None: what the model's kind suggests

    def __post_init__(self) -> None:
        arguments.integer("draws", self.draws, 2)
        arguments.seed(self.seed)
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise InfoFlowError(f"expected a threshold between 0 and 1, got {self.threshold}.")


def measured_sets(model: nn.Module, X: Any, law: Any = None, **options: Any) -> MeasuredFlow | MeasuredFlows | LongFlow:
    """The measured sets of one document or of several; `law` are further documents to draw tokens from."""
    for option in options.keys() - Settings.__dataclass_fields__.keys():
        raise unknown("option", option, ["law", *Settings.__dataclass_fields__])
    settings = Settings(**options)
    heads_of(model)
    documents, single = _documents(model, X)
    source = law_of(model, documents, law, settings.seed)
    if single and not exact(documents[0], settings):
        return measure_long(model, documents[0], source, settings)
    flows, scales = [], dict[int, Variances]()  # the variances of a length are taken once
    for number, document in enumerate(documents):
        T = tokens_of(document)[1].shape[1]
        if T not in scales:
            with Rerun(model, document, settings.read or reader(model, document)) as rerun:
                scales[T] = variances(rerun, source)
        flows.append(measure(model, document, source, settings, number, scales[T]))
    return flows[0] if single else MeasuredFlows(tuple(flows))


def exact(document: Batch, settings: Settings) -> bool:
    """Whether every source is drawn again by itself."""
    T = tokens_of(document)[1].shape[1]
    return settings.draws * T**2 <= LONGEST if settings.exact is None else settings.exact


def measure_long(model: nn.Module, document: Batch, law: Law, settings: Settings) -> LongFlow:
    """The content set of the output of a long document, by halving; the size of its selection set from a sample."""
    with Rerun(model, document, settings.read or reader(model, document)) as rerun:
        scale = variances(rerun, law)
        stage = Stage(rerun, document, law.draws(document, settings.draws, 0), scale)
        threshold = _threshold(model, settings, scale.output).value
        sampled = AUDIT if settings.selection else 0
        return halving(stage, threshold, AUDIT, sampled, settings.seed, name_of(model))


def measure(
    model: nn.Module,
    document: Batch,
    law: Law,
    settings: Settings,
    number: int = 0,
    scale: Variances | None = None,
) -> MeasuredFlow:
    """The sets of one document, the `number`-th of the law where its documents are given; `scale` where it is known."""
    read = settings.read or reader(model, document)
    with Rerun(model, document, read) as rerun:
        scale = variances(rerun, law) if scale is None else scale
        draws = law.draws(document, settings.draws, number)
        if not scale.output > 0:
            raise InfoFlowError(
                "expected an output that varies with the input, got a constant one; nothing to measure."
            )
        stage = Stage(rerun, document, draws, scale)
        interior = settings.interior
        if interior is None:
            interior = (stage.layers - 1) * len(stage.sources) * settings.draws * stage.T <= MOST_PASSES
        threshold = _threshold(model, settings, scale.output)
        content = effects(stage, "content", interior)
        free = effects(stage, "free", interior) if settings.selection else None
        found = bracket(stage, content.output, threshold.value)
    notes = () if interior else ("effects through single states were not measured: too many states for this length",)
    return MeasuredFlow(name_of(model), stage.T, stage.layers, settings.draws, threshold, content, free, found, notes)


def law_of(model: nn.Module, documents: list[Batch], law: Any, seed: int) -> Law:
    """The target's sampler (on a certified box: uniform on it), the documents given for it, or the documents alone."""
    if law is not None:
        return Law(apart(as_batches(law)), None, seed)
    header = model.header if isinstance(model, Transformer) else {}
    if isinstance(header.get("target"), str) and "X" in documents[0].inputs:
        sample = _sampler(header)
        tokens = tokens_of(documents[0])[1]
        T, heads = tokens.shape[1], max(heads_of(model))
        drawn = sample(min(DOCUMENTS, max(FEWEST, TOKENS // T)), T, seed).to(tokens)
        return Law([Batch({"X": part}) for part in drawn.split(max(1, TOGETHER // (heads * T**2)))], sample, seed)
    return Law(documents, None, seed)


def _sampler(header: dict[str, Any]) -> Sample:
    """Documents of the law a saved network was made for."""
    target = targets.parse(header["target"])
    if "certificate" not in header or "domain" not in header:
        return lambda count, T, seed: target.sample(count, T, seed=seed, kind="torch")
    low, high = box(header["domain"], target.dim)

    def uniform(count: int, T: int, seed: int) -> Tensor:
        unit = torch.rand(count, T, target.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return torch.from_numpy(low) + torch.from_numpy(high - low) * unit

    return uniform


def _documents(model: nn.Module, X: Any) -> tuple[list[Batch], bool]:
    """Documents one by one, and whether X was a single one."""
    if isinstance(X, (np.ndarray, list)) and not (
        isinstance(X, list) and X and isinstance(X[0], (Tensor, Batch, dict))
    ):
        X = torch.from_numpy(arguments.array("tokens", X))
        if X.ndim not in (2, 3):
            raise InfoFlowError(
                f"expected rows of numbers as tokens, or documents of such rows, got {arguments.shown(X.tolist())}."
            )
    single = False
    if isinstance(X, Tensor):
        if isinstance(model, Transformer) and X.is_floating_point():
            X = X.to(next(model.parameters()))
        single = X.ndim == (2 if X.is_floating_point() else 1)
        X = X[None] if single else X
    return apart(as_batches(X)), single


def reader(model: nn.Module, document: Batch) -> Read:
    """The next token's logits of a causal model, those in the middle of a masked one, the mean state of an encoder."""
    if not is_hugging_face(model):
        return whole_output
    name = type(model).__name__
    if name.endswith(("ForCausalLM", "LMHeadModel")):
        return logits_at(-1)
    return logits_at(tokens_of(document)[1].shape[1] // 2) if name.endswith("ForMaskedLM") else pooled


def name_of(model: nn.Module) -> str:
    header = model.header if isinstance(model, Transformer) else {}
    return str(header.get("target") or type(model).__name__)


def _threshold(model: nn.Module, settings: Settings, variance: float) -> Threshold:
    if settings.threshold is not None:
        return Threshold(settings.threshold, "given")
    proved = model.certificate if isinstance(model, Transformer) else None
    if proved is not None and proved.bound is not None and proved.claim.quantity.startswith("|network"):
        value = (2 * proved.bound) ** 2 / (2 * variance)
        if 0 < value <= LARGEST_THRESHOLD:
            return Threshold(value, f"from the certificate: outputs within {2 * proved.bound:.2g} may be its error")
    return Threshold(MIDDLE, "swept")
