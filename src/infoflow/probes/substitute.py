"""A copy of a model whose chosen heads really are what a label says.

hardmax     the mean of the values at the keys with the largest score
top2, top4  softmax over the 2 (4, any k) keys with the largest scores
uniform     the mean over visible keys
position    the head's mean pattern by position, from other documents, over the visible keys
mean        the head's mean output, from other documents (mean ablation)
deleted     nothing
"""

import copy
import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from infoflow.errors import InfoFlowError, unknown
from infoflow.nn import Attended, attention
from infoflow.probes.adapters import heads_of, install
from infoflow.probes.references import References
from infoflow.probes.tap import Edit, Tap

Head = tuple[int, int]  # (layer, head), 0-based
Assignment = Mapping[Head, str]
MODES = ("hardmax", "top2", "top4", "position", "uniform", "mean", "deleted")
NEED_REFERENCES = ("position", "mean")


class _Call(NamedTuple):
    """What an attention is asked, as `nn.attention` takes it."""

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    mask: Tensor | None


def check_mode(mode: str, references: References | None) -> None:
    if not re.fullmatch(r"top[1-9][0-9]*", mode) and mode not in MODES:
        raise unknown("mode", mode, list(MODES))
    if mode in NEED_REFERENCES and references is None:
        raise InfoFlowError(f"expected references for mode {mode!r}, got none; measure them on other documents first.")


class Substitute:
    """A copy of `model` (it shares the weights) whose heads follow `assign`; the original is untouched."""

    def __init__(self, model: nn.Module, references: References | None = None) -> None:
        self.heads, self.references = heads_of(model), references
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        self.model: nn.Module = copy.deepcopy(model, shared)  # the memo makes the copy share every tensor
        self.model.eval()
        self.plan: dict[int, dict[str, list[int]]] = {}
        install(self.model, Tap(self.edit)).pop_all()  # installed for good

    def assign(self, assignment: Assignment) -> nn.Module:
        """Put this assignment in force; heads it does not name stay as they are."""
        plan: dict[int, dict[str, list[int]]] = {}
        for (layer, head), mode in assignment.items():
            check_mode(mode, self.references)
            if not (0 <= layer < len(self.heads) and 0 <= head < self.heads[layer]):
                raise InfoFlowError(
                    f"expected a head of layers with {self.heads} heads, got layer {layer + 1}, head {head + 1}."
                )
            plan.setdefault(layer, {}).setdefault(mode, []).append(head)
        self.plan = plan
        return self.model

    def edit(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None, hard: bool
    ) -> Attended | None:
        modes = self.plan.get(layer)
        if modes is None:
            return None
        h = q.shape[-3]
        if len(modes) == 1 and all(len(heads) == h for heads in modes.values()):
            return self._run(next(iter(modes)), layer, slice(None), _Call(q, k, v, scale, mask))
        changed = {head for heads in modes.values() for head in heads}
        kept = [head for head in range(h) if head not in changed]
        values = v.new_zeros(*q.shape[:-1], v.shape[-1])
        weights = q.new_zeros(*q.shape[:-1], k.shape[-2])
        if kept:
            part = attention(q[..., kept, :, :], k[..., kept, :, :], v[..., kept, :, :], scale, mask, hard)
            values[..., kept, :, :], weights[..., kept, :, :] = part
        for mode, heads in modes.items():
            pick = (..., heads, slice(None), slice(None))
            asked = _Call(q[pick], k[pick], v[pick], scale, mask)
            values[pick], weights[pick] = self._run(mode, layer, heads, asked)
        return Attended(values, weights)

    def _run(self, mode: str, layer: int, heads: list[int] | slice, asked: _Call) -> Attended:
        """The heads given, in one mode."""
        q, k, v, scale, mask = asked
        if mode == "hardmax":
            return attention(q, k, v, scale, mask, hard=True)
        if mode == "uniform":
            return attention(q, k, v, 0.0, mask)
        if mode.startswith("top"):
            return attention(q, k, v, scale, _largest(q, k, scale, mask, int(mode[3:])))
        if mode == "deleted":
            return Attended(v.new_zeros(*q.shape[:-1], v.shape[-1]), q.new_zeros(*q.shape[:-1], k.shape[-2]))
        assert self.references is not None
        if mode == "mean":
            mean = self.references.output(layer)[heads].to(v)
            return Attended(
                mean[:, None, :].expand(*q.shape[:-1], v.shape[-1]), q.new_zeros(*q.shape[:-1], k.shape[-2])
            )
        weights = spread(self.references.pattern(layer)[heads].to(v), q.shape[-2], k.shape[-2], mask)
        return Attended(weights @ v, weights.expand(*q.shape[:-1], k.shape[-2]))


def spread(table: Tensor, queries: int, keys: int, mask: Tensor | None) -> Tensor:
    """The mean pattern on this input: cut to its length, hidden keys to 0, rows to sum 1 (uniform where all is 0)."""
    h, Q, K = table.shape
    weights = table.new_zeros(h, queries, keys)
    weights[:, : min(Q, queries), : min(K, keys)] = table[:, :queries, :keys]
    visible = torch.ones(queries, keys, dtype=torch.bool, device=table.device) if mask is None else mask
    shown = weights * visible
    total = shown.sum(-1, keepdim=True)
    even = visible / visible.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(total > 1e-6, shown / total.clamp(min=1e-6), even.to(table))


def _largest(q: Tensor, k: Tensor, scale: float, mask: Tensor | None, count: int) -> Tensor:
    """True at the `count` visible keys with the largest scores."""
    scores = q @ k.transpose(-1, -2) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    best = scores.topk(min(count, scores.shape[-1]), dim=-1).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True)
    return chosen if mask is None else chosen & mask


def substitute(model: nn.Module, assignment: Assignment, references: References | None = None) -> nn.Module:
    """A copy of `model` with the heads of `assignment` {(layer, head): mode} (0-based) forced into their mode."""
    return Substitute(model, references).assign(assignment)


def everywhere(heads: tuple[int, ...], mode: str, layer: int | None = None) -> dict[Head, str]:
    """One mode for all heads, or for all heads of one layer."""
    return {(l, i): mode for l, h in enumerate(heads) for i in range(h) if layer is None or l == layer}


__all__ = ["MODES", "Assignment", "Edit", "Head", "Substitute", "everywhere", "substitute"]
