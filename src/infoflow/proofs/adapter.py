"""A user's own PyTorch module as one attention layer that a fixed state asks: what `certify` must know of it.

    e(t) = tokens(x(t)),   s = cls + attention(query=cls, keys=e, values=e),   module(X) = last(act(first(s)))

`tokens`, `first` and `last` are `nn.Linear`, `attention` is an `nn.MultiheadAttention` whose keys are the T tokens
alone (the CLS does not look at itself). The proof is about this formula with the module's weights. That the module
computes it on every input is the author's promise; it is compared on sequences of every kind, and refused where it
fails.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from infoflow.certificates.attack import starts
from infoflow.errors import InfoFlowError
from infoflow.proofs.lines import ACTS
from infoflow.proofs.reduce import LayerMatrices, Reduced, multiplied
from infoflow.targets.target import Target

COMPARED = 240  # sequences on which module and formula are compared
AGREE = 1e-9  # of the largest output: float64 evaluates both to 1e-13 or so
PROMISE = "its adapter describes the module on every input"


@dataclass(frozen=True, eq=False)
class OneLayer:
    """The parts of `module`, X (B, T, d) -> (B,) or (B, outputs); `residual`: whether cls is added to what is read."""

    module: nn.Module
    tokens: nn.Linear
    cls: Tensor
    attention: nn.MultiheadAttention
    first: nn.Linear
    last: nn.Linear
    activation: str = "gelu"
    residual: bool = True

    def exact(self) -> nn.Module:
        """The module in float64 and evaluation mode; the user's own is left as it is."""
        return copy.deepcopy(self.module).double().eval().requires_grad_(False)

    def reduced(self) -> Reduced:
        """The weights multiplied out; what the formula does not cover is refused by name."""
        a = self.attention
        if self.activation not in ACTS:
            raise InfoFlowError(f"expected an activation of {', '.join(sorted(ACTS))}, got {self.activation!r}.")
        odd = {
            "keys or values of another size": not a._qkv_same_embed_dim,
            "bias_k and bias_v": a.bias_k is not None or a.bias_v is not None,
            "add_zero_attn": a.add_zero_attn,
        }
        if any(odd.values()):
            got = ", ".join(what for what, found in odd.items() if found)
            raise InfoFlowError(f"expected plain multi-head attention, got one with {got}; no bound is known for it.")
        E, h = a.embed_dim, a.num_heads
        query, key, value = _array(a.in_proj_weight, 3 * E, E).reshape(3, h, E // h, E)
        q_bias, k_bias, v_bias = _array(a.in_proj_bias, 3 * E).reshape(3, h, E // h)
        cls, out = _array(self.cls, self.cls.numel()), _array(a.out_proj.weight, E, E)
        if cls.shape != (E,) or self.tokens.out_features != E or self.first.in_features != E:
            raise InfoFlowError(f"expected cls, tokens and first of the attention's size {E}, got others.")
        scale = float(E // h) ** -0.5
        shift = _array(a.out_proj.bias, E)
        kept = cls if self.residual else np.zeros(E)
        return multiplied(
            LayerMatrices(
                _array(self.tokens.weight, E, self.tokens.in_features),
                _array(self.tokens.bias, E),
                scale * (query @ cls + q_bias),
                scale * (np.abs(query) @ np.abs(cls) + np.abs(q_bias)),
                key,
                k_bias,
                value,
                out,
                kept + out @ v_bias.ravel() + shift,
                np.abs(kept) + np.abs(out) @ np.abs(v_bias.ravel()) + np.abs(shift),
                _array(self.first.weight, self.first.out_features, E),
                _array(self.first.bias, self.first.out_features),
                _array(self.last.weight, self.last.out_features, self.last.in_features),
                _array(self.last.bias, self.last.out_features),
                self.activation,
            )
        )


def _array(given: Tensor | None, *shape: int) -> np.ndarray:
    """Its numbers in float64; a bias that is left out is zero."""
    if given is None:
        return np.zeros(shape)
    found: np.ndarray = given.detach().double().cpu().numpy().reshape(shape)
    return found


def compared(network: OneLayer, reduced: Reduced, target: Target, T: int, seed: int) -> float:
    """The largest difference of module and formula on sequences of every kind; refused where it is no rounding."""
    low, high = target.domain
    drawn = starts(np.random.default_rng(seed), COMPARED, T, target.dim, 0)
    X = low + (high - low) * drawn
    with torch.no_grad():
        theirs = np.asarray(_values(network.exact(), torch.from_numpy(X)))
    ours = reduced(reduced.averages(X))
    if theirs.shape[0] != len(X) or theirs.size != ours.size:
        raise InfoFlowError(f"expected module(X) of shape {ours.shape}, got {theirs.shape}; compare its outputs.")
    off = float(np.abs(theirs.reshape(ours.shape) - ours).max())
    if not off <= AGREE * (1.0 + float(np.abs(ours).max())):
        raise InfoFlowError(
            f"expected a module that computes last(act(first(cls + attention(cls, tokens)))), but it differs from that "
            f"by {off:.3g} on some sequence; correct the parts that the adapter names."
        )
    return off


def _values(module: nn.Module, X: Tensor) -> Any:
    try:
        return module(X)
    except Exception as error:  # the user's own code may raise anything; it must become one sentence
        raise InfoFlowError(f"expected module(X) to run on {tuple(X.shape)} float64, it failed with {error}") from None
