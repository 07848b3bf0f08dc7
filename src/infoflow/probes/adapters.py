"""Where the tap goes in: `infoflow.nn`, `nn.MultiheadAttention`, and Hugging Face models, found by what they have.

There is no list of models. A Hugging Face model is one with `config.num_attention_heads` whose attention goes through
the library's attention interface (transformers 5.0 and later): we register one attention function there, and every
family that uses the interface (BERT, ALBERT, GPT-2, Llama and their kin; rotary, grouped heads) is served. The residual
states are found from the order of events in one pass: the block is the nearest ancestor of the attention that stands in
a `ModuleList`; the first norm called after the attention closes it. When the attention read the block's own input the
model is post-norm (the state is what the norm returns); otherwise it is pre-norm (the state is what the norm receives).
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from infoflow.errors import InfoFlowError
from infoflow.installation import extra
from infoflow.nn import Attended, Transformer, attention
from infoflow.nn.transformer import AttentionLayer
from infoflow.probes.tap import Tap

NAME = "infoflow"  # of our function in the attention interface
_ACTIVE: ContextVar[Tap | None] = ContextVar("infoflow_tap", default=None)


def heads_of(model: nn.Module) -> tuple[int, ...]:
    """The number of heads of each attention layer, in the order the layers run."""
    if isinstance(model, Transformer):
        if model.stack:
            raise InfoFlowError(f"expected one model, got a stack of shape {model.stack}; take one out of the stack.")
        return model.config.heads
    config = getattr(model, "config", None)
    if is_hugging_face(model):
        assert config is not None
        return (int(config.num_attention_heads),) * int(config.num_hidden_layers)
    modules = _multihead(model)
    if not modules:
        raise InfoFlowError(
            f"expected a model of infoflow.nn, of transformers, or with nn.MultiheadAttention inside, got "
            f"{type(model).__name__} with none of these; give a module whose attention can be found."
        )
    return tuple(module.num_heads for module in modules)


def is_hugging_face(model: nn.Module) -> bool:
    config = getattr(model, "config", None)
    return hasattr(config, "num_attention_heads") and hasattr(config, "_attn_implementation")


def install(model: nn.Module, tap: Tap) -> ExitStack:
    """Send every attention of `model` through `tap`, until the returned stack is closed (never, for a substitute)."""
    stack = ExitStack()
    _on_root(model, tap, stack)
    if isinstance(model, Transformer):
        for layer in model.attentions:
            assert isinstance(layer, AttentionLayer)
            object.__setattr__(layer, "attend", partial(tap.attend, core=layer))
            stack.callback(layer.__dict__.pop, "attend", None)
        return stack
    if is_hugging_face(model):
        _register()
        _switch(model, stack)
        return stack
    for module in _multihead(model):
        object.__setattr__(module, "forward", partial(_multihead_forward, module, tap))
        stack.callback(module.__dict__.pop, "forward", None)
    return stack


@contextmanager
def watched(model: nn.Module, tap: Tap, discover: Any) -> Iterator[None]:
    """`install`, plus the hooks that find the residual states; `discover()` runs one small pass to learn the order."""
    training = model.training
    model.eval()
    with install(model, tap) as stack:
        stack.callback(model.train, training)
        watch, tap.watch = tap.watch, None
        with torch.no_grad():
            discover()
        cores, sizes = tuple(tap.cores), tuple(tap.sizes)
        if not cores:
            raise InfoFlowError(
                f"expected the attention of {type(model).__name__} to go through the attention interface of "
                "transformers, saw no call; update transformers or give a model whose attention can be found."
            )
        if sizes != heads_of(model):
            raise InfoFlowError(f"expected heads {heads_of(model)} by layer, saw {sizes} in the forward pass.")
        tap.watch = watch
        for core in dict.fromkeys(cores):
            _hook(model, core, tap, stack)
        yield


def _on_root(model: nn.Module, tap: Tap, stack: ExitStack) -> None:
    """A pass of the model begins with a fresh count and ends with the last step emitted."""
    states: list[tuple[Any, bool]] = []

    def begin(module: nn.Module, args: Any) -> None:
        states.append((_ACTIVE.set(tap), torch.backends.mha.get_fastpath_enabled()))
        torch.backends.mha.set_fastpath_enabled(False)  # the fused path never calls our attention
        tap.start()

    def end(module: nn.Module, args: Any, output: Any) -> None:
        if not states:
            return
        token, fast = states.pop()
        _ACTIVE.reset(token)
        torch.backends.mha.set_fastpath_enabled(fast)
        tap.close(None)

    stack.callback(model.register_forward_pre_hook(begin).remove)
    stack.callback(model.register_forward_hook(end, always_call=True).remove)


def _hook(model: nn.Module, core: nn.Module, tap: Tap, stack: ExitStack) -> None:
    """Residual states around one attention module."""
    block = core if isinstance(core, AttentionLayer) else _block(model, core)
    norms = [] if isinstance(core, AttentionLayer) else [m for m in block.modules() if is_norm(m)]
    direct = [m for m in block.children() if is_norm(m)]
    if len(direct) > 2:
        raise InfoFlowError(
            f"expected at most two norms beside the attention of {type(block).__name__}, found {len(direct)}; "
            "its residual stream cannot be told from the outside."
        )

    def enter_block(module: nn.Module, args: Any, kwargs: Any) -> Any:
        tap.close(None)
        args, kwargs = _enter(tap, args, kwargs)
        tap.block_input = _first(args, kwargs)
        return args, kwargs

    def enter_core(module: nn.Module, args: Any, kwargs: Any) -> None:
        tap.core_input = _first(args, kwargs)

    def leave_core(module: nn.Module, args: Any, output: Any) -> None:
        tap.core_output = _tensor(output)
        if isinstance(module, AttentionLayer):
            tap.close(_tensor(output))

    def leave_norm(module: nn.Module, args: Any, output: Any) -> None:
        if tap.pending is None:
            return
        if tap.core_input is tap.block_input:
            tap.close(_tensor(output))  # post-norm
        else:
            parallel = args[0] is tap.block_input  # attention and feed-forward side by side
            tap.close(None if parallel else args[0])

    stack.callback(block.register_forward_pre_hook(enter_block, with_kwargs=True).remove)
    if block is not core:
        stack.callback(core.register_forward_pre_hook(enter_core, with_kwargs=True).remove)
    stack.callback(core.register_forward_hook(leave_core).remove)
    for norm in norms:
        stack.callback(norm.register_forward_hook(leave_norm).remove)


def _enter(tap: Tap, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Let `tap.entry` see and replace the stream in front of the layer."""
    if tap.entry is None:
        return args, kwargs
    if args and isinstance(args[0], Tensor):
        return (tap.entry(tap.layer, args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": tap.entry(tap.layer, kwargs["hidden_states"])}


def is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def _block(model: nn.Module, core: nn.Module) -> nn.Module:
    """The nearest ancestor of `core` (itself allowed) that stands in a ModuleList; its parent when there is none."""
    names = {module: name for name, module in model.named_modules()}
    parts = names[core].split(".")
    for end in range(len(parts), 0, -1):
        if isinstance(model.get_submodule(".".join(parts[: end - 1])), nn.ModuleList):
            return model.get_submodule(".".join(parts[:end]))
    return model.get_submodule(".".join(parts[:-1])) if len(parts) > 1 else core


def _first(args: Any, kwargs: Any) -> Tensor | None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and value.is_floating_point():
            return value
    return None


def _tensor(output: Any) -> Tensor:
    found = output[0] if isinstance(output, (tuple, list)) else output
    assert isinstance(found, Tensor)
    return found


def _switch(model: nn.Module, stack: ExitStack) -> None:
    """Name our function in the configuration of the model and of every part that has one of its own."""
    configs: dict[int, Any] = {
        id(m.config): m.config for m in model.modules() if hasattr(getattr(m, "config", None), "sub_configs")
    }
    configs.setdefault(id(model.config), model.config)
    for config in configs.values():
        stack.callback(setattr, config, "_attn_implementation", config._attn_implementation)
        config._attn_implementation = NAME


def _register() -> None:
    extra("transformers", "probe", "a Hugging Face model")
    try:
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    except ImportError:
        raise InfoFlowError(
            "expected transformers 5.0 or later (before it BERT and ALBERT bypass the attention interface), got an "
            "older one; update transformers."
        ) from None
    if NAME not in ALL_ATTENTION_FUNCTIONS.valid_keys():
        ALL_ATTENTION_FUNCTIONS.register(NAME, _hugging_face_attention)
        ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, eager_mask)


def _hugging_face_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """The attention interface of transformers: (B, heads, rows, n) in, (B, rows, heads, n) out."""
    if dropout:
        raise InfoFlowError("expected a model in evaluation mode, got dropout; call model.eval() first.")
    for name in ("softcap", "position_bias", "s_aux"):
        if kwargs.get(name) is not None:
            raise InfoFlowError(f"expected plain softmax attention, got {name}; this family is not supported.")
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    tap = _ACTIVE.get()
    visible = _visible(tap, module, attention_mask, query, key)
    if tap is None:
        result: Attended = attention(query, key, value, scale, visible)
    else:
        result = tap.attend(query, key, value, scale, visible, core=module)
    return result.values.transpose(1, 2).contiguous(), result.weights


def _visible(tap: Tap | None, module: nn.Module, mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """The additive mask as a boolean one; the same tensor serves all layers, so it is converted once per pass."""
    if mask is None:
        rows, keys = query.shape[-2], key.shape[-2]
        if not getattr(module, "is_causal", False) or rows == 1:
            return None
        return torch.ones(rows, keys, dtype=torch.bool, device=query.device).tril(keys - rows)
    if tap is not None and tap.mask is not None and tap.mask[0] is mask:
        return tap.mask[1]
    visible = _boolean(mask)
    if tap is not None:
        tap.mask = (mask, visible)
    return visible


def _boolean(mask: Tensor) -> Tensor:
    if mask.dtype is torch.bool:
        return mask
    visible = mask == 0
    if not bool((visible | (mask < -1e4)).all()):
        raise InfoFlowError("expected a mask of 0 and minus infinity, got an additive bias; this is not supported.")
    return visible


def _multihead(model: nn.Module) -> list[nn.MultiheadAttention]:
    return [module for module in model.modules() if isinstance(module, nn.MultiheadAttention)]


def _multihead_forward(
    module: nn.MultiheadAttention,
    tap: Tap,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`nn.MultiheadAttention.forward` with the arithmetic in `infoflow.nn.attention`."""
    if module.bias_k is not None or module.add_zero_attn or query.ndim != 3:
        raise InfoFlowError("expected a batched nn.MultiheadAttention without bias_k and add_zero_attn.")
    if module.training and module.dropout:
        raise InfoFlowError("expected a model in evaluation mode, got dropout; call model.eval() first.")
    streams = [query, key, value] if module.batch_first else [x.transpose(0, 1) for x in (query, key, value)]
    h = module.num_heads
    q, k, v = (
        x.unflatten(-1, (h, -1)).transpose(1, 2)
        for x in map(nn.functional.linear, streams, _weights(module), _biases(module))
    )
    visible = _hidden(attn_mask, key_padding_mask, h, q.shape[0])
    out, weights = tap.attend(q, k, v, q.shape[-1] ** -0.5, visible, core=module)
    joined = module.out_proj(out.transpose(1, 2).flatten(-2))
    joined = joined if module.batch_first else joined.transpose(0, 1)
    if not need_weights:
        return joined, None
    return joined, weights.mean(1) if average_attn_weights else weights


def _weights(module: nn.MultiheadAttention) -> tuple[Tensor, ...]:
    if module.in_proj_weight is not None:
        return module.in_proj_weight.chunk(3)
    return module.q_proj_weight, module.k_proj_weight, module.v_proj_weight


def _biases(module: nn.MultiheadAttention) -> tuple[Tensor | None, ...]:
    return (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)


def _hidden(attn_mask: Tensor | None, padding: Tensor | None, h: int, B: int) -> Tensor | None:
    """Both masks of nn.MultiheadAttention (True or minus infinity: hidden) as one that is True where visible."""
    visible = None
    if attn_mask is not None:
        visible = ~attn_mask if attn_mask.dtype is torch.bool else _boolean(attn_mask)
        visible = visible.unflatten(0, (B, h)) if visible.ndim == 3 else visible
    if padding is not None:
        shown = (~padding if padding.dtype is torch.bool else _boolean(padding))[:, None, None, :]
        visible = shown if visible is None else visible & shown
    return visible
