"""What it costs to force heads into a mode: one head, one layer, all heads, and jointly by greedy search.

Costs are differences of loss on held-out documents against the model as it is, paired document by document. Single
heads mislead (heads cover for each other), so the joint search is what a report should quote:

    path: start from the model as it is; again and again take the (head, mode) whose forcing raises the joint loss
    least, given all heads forced so far. The last costs known order the candidates; the best is measured again and
    taken if it is still the best (lazy greedy; forcing more heads rarely makes the rest cheaper).

Every point of the path is one joint assignment; at a budget, the longest prefix inside it is the answer and the heads
outside it are the residue that no mode covers. The path is found on one half of the documents and priced on the other.
"""

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from infoflow.probes.adapters import heads_of
from infoflow.probes.intervals import ratio_interval
from infoflow.probes.record import as_batches, record
from infoflow.probes.references import References, measure_references
from infoflow.probes.substitute import Head, Substitute, check_mode, everywhere
from infoflow.probes.tasks import Measured, Measurement
from infoflow.progress import Progress

FORCED = ("hardmax", "top2", "position", "uniform", "mean", "deleted")
MECHANISMS = ("hardmax", "position", "uniform")  # max-position, specific position, global


@dataclass(frozen=True)
class Cost:
    """The price of one assignment: `cost` is the rise of the loss, with its interval over documents."""

    scope: str  # "head", "layer", "all"
    mode: str
    cost: float
    low: float
    high: float
    layer: int | None = None  # 0-based
    head: int | None = None

    def to_json(self) -> dict[str, Any]:
        place = {name: getattr(self, name) for name in ("layer", "head")}
        shown = {name: None if value is None else value + 1 for name, value in place.items()}
        return {"scope": self.scope, **shown, "mode": self.mode, "cost": self.cost, "interval": [self.low, self.high]}


@dataclass(frozen=True)
class Interventions:
    unit: str
    base: tuple[float, float, float]  # loss of the model as it is, and its interval
    costs: tuple[Cost, ...]

    def all_heads(self) -> dict[str, Cost]:
        return {cost.mode: cost for cost in self.costs if cost.scope == "all"}

    def singles(self, mode: str) -> list[Cost]:
        return [cost for cost in self.costs if cost.scope == "head" and cost.mode == mode]

    def to_json(self) -> dict[str, Any]:
        value, low, high = self.base
        return {
            "unit": self.unit,
            "base": {"loss": value, "interval": [low, high]},
            "costs": [cost.to_json() for cost in self.costs],
        }


def price(base: Measured, forced: Measured) -> tuple[float, float, float]:
    """The rise of the loss with its interval: paired, so both share documents and counts."""
    return ratio_interval(forced.totals - base.totals, base.counts)


def intervene(
    model: nn.Module,
    inputs: Any,
    task: Measurement,
    modes: tuple[str, ...] = FORCED,
    singles: bool = True,
    references: References | None = None,
) -> Interventions:
    """Price every mode for each head, each layer and all heads.

    `inputs` are documents for the stand-ins (mean patterns, mean outputs); `task` holds other documents.
    """
    references = references or measure_references(record(model, as_batches(inputs)))
    for mode in modes:
        check_mode(mode, references)
    stage, heads = Substitute(model, references), heads_of(model)
    base = task.measure(stage.assign({}))
    jobs: list[tuple[str, str, int | None, int | None]] = [("all", mode, None, None) for mode in modes]
    jobs += [("layer", mode, l, None) for mode in modes for l in range(len(heads))]
    if singles:
        jobs += [("head", mode, l, i) for mode in modes for l, h in enumerate(heads) for i in range(h)]
    costs = []
    with Progress("interventions", len(jobs)) as bar:
        for number, (scope, mode, layer, head) in enumerate(jobs):
            chosen = everywhere(heads, mode, layer)
            if head is not None:
                assert layer is not None
                chosen = {(layer, head): mode}
            costs.append(Cost(scope, mode, *price(base, task.measure(stage.assign(chosen))), layer, head))
            bar.update(number + 1, f"{scope} {mode}")
    return Interventions(task.unit, ratio_interval(base.totals, base.counts), tuple(costs))


