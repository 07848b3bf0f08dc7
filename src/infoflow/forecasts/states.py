"""What a token can know when the CLS reads it: the states z(t) of each layer, as generous as the layers before allow.

Layer 1 sees the token itself (linear encoder) or smooth functions of it (MLP encoder). A later layer also sees what
heads of the layers before have fetched for the token. For a tree score that is, for each edge towards the root,

    mu(t) = max_s [ <left(x_t), right(x_s)> + what s already knows ],

the inner maximum of the score: one head fetches it, in layer l if its own inner maxima were fetched before. For the
k-th largest value it is the rank of the token; for a value that is read beside the winner (induction) it is the
neighbour. Heads are given to whole terms, as long as there are any. A head of layer 1 behind a linear encoder has
scores that are bilinear in the two tokens, so where s is chosen by a quadratic unary score as well, the message comes a
layer later. Everything else about a state is fixed: quadratic monomials and random GELU features of what is known, in
place of trained ones.

Heads that are left read for the CLS: a token's query depends on the token, so tokens of G kinds can hold G different
maxima a head. Token t of kind g(t) then knows m_i for the terms i of its kind, and one head of the next layer that
averages over all tokens returns the shares n_g of the kinds and n_g m_i, from which the read-out has every m_i. So K
terms take G = ceil(K / heads left) kinds; a kind that no token is of (short sequences) is a floor that the reduced
problem sees.

Of a function of the whole sequence nothing is known but that it may ask where a token stands: with positions, tokens
know theirs, and in later layers the last token and the next one, for a head each.

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
    Polynomial,
    PositionSum,
    Target,
    Term,
    TreeScore,
    ValueAtExtremum,
    WholeSequence,
    tree_form,
)
from infoflow.targets.search import respond

MOST_SLOPES = 200_000  # numbers of the sequences on which the target's slopes are taken
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
    told: range = range(0)  # columns of `tokens` that hold what tokens have read for the CLS


@dataclass(frozen=True, eq=False)
class Messages:
    """Of one term: what heads fetch for each token (N, T, count), the layer it takes before they are there, and the
    token's whole score (N, T), largest at the token that the CLS should read."""

    values: np.ndarray
    depth: int
    total: np.ndarray
    heads: int


def states(
    target: Target, X: np.ndarray, arch: Architecture, mlp: bool, device: str = "cpu", telling: bool = False
) -> list[State]:
    """One state per layer; X (N, T, d). With `telling`, heads that are left read for the CLS."""
    X = _kept(target, X, arch.embeds[0]) if not mlp else X
    known = [_standard(torch.from_numpy(X))]
    unknown = any(isinstance(term, WholeSequence) for term in target.terms)
    placed = arch.positions != "none" and (unknown or names_positions(target))
    if placed:
        known.append(torch.eye(X.shape[1]).expand(len(X), -1, -1))
    asked = [np.repeat(X[:, -1:], X.shape[1], 1), np.roll(X, -1, axis=1)] if placed and unknown else []
    found = [messages(term, X, mlp) for term in target.terms]
    lost = names_positions(target) and arch.positions == "none"
    answers = _answers(target, X, found) if telling and arch.layers > 1 and not lost else {}
    unread = [each for each in found if each is not None]
    fetchable = [each for each in unread if each.depth]
    result: list[State] = []
    told: list[Messages] = []
    for layer, (heads, size, embed) in enumerate(zip(arch.heads, arch.head_dims, arch.embeds, strict=True)):
        before = sum(arch.heads[:layer])
        fetched = _fetched(fetchable, layer, before)
        plain = layer == 0 and not mlp
        values = [_standard(torch.from_numpy(each)) for each in (*(m.values for m in fetched), *asked[:before])]
        spare = before - sum(each.heads for each in fetched)
        held = _told([answers[m] for m in told if m in unread and m in answers], spare, known[0])
        first = sum(each.shape[-1] for each in (*known, *values))
        values += held
        tokens = torch.cat(known, -1) if plain else _bent(known, values)
        last = layer == arch.layers - 1
        ready = [m for m in unread if m.depth == 0 or m in fetched]
        followed = [m for m in ready if last or not plain or _linear(m.total, tokens)]
        told += [m for m in followed if m not in told]
        leading = heads - 1 if held and last and len(followed) > heads else heads  # one averages what tokens hold
        unread = [m for m in unread if m not in followed[:leading]]
        aims = [_standard(torch.from_numpy(m.total)) for m in followed[:leading]]
        aim = torch.stack(aims, -1) if aims else torch.zeros(*X.shape[:2], 0)
        where = range(first, first + sum(each.shape[-1] for each in held))
        result.append(State(tokens.to(device), heads, size, embed, aim.to(device), where))
    return result


