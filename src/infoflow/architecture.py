"""Architecture: heads, embedding, width, positions, mask; the spelling, and the parameter count of the model.

The model is the one of Section 3 of the InfoFlow paper (arXiv:2605.17930v1): layer l has h_l heads of dimension n_l,
E_l = h_l n_l, and a two-layer feed-forward block of hidden width w_l behind it (the last one is the read-out).
Positions: "additive" is Emb(x) + p(s), "augmented" (Emb(x), p(s)), "joint" any encoder P(x, s) of both together, the
paper's general form, which contains the other two.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from infoflow.arguments import LARGEST, choice, integer, pairs, shown
from infoflow.errors import InfoFlowError, unknown
from infoflow.reading import json_of

Positions = Literal["none", "additive", "augmented", "joint"]
Mask = Literal["none", "causal"]
MOST_HEADS = 100_000  # in all layers together, and so of layers; the largest models in use have some 10,000
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")  # Hugging Face's names for their number


@dataclass(frozen=True)
class Architecture:
    """Per-layer heads, total embedding per layer, feed-forward width per layer.

    `embed` and `width` may be one integer for all layers. None means "some": whoever judges an architecture may take
    any value there (`constructed` if some value serves, `proved hard` never; an unstated width also leaves the form of
    the read-out open). Whoever needs numbers, because it trains or counts parameters, calls `filled` and says what it
    filled in; `embeds`, `widths`, `head_dims` and `parameters` refuse an architecture that leaves them open.
    """

    heads: tuple[int, ...]
    embed: tuple[int, ...] | None = None
    width: tuple[int, ...] | None = None
    positions: Positions = "none"
    mask: Mask = "none"
    kv_heads: tuple[int, ...] | None = None
    rotary: bool = False

    def __init__(
        self,
        heads: int | tuple[int, ...],
        embed: int | tuple[int, ...] | None = None,
        width: int | tuple[int, ...] | None = None,
        positions: Positions = "none",
        mask: Mask = "none",
        kv_heads: int | tuple[int, ...] | None = None,
        rotary: bool = False,
    ) -> None:
        layers = tuple(heads) if isinstance(heads, (tuple, list)) else (heads,)
        if not layers:
            raise InfoFlowError("expected at least one layer, got heads=(); give heads as in heads=4,4.")
        put = object.__setattr__
        put(self, "heads", _positive("heads", layers, len(layers)))
        put(self, "embed", None if embed is None else _positive("embed", embed, len(layers)))
        put(self, "width", None if width is None else _positive("width", width, len(layers)))
        if sum(self.heads) > MOST_HEADS:
            raise InfoFlowError(f"expected at most {MOST_HEADS} heads in all layers, got {sum(self.heads)}.")
        put(self, "positions", choice("positions", positions, get_args(Positions)))
        put(self, "mask", choice("mask", mask, get_args(Mask)))
        put(self, "kv_heads", None if kv_heads is None else _positive("kv_heads", kv_heads, len(layers)))
        put(self, "rotary", bool(rotary))
        for layer, (h, total) in enumerate(zip(self.heads, self.embed or self.heads, strict=True), 1):
            if total % h:
                raise InfoFlowError(
                    f"expected embed divisible by heads in every layer, got embed={total}, heads={h} in layer {layer}; "
                    f"take embed={-(-total // h) * h}."
                )
        for layer, (h, kv) in enumerate(zip(self.heads, self.kv_heads or self.heads, strict=True), 1):
            if h % kv:
                raise InfoFlowError(
                    f"expected kv_heads to divide heads, got kv_heads={kv}, heads={h} in layer {layer}."
                )

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.heads)

    @property
    def embeds(self) -> tuple[int, ...]:
        """E_1..E_L of an architecture that states them."""
        if self.embed is None:
            raise InfoFlowError(f"expected embed=... here, {str(self)!r} leaves it open; add for example embed=24.")
        return self.embed

    @property
    def head_dims(self) -> tuple[int, ...]:
        """n_l = E_l / h_l."""
        return tuple(total // h for h, total in zip(self.heads, self.embeds, strict=True))

    @property
    def widths(self) -> tuple[int, ...]:
        """w_1..w_L of an architecture that states them; the last one is the read-out's."""
        if self.width is None:
            raise InfoFlowError(f"expected width=... here, {str(self)!r} leaves it open; add for example width=64.")
        return self.width

    def filled(self, D: int | None = None) -> "Architecture":
        """The sizes of the InfoFlow paper's experiments where none are stated: E_l = ceil(6 D / h_l) h_l for a target
        with D terms (C.4), w_l = ceil(8 E_l / 3), the ratio of w = 16 D at E = 6 D."""
        if self.embed is not None and self.width is not None:
            return self
        embed = self.embed
        if embed is None and D is not None:
            embed = tuple(matched_embed(D, h) for h in self.heads)
        stated = replace(self, embed=embed)
        return replace(stated, width=self.width or tuple(-(-8 * total // 3) for total in stated.embeds))

    def parameters(self, d: int, outputs: int = 1, T: int | None = None) -> int:
        """Number of parameters of the Section 3 model:

            (d E_1 + E_1) + E_1 + sum_l (2 E_l^2 + 2 k_l n_l E_l)
            + sum_{l<L} (E_l w_l + w_l + w_l E_{l+1} + E_{l+1}) + (E_L w_L + w_L + w_L o + o)

        with k_l the key-value heads (h_l unless grouped; then 2 k_l n_l E_l = 2 E_l^2). Learned positions add
        T E_1 (additive); augmented positions take no rows of the linear encoder: they need the module's split and
        are counted there.
        """
        integer("d", d)
        integer("outputs", outputs)
        E, w, n = self.embeds, self.widths, self.head_dims
        kv = self.kv_heads or self.heads
        total = d * E[0] + E[0] + E[0]
        if self.positions == "additive":
            if T is None:
                raise InfoFlowError("expected T to count learned positions, got none; pass parameters(d, T=...).")
            total += integer("T", T) * E[0]
        total += sum(2 * E[l] ** 2 + 2 * kv[l] * n[l] * E[l] for l in range(self.layers))
        total += sum(E[l] * w[l] + w[l] + w[l] * E[l + 1] + E[l + 1] for l in range(self.layers - 1))
        return total + E[-1] * w[-1] + w[-1] + w[-1] * outputs + outputs

    def with_(self, **changes: Any) -> "Architecture":
        """The same with some fields changed."""
        return replace(self, **changes)

    def __str__(self) -> str:
        """The spelling; `Architecture.parse(str(a)) == a`."""
        words = [f"heads={_join(self.heads)}"]
        if self.embed is not None:
            words.append(f"embed={_join(self.embed)}")
        if self.width is not None:
            words.append(f"width={_join(self.width)}")
        if self.positions != "none":
            words.append(f"positions={self.positions}")
        if self.mask != "none":
            words.append(f"mask={self.mask}")
        if self.kv_heads is not None:
            words.append(f"kv_heads={_join(self.kv_heads)}")
        if self.rotary:
            words.append("rotary=true")
        return " ".join(words)

    @classmethod
    def of(cls, arch: "Architecture | str") -> "Architecture":
        """An architecture as it is, or the one a spelling names: every verb takes either."""
        return arch if isinstance(arch, Architecture) else cls.parse(arch)

    @classmethod
    def parse(cls, spelling: str) -> "Architecture":
        """`heads=4,4 embed=24,24 width=64` (the last two may be left open)."""
        if not isinstance(spelling, str):
            raise InfoFlowError(
                "expected an Architecture(heads=(4, 4), embed=24) or its spelling 'heads=4,4 embed=24', "
                f"got {shown(spelling)}."
            )
        known = ["heads", "embed", "width", "positions", "mask", "kv_heads", "rotary"]
        fields: dict[str, Any] = {}
        for key, value in pairs(spelling.split(), "in words like heads=4,4").items():
            if key not in known:
                raise unknown("architecture key", key, known)
            fields[key] = _parse_value(key, value)
        if "heads" not in fields:
            raise InfoFlowError(f"expected heads=..., got {spelling!r}; write for example 'heads=4,4 embed=24,24'.")
        return cls(**fields)


def matched_embed(D: int, heads: int) -> int:
    """E = ceil(6 D / h) h, the embedding of the experiments of Appendix C.4."""
    return -(-6 * D // heads) * heads


def from_hugging_face(path: str | Path) -> Architecture:
    """Read BERT, GPT-2 or Llama keys from a `config.json` (or the folder that holds it)."""
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    config = json_of(file, "a Hugging Face config.json")
    if not isinstance(config, dict):
        raise InfoFlowError(f"expected an object in {file}, got {type(config).__name__}.")

    def read(*names: str) -> int | None:
        for name in names:
            if name in config and config[name] is not None:
                value = config[name]
                return integer(f"{name!r} in {file}", value, most=MOST_HEADS if name in LAYERS else LARGEST)
        return None

    layers = read(*LAYERS)
    heads = read("num_attention_heads", "n_head", "num_heads", "n_heads")
    hidden = read("hidden_size", "n_embd", "d_model", "dim")
    for name, value in (("layers", layers), ("attention heads", heads), ("hidden size", hidden)):
        if value is None:
            raise InfoFlowError(
                f"expected the number of {name} in {file}, found no key for it (BERT, GPT-2, Llama names)."
            )
    assert layers is not None
    assert heads is not None
    assert hidden is not None
    width = read("intermediate_size", "n_inner") or 4 * hidden
    kv = read("num_key_value_heads", "n_kv_heads")
    kind = str(config.get("model_type", ""))
    rotary = "rope_theta" in config or "rope_scaling" in config or "rope_parameters" in config
    decoder = rotary or "n_embd" in config or kind in {"gpt2", "llama", "gpt_neox", "mistral", "qwen2"}
    return Architecture(
        heads=(heads,) * layers,
        embed=(hidden,) * layers,
        width=width,
        positions="none" if rotary else "additive",
        mask="causal" if decoder else "none",
        kv_heads=None if kv is None or kv == heads else (kv,) * layers,
        rotary=rotary,
    )


def _positive(name: str, value: int | tuple[int, ...], layers: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(values) == 1:
        values = values * layers
    if len(values) != layers:
        raise InfoFlowError(f"expected one {name} per layer ({layers}), got {len(values)}: {name}={shown(values)}.")
    return tuple(integer(name, v) for v in values)


def _parse_value(key: str, value: str) -> Any:
    if key in ("positions", "mask"):
        return value
    if key == "rotary":
        return choice("rotary", value.lower(), ("true", "false")) == "true"
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise InfoFlowError(f"expected integers in {key}={value!r}; write for example {key}=4,4.") from None


def _join(values: tuple[Any, ...]) -> str:
    return ",".join(str(v) for v in values)
