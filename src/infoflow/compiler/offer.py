"""What a builder answers when it is asked whether it can serve: an Offer, or a Refusal whose reasons have a kind.

Every builder has one function, numpy alone,

    fits(question) -> Offer | Refusal,

and `build` writes exactly what was offered.

The weight class. `weight_bound` B means: every entry of the attention matrices, of the feed-forward blocks and of the
read-out at most B in absolute value, embedded tokens of Euclidean norm at most 1. The inverse temperatures beta are
fields of the model and not bounded. None means: no restriction.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, inf, log
from typing import Any, Literal

from infoflow.architecture import Architecture
from infoflow.flow.normal_form import RefusalKind, Refused
from infoflow.targets.target import Target

Builder = Literal["compiler", "exponential_head", "memory_head", "occupancy"]


@dataclass(frozen=True)
class Question:
    """A target, a length and an error; the architecture to fit into, the weight class, the box of the tokens, the rule.

    `arch` None asks for any shape; embed or width None for some (see `Architecture`): a stated width is that of a
    read-out with one hidden layer, an unstated one admits any read-out. `domain` None is the target's own box.
    """

    target: Target
    T: int
    eps: float
    arch: Architecture | None = None
    weight_bound: float | None = 1.0
    domain: Any = None
    rule: str = "chebyshev"


@dataclass(frozen=True)
class Offer:
    """A network that would be built: its least embeddings, its hidden widths (the read-out's last, the widest where it
    has several hidden layers), inverse temperatures, the certified bound on its error, and its read-out in words."""

    builder: Builder
    heads: tuple[int, ...]
    embed: tuple[int, ...]
    widths: tuple[int, ...]
    bound: float
    betas: tuple[float, ...]
    readout: str
    plan: Any = field(repr=False, compare=False)  # what the writer of this builder needs


@dataclass(frozen=True)
class Refusal:
    """Why a builder does not serve. `kind` says what stands in the way: the target, the accuracy asked for, the
    architecture or the weight class; asked in this order, so that "weights" means the weight class alone."""

    builder: Builder
    kind: RefusalKind
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, builder: Builder, refused: Refused) -> "Refusal":
        """What a builder raised, as its answer."""
        return cls(builder, refused.kind, refused.reasons)


Fits = Callable[[Question], Offer | Refusal]


def one_layer_reasons(
    arch: Architecture | None, heads: int, embed: int, hidden: int | None, own_heads: bool = False
) -> list[str]:
    """Why a one-layer network of this size is not one of these architectures; none when it is, padded with zeros.

    `own_heads` says that its heads have keys of their own. Otherwise attention is uniform, and then it does not matter
    how the values are spread over heads. `hidden` is the width of its read-out, None for one with several hidden
    layers.
    """
    if arch is None:
        return []
    reasons = []
    if arch.layers != 1:
        reasons.append(f"it has one layer, the architecture {arch.layers}")
    if arch.rotary:
        reasons.append("the architecture has rotary positions, which turn its keys")
    if arch.kv_heads is not None and arch.kv_heads != arch.heads:
        reasons.append("the architecture groups key-value heads; each of its heads has its own")
    if own_heads and arch.heads[0] < heads:
        reasons.append(f"it needs {heads} heads, the architecture has {arch.heads[0]}")
    if arch.embed is not None and arch.embed[0] < embed:
        reasons.append(f"it needs embed={embed}, the architecture has {arch.embed[0]}")
    if arch.width is not None and hidden is None:
        reasons.append("its read-out has several hidden layers; a stated width means one")
    if arch.width is not None and hidden is not None and arch.width[-1] < hidden:
        reasons.append(f"its read-out needs width {hidden}, the architecture has {arch.width[-1]}")
    return reasons


def weight_reasons(weight_bound: float | None, log_weight: float, norm: float) -> list[str]:
    """Why a network with weights up to e^log_weight and embeddings of norm up to `norm` is outside the class."""
    if weight_bound is None:
        return []
    reasons = []
    if log_weight > log(weight_bound):
        size = f"e^{log_weight:.4g}" if log_weight > 12 else f"{exp(log_weight):.4g}"
        reasons.append(f"its weights reach {size}, above the bound {weight_bound:g}")
    if norm > 1.0:
        reasons.append(f"its embedded tokens reach norm {norm:.4g}, above 1")
    return reasons


def positive(T: Any, eps: Any) -> list[str]:
    """What is wrong with a length or an error that no network can have."""
    reasons = [] if type(T) is int and T >= 1 else [f"T must be a positive integer, got {T!r}"]
    good = isinstance(eps, (int, float)) and not isinstance(eps, bool) and 0 < eps < inf
    return reasons if good else [*reasons, f"eps must be a positive number, got {eps!r}"]
