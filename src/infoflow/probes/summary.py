"""`probe`: what each head of a model does, with the price of taking the labels at their word."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from infoflow.probes.effective import EffectiveSets, effective_sets
from infoflow.probes.intervene import FORCED, Interventions, JointPath, intervene, joint_path
from infoflow.probes.modes import MEANING, HeadMode, head_modes
from infoflow.probes.record import as_batches, record
from infoflow.probes.recovery import Recovered, recovery
from infoflow.probes.references import measure_references
from infoflow.probes.shuffle import HeadShuffle, by_label, can_shuffle, shuffle_evidence
from infoflow.probes.tasks import Measurement
from infoflow.report.html import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRM = 0.9  # share of bootstrap draws that must agree with a label; below it the table shows a question mark
BUDGETS = (0.01, 0.05, 0.1, 0.5)  # in the task's unit


@dataclass(frozen=True, repr=False)
class Probe(Shown):
    """Heads with labels, and what was asked for beside them; `str()` is a table, `figure()` the head map."""

    heads: list[HeadMode]
    interventions: Interventions | None = None
    joint: JointPath | None = None
    recovered: list[Recovered] | None = None
    sets: EffectiveSets | None = None
    shuffled: list[HeadShuffle] | None = None

    def to_json(self) -> dict[str, Any]:
        forced: dict[str, Any] = {} if self.interventions is None else self.interventions.to_json()
        if self.joint is not None:
            forced["joint"] = {**self.joint.to_json(), "budgets": [self.joint.summary(b) for b in BUDGETS]}
        heads = [head.to_json() for head in self.heads]
        for head, found in zip(heads, self.shuffled or [], strict=False):
            head["shuffle"] = found.to_json()
        return {
            "heads": heads,
            "shuffle": self._by_label(),
            "interventions": forced or None,
            "recovery": None if self.recovered is None else [row.to_json() for row in self.recovered],
            "effective_sets": None if self.sets is None else self.sets.to_json(),
        }

    def _by_label(self) -> dict[str, Any] | None:
        return None if self.shuffled is None else by_label([head.label for head in self.heads], self.shuffled)

    def _better_forced(self) -> bool:
        """Whether forcing heads, all into one mode or jointly within a budget, surely lowers the loss."""
        costs = [] if self.interventions is None else [cost.high for cost in self.interventions.all_heads().values()]
        joint = [] if self.joint is None else [self.joint.summary(budget)["interval"][1] for budget in BUDGETS]
        return any(high < 0 for high in (*costs, *joint))

    def in_words(self) -> str:
        """What was found, in one paragraph."""
        total = len(self.heads)
        counts = Counter(head.label for head in self.heads).most_common()
        found = ", ".join(f"{number} {_plural(number)} {MEANING[label]} ({label})" for label, number in counts)
        said = [f"Of {total} heads in {1 + max(head.layer for head in self.heads)} layers, {found}."]
        if _unsure(self.heads):
            said.append(
                f"{sum(head.stability < FIRM for head in self.heads)} of these labels may change on other text."
            )
        if self.interventions is not None:
            costs = self.interventions.all_heads()
            cheapest = min(costs.values(), key=lambda cost: cost.cost)
            said.append(
                f"Forcing every head into one mode costs least as {cheapest.mode}: {cheapest.cost:.3g} "
                f"{self.interventions.unit} on held-out documents."
            )
        if self.recovered is not None:
            first, other = (_mean([row.error for row in self.recovered if row.rank == rank]) for rank in (1, "random"))
            said.append(
                f"The token a head looks at is recovered with error {first:.2f}, a random one with {other:.2f}."
            )
        if self.sets is not None:
            last = self.sets.gradients[-1][0] if self.sets.gradients is not None else self.sets.patterns[-1][0]
            said.append(f"In the last layer a state depends on about {last:.1f} positions.")
        return " ".join(said)

    def figure(self) -> "Figure":
        from infoflow.probes.figures import head_map

        return head_map(self.heads)

    def __str__(self) -> str:
        parts = [_head_table(self.heads)]
        if self.shuffled is not None:
            parts.append(_shuffle_table(self._by_label() or {}))
        if self.interventions is not None:
            parts.append(_cost_table(self.interventions))
        if self.joint is not None:
            parts.append(_joint_table(self.joint))
        if self.recovered is not None:
            parts.append(_recovery_table(self.recovered))
        if self.sets is not None:
            parts.append(_sets_table(self.sets))
        if self._better_forced():
            parts.append("negative costs: the forced model does better, so this is no text the model was made for")
        return "\n\n".join(parts)


def probe(
    model: nn.Module,
    inputs: Any,
    task: Measurement | None = None,
    held_out: Measurement | None = None,
    modes: tuple[str, ...] = FORCED,
    singles: bool = False,
    recover: bool = False,
    sets: bool = False,
) -> Probe:
    """What each head does on `inputs`; with a `task` (on other documents), what forcing the modes costs.

    Inputs that are tokens are shuffled too, to see which heads follow them. With a second task `held_out` the joint
    path is searched on `task` and priced on `held_out`. `recover` and `sets` add token recovery and effective
    information sets.
    """
    batches = as_batches(inputs)
    recording = record(model, batches)
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
        shuffle_evidence(model, batches) if can_shuffle(batches) else None,
    )


def _head_table(heads: list[HeadMode]) -> str:
    """One row per layer, one word per head; then what the words mean, with their numbers."""
    layers = 1 + max(head.layer for head in heads)
    words = {(head.layer, head.head): head.label + "?" * (head.stability < FIRM) for head in heads}
    width = max(8, *map(len, words.values()))
    rows = ["heads by label" + ("; ?: another sample of documents may change it" if _unsure(heads) else "")]
    for layer in range(layers):
        row = [word.ljust(width) for (own, _), word in words.items() if own == layer]
        rows.append(f"layer {layer + 1:2d}  " + " ".join(row).rstrip())
    for label, number in Counter(head.label for head in heads).most_common():
        rows.append(f"  {number:4d} {label:<8}  {MEANING[label]}" + (_nearest(heads) if label == "mixed" else ""))
    return "\n".join(rows)


def _nearest(heads: list[HeadMode]) -> str:
    near = Counter(head.nearest for head in heads if head.label == "mixed")
    return "; nearest: " + ", ".join(f"{n} {name}" for name, n in near.most_common())


def _unsure(heads: list[HeadMode]) -> bool:
    return any(head.stability < FIRM for head in heads)


def _shuffle_table(table: dict[str, Any]) -> str:
    rows = ["tokens shuffled: heads by content follow them, heads by position stay (correlations of patterns)"]
    rows.append("  label     heads  follows  stays")
    for label, row in sorted(table.items(), key=lambda item: -item[1]["heads"]):
        rows.append(f"  {label:<8}  {row['heads']:5d}  {row['follows']:7.2f}  {row['stays']:5.2f}")
    chosen = [table[label] for label in ("max", "top") if label in table]
    held = sum(row["heads"] - row["reads"].get("tokens", 0) - row["reads"].get("both", 0) for row in chosen)
    if held:
        of = sum(row["heads"] for row in chosen)
        rows.append(
            f"{held} of {of} heads labelled max or top do not follow: place or context has a part in their choice"
        )
    return "\n".join(rows)


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


def _recovery_table(rows: list[Recovered]) -> str:
    """(56) by layer, the mean over heads: how badly a linear map finds a key's token in the state after attention."""
    ranks = list(dict.fromkeys(row.rank for row in rows))
    names = {1: "largest score", 2: "second", "random": "random key"}
    shown = ["recovery error of a key's token from the state after attention, mean over heads (0: found, 1: lost)"]
    shown.append("  layer  " + "  ".join(f"{names.get(rank, f'rank {rank}'):>13}" for rank in ranks))
    for layer in sorted({row.layer for row in rows}):
        means = [_mean([row.error for row in rows if (row.layer, row.rank) == (layer, rank)]) for rank in ranks]
        shown.append(f"  {layer + 1:5d}  " + "  ".join(f"{mean:13.3f}" for mean in means))
    return "\n".join(shown)


def _sets_table(found: EffectiveSets) -> str:
    """Sizes of information sets by layer, measured in two ways, beside the framework's estimate."""
    rows = [f"information sets: positions that reach a state (weights and gradients of at least {found.threshold:g})"]
    rows.append("  layer  by patterns  by gradients  estimate from labels")
    for layer, (size, _, _) in enumerate(found.patterns):
        slopes = "-" if found.gradients is None else f"{found.gradients[layer][0]:.1f}"
        estimate = "-" if found.estimate is None else str(found.estimate[layer])
        rows.append(f"  {layer + 1:5d}  {size:11.1f}  {slopes:>12}  {estimate:>20}")
    return "\n".join(rows)


def _plural(number: int) -> str:
    return "looks at" if number == 1 else "look at"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
