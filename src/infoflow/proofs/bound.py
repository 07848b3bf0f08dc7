"""Branch and bound for sup over m of  +-g(m) + sum_i min over pieces of (p_ir' m + o_ir)  over a box with linear cuts.

A node is a slab: lo <= R' m <= hi along a few orthonormal directions R. The directions are the eigenvectors of
sum_j |c_j| w_j w_j': a read-out bends along very few of them (in trained networks one to three carry nearly all), and
only the bending needs splitting, for the pieces are concave and cost a linear program nothing.

On a node every unit c_j act(z_j) lies below straight lines on the range of z_j (`lines.py`). What is left is a linear
program in m, one number A_k per head (the cuts), one number per term and one per unit. Its value is never trusted: the
multipliers it returns are made non-negative and summed to one where they must be, and weak duality gives, for ANY such
multipliers,

    sup <= sum of the constants they weigh + max over the box of the linear function they leave,

which is evaluated here with its rounding allowance. A node that the program calls empty is dropped only when
multipliers prove it. The value of the function at the program's m is a lower end: the search stops when both ends meet.
"""

import heapq
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from infoflow.proofs.inequalities import Bracketed
from infoflow.proofs.lines import ACTS, lines_above
from infoflow.proofs.reachable import Cuts
from infoflow.proofs.reduce import Reduced

CLOSE = 0.01  # the search ends when the bound is within this share of the largest value it met
ALLOWANCE = 1e-12  # per unit of absolute value summed: far above gamma_n for the n < 2000 terms of a node's sum
MOST_NODES = 10**6
UNBALANCED = 1e-9  # a larger rest of the balance that weak duality asks for costs the convexity cuts
FIRST_ROUNDS, ROUNDS = 8, 2  # programs of the first node and of every other, while pieces join
WORTH = 2e-3  # share of the bound that a piece must cut off to join
THIN = 1e-4  # a unit whose line is off by less than this share of the bound gets no variable of its own


@dataclass(frozen=True, eq=False)
class Problem:
    """One sign and one output: maximise sign g(m) + shift + sum_i min_r (slopes_ir' m + constants_ir).

    The programs use the pieces in `active` alone: fewer pieces are a larger function, so every bound holds. A piece
    that cuts off a program's answer joins them."""

    units: Float[np.ndarray, " units"]  # sign * c_j
    shift: float
    pieces: tuple[tuple[np.ndarray, np.ndarray], ...]
    name: str
    active: tuple[list[int], ...]

    def sharpen(self, m: np.ndarray, least: float) -> bool:
        """Let in, for every term, the lowest piece at m where it is lower by `least` than those in use."""
        grown = False
        for (slopes, constants), used in zip(self.pieces, self.active, strict=True):
            values = slopes @ m + constants
            best = int(values.argmin())
            if values[best] < values[used].min() - least:
                used.append(best)
                grown = True
        return grown

    @property
    def used(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(s[used], o[used]) for (s, o), used in zip(self.pieces, self.active, strict=True)]


