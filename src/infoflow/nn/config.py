"""The configuration of the one Transformer. Options are fields, never subclasses."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError

Activation = Literal["tanh", "gelu", "relu", "sigmoid", "identity"]


@dataclass(frozen=True)
class TransformerConfig:
    """Section 3 of the InfoFlow paper, with the variants the four papers need.

    Layer l has heads[l] heads of dimension head_dims[l]; E_l = heads[l] * head_dims[l].
    """

    dim: int  # d, the token dimension
    heads: tuple[int, ...]
    head_dims: tuple[int, ...]
    widths: tuple[int, ...]  # hidden width of F_1..F_{L-1}, then of the read-out
    outputs: int = 1
    scales: tuple[float, ...] = ()  # beta per layer; empty means 1/sqrt(n_l)
    activation: Activation = "tanh"
    readout_activation: Activation | None = None  # None: as `activation`
    ffn_layers: int = 1  # hidden layers of each F_l and of the read-out
    ffn_skip: bool = False  # x + F(x) instead of F(x); needs E_l = E_{l+1}
    readout: bool = True  # False: the CLS state (or every token's state) itself is returned
    residual: bool = True  # around attention
    layer_norm: bool = False  # after each attention (C.3)
    cls: bool = True  # False: no CLS, outputs per token
    hard: bool = False  # hardmax instead of softmax
    encoder: Literal["linear", "mlp", "none"] = "linear"  # "none": tokens enter as they are (d = E_1)
    encoder_width: int = 0  # hidden width of the "mlp" encoder
    encoder_activation: Activation | None = None
    positions: Literal["none", "additive", "augmented"] = "none"
    length: int = 0  # rows of the position table (T), 0 without positions
    position_dim: int = 0  # coordinates of E_1 that augmented positions take
    mask: Literal["none", "causal"] = "none"
    share_key_value: bool = False  # rank-1 Transformer of (20): value and key share v_1

    def __post_init__(self) -> None:
        layers = len(self.heads)
        if not layers or len(self.head_dims) != layers or len(self.widths) != layers:
            raise InfoFlowError(
                "expected heads, head_dims and widths of one length, "
                f"got {len(self.heads)}, {len(self.head_dims)}, {len(self.widths)}."
            )
        if self.scales and len(self.scales) != layers:
            raise InfoFlowError(f"expected one scale per layer ({layers}), got {len(self.scales)}.")
        if self.positions != "none" and self.length < 1:
            raise InfoFlowError("expected length >= 1 with positions, got 0; set length=T.")

    @property
    def layers(self) -> int:
        return len(self.heads)

    @property
    def embed(self) -> tuple[int, ...]:
        return tuple(h * n for h, n in zip(self.heads, self.head_dims, strict=True))

    @property
    def betas(self) -> tuple[float, ...]:
        return self.scales or tuple(n**-0.5 for n in self.head_dims)

    @classmethod
    def of(cls, arch: Architecture, dim: int, outputs: int = 1, T: int = 0, **options: Any) -> "TransformerConfig":
        """The trainable model of an Architecture."""
        return cls(
            dim=dim,
            heads=arch.heads,
            head_dims=arch.head_dims,
            widths=arch.widths,
            outputs=outputs,
            positions=arch.positions,
            length=T if arch.positions != "none" else 0,
            mask=arch.mask,
            **options,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, payload: dict[str, Any]) -> "TransformerConfig":
        unknown = set(payload) - set(cls.__dataclass_fields__)
        if unknown:
            raise InfoFlowError(
                f"expected known configuration fields, got {sorted(unknown)}; the file is from another version."
            )
        tuples = {"heads", "head_dims", "widths", "scales"}
        fields: dict[str, Any] = {key: tuple(value) if key in tuples else value for key, value in payload.items()}
        return cls(**fields)
