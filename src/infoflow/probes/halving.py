"""The content set of the output in a long sequence, without one pass per source: by halving groups.

All tokens of a group are drawn again at once, with attention frozen. A group whose joint effect, plus two standard
errors, stays below half of the threshold is dropped; others are cut in two, down to single tokens, whose own effect
decides. A content set of m tokens costs about 2 m log2(T / m) group tests in place of T.

What can go wrong: the tokens of a dropped group may cancel each other. So a random sample of the dropped tokens is
tested one by one; with k members among n tested, the share missed is at most the upper end of the Clopper-Pearson
interval (level 95%, one-sided), and that times the number of dropped tokens is the stated error. Selection sets are
dense (any token may win), so their size is estimated from a random sample of sources, with the interval of that share.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from infoflow.probes.effects import Stage
from infoflow.report.html import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DROPPED = 0.5  # of the threshold: a group below it is dropped
SURE = 2.0  # standard errors
LEVEL = 0.95
AUDIT = 64  # dropped tokens that are tested one by one


@dataclass(frozen=True, repr=False)
class LongFlow(Shown):
    """The content set of the output of one long document (0-based), what it cost, and what it may have missed."""

    name: str
    T: int
    draws: int
    threshold: float
    members: tuple[int, ...]
    effect: tuple[float, ...]
    error: tuple[float, ...]
    tests: int  # groups tested, of `draws` passes each
    audited: int
    missed: int  # members among the audited
    most_missed: float  # tokens, with 95% confidence
    selection: tuple[float, float, float] | None  # tokens: estimate, low, high

    @property
    def output(self) -> tuple[int, ...]:
        """The content set of the output, 1-based as in print."""
        return tuple(s + 1 for s in self.members)

    def __str__(self) -> str:
        shown = ",".join(map(str, self.output[:24])) + (f",.. ({len(self.members)})" if len(self.members) > 24 else "")
        lines = [
            f"{self.name}  T={self.T}, {self.draws} draws; threshold {self.threshold:.2g} of the variance",
            f"the output: content {{{shown}}}, found by halving groups in {self.tests} tests in place of {self.T}",
            f"of {self.audited} dropped tokens tested one by one {self.missed} were members; with 95% confidence at "
            f"most {self.most_missed:.3g} are missed",
        ]
        if self.selection is not None:
            lines.append("selection: about {:.3g} tokens [{:.3g}, {:.3g}], from a sample".format(*self.selection))
        return "\n".join(lines)

    def figure(self) -> "Figure":
        """The members and their effects along the sequence."""
        from infoflow.probes.measured_figures import draw_long

        return draw_long(self)

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "T": self.T,
            "draws": self.draws,
            "threshold": self.threshold,
            "members": [s + 1 for s in self.members],
            "effect": list(self.effect),
            "standard_error": list(self.error),
            "tests": self.tests,
            "audited": self.audited,
            "missed": self.missed,
            "most_missed": self.most_missed,
            "selection": None if self.selection is None else list(self.selection),
        }


def halving(
    stage: Stage, threshold: float, audit: int = AUDIT, selection: int = 0, seed: int = 0, name: str = ""
) -> LongFlow:
    """The content set of the output by halving; `audit` dropped tokens are checked, `selection` sources sampled."""
    waiting, dropped = [list(stage.sources)], []
    members: dict[int, tuple[float, float]] = {}
    tests = 0
    while waiting:
        value, error = stage.joint(waiting, frozen=True)
        tests += len(waiting)
        cut: list[list[int]] = []
        for group, v, e in zip(waiting, value, error, strict=True):
            if len(group) == 1 and v >= threshold:
                members[group[0]] = (float(v), float(e))
            elif len(group) == 1 or v + SURE * e < DROPPED * threshold:
                dropped += group
            else:
                middle = len(group) // 2
                cut += [group[:middle], group[middle:]]
        waiting = cut
    generator = np.random.default_rng(seed)
    chosen = [int(s) for s in generator.choice(dropped, min(audit, len(dropped)), replace=False)] if dropped else []
    missed = int((stage.joint([[s] for s in chosen], frozen=True)[0] >= threshold).sum()) if chosen else 0
    order = sorted(members)
    return LongFlow(
        name,
        stage.T,
        len(stage.draws),
        threshold,
        tuple(order),
        tuple(members[s][0] for s in order),
        tuple(members[s][1] for s in order),
        tests + len(chosen),
        len(chosen),
        missed,
        0.0 if len(chosen) == len(dropped) else upper(missed, len(chosen)) * len(dropped),
        _selection(stage, threshold, order, selection, generator) if selection else None,
    )


def upper(hits: int, trials: int, level: float = LEVEL) -> float:
    """The upper end of the one-sided Clopper-Pearson interval: the share p with P(at most `hits`) = 1 - level."""
    from scipy.stats import beta

    return 1.0 if hits >= trials else float(beta.ppf(level, hits + 1, trials - hits))


def _selection(
    stage: Stage, threshold: float, members: list[int], count: int, generator: np.random.Generator
) -> tuple[float, float, float]:
    """How many sources outside the content set reach the threshold with attention free."""
    others = [s for s in stage.sources if s not in set(members)]
    chosen = [int(s) for s in generator.choice(others, min(count, len(others)), replace=False)]
    hits = int((stage.joint([[s] for s in chosen], frozen=False)[0] >= threshold).sum())
    n, N = len(chosen), len(others)
    low, high = 1 - upper(n - hits, n, (1 + LEVEL) / 2), upper(hits, n, (1 + LEVEL) / 2)
    return hits / n * N, low * N, high * N