@dataclass(frozen=True, eq=False)
class Space:
    """What all problems share: the box, the cuts, the units' arguments, the directions of the slabs."""

    reduced: Reduced
    low: Float[np.ndarray, " hd"]
    high: Float[np.ndarray, " hd"]
    cuts: Cuts
    directions: Float[np.ndarray, "hd hd"]  # columns
    along: Float[np.ndarray, "units hd"]  # w_j' directions
    beyond: Float[np.ndarray, " units"]  # |w_j' m - (w_j' directions)(directions' m)| over the box

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The range of every direction over the box, a little widened."""
        first, second = self.directions * self.low[:, None], self.directions * self.high[:, None]
        lo, hi = np.minimum(first, second).sum(0), np.maximum(first, second).sum(0)
        return lo - 1e-12 * (1.0 + np.abs(lo)), hi + 1e-12 * (1.0 + np.abs(hi))


@dataclass(order=True)
class OpenBox:
    """A box of the search that is not settled: the bound over it, and what a cut of it needs; the worst comes first."""

    key: float
    number: int
    bound: float = field(compare=False)
    problem: Problem = field(compare=False)
    lo: np.ndarray = field(compare=False)
    hi: np.ndarray = field(compare=False)
    scores: np.ndarray = field(compare=False)
    middle: np.ndarray = field(compare=False)


@dataclass(frozen=True)
class Found:
    """bound >= the supremum >= (up to rounding) reached; per problem the bound that is left."""

    bound: float
    reached: float
    parts: dict[str, float]
    nodes: int
    seconds: float


def space_of(reduced: Reduced, cuts: Cuts, low: np.ndarray, high: np.ndarray) -> Space:
    h = reduced.heads
    lows, highs = np.tile(low, h), np.tile(high, h)
    weight = np.abs(reduced.output).max(0)
    _, directions = np.linalg.eigh((reduced.weight * weight[:, None]).T @ reduced.weight)
    directions = directions[:, ::-1]
    along = reduced.weight @ directions
    largest = np.maximum(np.abs(lows), np.abs(highs))
    off = np.abs(reduced.weight - along @ directions.T)
    beyond = (off + 1e-14 * (np.abs(along) @ np.abs(directions).T + np.abs(reduced.weight))) @ largest
    return Space(reduced, lows, highs, cuts, directions, along, beyond + 1e-14 * np.abs(reduced.bias))


def problems(reduced: Reduced, bracketed: Bracketed) -> list[Problem]:
    """Both signs of the error, for every output."""
    found = []
    for o, (weights, constant) in enumerate(zip(bracketed.weight, bracketed.constant.tolist(), strict=True)):
        for sign, words in ((1.0, "network - target"), (-1.0, "target - network")):
            pieces = []
            for value, weight in zip(bracketed.values, weights.tolist(), strict=True):
                if weight == 0.0:
                    continue
                slopes, ends = value.lower if -sign * weight < 0.0 else value.upper
                pieces.append((-sign * weight * slopes, -sign * weight * ends))
            shift = sign * (float(reduced.constant[o]) - constant)
            name = words if len(bracketed.weight) == 1 else f"{words} (output {o + 1})"
            active = tuple(list(range(reduced.heads + 1)) for _ in pieces)
            found.append(Problem(sign * reduced.output[o], shift, tuple(pieces), name, active))
    return found


def largest(space: Space, asked: list[Problem], seconds: float, close: float = CLOSE, most: int = MOST_NODES) -> Found:
    """The largest of the suprema; the open node with the largest bound is split, until time is up, `most` nodes were
    made or the ends meet."""
    begin, made, reached = time.monotonic(), 0, 0.0
    heap: list[OpenBox] = []
    done = {problem.name: 0.0 for problem in asked}
    for problem in asked:
        node, value = _node(space, problem, *space.ends, np.inf, made, reached)
        made += 1
        reached = max(reached, value)
        if node is not None:
            heapq.heappush(heap, node)
    while heap and heap[0].bound > reached * (1.0 + close) and made < most and time.monotonic() - begin < seconds:
        node = heapq.heappop(heap)
        axis = int(node.scores.argmax())
        if node.hi[axis] - node.lo[axis] < 1e-9:
            done[node.problem.name] = max(done[node.problem.name], node.bound)
            continue
        for lo, hi in _halves(node, axis):
            child, value = _node(space, node.problem, lo, hi, node.bound, made, reached)
            made += 1
            reached = max(reached, value)
            if child is None:
                continue
            if child.bound <= reached * (1.0 + 0.5 * close):
                done[child.problem.name] = max(done[child.problem.name], child.bound)
            else:
                heapq.heappush(heap, child)
    for node in heap:
        done[node.problem.name] = max(done[node.problem.name], node.bound)
    return Found(max(done.values()), reached, done, made, time.monotonic() - begin)


def _halves(node: OpenBox, axis: int) -> list[tuple[np.ndarray, np.ndarray]]:
    lo, hi = node.lo[axis], node.hi[axis]
    at = float(np.clip(0.5 * (0.5 * (lo + hi) + node.middle[axis]), lo + 0.25 * (hi - lo), hi - 0.25 * (hi - lo)))
    left, right = node.hi.copy(), node.lo.copy()
    left[axis] = right[axis] = at
    return [(node.lo, left), (right, node.hi)]


def _ranges(space: Space, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of every unit's argument over the node: the better of the box's and the slabs' interval."""
    r = space.reduced
    centre, radius = 0.5 * (hi + lo), 0.5 * (hi - lo)
    mid, reach = space.along @ centre, np.abs(space.along) @ radius
    wide = np.abs(r.weight) @ (0.5 * (space.high - space.low))
    box = r.weight @ (0.5 * (space.high + space.low))
    low = np.maximum(mid - reach - space.beyond, box - wide - space.beyond) + r.bias
    high = np.minimum(mid + reach + space.beyond, box + wide + space.beyond) + r.bias
    return low, np.maximum(low, high)


