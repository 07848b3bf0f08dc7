"""The one Transformer of this project: Section 3 of the InfoFlow paper, eq. (1) and (2).

    x'_l(t) = x_l(t) + W_O Concat_i sum_s softmax_s(beta <W_Q,i x_l(t), W_K,i x_l(s)>) W_V,i x_l(s)
    x_{l+1}(t) = F_l(x'_l(t)),   y = F^(c'_L)

Keys are the T tokens, never the CLS; the last layer is read by the CLS alone. Every parameter may carry leading
model axes (`stack`): a stack of M models runs in one pass, X is then (M, B, T, d), and the code below is the same.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from infoflow.arguments import LARGEST, shown
from infoflow.certificates import Certificate
from infoflow.certificates.certificate import UNCHECKED
from infoflow.errors import InfoFlowError
from infoflow.nn import files
from infoflow.nn.attention import attention, attention_values
from infoflow.nn.config import TransformerConfig

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": nn.functional.gelu,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}


@dataclass
class States:
    """What a forward pass saw, layer by layer; filled when `forward(X, states=States())` asks for it."""

    inputs: list[Tensor] = field(default_factory=list)  # x_l (.., T(+1), E_l), CLS last
    attended: list[Tensor] = field(default_factory=list)  # x'_l
    weights: list[Tensor] = field(default_factory=list)  # (.., heads, queries, T)
    readout: Tensor | None = None  # what the read-out block sees


BUSY = 512  # small products at a time that keep a large GPU busy: four for each of its processors
FEWEST = 64  # rows of a product: below, calling it costs more than it does
TILE = 64  # a processor forms about so many rows and columns of a product


def project(
    x: Float[Tensor, "... inputs"], weight: Float[Tensor, "... outputs inputs"], bias: Tensor | None = None
) -> Float[Tensor, "... outputs"]:
    """x (*stack, .., inputs) times weight (*stack, outputs, inputs): one product per model, over all its rows at once.

    A broadcast product would treat every sequence as a product of its own: it copies the weights of a stack for each,
    and forms the weights' gradient once for each before it adds them up. On a GPU a few models are too few products:
    theirs are cut into pieces.
    """
    stack = weight.ndim - 2
    if not stack:
        return nn.functional.linear(x, weight, bias)
    rows, turned = x.flatten(stack, -2), weight.transpose(-1, -2)
    count = pieces(tiles(weight), rows.shape[-2]) if x.device.type == "cuda" else 1
    y = product(rows, turned, count)
    return (y if bias is None else y + bias.unsqueeze(-2)).view(*x.shape[:-1], weight.shape[-2])


def product(
    rows: Float[Tensor, "*stack rows inputs"], weight: Float[Tensor, "*stack inputs outputs"], count: int
) -> Float[Tensor, "*stack rows outputs"]:
    """rows times weight, for every model as `count` products of as many rows each; they divide the rows.

    Its backward pass is why: the gradient of the weights is a sum over all rows with a result of a few numbers, which
    a GPU gives to a single one of its processors. In pieces, many do it, and their sums are added up.
    """
    if count == 1:
        return rows @ weight
    made: Tensor = rows.unflatten(-2, (count, -1)) @ weight.unsqueeze(-3)
    return made.flatten(-3, -2)


def tiles(weight: Float[Tensor, "*stack outputs inputs"]) -> int:
    """How many processors the gradient of these weights keeps busy: about one for every TILE by TILE numbers."""
    *stack, outputs, inputs = weight.shape
    return math.prod(stack) * -(-outputs // TILE) * -(-inputs // TILE)


@lru_cache(maxsize=1024)
def pieces(products: int, rows: int) -> int:
    """Into how many equal pieces the rows of so many products are cut: about BUSY products in all."""
    most = min(-(-BUSY // products), rows // FEWEST)
    return max((count for count in range(1, most + 1) if rows % count == 0), default=1)


class Linear(nn.Module):
    """y = x W' + b with optional leading model axes on W (*stack, out, in) and b (*stack, out)."""

    def __init__(self, inputs: int, outputs: int, stack: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*stack, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(*stack, outputs))

    def forward(self, x: Float[Tensor, "... inputs"]) -> Float[Tensor, "... outputs"]:
        """x W' + b for every model."""
        return project(x, self.weight, self.bias)


