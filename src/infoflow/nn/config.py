"""The configuration of the one Transformer. Options are fields, never subclasses."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args, get_type_hints

from infoflow.architecture import Architecture
from infoflow.arguments import shown
from infoflow.errors import InfoFlowError

LARGEST = 2**31 - 1  # of a size in a configuration from outside
LARGEST_SCALE = 1e300  # of the number that scores are multiplied by

Activation = Literal["tanh", "gelu", "relu", "sigmoid", "identity"]


@dataclass(frozen=True)
class TransformerConfig:
    """Section 3 of the InfoFlow paper, with the variants the four papers need.

    Layer l has heads[l] heads of dimension head_dims[l]; E_l = heads[l] * head_dims[l].
    """

    dim: int  # d, the token dimension; with encoder="table" the size of the vocabulary
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
    encoder: Literal["linear", "mlp", "none", "table"] = "linear"  # "none": tokens as they are (d = E_1)
    encoder_width: int = 0  # hidden width of the "mlp" encoder
    encoder_activation: Activation | None = None
    positions: Literal["none", "additive", "augmented"] = "none"
    length: int = 0  # rows of the position table (T), 0 without positions
    position_dim: int = 0  # coordinates of E_1 that augmented positions take
    mask: Literal["none", "causal"] = "none"
    share_key_value: bool = False  # rank-1 Transformer of (20): value and key share v_1
    streams: tuple[
        int, ...
    ] = ()  # E_l where it is not heads x head_dims (a head of size s in dimension d); empty: it is
    encoder_skip: bool = False  # x + F_1(x) in the encoder, as in (3) of the rank-1 paper; needs d = E_1
    readout_skip: bool = False  # x + F(x) in the read-out, as in (3) of the rank-1 paper; needs outputs = E_L

    def __post_init__(self) -> None:
        layers = len(self.heads)
        if not layers or len(self.head_dims) != layers or len(self.widths) != layers:
            raise InfoFlowError(
                "expected heads, head_dims and widths of one length, "
                f"got {len(self.heads)}, {len(self.head_dims)}, {len(self.widths)}."
            )
        if self.scales and len(self.scales) != layers:
            raise InfoFlowError(f"expected one scale per layer ({layers}), got {len(self.scales)}.")
        if self.streams and len(self.streams) != layers:
            raise InfoFlowError(f"expected one stream size per layer ({layers}), got {len(self.streams)}.")
        if self.positions != "none" and self.length < 1:
            raise InfoFlowError("expected length >= 1 with positions, got 0; set length=T.")
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Shapes that cannot exist, with the number that makes them impossible."""
        E = self.embed
        positive = {"dim": (self.dim,), "outputs": (self.outputs,), "ffn_layers": (self.ffn_layers,)}
        for name, values in {
            **positive,
            "heads": self.heads,
            "head_dims": self.head_dims,
            "widths": self.widths,
            "streams": self.streams,
        }.items():
            if any(value < 1 for value in values):
                raise InfoFlowError(f"expected {name} of at least 1, got {values}.")
        allowed = range(1, E[0]) if self.positions == "augmented" else range(1)
        if self.position_dim not in allowed:
            raise InfoFlowError(
                f"expected position_dim between 1 and E_1 - 1 = {E[0] - 1} with augmented positions and 0 without, "
                f"got {self.position_dim} with positions={self.positions}."
            )
        if self.encoder == "none" and self.dim != E[0] - self.position_dim:
            raise InfoFlowError(
                f"expected d = {E[0] - self.position_dim} when tokens enter as they are, got d = {self.dim}."
            )
        if self.encoder == "mlp" and self.encoder_width < 1:
            raise InfoFlowError("expected encoder_width of at least 1 with encoder='mlp', got 0; set encoder_width.")
        if self.encoder_skip and (self.dim != E[0] - self.position_dim or self.encoder == "table"):
            raise InfoFlowError(f"expected d = {E[0] - self.position_dim} with encoder_skip, got d = {self.dim}.")
        if self.readout_skip and self.outputs != E[-1]:
            raise InfoFlowError(f"expected outputs = E_L = {E[-1]} with readout_skip, got {self.outputs}.")
        if self.ffn_skip and len(set(E)) > 1:
            raise InfoFlowError(f"expected equal embeddings in all layers with ffn_skip, got {E}.")

    @property
    def layers(self) -> int:
        """Attention layers."""
        return len(self.heads)

    @property
    def embed(self) -> tuple[int, ...]:
        """E_l of every layer."""
        return self.streams or tuple(h * n for h, n in zip(self.heads, self.head_dims, strict=True))

    @property
    def betas(self) -> tuple[float, ...]:
        """The inverse temperature of every layer."""
        return self.scales or tuple(n**-0.5 for n in self.head_dims)

    @classmethod
    def of(cls, arch: Architecture, dim: int, outputs: int = 1, T: int = 0, **options: Any) -> "TransformerConfig":
        """The trainable model of an Architecture; augmented positions take half of E_1 by default."""
        if arch.kv_heads is not None or arch.rotary or arch.positions == "joint":
            raise InfoFlowError(
                "expected an architecture without grouped key-value heads, rotary and joint positions, "
                f"got {arch}; those are for predictions only."
            )
        if arch.positions == "augmented":
            options.setdefault("position_dim", max(arch.embeds[0] // 2, 1))
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
        """As a file's header holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, payload: Any) -> "TransformerConfig":
        """Read a configuration from outside: every field known, of its type, finite."""
        if not isinstance(payload, dict):
            raise InfoFlowError(f"expected a configuration object, got {type(payload).__name__}.")
        extra = set(payload) - set(cls.__dataclass_fields__)
        if extra:
            raise InfoFlowError(
                f"expected known configuration fields, got {sorted(extra)}; the file is from another version."
            )
        hints = get_type_hints(cls)
        fields = {name: _typed(name, value, hints[name]) for name, value in payload.items()}
        for name in ("dim", "heads", "head_dims", "widths"):
            if name not in fields:
                raise InfoFlowError(f"expected configuration field {name!r}, found none.")
        return cls(**fields)


def _typed(name: str, value: Any, hint: Any) -> Any:
    """`value` as the annotated type of field `name`, or the reason why not."""
    options = get_args(hint)
    if hint is bool:
        good = type(value) is bool
    elif hint is int:
        good = type(value) is int and abs(value) <= LARGEST
    elif options and all(isinstance(option, str) for option in options):  # a Literal
        good = value in options
    elif type(None) in options:  # Activation | None
        good = value is None or value in get_args(options[0])
    else:  # tuple[int, ...] or tuple[float, ...]
        kinds = (int,) if options[0] is int else (int, float)
        most = LARGEST if options[0] is int else LARGEST_SCALE
        good = isinstance(value, list) and all(type(v) in kinds and abs(v) <= most for v in value)
    if not good:
        raise InfoFlowError(f"expected a valid value for configuration field {name!r}, got {shown(value)}.")
    return tuple(value) if isinstance(value, list) else value
