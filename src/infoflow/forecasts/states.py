"""What a token can know when the CLS reads it: the states z(t) of each layer, as generous as the layers before allow.

Layer 1 sees the token itself (linear encoder) or smooth functions of it (MLP encoder). A later layer also sees what
heads of the layers before have fetched for the token. For a tree score that is, for each edge towards the root,

    mu(t) = max_s [ <left(x_t), right(x_s)> + what s already knows ],

the inner maximum of the score: one head fetches it, in layer l if its own inner maxima were fetched before. For the
k-th largest value it is the rank of the token. Heads are given to whole terms, as long as there are any. Everything
else about a state is fixed: quadratic monomials and random GELU features of what is known, in place of trained ones.

A state also says what its heads should follow (`aims`): the whole scores of the terms that can be read there, each term
in the first layer whose tokens know its score. One start of the reduced problem begins at them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from infoflow.architecture import Architecture
from infoflow.targets import (
    Extremum,
    KthLargest,
    NormOfSum,
    PositionSum,
    Target,
    Term,
    TreeScore,
    ValueAtExtremum,
    tree_form,
)
from infoflow.targets.search import respond

BENT = 24  # random GELU features of a token's state
GAIN = 1.5  # of their directions: enough to bend within a deviation
FEW, LINEAR = 200, 0.02  # sequences, and the share of a score's variance that a linear map may leave


@dataclass(frozen=True)
class State:
    """Tokens (N, T, p) as one layer's reads see them, by `heads` heads of `size` numbers out of `embed`."""

    tokens: Tensor
    heads: int
    size: int
    embed: int
    aims: Tensor  # (N, T, at most heads): scores to follow


@dataclass(frozen=True, eq=False)
class Messages:
    """Of one term: what heads fetch for each token (N, T, count), the layer it takes before they are there, and the
    token's whole score (N, T), largest at the token that the CLS should read."""

    values: np.ndarray
    depth: int
    total: np.ndarray


def states(target: Target, X: np.ndarray, arch: Architecture, mlp: bool, device: str = "cpu") -> list[State]:
    """One state per layer; X (N, T, d)."""
    X = _kept(target, X, arch.embeds[0]) if not mlp else X
    known = [_standard(torch.from_numpy(X))]
    if any(isinstance(term, PositionSum) for term in target.terms) and arch.positions != "none":
        known.append(torch.eye(X.shape[1]).expand(len(X), -1, -1))
    unread = [found for term in target.terms if (found := messages(term, X)) is not None]
    fetchable = [found for found in unread if found.depth]
    result = []
    for layer, (heads, size, embed) in enumerate(zip(arch.heads, arch.head_dims, arch.embeds, strict=True)):
        fetched = _fetched(fetchable, layer, sum(arch.heads[:layer]))
        plain = layer == 0 and not mlp
        values = [_standard(torch.from_numpy(found.values)) for found in fetched]
        tokens = torch.cat(known, -1) if plain else _bent(known, values)
        last = layer == arch.layers - 1
        ready = [m for m in unread if m.depth == 0 or m in fetched]
        chosen = [m for m in ready if last or not plain or _linear(m.total, tokens)][:heads]
        unread = [m for m in unread if m not in chosen]
        aims = [_standard(torch.from_numpy(m.total)) for m in chosen]
        aim = torch.stack(aims, -1) if aims else torch.zeros(*X.shape[:2], 0)
        result.append(State(tokens.to(device), heads, size, embed, aim.to(device)))
    return result