def _node(
    space: Space, problem: Problem, lo: np.ndarray, hi: np.ndarray, above: float, number: int, reached: float
) -> tuple[OpenBox | None, float]:
    """The node with its bound, and the function's value at the program's point; None where the node is empty."""
    lines, cuts = unit_lines(space.reduced.activation, problem.units, *_ranges(space, lo, hi)), _cuts(space, lo, hi)
    for _ in range(FIRST_ROUNDS if np.isinf(above) else ROUNDS):
        program = Program(space, problem, cuts, lines, max(reached, 0.0))
        bound, m = program.solve()
        if bound is None:
            return None, -np.inf
        above = min(bound, above)
        if not problem.sharpen(m, WORTH * above / max(1, len(problem.pieces))):
            break
    bound = above
    value = value_at(space.reduced, problem, m)
    z = space.reduced.weight @ m + space.reduced.bias
    over = np.min(lines.slopes * z[:, None] + lines.intercepts, 1) - problem.units * ACTS[
        space.reduced.activation
    ].value(z)
    share = np.abs(space.along) * (hi - lo)
    scores = np.maximum(over, 0.0) @ (share / np.maximum(share.sum(1, keepdims=True), 1e-300))
    scores = scores + 1e-9 * (hi - lo) * (np.abs(problem.units) @ np.abs(space.along))
    return OpenBox(-bound, number, bound, problem, lo, hi, scores, space.directions.T @ m), value


def value_at(reduced: Reduced, problem: Problem, m: np.ndarray) -> float:
    units = problem.units @ ACTS[reduced.activation].value(reduced.weight @ m + reduced.bias)
    return float(units + problem.shift + sum((s @ m + o).min() for s, o in problem.pieces))


def _cuts(space: Space, lo: np.ndarray, hi: np.ndarray) -> Cuts:
    """Those of the space, and the slabs of a node along the directions in which it was halved."""
    split = np.flatnonzero((hi - lo) < (space.ends[1] - space.ends[0]) * (1.0 - 1e-9))
    R = space.directions[:, split].T
    blank = np.zeros((len(split), space.reduced.heads))
    rows = np.concatenate([space.cuts.rows, np.hstack([R, blank]), np.hstack([-R, blank])])
    return Cuts(rows, np.concatenate([space.cuts.limits, hi[split], -lo[split]]))


class Lines(NamedTuple):
    """Above every unit, on the range [low, high] of its argument."""

    slopes: Float[np.ndarray, "units lines"]
    intercepts: Float[np.ndarray, "units lines"]
    low: Float[np.ndarray, " units"]
    high: Float[np.ndarray, " units"]


def unit_lines(activation: str, units: np.ndarray, low: np.ndarray, high: np.ndarray) -> Lines:
    """Lines above units_j act(z) on [low_j, high_j]; rows of fewer lines repeat their first."""
    members = {1: units > 0, -1: units <= 0}
    tables = {sign: lines_above(activation, sign, low[here], high[here]) for sign, here in members.items()}
    most = max(table[0].shape[1] for table in tables.values())
    slopes, intercepts = np.empty((len(units), most)), np.empty((len(units), most))
    for sign, (s, t) in tables.items():
        pad = [*range(s.shape[1]), *[0] * (most - s.shape[1])]
        slopes[members[sign]], intercepts[members[sign]] = s[:, pad], t[:, pad]
    size = np.abs(units)[:, None]
    return Lines(size * slopes, size * intercepts, low, high)


