"""What is trained and how: `Recipe` (frozen), `Run` (one model of a sweep), and the key that names a run for ever."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.nn.config import Activation, TransformerConfig
from infoflow.targets import Target

CODE_FORMAT = 1  # changes when the same run would give other numbers: results of another format are other results


@dataclass(frozen=True)
class Recipe:
    """One training recipe. The defaults are those that reach the paper's numbers on eq. (6).

    The data set is drawn from `data_seed` and shared by all seeds of a (target, T, recipe), as in the paper; a run's
    own seed gives its initial weights and the order in which it sees the data. Every epoch is a fresh permutation of
    which the last, incomplete batch is left out. Labels are standardised for training and the read-out is scaled back
    afterwards, so a trained network predicts the target itself.
    """

    samples: int = 36_000
    validation: int = 4_000
    batch: int = 256
    epochs: int | None = 300
    steps: int | None = None  # instead of epochs
    lr: float = 1e-2
    decay: float = 1e-4  # AdamW, decoupled, on every parameter
    schedule: Literal["cosine", "two_phase", "constant"] = "cosine"
    second_epochs: int = 0  # two_phase (C.3): cosine over `epochs`, then these
    second_factor: float = 0.1  # at this fraction of lr
    activation: Activation = "gelu"
    encoder: Literal["linear", "mlp"] = "linear"
    encoder_width: int = 0
    layer_norm: bool = False  # C.3
    position_dim: int = 0  # augmented positions: coordinates they take (0: half)
    init_scale: float = 1.0
    dtype: Literal["float32", "float64"] = "float32"
    evaluate_every: int = 1  # epochs between looks at the validation set
    data_seed: int = 0
    residual: bool = True  # around attention; the head-count experiment has none
    encoder_activation: Activation | None = None  # of the "mlp" encoder; None: as `activation`
    warm_up: int = 0  # steps over which the rate rises linearly to the schedule's
    clip: float | None = None  # largest norm of a model's gradient; a longer one is scaled down to it
    rollback: float | None = None  # a model this many times above its best NMSE returns to it, at half the rate
    starts: int = 1  # initial weights that are tried; training goes on from the best of them
    start_epochs: int = 0  # how long each is tried: a whole cosine of its own
    query_key_rate: float = 1.0  # of queries and keys, as a multiple of lr; their decay stays that of lr

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise InfoFlowError("expected epochs or steps, got both or neither; write epochs=None with steps.")
        counts = ("samples", "validation", "batch", "epochs", "steps", "evaluate_every")
        for name in counts:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise InfoFlowError(f"expected {name} to be a positive integer, got {value!r}.")
        for name in ("lr", "init_scale", "query_key_rate"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise InfoFlowError(f"expected {name} above zero, got {getattr(self, name)!r}.")
        if not (math.isfinite(self.decay) and self.decay >= 0):
            raise InfoFlowError(f"expected decay of at least zero, got {self.decay!r}.")
        if self.clip is not None and not (math.isfinite(self.clip) and self.clip > 0):
            raise InfoFlowError(f"expected clip above zero or None, got {self.clip!r}.")
        if self.rollback is not None and not (math.isfinite(self.rollback) and self.rollback > 1):
            raise InfoFlowError(f"expected rollback above one or None, got {self.rollback!r}.")
        if type(self.warm_up) is not int or self.warm_up < 0:
            raise InfoFlowError(f"expected warm_up to be a number of steps, got {self.warm_up!r}.")
        for name, least in (("starts", 1), ("start_epochs", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InfoFlowError(f"expected {name} to be an integer of at least {least}, got {value!r}.")
        if (self.starts > 1) != (self.start_epochs > 0):
            raise InfoFlowError(
                f"expected start_epochs above zero exactly with several starts, got starts={self.starts} and "
                f"start_epochs={self.start_epochs}."
            )
        if self.validation < 2:
            raise InfoFlowError("expected at least two validation samples (NMSE divides by their variance).")
        if (self.schedule == "two_phase") != (self.second_epochs > 0) or (self.second_epochs and self.steps):
            raise InfoFlowError("expected second_epochs above zero (and epochs, not steps) exactly for two_phase.")

    @property
    def batch_size(self) -> int:
        return min(self.batch, self.samples)

    @property
    def steps_per_epoch(self) -> int:
        return self.samples // self.batch_size

    @property
    def total_steps(self) -> int:
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return (self.epochs + self.second_epochs) * self.steps_per_epoch

    @property
    def start_steps(self) -> int:
        """Steps in which one start is tried."""
        return self.start_epochs * self.steps_per_epoch

    @property
    def trial_steps(self) -> int:
        """Steps in which all starts are tried."""
        return self.starts * self.start_steps

    @property
    def all_steps(self) -> int:
        """Trials and training."""
        return self.trial_steps + self.total_steps

    def factors(self) -> list[float]:
        """The learning rate of every step as a fraction of `lr`: cosine from 1 towards 0, constant, or two phases;
        step s < warm_up takes (s + 1) / warm_up of that."""
        total = self.total_steps
        if self.schedule == "constant":
            factors = [1.0] * total
        else:
            first = total - self.second_epochs * self.steps_per_epoch
            factors = [0.5 * (1.0 + math.cos(math.pi * step / first)) for step in range(first)]
            factors += [self.second_factor] * (total - first)
        return [factor * min(1.0, (step + 1) / (self.warm_up or 1)) for step, factor in enumerate(factors)]

    def with_(self, **changes: Any) -> "Recipe":
        return replace(self, **changes)


@dataclass(frozen=True, eq=False)
class Run:
    """One model: a target, an architecture, a length, a seed, a recipe.

    A network has numbers where an architecture may leave them open, so embed and width are filled in here.
    """

    target: Target
    arch: Architecture
    T: int
    seed: int = 0
    recipe: Recipe = Recipe()

    def __post_init__(self) -> None:
        object.__setattr__(self, "arch", self.arch.filled(len(self.target.terms)))

    def start(self, number: int) -> "Run":
        """One of the starts, tried alone: no two runs of a sweep that differ in their seed share one."""
        plain = {"starts": 1, "start_epochs": 0, "steps": None, "schedule": "cosine", "second_epochs": 0}
        recipe = self.recipe.with_(epochs=self.recipe.start_epochs, **plain)
        return replace(self, seed=self.seed * self.recipe.starts + number, recipe=recipe)

    def trials(self) -> "list[Run]":
        """All starts, where there are several."""
        return [self.start(number) for number in range(self.recipe.starts)] if self.recipe.starts > 1 else []

    def identity(self) -> dict[str, Any]:
        """What the run is, as plain JSON; a target of a user's file is named with the hash of that file."""
        if not self.target.spelling:
            raise InfoFlowError("expected a target with a spelling (its identity in the store), got one without.")
        path, colon, _ = self.target.spelling.rpartition(":")
        source = None
        if colon and path.endswith(".py") and Path(path).is_file():
            source = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        return {
            "code": CODE_FORMAT,
            "target": self.target.spelling,
            "source": source,
            "arch": str(self.arch),
            "T": self.T,
            "seed": self.seed,
            "recipe": _plain(self.recipe),
        }

    @property
    def key(self) -> str:
        """24 hex digits of SHA-256 over the identity."""
        return _digest(self.identity())

    @property
    def group(self) -> str:
        """Runs of one group can be stacked: they differ in seed, learning rate, decay and initial scale at most."""
        same = self.identity() | {"seed": 0}
        same["recipe"] |= {"lr": 1.0, "decay": 0.0, "init_scale": 1.0}
        return _digest(same)

    def config(self) -> TransformerConfig:
        recipe = self.recipe
        options: dict[str, Any] = {"position_dim": recipe.position_dim} if recipe.position_dim else {}
        if recipe.encoder == "mlp":
            options["encoder_width"] = recipe.encoder_width or self.arch.embeds[0]
        return TransformerConfig.of(
            self.arch,
            self.target.dim,
            self.target.outputs,
            self.T,
            activation=recipe.activation,
            encoder=recipe.encoder,
            layer_norm=recipe.layer_norm,
            residual=recipe.residual,
            encoder_activation=recipe.encoder_activation,
            **options,
        )


def _plain(recipe: Recipe) -> dict[str, Any]:
    """The recipe as JSON; fields younger than the first stores appear only when set, so old runs keep their keys."""
    younger = {"residual": True, "encoder_activation": None, "warm_up": 0, "clip": None, "rollback": None,
               "starts": 1, "start_epochs": 0, "query_key_rate": 1.0}  # fmt: skip
    return {name: value for name, value in asdict(recipe).items() if younger.get(name, ...) != value}


def _digest(payload: dict[str, Any]) -> str:
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]