def messages(term: Term, X: np.ndarray) -> Messages | None:
    """What the term's inner maxima are (none where a token alone tells its score); None for functions of all."""
    if isinstance(term, ValueAtExtremum):
        return messages(term.extremum, X)
    if isinstance(term, PositionSum):
        chosen = np.isin(np.arange(X.shape[1]), term.positions).astype(float)
        return _alone(np.broadcast_to(chosen, X.shape[:2]).copy())
    if isinstance(term, KthLargest):
        if term.k == 1:
            return _alone(X @ term.direction)
        ranks = np.argsort(np.argsort(-(X @ term.direction), axis=1), axis=1)
        return Messages(ranks[..., None] / X.shape[1], 1, -((ranks - term.k + 1.0) ** 2))
    if not isinstance(term, Extremum):
        return None
    sign = 1 if term.kind == "max" else -1
    if term.arity == 1:
        return _alone(sign * term.score(X[..., None, :]))
    tree = tree_form(term.score)
    if tree is not None:
        found = [_inner_maxima(tree, root, X, sign) for root in range(tree.arity)]
        return min(found, key=lambda m: m.depth)
    if isinstance(term.score, NormOfSum):  # no tree: the best partner of a token is all that one head can find
        pairs = tree_form(NormOfSum(2, term.dim))
        assert pairs is not None
        return _inner_maxima(pairs, 0, X, sign)
    return None


def _alone(total: np.ndarray) -> Messages:
    return Messages(np.zeros((*total.shape, 0)), 0, total)


def messages_wanted(target: Target) -> int:
    """How many inner maxima the tokens would have to know, over all terms."""
    wanted = 0
    for term in target.terms:
        if isinstance(term, Extremum):
            wanted += term.arity - 1
        elif isinstance(term, KthLargest):
            wanted += term.k > 1
    return wanted


def _inner_maxima(tree: TreeScore, root: int, X: np.ndarray, sign: int) -> Messages:
    """mu of every edge towards the root, and the number of layers between the farthest leaf and the root."""
    total = [np.zeros(X.shape[:2]) if u is None else sign * u(X)[..., 0] for u in tree.unary]
    depth = [0] * tree.arity
    found = []
    for child, edge in reversed(tree.rooted(root)):
        if edge is not None:
            value, _ = respond(edge, X, sign, total[child], False)
            found.append(value)
            total[edge.v] = total[edge.v] + value
            depth[edge.v] = max(depth[edge.v], depth[child] + 1)
    return Messages(np.stack(found, -1), depth[root], total[root])


def _fetched(terms: Sequence[Messages], layers: int, heads: int) -> list[Messages]:
    """The terms whose messages `heads` heads in `layers` layers can fetch, in their order."""
    found = []
    for term in terms:
        count = term.values.shape[-1]
        if term.depth <= layers and count <= heads:
            heads -= count
            found.append(term)
    return found


def _linear(total: np.ndarray, tokens: Tensor) -> bool:
    """Whether a score is a linear function of the tokens' states, up to LINEAR of its variance."""
    flat = tokens[:FEW].reshape(-1, tokens.shape[-1])
    wanted = _standard(torch.from_numpy(total[:FEW])).reshape(-1, 1)
    return bool((flat @ torch.linalg.lstsq(flat, wanted).solution - wanted).square().mean() < LINEAR)


def _kept(target: Target, X: np.ndarray, embed: int) -> np.ndarray:
    """A linear encoder into fewer than d numbers keeps a plane: the one in which the target's gradient lies most."""
    d = X.shape[-1]
    if embed >= d:
        return X
    few = X[: max(1, 200_000 // X[0].size)]
    slopes = target.gradient(few).reshape(-1, d)
    plane = np.linalg.eigh(slopes.T @ slopes)[1][:, -embed:]
    return X @ plane @ plane.T


def _bent(known: list[Tensor], fetched: list[Tensor]) -> Tensor:
    """What is known, its squares and products of tokens, and random GELU features of all of it."""
    own, everything = known[0], torch.cat([*known, *fetched], -1)
    d = own.shape[-1]
    products = torch.stack([own[..., i] * own[..., j] for i in range(d) for j in range(i, d)], -1)
    generator = torch.Generator().manual_seed(0)
    size = everything.shape[-1]
    directions = GAIN * torch.randn(size, BENT, generator=generator) / size**0.5
    bent = torch.nn.functional.gelu(everything @ directions + torch.randn(BENT, generator=generator))
    return _standard(torch.cat([everything, products, bent], -1))


def _standard(x: Tensor) -> Tensor:
    x = x.float()
    return (x - x.mean((0, 1))) / x.std((0, 1)).clamp_min(1e-9)
