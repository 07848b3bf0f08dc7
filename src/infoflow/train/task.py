"""What is trained: `Task` (data, network, loss, metrics, name), and the tasks whose network is the one Transformer.

A stack of M models trains on `Data` with a leading axis of M, or of 1 where all models share them. Loss and metrics get
outputs and labels with that axis and return values that keep it, so that models never see each other.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow.architecture import Architecture
from infoflow.certificates.attack import starts
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig
from infoflow.targets.target import Target
from infoflow.train import folded
from infoflow.train.folded import Fused
from infoflow.train.recipe import Recipe

IGNORED = -1  # a label that counts nowhere, and a token that is not there

Loss = Literal["squared", "cross_entropy"] | Callable[[Tensor, Tensor], Tensor]
Metrics = Mapping[str, Callable[[Tensor, Tensor], Tensor]]


@dataclass(frozen=True)
class Data:
    """Inputs and labels for training and validation, (M or 1, samples, ...)."""

    x: Tensor
    y: Tensor
    x_validation: Tensor
    y_validation: Tensor
    per: Mapping[str, float]  # what a metric's sum over the validation set is divided by; if not named, the count
    baseline: float | None = None  # what the best constant answer reaches in the first metric, where that is known
    mean: Tensor | None = None  # labels were moved by this much
    deviation: float = 1.0  # and divided by this: one number for all outputs, so that the NMSE stays what it is
    lengths: Int[Tensor, "S N"] | None = None  # on the CPU: columns that a batch with this sample must keep
    test: "Data | None" = None  # the same with samples for validation that choose nothing


class Task:
    """What a user may train. Subclasses say what differs; `Supervised` is the start for the one Transformer.

    `identity`, `data`, `loss` and `metrics` must be written, and `config` or `network`; for a `Supervised` task
    `identity`, `form` and `draw`. What is forgotten is named before anything is made (`forgotten`).
    """

    name: str = ""
    file_hash: str | None = None  # the hash of the user's file that defines it
    length: int | None = None  # of its sequences, where the task itself says it
    seeded: bool = False  # whether every model has data of its own, drawn from its seed
    most_stacked: int | None = None  # models in one pass, where a network of its own needs more than is reckoned

    def identity(self) -> dict[str, Any]:
        """Every setting that decides the numbers, as plain JSON: {"task": {"name": ..., ...}}."""
        raise NotImplementedError

    def counts(self) -> tuple[int, int] | None:
        """Training and validation samples, where the task brings them and no recipe draws them."""
        return None

    def filled(self, arch: Architecture) -> Architecture:
        """The architecture with numbers where it leaves sizes open."""
        return arch.filled()

    def check(self, arch: Architecture | None, T: int | None, recipe: Recipe) -> None:
        """Refuse in one sentence what cannot be trained, before anything is made."""
        if arch is not None:
            raise InfoFlowError(f"expected no architecture for {self.name}, which has its own network; got {arch}.")

    def config(self, arch: Architecture | None, T: int | None, recipe: Recipe) -> TransformerConfig | None:
        """The configuration where the network is the one Transformer: sizes are chosen from it."""
        return None

    def data(self, T: int | None, recipe: Recipe, seeds: Sequence[int], device: torch.device) -> Data:
        """The samples of every seed, on the device."""
        raise NotImplementedError

    def network(self, arch: Architecture | None, T: int | None, recipe: Recipe, stack: tuple[int, ...]) -> nn.Module:
        """A network with these model axes, and `initialise(generator, scale)` for the one without."""
        config = self.config(arch, T, recipe)
        assert config is not None
        return Transformer(config, stack)

    def predict(self, network: nn.Module, x: Tensor, fused: Fused | None) -> Tensor:
        """The output for a batch (M, B, ...)."""
        y: Tensor = network(x)
        return y

    def loss(self, output: Tensor, y: Tensor) -> Float[Tensor, " M"]:
        """One number a model, (M,), of outputs and labels (M, ...)."""
        raise NotImplementedError

    def metrics(self, output: Tensor, y: Tensor) -> dict[str, Float[Tensor, "M B ..."]]:
        """Values that are summed over the validation set; the first is an error, which training makes small."""
        raise NotImplementedError

    def finish(self, network: nn.Module, data: Data) -> None:
        """Change a trained stack so that it answers in the units of the task."""

    def keep(self, network: nn.Module, data: Data) -> list[dict[str, Any]]:
        """What else each model leaves at its last step, as plain values."""
        return [{} for _ in range(next(network.parameters()).shape[0])]

    def header(self, T: int | None) -> dict[str, Any]:
        """What a saved network says of what it was trained on."""
        return {"task": self.name}

    def forgotten(self) -> list[str]:
        """What a subclass must say and does not."""
        found = [name for name in ("identity", "data", "loss", "metrics") if self._as_in(Task, name)]
        return found + ["config or network"] * (self._as_in(Task, "config") and self._as_in(Task, "network"))

    def _as_in(self, base: type["Task"], name: str) -> bool:
        return getattr(type(self), name) is getattr(base, name)


@dataclass(frozen=True)
class Form:
    """What goes in and what comes out: vectors of `inputs` coordinates or numbers of a vocabulary of that size;
    `outputs` real numbers or classes, for the sequence or for every token."""

    inputs: int
    outputs: int
    tokens: bool = False
    classes: bool = False
    each: bool = False
    causal: bool = False
    positions: Literal["none", "additive", "augmented"] = "none"  # used where the architecture names none
    padded: bool = False  # some tokens are IGNORED
    holes: bool = False  # some real labels are NaN and count nowhere
    places: slice | None = None  # of classes for every token: where labels are; what lies outside is not computed
    loss: Loss | None = None  # None: squared error of real labels, cross-entropy of classes
    metrics: Metrics | None = None  # more of them, beside the task's own


class Supervised(Task):
    """The one Transformer from sequences to labels. Subclasses draw the samples or hold them."""

    form: Form

    def draw(self, T: int | None, recipe: Recipe, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x (N, T, d) or (N, T), y (N, ...), the same for validation; real labels in float64, shape (N, [T,] o)."""
        raise NotImplementedError

    def forgotten(self) -> list[str]:
        """What a user's task left out: the form, and where samples come from."""
        undrawn = self._as_in(Supervised, "draw") and self._as_in(Supervised, "data")
        return super().forgotten() + ["form"] * (not hasattr(self, "form")) + ["draw"] * undrawn

    def config(self, arch: Architecture | None, T: int | None, recipe: Recipe) -> TransformerConfig:
        """Our Transformer with the task's inputs, outputs, positions and mask."""
        form = self.form
        if arch is None:
            raise InfoFlowError(f"expected an architecture for {self.name}, got none.")
        if form.causal:
            arch = arch.with_(mask="causal")
        if arch.positions == "none":
            arch = arch.with_(positions=form.positions)
        options: dict[str, Any] = {}
        if recipe.position_dim and arch.positions == "augmented":
            options["position_dim"] = recipe.position_dim
        if recipe.encoder == "mlp" and not form.tokens:
            options["encoder_width"] = recipe.encoder_width or arch.embeds[0]
        config = TransformerConfig.of(
            arch,
            form.inputs,
            form.outputs,
            T or 0,
            activation=recipe.activation,
            encoder="table" if form.tokens else recipe.encoder,
            layer_norm=recipe.layer_norm,
            residual=recipe.residual,
            encoder_activation=recipe.encoder_activation,
            ffn_skip=recipe.ffn_skip,
            **options,
        )
        return replace(config, cls=not form.each)

    def check(self, arch: Architecture | None, T: int | None, recipe: Recipe) -> None:
        """Refuse what the task cannot be trained with, before anything is made."""
        if T is None:
            raise InfoFlowError(f"expected T for {self.name}, got none; give the length of its sequences.")
        if recipe.certifiable and not isinstance(self, Regression):
            raise InfoFlowError(f"expected a target with certifiable (ties are drawn in its box), got {self.name}.")
        self.config(arch, T, recipe)

    def data(self, T: int | None, recipe: Recipe, seeds: Sequence[int], device: torch.device) -> Data:
        """Drawn once for all seeds; real labels are standardised by the training samples."""
        dtype = getattr(torch, recipe.dtype)
        x, y, x_validation, y_validation = self.draw(T, recipe, device)
        if not self.form.tokens:  # coordinates before positions, as the kernels read them
            x, x_validation = (values.transpose(-1, -2).contiguous() for values in (x, x_validation))
        if self.form.classes:
            real = int((y_validation != IGNORED).sum())
            common = int(y_validation[y_validation != IGNORED].bincount().max()) if real else 0
            if not real:
                raise InfoFlowError(f"expected labels in the validation samples of {self.name}, all are ignored.")
            per = dict.fromkeys(("error", "loss"), float(real))
            return Data(x[None], y[None], x_validation[None], y_validation[None], per, 1 - common / real)
        if callable(self.form.loss):
            y, y_validation = y.to(dtype), y_validation.to(dtype)
            return Data(x[None], y[None], x_validation[None], y_validation[None], {})
        mean, variance = self._spread(y)
        if not variance > 0:
            raise InfoFlowError(f"expected labels that vary, {self.name} is constant on the samples at T={T}.")
        deviation = math.sqrt(variance)
        y, y_validation = (y - mean) / deviation, (y_validation - mean) / deviation
        known = y_validation.numel() - int(y_validation.isnan().sum())
        per = {"nmse": known * self._spread(y_validation)[1]}
        y, y_validation = y.to(dtype), y_validation.to(dtype)
        return Data(x[None], y[None], x_validation[None], y_validation[None], per, 1.0, mean, deviation)

    def _spread(self, y: Tensor) -> tuple[Tensor, float]:
        """Mean of every output and one variance for all of them, over the labels that are known."""
        axes = tuple(range(y.ndim - 1))
        mean = y.nanmean(axes) if self.form.holes else y.mean(axes)
        squares = (y - mean).square()
        return mean, float(squares.nanmean() if self.form.holes else squares.mean())

    def predict(self, network: nn.Module, x: Tensor, fused: Fused | None) -> Tensor:
        """Folded where the network is plain enough, else by the module itself."""
        config = network.config
        assert isinstance(network, Transformer)
        assert isinstance(config, TransformerConfig)
        if not self.form.tokens and folded.foldable(config):
            return folded.forward(network, x, fused)
        if not self.form.tokens and folded.encodable(config):
            return folded.forward_encoded(network, x)
        visible = (x != IGNORED).unsqueeze(-2) if self.form.padded else None
        places = self.form.places if self.asked_alone else None
        y: Tensor = network(x if self.form.tokens else x.transpose(-1, -2), visible=visible, places=places)
        return y.unsqueeze(-1) if self.form.outputs == 1 and config.cls else y

    @property
    def asked_alone(self) -> bool:
        """Whether answers outside `places` are left out: nobody's own loss or metric looks at them."""
        form = self.form
        return form.places is not None and form.loss in (None, "cross_entropy") and not form.metrics

    def loss(self, output: Tensor, y: Tensor) -> Float[Tensor, " M"]:
        """The user's own, cross-entropy over the places that count, or squared."""
        if self.asked_alone:
            y = y[..., self.form.places]
        if self.form.classes and not callable(self.form.loss):
            return entropies(output, y).flatten(1).sum(1) / (y != IGNORED).flatten(1).sum(1).clamp(min=1)
        values = self._own_loss(output, y)
        if self.form.holes:
            return values.flatten(1).sum(1) / (~y.isnan()).flatten(1).sum(1).clamp(min=1)
        return values.mean(tuple(range(1, values.ndim)))

    def _own_loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The loss place by place."""
        if callable(self.form.loss):
            return self.form.loss(output, y)
        if self.form.holes:
            return torch.where(y.isnan(), 0.0, output - y.nan_to_num()).square()
        return (output - y).square()

    def metrics(self, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The error of the results, the loss, and what the user measures."""
        if self.asked_alone:
            y = y[..., self.form.places]
        more = {name: metric(output, y) for name, metric in (self.form.metrics or {}).items()}
        if callable(self.form.loss):
            return {"loss": self._own_loss(output, y), **more}
        if self.form.classes:
            return {"error": wrong(output, y), "loss": entropies(output, y), **more}
        return {"nmse": self._own_loss(output, y), **more}

    def finish(self, network: nn.Module, data: Data) -> None:
        """Labels were standardised: the last affine map takes it back."""
        if data.mean is None:
            return
        assert isinstance(network, Transformer)
        last = f"readout.maps.{network.config.ffn_layers}"
        with torch.no_grad():
            network.get_parameter(f"{last}.weight").mul_(data.deviation)
            network.get_parameter(f"{last}.bias").mul_(data.deviation).add_(data.mean)


