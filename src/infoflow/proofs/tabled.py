"""A trained one-layer network over a finite vocabulary: token v has a score l_kv and a vector Z_kv per head, and

    z = z_0 + sum_k m_k,   m_k = sum_t e^(l_k v(t)) Z_k v(t) / sum_t e^(l_k v(t)),   logits = C act(z) + c.

Sequences come in groups: some tokens are fixed with their multiplicities, the other r are any tokens below b. For every
direction lambda, lambda' m_k is largest over the group when the r free tokens are all the same one: the value is at
most mu when sum_t e^(l) (lambda' Z - mu) <= 0, and each free token can be chosen alone. So the averages of a group lie
in the hull of b points,

    Y_kv = (sum of the fixed e^l Z + r e^(l_kv) Z_kv) / (sum of the fixed e^l + r e^(l_kv)),   v < b,

and every linear function of z has its exact largest value over that hull (heads apart) at the price of b evaluations.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer
from infoflow.proofs.lines import ACTS, lines_above
from infoflow.proofs.reduce import STEEPEST, UNDERFLOW, expect_moderate, gamma, uncovered

FIRST = "readout.maps.0.weight"
SLACK = 1e-11  # per unit of absolute value summed in a margin: above gamma_n of all its sums


@dataclass(frozen=True, eq=False)
class Tabled:
    """What the network makes of each token of its vocabulary."""

    scores: Float[np.ndarray, "h V"]
    vectors: Float[np.ndarray, "h V units"]
    start: Float[np.ndarray, " units"]  # z_0
    output: Float[np.ndarray, "classes units"]
    constant: Float[np.ndarray, " classes"]
    activation: str
    score_size: float = 0.0  # SLACK times this is what scores lose, in which much may cancel; 0 where nothing does
    unit_size: float = 0.0  # the same of what a unit adds up

    @property
    def size(self) -> int:
        return int(self.scores.shape[1])

    @cached_property
    def slack(self) -> float:
        """Rounding of a difference of two logits, whatever the sequence: SLACK times the absolute values in it."""
        reach = np.maximum(np.abs(self.start) + np.abs(self.vectors).max(1).sum(0), self.unit_size)
        units = STEEPEST[self.activation] * reach + 1.0
        spread = max(float(np.abs(self.scores).max(initial=0.0)), self.score_size)  # an exponent errs by its size
        return SLACK * (1.0 + spread) * 2.0 * float((np.abs(self.output) @ units + np.abs(self.constant)).max())

    def logits(self, sequences: Int[np.ndarray, "n T"]) -> Float[np.ndarray, "n classes"]:
        """The same function, one sequence after the other."""
        z = np.broadcast_to(self.start, (len(sequences), len(self.start))).copy()
        for scores, vectors in zip(self.scores, self.vectors, strict=True):
            weights = np.exp(scores[sequences] - scores[sequences].max(1, keepdims=True))
            z += np.einsum("nt,ntu->nu", weights / weights.sum(1, keepdims=True), vectors[sequences])
        found: np.ndarray = ACTS[self.activation].value(z) @ self.output.T + self.constant
        return found


def tabled(network: Transformer) -> Tabled:
    """The table of a network over a vocabulary; refuse by name what the argument does not cover."""
    c = network.config
    reasons = [reason for reason in uncovered(network) if reason != "a table of the vocabulary"]
    if c.encoder != "table" or reasons:
        got = ", ".join(reasons) or "tokens that are vectors"
        raise InfoFlowError(f"expected one layer over a vocabulary without positions, got {got}; no bound is known.")
    p = {name: value.detach().double().cpu().numpy() for name, value in network.state_dict().items()}
    if not all(np.isfinite(value).all() for value in p.values()):
        raise InfoFlowError("expected finite weights, got NaN or infinity; the network has diverged.")
    expect_moderate([*p.values(), np.array(c.betas)])
    (h,), (n,), table, cls = c.heads, c.head_dims, p["table"], p["cls_token"]
    query, key = p["attentions.0.query"], p["attentions.0.key"]
    value, output = p.get("attentions.0.value", key), p["attentions.0.output"]
    first, shift = p["readout.maps.0.weight"], p["readout.maps.0.bias"]
    sums = {name: np.abs(value) for name, value in p.items()}
    a_query, a_key, a_first = (sums[name] for name in ("attentions.0.query", "attentions.0.key", FIRST))
    a_value, a_output = sums.get("attentions.0.value", a_key), sums["attentions.0.output"]
    asked = [abs(c.betas[0]) * sums["table"] @ a_key[k].T @ (a_query[k] @ sums["cls_token"]) for k in range(h)]
    added = [sums["table"] @ a_value[k].T @ a_output[:, k * n : (k + 1) * n].T @ a_first.T for k in range(h)]
    still = a_first @ sums["cls_token"] + np.abs(shift)
    sizes = float(np.max(asked)), float((still + sum(each.max(0) for each in added)).max())
    lost = gamma(2 * (5 * table.shape[1] + (h + 1) * n) + 16) / SLACK  # as in `reduce.multiplied`
    return Tabled(
        np.stack([c.betas[0] * table @ key[k].T @ (query[k] @ cls) for k in range(h)]),
        np.stack([table @ value[k].T @ output[:, k * n : (k + 1) * n].T @ first.T for k in range(h)]),
        first @ cls + shift if c.residual else shift,
        p["readout.maps.1.weight"],
        p["readout.maps.1.bias"],
        c.readout_activation or c.activation,
        lost * sizes[0] + UNDERFLOW / SLACK,
        lost * sizes[1] + UNDERFLOW / SLACK,
    )


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups that share the number of fixed places: tokens (falling), how often each, the free places, their limit."""

    tokens: Int[np.ndarray, "groups fixed"]
    counts: Int[np.ndarray, "groups fixed"]
    free: Int[np.ndarray, " groups"]
    below: Int[np.ndarray, " groups"]

    def __len__(self) -> int:
        return len(self.free)

    def __getitem__(self, where: np.ndarray) -> "Groups":
        return Groups(self.tokens[where], self.counts[where], self.free[where], self.below[where])