class FeedForward(nn.Module):
    """`layers` hidden layers of one width, then an affine map; optional skip."""

    def __init__(self, sizes: list[int], activation: str, skip: bool, stack: tuple[int, ...]) -> None:
        super().__init__()
        self.maps = nn.ModuleList(Linear(a, b, stack) for a, b in pairwise(sizes))
        self.activation, self.skip = activation, skip

    def forward(self, x: Tensor) -> Tensor:
        """The hidden layers, the affine map, and the skip where there is one."""
        y = x
        for position, layer in enumerate(self.maps):
            y = layer(y)
            if position < len(self.maps) - 1:
                y = ACTIVATIONS[self.activation](y)
        return x + y if self.skip else y


def look_up(table: Float[Tensor, "... size E"], ids: Int[Tensor, "... T"]) -> Float[Tensor, "... T E"]:
    """The rows of each model's own table; a number below zero is no token, and whoever asks must not see it."""
    *stack, size, E = table.shape
    rows = ids.clamp(min=0)
    if stack:  # the tables of all models under each other
        first = torch.arange(math.prod(stack), device=ids.device) * size
        rows = rows + first.view(*stack, *(1,) * (ids.ndim - len(stack)))
    return nn.functional.embedding(rows, table.reshape(-1, E))  # its gradient adds up repeated rows side by side


class AttentionLayer(nn.Module):
    """h heads of dimension n on E coordinates; W_Q, W_K, W_V are (*stack, h, n, E), W_O is (*stack, E, h n)."""

    attend = staticmethod(attention)  # probes put their own on an instance: the same call, recorded or replaced

    def __init__(self, config: TransformerConfig, layer: int, stack: tuple[int, ...]) -> None:
        super().__init__()
        h, n = config.heads[layer], config.head_dims[layer]
        E = config.embed[layer]
        self.query = nn.Parameter(torch.empty(*stack, h, n, E))
        self.key = nn.Parameter(torch.empty(*stack, h, n, E))
        self.value = None if config.share_key_value else nn.Parameter(torch.empty(*stack, h, n, E))
        self.output = nn.Parameter(torch.empty(*stack, E, h * n))
        self.norm = Norm(E, stack) if config.layer_norm else None
        self.beta, self.hard, self.residual, self.mask = config.betas[layer], config.hard, config.residual, config.mask

    def forward(
        self,
        x: Float[Tensor, "... rows E"],
        T: int,
        cls_only: bool,
        states: States | None,
        visible: Bool[Tensor, " ..."] | None = None,
        places: slice | None = None,
    ) -> Tensor:
        """x holds the T tokens and, behind them, the CLS when there is one; returns x' for the CLS only, for the places
        that are asked, or for all."""
        asked = x[..., T:, :] if cls_only else x if places is None else x[..., places, :]
        q = _heads(asked, self.query)  # (*stack, B, h, queries, n)
        k = _heads(x[..., :T, :], self.key)
        v = k if self.value is None else _heads(x[..., :T, :], self.value)
        mask = self._visible(x.shape[-2], T, cls_only, x.device)
        if places is not None:
            mask, visible = (m if m is None or m.shape[-2] == 1 else m[..., places, :] for m in (mask, visible))
        if visible is not None:
            visible = visible.unsqueeze(-3)  # the same for every head
            mask = visible if mask is None else mask & visible
        if states is None and "attend" not in self.__dict__:  # nobody looks at the weights
            out = attention_values(q, k, v, self.beta, mask, self.hard)
        else:
            out, weights = self.attend(q, k, v, self.beta, mask, self.hard)
            if states is not None:
                states.weights.append(weights)
        joined = out.transpose(-3, -2).flatten(-2)  # (*stack, B, queries, h n): head i is block i
        update = project(joined, self.output)
        result = asked + update if self.residual else update
        result = result if self.norm is None else self.norm(result)
        if states is not None:
            states.attended.append(result)
        return result

    def _visible(self, queries: int, T: int, cls_only: bool, device: torch.device) -> Tensor | None:
        if self.mask == "none" or cls_only:
            return None
        visible = torch.ones(queries, T, dtype=torch.bool, device=device)
        visible[:T] = torch.ones(T, T, dtype=torch.bool, device=device).tril()
        return visible