def names_positions(target: Target) -> bool:
    """Whether the target asks where a token stands."""
    for term in target.terms:
        chosen = term.extremum if isinstance(term, ValueAtExtremum) else term
        if isinstance(term, PositionSum) or (isinstance(chosen, Extremum) and chosen.sets is not None):
            return True
        if isinstance(term, ValueAtExtremum) and term.shift:
            return True
    return False


def messages(term: Term, X: np.ndarray, mlp: bool = True) -> Messages | None:
    """What the term's inner maxima are (none where a token alone tells its score); None for functions of all."""
    if isinstance(term, ValueAtExtremum):
        return _beside(messages(term.extremum, X, mlp), term.shift, X)
    if isinstance(term, PositionSum):
        chosen = np.isin(np.arange(X.shape[1]), term.positions).astype(float)
        return _alone(np.broadcast_to(chosen, X.shape[:2]).copy())
    if isinstance(term, KthLargest):
        if term.k == 1:
            return _alone(X @ term.direction)
        ranks = np.argsort(np.argsort(-(X @ term.direction), axis=1), axis=1)
        return Messages(ranks[..., None] / X.shape[1], 1, -((ranks - term.k + 1.0) ** 2), 1)
    if not isinstance(term, Extremum):
        return None
    sign = 1 if term.kind == "max" else -1
    if term.arity == 1:
        return _alone(_within(sign * term.score(X[..., None, :]), term.mask(X)[0, 0]))
    tree = tree_form(term.score)
    if tree is not None:
        found = [_inner_maxima(tree, root, X, sign, term.mask(X)[0], mlp, term.distinct) for root in range(tree.arity)]
        return min(found, key=lambda m: m.depth)
    if isinstance(term.score, NormOfSum):  # no tree: the best partner of a token is all that one head can find
        pairs = tree_form(NormOfSum(2, term.dim))
        assert pairs is not None
        return _inner_maxima(pairs, 0, X, sign, term.mask(X)[0, :2], mlp, term.distinct)
    return None


def _alone(total: np.ndarray) -> Messages:
    return Messages(np.zeros((*total.shape, 0)), 0, total, 0)


def _beside(found: Messages | None, shift: int, X: np.ndarray) -> Messages | None:
    """The same with the token that stands `shift` positions on, which one head fetches by position."""
    if found is None or not shift:
        return found
    values = np.concatenate([found.values, np.roll(X, -shift, axis=1)], -1)
    return Messages(values, max(found.depth, 1), found.total, found.heads + 1)


