"""How a run is trained: `Recipe`, frozen, every setting that decides the numbers."""

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from infoflow import arguments
from infoflow.errors import InfoFlowError
from infoflow.nn.config import Activation

# A setting that is named in a run's identity only where it is used: a new one changes no key.
OPTION = {"option": True}


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
    # Around attention; the head-count experiment has none.
    residual: bool = field(default=True, metadata=OPTION)
    # Of the "mlp" encoder; None: as `activation`.
    encoder_activation: Activation | None = field(default=None, metadata=OPTION)
    # Steps over which the rate rises linearly to the schedule's.
    warm_up: int = field(default=0, metadata=OPTION)
    # Largest norm of a model's gradient; a longer one is scaled down to it.
    clip: float | None = field(default=None, metadata=OPTION)
    # A model so many times above its best error returns to it, at half the rate.
    rollback: float | None = field(default=None, metadata=OPTION)
    # Initial weights that are tried; training goes on from the best of them.
    starts: int = field(default=1, metadata=OPTION)
    # How long each is tried: a whole cosine of its own.
    start_epochs: int = field(default=0, metadata=OPTION)
    # Of queries and keys, as a multiple of lr; their decay stays that of lr.
    query_key_rate: float = field(default=1.0, metadata=OPTION)
    # `x + F(x)` between layers instead of F(x).
    ffn_skip: bool = field(default=False, metadata=OPTION)
    # Half of the training sequences are ties and clusters in the target's box, where errors of trained networks peak.
    certifiable: bool = field(default=False, metadata=OPTION)
    # A look before the first step, too.
    evaluate_first: bool = field(default=False, metadata=OPTION)
    # Samples of a target that choose nothing: each model is scored on them once, at its best validation error.
    test: int = field(default=0, metadata=OPTION)

    def __post_init__(self) -> None:
        arguments.fields(self)
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
        for name, least in (("starts", 1), ("start_epochs", 0), ("test", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InfoFlowError(f"expected {name} to be an integer of at least {least}, got {value!r}.")
        if (self.starts > 1) != (self.start_epochs > 0):
            raise InfoFlowError(
                f"expected start_epochs above zero exactly with several starts, got starts={self.starts} and "
                f"start_epochs={self.start_epochs}."
            )
        if self.validation < 2 or self.test == 1:
            raise InfoFlowError("expected at least two validation and test samples (NMSE divides by their variance).")
        if (self.schedule == "two_phase") != (self.second_epochs > 0) or (self.second_epochs and self.steps):
            raise InfoFlowError("expected second_epochs above zero (and epochs, not steps) exactly for two_phase.")

    @property
    def batch_size(self) -> int:
        """The batch, or all samples where they are fewer."""
        return min(self.batch, self.samples)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches."""
        return self.samples // self.batch_size

    @property
    def total_steps(self) -> int:
        """Steps from the first to the last epoch of both phases."""
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
        """The same recipe with some settings changed."""
        return replace(self, **changes)

    def identity(self) -> dict[str, Any]:
        """As plain JSON, options that are not used left out."""
        idle = {entry.name: entry.default for entry in fields(self) if entry.metadata.get("option")}
        return {name: value for name, value in asdict(self).items() if idle.get(name, ...) != value}