class Norm(nn.Module):
    """Layer norm over the last axis with optional leading model axes."""

    def __init__(self, size: int, stack: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(*stack, size))
        self.bias = nn.Parameter(torch.zeros(*stack, size))

    def forward(self, x: Tensor) -> Tensor:
        """Zero mean and unit variance over the last axis, then gain and bias."""
        y = nn.functional.layer_norm(x, (self.weight.shape[-1],))
        shape = self.weight.shape[:-1] + (1,) * (x.ndim - self.weight.ndim) + self.weight.shape[-1:]
        return y * self.weight.view(shape) + self.bias.view(shape)


class Transformer(nn.Module):
    """X (*stack, B, T, d) -> (*stack, B) or (*stack, B, outputs); without CLS (*stack, B, T, outputs).

    With a table X holds numbers of the vocabulary, (*stack, B, T)."""

    def __init__(self, config: TransformerConfig, stack: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.config, self.stack = config, stack
        self.header: dict[str, Any] = {}  # what a saved file says beside the configuration: plain JSON values
        E, L, hidden = config.embed, config.layers, config.ffn_layers
        token_size = E[0] - config.position_dim
        activation = config.activation
        # With a table X holds numbers of the vocabulary, not vectors.
        self.table = nn.Parameter(torch.empty(*stack, config.dim, token_size)) if config.encoder == "table" else None
        if config.encoder in ("none", "table"):
            self.encoder: FeedForward | None = None
        else:
            sizes = [config.dim] + [config.encoder_width] * (config.encoder == "mlp") + [token_size]
            self.encoder = FeedForward(sizes, config.encoder_activation or activation, config.encoder_skip, stack)
        # The CLS position p(T+1) of C.3 is only ever added to the CLS token, so the token itself holds the sum.
        size = config.position_dim if config.positions == "augmented" else E[0]
        self.position = nn.Parameter(torch.empty(*stack, config.length, size)) if config.positions != "none" else None
        self.cls_token = nn.Parameter(torch.empty(*stack, E[0])) if config.cls else None
        self.attentions = nn.ModuleList(AttentionLayer(config, l, stack) for l in range(L))
        self.ffns = nn.ModuleList(
            FeedForward([E[l], *[config.widths[l]] * hidden, E[l + 1]], activation, config.ffn_skip, stack)
            for l in range(L - 1)
        )
        last = [E[-1], *[config.widths[-1]] * hidden, config.outputs]
        self.readout = (
            FeedForward(last, config.readout_activation or activation, config.readout_skip, stack)
            if config.readout
            else None
        )
        self.zero()

    def zero(self) -> None:
        """All parameters 0 (layer-norm gains 1): the blank sheet of the constructions."""
        for name, parameter in self.named_parameters():
            nn.init.constant_(parameter, 1.0 if name.endswith("norm.weight") else 0.0)

    def initialise(self, generator: torch.Generator, scale: float = 1.0) -> None:
        """Uniform(+-scale/sqrt(fan_in)) for weights, the usual PyTorch law; CLS and positions normal with std 0.02, a
        table of the vocabulary with std 1."""
        for name, parameter in self.named_parameters():
            if "norm" in name:
                continue
            if name in ("cls_token", "position", "table"):
                deviation = 1.0 if name == "table" else 0.02
                parameter.data.normal_(0.0, deviation, generator=generator)
                continue
            fan = parameter.shape[-1] if not name.endswith("bias") else self._fan_of_bias(name)
            limit = scale / math.sqrt(fan)
            parameter.data.uniform_(-limit, limit, generator=generator)

    def _fan_of_bias(self, name: str) -> int:
        return int(self.get_parameter(name.removesuffix("bias") + "weight").shape[-1])

    def embed(self, X: Tensor) -> Float[Tensor, "... rows E"]:
        """Encode the tokens, add or append positions, put the CLS behind them."""
        tokens = look_up(self.table, X) if self.table is not None else X
        tokens = tokens if self.encoder is None else self.encoder(tokens)
        T, stack = tokens.shape[-2], len(self.stack)
        cls = None
        if self.cls_token is not None:
            shape = (*tokens.shape[:-2], 1, self.cls_token.shape[-1])
            cls = self.cls_token.view(*self.stack, *(1,) * (tokens.ndim - stack - 1), -1).expand(shape)
        if self.position is not None:
            table = self.position.unsqueeze(stack)
            if self.config.positions == "augmented":
                tokens = torch.cat([tokens, table[..., :T, :].expand(*tokens.shape[:-1], -1)], -1)
            else:
                tokens = tokens + table[..., :T, :]
        return tokens if cls is None else torch.cat([tokens, cls], -2)

    def forward(
        self,
        X: Tensor,
        states: States | None = None,
        visible: Bool[Tensor, "... queries T"] | None = None,
        places: slice | None = None,
    ) -> Tensor:
        """X is (..., T, d), or (..., T) numbers of a vocabulary; `visible` (broadcast to queries x T) is True where a
        key may be seen: padding, or any mask of (132). Without a CLS, `places` are the tokens whose answer is wanted:
        the last layer and the read-out compute no others."""
        self._check(X)
        state = self.represent(X, states, visible, places)
        if states is not None:
            states.readout = state
        y = state if self.readout is None else self.readout(state)
        if self.config.cls:
            y = y[..., 0, :]
        return y[..., 0] if y.shape[-1] == 1 and self.readout is not None and self.config.cls else y

    def __repr__(self) -> str:
        c, weights = self.config, list(self.parameters())
        heads, embed, widths = (",".join(map(str, sizes)) for sizes in (c.heads, c.embed, c.widths))
        count = sum(weight.numel() for weight in weights)
        dtype = str(weights[0].dtype).removeprefix("torch.") if weights else "no weights"
        models = f", {'x'.join(map(str, self.stack))} models" if self.stack else ""
        return f"<Transformer: heads={heads} embed={embed} width={widths}, {count:,} parameters, {dtype}{models}>"

    def _check(self, X: Tensor) -> None:
        c, stack = self.config, len(self.stack)
        if not isinstance(X, Tensor):
            raise InfoFlowError(f"expected a torch tensor, got {type(X).__name__}; convert it by torch.as_tensor(X).")
        if c.encoder == "table":
            if X.is_floating_point() or X.is_complex() or X.ndim < 1 + stack or X.shape[:stack] != self.stack:
                expected = (*self.stack, "...", "T")
                raise InfoFlowError(f"expected token numbers of shape {expected}, got {X.dtype} of {tuple(X.shape)}.")
            X = X.unsqueeze(-1).expand(*X.shape, c.dim)  # the length is checked below as for vectors
        weights = next(self.parameters()).dtype
        if c.encoder != "table" and X.dtype != weights and not torch.is_autocast_enabled(X.device.type):
            raise InfoFlowError(
                f"expected tokens of the weights' {weights}, got {X.dtype}; convert them by X.to({weights})."
            )
        if X.ndim < 2 + stack or X.shape[-1] != c.dim or X.shape[-2] < 1 or X.shape[:stack] != self.stack:
            expected = (*self.stack, "...", "T", c.dim)
            raise InfoFlowError(f"expected input of shape {expected}, got {tuple(X.shape)}.")
        if c.positions != "none" and X.shape[-2] > c.length:
            raise InfoFlowError(f"expected at most {c.length} tokens (the position table), got {X.shape[-2]}.")

    def represent(
        self,
        X: Tensor,
        states: States | None = None,
        visible: Bool[Tensor, "... queries T"] | None = None,
        places: slice | None = None,
    ) -> Tensor:
        """The state the read-out sees: (.., 1, E_L) for the CLS, (.., T, E_L) without, or that of the places alone."""
        x = self.embed(X)
        T = x.shape[-2] - (1 if self.config.cls else 0)
        for l, layer in enumerate(self.attentions):
            last = l == self.config.layers - 1
            if states is not None:
                states.inputs.append(x)
            x = layer(x, T, self.config.cls and last, states, visible, places if last else None)
            if not last:
                x = self.ffns[l](x)
        return x

    def select(self, index: int) -> "Transformer":
        """The model at `index` of the leading model axis, as a network of its own."""
        if not self.stack or not -self.stack[0] <= index < self.stack[0]:
            raise InfoFlowError(f"expected an index into the model axes {self.stack}, got {index}.")
        single = Transformer(self.config, self.stack[1:])
        single.load_state_dict({k: v[index].detach().clone() for k, v in self.state_dict().items()}, assign=True)
        single.header = dict(self.header)
        return single

    @property
    def certificate(self) -> Certificate | None:
        """What build proved about this network, or what its file states (then unchecked); None for a trained one."""
        payload = self.header.get("certificate")
        return None if payload is None else Certificate.from_json(payload)

    def save(self, path: str | Path, **header: Any) -> Path:
        """Write safetensors; `header` (plain JSON values) is kept beside the configuration and read back by `load`."""
        about = {**self.header, **header, "config": self.config.to_json(), "stack": list(self.stack)}
        return files.write(path, "transformer", self.state_dict(), about)


def from_saved(tensors: dict[str, Tensor], header: dict[str, Any]) -> Transformer:
    """The loader of kind "transformer". Shapes are compared on the meta device before any memory is taken."""
    config = TransformerConfig.from_json(header.get("config"))
    stack = header.get("stack", [])
    if not isinstance(stack, list) or any(type(size) is not int or not 1 <= size <= LARGEST for size in stack):
        raise InfoFlowError(f"expected model axes as a list of positive integers, got {shown(stack)}.")
    if config.layers * config.ffn_layers > len(tensors):
        raise InfoFlowError(f"expected tensors for {config.layers} layers, found {len(tensors)} tensors.")
    try:
        with torch.device("meta"):
            network = Transformer(config, tuple(stack))
    except (RuntimeError, OverflowError):  # sizes whose product is no longer an integer of the machine
        raise InfoFlowError("expected a shape that fits in memory, got a configuration that does not.") from None
    files.expect(tensors, {name: tuple(value.shape) for name, value in network.state_dict().items()})
    kinds = sorted({str(tensor.dtype) for tensor in tensors.values()})
    if len(kinds) > 1:
        raise InfoFlowError(f"expected one dtype in all tensors, got {', '.join(kinds)}.")
    network.load_state_dict(tensors, assign=True)
    network.header = {name: value for name, value in header.items() if name not in ("config", "stack")}
    if isinstance(header.get("certificate"), dict):
        network.header["certificate"] = {**header["certificate"], "reasons": [UNCHECKED]}
    return network.requires_grad_("certificate" not in header)  # a proof speaks of fixed weights


def _heads(x: Float[Tensor, "... rows E"], weight: Float[Tensor, "... h n E"]) -> Float[Tensor, "... h rows n"]:
    """Project to all heads at once: (*stack, B, rows, E) x (*stack, h, n, E) -> (*stack, B, h, rows, n)."""
    h, n, E = weight.shape[-3:]
    made: Tensor = project(x, weight.reshape(*weight.shape[:-3], h * n, E)).unflatten(-1, (h, n)).transpose(-2, -3)
    return made