class Regression(Supervised):
    """A target, learned from samples of its own sampler with exact labels.

    Tokens are drawn by numpy from the recipe's `data_seed` (so every device and every cluster node sees the same data)
    and labelled by the target itself, in float64, from the tokens as the network sees them (rounded to the dtype).
    """

    def __init__(self, target: Target) -> None:
        self.target, self.name, self.form = target, target.spelling, Form(target.dim, target.outputs)

    def identity(self) -> dict[str, Any]:
        """A target of a user's file is named with the hash of that file."""
        if not self.target.spelling:
            raise InfoFlowError("expected a target with a spelling (its identity in the store), got one without.")
        return {"target": self.target.spelling, "source": source_of(self.target.spelling)}

    def filled(self, arch: Architecture) -> Architecture:
        """The sizes of the papers' experiments where the architecture leaves them open."""
        return arch.filled(len(self.target.terms))

    def draw(self, T: int | None, recipe: Recipe, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Sequences from the target's sampler and their values."""
        training, validation, _ = streams(recipe)
        x, y = self._sampled(recipe.samples, T, recipe, training, device, recipe.certifiable)
        return x, y, *self._sampled(recipe.validation, T, recipe, validation, device)

    def _sampled(
        self,
        count: int,
        T: int | None,
        recipe: Recipe,
        stream: np.random.Generator,
        device: torch.device,
        certifiable: bool = False,
    ) -> tuple[Tensor, Tensor]:
        assert T is not None
        drawn = self.target.sample(count, T, generator=stream)
        if certifiable:  # the samples that are trained on; validation stays what it is
            drawn[::2] = self.clustered((count + 1) // 2, T, stream)
        tokens = torch.from_numpy(drawn).to(getattr(torch, recipe.dtype)).to(device)
        with torch.no_grad():
            labels = self.target(tokens.to(torch.float64))
        return tokens, labels.unsqueeze(-1) if labels.ndim == 1 else labels

    def data(self, T: int | None, recipe: Recipe, seeds: Sequence[int], device: torch.device) -> Data:
        """With test samples of a stream of their own, where the recipe asks for them."""
        found = super().data(T, recipe, seeds, device)
        if not recipe.test:
            return found
        assert found.mean is not None
        x, y = self._sampled(recipe.test, T, recipe, streams(recipe)[2], device)
        y = (y - found.mean) / found.deviation
        per = {"nmse": y.numel() * self._spread(y)[1]}
        x, y = x.transpose(-1, -2).contiguous()[None], y.to(found.y.dtype)[None]
        return replace(found, test=replace(found, x_validation=x, y_validation=y, per=per))

    def clustered(self, count: int, T: int, stream: np.random.Generator) -> np.ndarray:
        """Sequences in the box as an attack starts from: ties, clusters of four sizes, corners, one token apart."""
        parts = np.array_split(np.arange(count), 4)
        found = [starts(stream, len(part), T, self.target.dim, size) for size, part in enumerate(parts)]
        low, high = self.target.domain
        return low + (high - low) * stream.permutation(np.concatenate(found))

    def header(self, T: int | None) -> dict[str, Any]:
        """What a saved network says of its target."""
        return {"target": self.target.spelling, "T": T}


def streams(recipe: Recipe) -> list[np.random.Generator]:
    """Three independent ones from the recipe's `data_seed`, for training, validation and test."""
    return [np.random.default_rng(stream) for stream in np.random.SeedSequence(recipe.data_seed).spawn(3)]


def source_of(spelling: str) -> str | None:
    """The hash of the user's file that a spelling names, if it names one."""
    path, colon, _ = spelling.rpartition(":")
    if colon and path.endswith(".py") and Path(path).is_file():
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return None


def entropies(output: Float[Tensor, "M *places classes"], y: Int[Tensor, " M *places"]) -> Float[Tensor, " M *places"]:
    """Cross-entropy of every place, zero where the label is ignored."""
    flat = nn.functional.cross_entropy(
        output.reshape(-1, output.shape[-1]), y.reshape(-1), ignore_index=IGNORED, reduction="none"
    )
    return flat.view(y.shape)


def wrong(output: Float[Tensor, "M *places classes"], y: Int[Tensor, " M *places"]) -> Float[Tensor, " M *places"]:
    """1 where the largest output is not the label, 0 where it is or the label is ignored; NaN where outputs are."""
    missed = ((output.argmax(-1) != y) & (y != IGNORED)).to(output.dtype)
    return torch.where(output.isfinite().all(-1), missed, torch.nan)
