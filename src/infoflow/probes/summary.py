"""`probe`: what each head of a model does, with the price of taking the labels at their word."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from infoflow.probes.effective import EffectiveSets, effective_sets
from infoflow.probes.intervene import FORCED, Interventions, JointPath, intervene, joint_path
from infoflow.probes.modes import HeadMode, head_modes
from infoflow.probes.record import as_batches, record
from infoflow.probes.recovery import Recovered, recovery
from infoflow.probes.references import measure_references
from infoflow.probes.tasks import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGETS = (0.01, 0.05, 0.1, 0.5)  # in the task's unit


@dataclass(frozen=True)
class Probe:
    """Heads with labels, and what was asked for beside them; `str()` is a table, `figure()` the head map."""

    heads: list[HeadMode]
    interventions: Interventions | None = None
    joint: JointPath | None = None
    recovered: list[Recovered] | None = None
    sets: EffectiveSets | None = None

    def to_json(self) -> dict[str, Any]:
        forced: dict[str, Any] = {} if self.interventions is None else self.interventions.to_json()
        if self.joint is not None:
            forced["joint"] = {**self.joint.to_json(), "budgets": [self.joint.summary(b) for b in BUDGETS]}
        return {
            "heads": [head.to_json() for head in self.heads],
            "interventions": forced or None,
            "recovery": None if self.recovered is None else [row.to_json() for row in self.recovered],
            "effective_sets": None if self.sets is None else self.sets.to_json(),
        }

    def figure(self) -> "Figure":
        from infoflow.probes.figures import head_map

        return head_map(self.heads)

    def __str__(self) -> str:
        parts = [_head_table(self.heads)]
        if self.interventions is not None:
            parts.append(_cost_table(self.interventions))
        if self.joint is not None:
            parts.append(_joint_table(self.joint))
        return "\n\n".join(parts)


def probe(
    model: nn.Module,
    inputs: Any,
    task: Task | None = None,
    held_out: Task | None = None,
    modes: tuple[str, ...] = FORCED,
    singles: bool = False,
    recover: bool = False,
    sets: bool = False,
) -> Probe:
    """What each head does on `inputs`; with a `task` (on other documents), what forcing the modes costs.

    With a second task `held_out` the joint path is searched on `task` and priced on `held_out`. `recover` and `sets`
    add token recovery and effective information sets.
    """
    recording = record(model, as_batches(inputs))
    references = measure_references(recording)
    heads = head_modes(recording, references)
    forced = None if task is None else intervene(model, inputs, held_out or task, modes, singles, references)
    joint = None
    if task is not None and held_out is not None:
        joint = joint_path(model, task, held_out, references)
    return Probe(
        heads,
        forced,
        joint,
        recovery(recording) if recover else None,
        effective_sets(recording, modes=heads) if sets else None,
    )


def _head_table(heads: list[HeadMode]) -> str:
    """One row per layer, one word per head."""
    layers = 1 + max(head.layer for head in heads)
    width = max(8, *(len(head.label) for head in heads))
    rows = []
    for layer in range(layers):
        words = [head.label.ljust(width) for head in heads if head.layer == layer]
        rows.append(f"layer {layer + 1:2d}  " + " ".join(words).rstrip())
    counts = Counter(head.label for head in heads)
    return "\n".join([*rows, "total     " + ", ".join(f"{n} {label}" for label, n in counts.most_common())])


def _cost_table(found: Interventions) -> str:
    value, low, high = found.base
    rows = [f"loss of the model as it is: {value:.4f} [{low:.4f}, {high:.4f}] {found.unit}"]
    rows.append("all heads forced to   cost [95% interval over documents]")
    for mode, cost in found.all_heads().items():
        rows.append(f"  {mode:<18}  {cost.cost:8.4f} [{cost.low:.4f}, {cost.high:.4f}]")
    return "\n".join(rows)


def _joint_table(path: JointPath) -> str:
    rows = [f"joint search ({path.unit}): heads forced at a budget, and what it costs on held-out documents"]
    for budget in BUDGETS:
        found = path.summary(budget)
        low, high = found["interval"]
        modes = ", ".join(f"{n} {mode}" for mode, n in found["modes"].items() if n)
        share = f"{found['forced']:3d} of {found['of']}"
        rows.append(f"  {budget:<5} {share}  cost {found['cost']:.4f} [{low:.4f}, {high:.4f}]  {modes}")
    return "\n".join(rows)