class Program:
    """The linear program of a node and the bound its multipliers prove."""

    def __init__(self, space: Space, problem: Problem, cuts: Cuts, lines: Lines, reached: float) -> None:
        self.space, self.problem = space, problem
        self.rows, self.limits = cuts.rows, cuts.limits
        W, b = space.reduced.weight, space.reduced.bias
        slopes, intercepts, low, high = lines
        ends = np.stack([slopes * low[:, None] + intercepts, slopes * high[:, None] + intercepts], -1)
        bent = (ends[:, :1] - ends[:, 1:]).max((1, 2), initial=0.0) > THIN * max(reached, 1e-6) / len(slopes)
        self.linear = slopes[~bent, 0] @ W[~bent]
        self.constant = problem.shift + float(slopes[~bent, 0] @ b[~bent] + intercepts[~bent, 0].sum())
        self.size = abs(problem.shift) + float(np.abs(slopes[:, 0]) @ np.abs(b) + np.abs(intercepts).sum())
        groups: list[tuple[np.ndarray, np.ndarray]] = problem.used
        for j in np.flatnonzero(bent):
            keep = _useful(ends[j])
            groups.append((slopes[j, keep, None] * W[j], slopes[j, keep] * b[j] + intercepts[j, keep]))
        self.group = np.concatenate([np.full(len(o), i) for i, (_, o) in enumerate(groups)]) if groups else np.empty(0)
        self.piece_slopes = np.concatenate([s for s, _ in groups]) if groups else np.empty((0, len(space.low)))
        self.piece_ends = np.concatenate([o for _, o in groups]) if groups else np.empty(0)
        self.groups = len(groups)

    def solve(self) -> tuple[float | None, np.ndarray]:
        """(bound, m), or (None, .) where multipliers prove that the node is empty."""
        n, h = len(self.space.low), self.space.reduced.heads
        member = np.zeros((len(self.piece_ends), self.groups))
        member[np.arange(len(self.piece_ends)), self.group.astype(int)] = 1.0
        top = np.hstack([-self.piece_slopes, np.zeros((len(member), h)), member])
        under = np.hstack([self.rows, np.zeros((len(self.rows), self.groups))])
        cost = np.concatenate([-self.linear, np.zeros(h), -np.ones(self.groups)])
        box = [*zip(self.space.low, self.space.high, strict=True), *[(None, None)] * (h + self.groups)]
        found = _linprog(cost, np.concatenate([top, under]), np.concatenate([self.piece_ends, self.limits]), box)
        centre = 0.5 * (self.space.low + self.space.high)
        if found.status == 2 and self._empty():
            return None, centre
        if found.status != 0:
            return self.proved(np.zeros(len(member)), np.zeros(len(self.rows))), centre
        dual = np.maximum(-found.ineqlin.marginals, 0.0)
        return self.proved(dual[: len(member)], dual[len(member) :]), np.asarray(found.x[:n])

    def proved(self, weights: np.ndarray, multipliers: np.ndarray) -> float:
        """The bound that any multipliers give by weak duality, with its rounding allowance."""
        n = len(self.space.low)
        total = np.bincount(self.group.astype(int), weights, minlength=self.groups)
        first = np.zeros(len(weights), dtype=bool)
        first[np.unique(self.group, return_index=True)[1].astype(int)] = True
        chosen = np.where(total[self.group.astype(int)] > 0.5, weights, first)  # a group without weight takes its first
        chosen = chosen / np.bincount(self.group.astype(int), chosen, minlength=self.groups)[self.group.astype(int)]
        multipliers, rest = self._balanced(multipliers)
        left = self.linear + chosen @ self.piece_slopes - multipliers @ self.rows[:, :n]
        constant = self.constant + chosen @ self.piece_ends + multipliers @ self.limits
        best = np.maximum(left * self.space.low, left * self.space.high).sum()
        largest = np.maximum(np.abs(self.space.low), np.abs(self.space.high))
        size = (np.abs(self.linear) + chosen @ np.abs(self.piece_slopes)) @ largest + chosen @ np.abs(self.piece_ends)
        size += multipliers @ (np.abs(self.rows[:, :n]) @ largest + np.abs(self.limits)) + self.size
        found = float(constant + best + rest + ALLOWANCE * (1.0 + size))
        return found if np.isfinite(found) else np.inf  # no number bounds nothing

    def _balanced(self, multipliers: np.ndarray) -> tuple[np.ndarray, float]:
        """Multipliers, and what the numbers A_k may add to their bound.

        Every convexity cut holds one A_k with +1 and one with -1, so what multiplies the A_k sums to zero and only the
        differences A_k - A_1 count; those of a sequence are at most |q_k - q_1|' |x|. The program balances them up to
        rounding; where it does not, the convexity cuts are dropped.
        """
        n, q = len(self.space.low), self.space.reduced.queries
        largest = np.maximum(np.abs(self.space.low), np.abs(self.space.high))[: q.shape[1]]
        reach = 1.01 * (np.abs(q - q[:1]) + self.space.reduced.query_error) @ largest
        rest = float(np.abs(multipliers @ self.rows[:, n:]) @ reach)
        if rest <= UNBALANCED:
            return multipliers, rest
        return np.where(np.abs(self.rows[:, n:]).any(1), 0.0, multipliers), 0.0

    def _empty(self) -> bool:
        """Least violation of the rows: positive, by multipliers that sum to one."""
        n, h = len(self.space.low), self.space.reduced.heads
        rows = np.hstack([self.rows, -np.ones((len(self.rows), 1))])
        cost = np.concatenate([np.zeros(n + h), [1.0]])
        box = [*zip(self.space.low, self.space.high, strict=True), *[(None, None)] * (h + 1)]
        found = _linprog(cost, rows, self.limits, box)
        if found.status != 0:
            return False
        dual, rest = self._balanced(np.maximum(-found.ineqlin.marginals, 0.0))
        left = dual @ self.rows[:, :n]
        least = np.minimum(left * self.space.low, left * self.space.high).sum() - dual @ self.limits - rest
        return bool(least > 1e-9 * (1.0 + dual @ (np.abs(self.rows[:, :n]).sum(1) + np.abs(self.limits))))


def _useful(ends: Float[np.ndarray, "lines 2"]) -> np.ndarray:
    """Lines that are lowest somewhere: not above another at both ends (one of equal lines stays)."""
    keep: list[int] = []
    for i in np.lexsort((ends[:, 1], ends[:, 0])):
        if not keep or ends[i, 1] < ends[keep[-1], 1] - 1e-15:
            keep.append(int(i))
    return np.array(keep)


def _linprog(cost: np.ndarray, rows: np.ndarray, limits: np.ndarray, box: Any) -> Any:
    from scipy.optimize import linprog

    return linprog(cost, A_ub=rows, b_ub=limits, bounds=box, method="highs-ds")