@dataclass(frozen=True)
class Point:
    """One more head forced: the joint cost of everything forced so far, searched and held out."""

    layer: int
    head: int
    mode: str
    searched: float
    cost: float
    low: float
    high: float


@dataclass(frozen=True)
class JointPath:
    unit: str
    heads: tuple[int, ...]
    points: tuple[Point, ...]

    def within(self, budget: float) -> tuple[Point, ...]:
        """The longest prefix whose *searched* cost is inside the budget; its price is the held-out one."""
        inside = [number for number, point in enumerate(self.points, 1) if point.searched <= budget]
        return self.points[: max(inside, default=0)]

    def residue(self, budget: float) -> list[Head]:
        taken = {(p.layer, p.head) for p in self.within(budget)}
        return [(l, i) for l, h in enumerate(self.heads) for i in range(h) if (l, i) not in taken]

    def to_json(self) -> dict[str, Any]:
        points = [
            {"layer": p.layer + 1, "head": p.head + 1, "mode": p.mode, "searched": p.searched}
            | {"cost": p.cost, "interval": [p.low, p.high]}
            for p in self.points
        ]
        return {"unit": self.unit, "heads": list(self.heads), "points": points}

    def summary(self, budget: float) -> dict[str, Any]:
        """How much of the model the modes cover at this budget: heads by mode and by layer, price, residue."""
        taken = self.within(budget)
        modes = {mode: sum(p.mode == mode for p in taken) for mode in dict.fromkeys(p.mode for p in self.points)}
        last = taken[-1] if taken else None
        return {
            "budget": budget,
            "forced": len(taken),
            "of": sum(self.heads),
            "modes": modes,
            "by_layer": [sum(p.layer == l for p in taken) for l in range(len(self.heads))],
            "cost": last.cost if last else 0.0,
            "interval": [last.low, last.high] if last else [0.0, 0.0],
            "residue": [[l + 1, i + 1] for l, i in self.residue(budget)],
        }


def joint_path(
    model: nn.Module,
    search: Measurement,
    held_out: Measurement,
    references: References,
    modes: tuple[str, ...] = MECHANISMS,
    stop: float = float("inf"),
) -> JointPath:
    """Force heads one after another, cheapest joint loss first, until every head is forced or `stop` is exceeded."""
    stage, heads = Substitute(model, references), heads_of(model)
    base, base_held = search.measure(stage.assign({})), held_out.measure(stage.assign({}))
    taken: dict[Head, str] = {}
    spent, points = 0.0, []
    total = sum(heads)
    queue: list[tuple[float, int, int, str, int]] = []

    def rise(head: Head, mode: str) -> float:
        return search.measure(stage.assign({**taken, head: mode})).loss - base.loss

    candidates = [(l, i, mode) for l, h in enumerate(heads) for i in range(h) for mode in modes]
    with Progress("joint search", len(candidates) + total) as bar:
        for number, (l, i, mode) in enumerate(candidates, 1):
            heapq.heappush(queue, (rise((l, i), mode), l, i, mode, 0))
            bar.update(number, "every head alone")
        while queue and len(taken) < total:
            cost, l, i, mode, seen = heapq.heappop(queue)
            if (l, i) in taken:
                continue
            if seen < len(taken):  # measured before other heads were forced: measure again, as a marginal cost
                heapq.heappush(queue, (rise((l, i), mode) - spent, l, i, mode, len(taken)))
                continue
            if spent + cost > stop:
                break
            taken[(l, i)], spent = mode, spent + cost
            paid = price(base_held, held_out.measure(stage.assign(taken)))
            points.append(Point(l, i, mode, spent, *paid))
            bar.update(len(candidates) + len(taken), f"{len(taken)} of {total} heads, {spent:.3g} {search.unit}")
    return JointPath(search.unit, heads, tuple(points))


def count_cheap(costs: list[Cost], bar: float) -> int:
    """How many single heads stay within `bar`: the number that misleads, kept to be shown beside the joint one."""
    return int(np.sum([cost.cost <= bar for cost in costs]))