def _within(total: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Scores with the tokens that may not win below all others (not infinitely: they are standardised)."""
    if allowed.all():
        return total
    lowest = total[:, allowed].min() - total[:, allowed].std()
    return np.where(allowed, total, lowest)


def _answers(target: Target, X: np.ndarray, found: Sequence[Messages | None]) -> dict[Messages, Tensor]:
    """What a head that follows a term's score returns (N, values), standardised."""
    columns = torch.from_numpy(np.asarray(target.term_values(X))).float()
    columns = (columns - columns.mean(0)) / columns.std(0).clamp_min(1e-9)
    parts = columns.split([term.values for term in target.terms], -1)
    return {each: part for each, part in zip(found, parts, strict=True) if each is not None}


def messages_wanted(target: Target) -> int:
    """How many inner maxima the tokens would have to know, over all terms."""
    wanted = 0
    for term in target.terms:
        if isinstance(term, Extremum):
            wanted += term.arity - 1
        elif isinstance(term, KthLargest):
            wanted += term.k > 1
    return wanted


def _inner_maxima(
    tree: TreeScore, root: int, X: np.ndarray, sign: int, allowed: np.ndarray, mlp: bool, apart: bool
) -> Messages:
    """mu of every edge towards the root, and the number of layers between the farthest leaf and the root."""
    total = [np.zeros(X.shape[:2]) if u is None else sign * u(X)[..., 0] for u in tree.unary]
    depth = [int(_late(u, allowed[v], mlp)) for v, u in enumerate(tree.unary)]
    depth[root] = 0
    found = []
    for child, edge in reversed(tree.rooted(root)):
        if edge is not None:
            below = np.where(allowed[child], total[child], -np.inf)
            value, _ = respond(edge, X, sign, below, apart)
            found.append(value)
            total[edge.v] = total[edge.v] + value
            depth[edge.v] = max(depth[edge.v], depth[child] + 1)
    return Messages(np.stack(found, -1), depth[root], _within(total[root], allowed[root]), len(found))


def _late(unary: Polynomial | None, allowed: np.ndarray, mlp: bool) -> bool:
    """Whether a head of layer 1 cannot add this unary score: it is not linear, the encoder is, and it matters."""
    return not mlp and unary is not None and unary.degree > 1 and bool(allowed.sum() > 1)


def _told(answers: list[Tensor], heads: int, own: Tensor) -> list[Tensor]:
    """What tokens that read for the CLS know: their kind, and the answers of the terms of their kind; nothing without
    heads or terms."""
    if not answers or heads <= 0:
        return []
    kinds = -(-len(answers) // heads)
    direction = torch.randn(own.shape[-1], generator=torch.Generator().manual_seed(1))
    side = (own @ direction).flatten()
    few = side[:: max(1, len(side) // 10_000)]
    edges = torch.quantile(few, torch.linspace(0, 1, kinds + 1)[1:-1]) if kinds > 1 else side.new_zeros(0)
    mine = torch.nn.functional.one_hot(torch.bucketize(own @ direction, edges), kinds).float()
    held = [answer[:, None, :] * mine[..., i // heads, None] for i, answer in enumerate(answers)]
    return [*held, *([mine] if kinds > 1 else [])]


def _fetched(terms: Sequence[Messages], layers: int, heads: int) -> list[Messages]:
    """The terms whose messages `heads` heads in `layers` layers can fetch, in their order."""
    found = []
    for term in terms:
        if term.depth <= layers and term.heads <= heads:
            heads -= term.heads
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
    few = X[: max(1, MOST_SLOPES // X[0].size)]
    slopes = target.gradient(few).reshape(-1, d)
    plane = np.linalg.eigh(slopes.T @ slopes)[1][:, -embed:]
    return X @ plane @ plane.T


def steep(target: Target, X: np.ndarray) -> Tensor:
    """(d, d): a root of the mean outer product of the target's slopes by its standardised tokens, of trace one.

    Random directions multiplied by it are those in which the target changes; without slopes all are alike.
    """
    d = X.shape[-1]
    few = X[: max(1, MOST_SLOPES // X[0].size)]
    slopes = target.gradient(few).reshape(-1, d) * X.std((0, 1))
    values, vectors = np.linalg.eigh(slopes.T @ slopes)
    values = np.clip(values, 0.0, None)
    if not values.sum() > 0:
        values = np.ones(d)
    return torch.from_numpy(vectors * np.sqrt(values / values.sum())).float()


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