def hull(net: Tabled, groups: Groups, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(Y_kv as (groups, V, units), whether v is below the limit as (groups, V)); without free places one point."""
    scores, vectors = net.scores[k], net.vectors[k]
    top = scores[groups.tokens].max(1)
    fixed = groups.counts * np.exp(scores[groups.tokens] - top[:, None])  # (g, fixed)
    weight = fixed.sum(1)
    total = np.einsum("gf,gfu->gu", fixed, vectors[groups.tokens])
    other = groups.free[:, None] * np.exp(np.minimum(scores[None] - top[:, None], 600.0))  # (g, V)
    points = (total[:, None] + other[..., None] * vectors[None]) / (weight[:, None] + other)[..., None]
    allowed = np.arange(net.size)[None] < groups.below[:, None]
    allowed[:, 0] |= groups.free == 0  # every v gives the same point there
    return points, allowed


def least(
    net: Tabled,
    groups: Groups,
    weights: Float[np.ndarray, "groups rows units"],
    constants: Float[np.ndarray, "groups rows"],
) -> Float[np.ndarray, "groups rows"]:
    """A lower bound, over all sequences of each group, of sum_u weights_u act(z_u) + constants, row by row."""
    hulls = [hull(net, groups, k) for k in range(len(net.scores))]
    low, high = net.start, net.start
    for points, allowed in hulls:
        low = low + np.where(allowed[..., None], points, np.inf).min(1)
        high = high + np.where(allowed[..., None], points, -np.inf).max(1)
    above = _middle_line(net.activation, 1, low, high)
    below = _middle_line(net.activation, -1, low, high)
    up = weights > 0  # there the activation is replaced by a line below it
    slopes = weights * np.where(up, -below[0][:, None], above[0][:, None])
    ends = weights * np.where(up, -below[1][:, None], above[1][:, None])
    found: np.ndarray = ends.sum(-1) + slopes @ net.start + constants - net.slack
    for points, allowed in hulls:
        values = slopes @ points.swapaxes(1, 2)  # (groups, rows, V)
        found = found + np.where(allowed[:, None], values, np.inf).min(-1)
    return found


def margins(net: Tabled, groups: Groups, label: Int[np.ndarray, " groups"]) -> Float[np.ndarray, " groups"]:
    """A lower bound, over all sequences of each group, of the label's logit minus the largest other one."""
    lead = net.output[label][:, None] - net.output[None]  # (groups, classes, units)
    found = least(net, groups, lead, net.constant[label][:, None] - net.constant[None])
    found[np.arange(len(groups)), label] = np.inf
    smallest: np.ndarray = found.min(1)
    return smallest


def ends(net: Tabled, groups: Groups) -> tuple[Float[np.ndarray, " groups"], Float[np.ndarray, " groups"]]:
    """Below and above a single output over all sequences of each group."""
    both = np.stack([net.output[0], -net.output[0]])
    weights = np.broadcast_to(both, (len(groups), *both.shape))
    constants = np.broadcast_to([net.constant[0], -net.constant[0]], (len(groups), 2))
    found = least(net, groups, weights, constants)
    return found[:, 0], -found[:, 1]


def _middle_line(name: str, sign: int, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every unit the line above sign * act that is lowest in the middle of its interval."""
    shape = low.shape
    slopes, ends = lines_above(name, sign, low.ravel(), high.ravel(), points=3)
    best = (slopes * (0.5 * (low + high)).ravel()[:, None] + ends).argmin(1)[:, None]
    return (
        np.take_along_axis(slopes, best, 1).reshape(shape),
        np.take_along_axis(ends, best, 1).reshape(shape),
    )
