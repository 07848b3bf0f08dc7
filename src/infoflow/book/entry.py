"""What the book is made of: a statement, what is wrong with it in print, and what a check or a counterexample found."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from infoflow.book.latex import FORMULAS

Size = Literal["quick", "full"]
Relation = Literal["at most", "at least", "is", "above", "below", "is not"]
Status = Literal["holds", "holds after repair", "refuted", "vacuous", "stated, not executable"]

STATUSES: dict[Status, str] = {
    "holds": "true as printed",
    "holds after repair": "true once the changes listed here are made",
    "refuted": "false, and a counterexample runs",
    "vacuous": "nothing satisfies its hypothesis, so it says nothing",
    "stated, not executable": "it names constants or classes that no program can reach",
}

HOLDS = {
    "at most": lambda seen, bound: seen <= bound,
    "at least": lambda seen, bound: seen >= bound,
    "is": lambda seen, bound: seen == bound,
    "above": lambda seen, bound: seen > bound,
    "below": lambda seen, bound: seen < bound,
    "is not": lambda seen, bound: seen != bound,
}


def times(size: Size, quick: int, full: int) -> int:
    """How often something is tried in a check of this size."""
    return quick if size == "quick" else full


@dataclass(frozen=True)
class Paper:
    """One of the four sources; `version` is the one that every remark about print speaks of."""

    key: str
    title: str
    version: str


PAPERS: dict[str, Paper] = {
    "infoflow": Paper("infoflow", "InfoFlow: A Framework for Multi-Layer Transformer Analysis", "arXiv:2605.17930v1"),
    "heads": Paper(
        "heads",
        "The Effect of Attention Head Count on Transformer Approximation",
        "slides of the talk, informal statements",
    ),
    "softmax": Paper(
        "softmax",
        "Universal Approximation with Softmax Attention",
        "anonymous submission, since withdrawn, with Appendices A to I",
    ),
    "rank1": Paper(
        "rank1",
        "Are Transformers with One Layer Self-Attention Using Low-Rank Weight Matrices Universal Approximators?",
        "the version with equations (1) to (133)",
    ),
}


@dataclass(frozen=True)
class Finding:
    """`seen` was measured and should stand in `relation` to `bound`. NaN passes nothing."""

    what: str
    seen: float
    relation: Relation
    bound: float

    @property
    def passed(self) -> bool:
        """Whether what was seen stands in the relation to its bound; NaN never does."""
        if math.isnan(self.seen) or math.isnan(self.bound):
            return False
        return bool(HOLDS[self.relation](self.seen, self.bound))

    @property
    def ratio(self) -> float | None:
        """seen / bound, None where that is no finite number."""
        ratio = self.seen / self.bound if self.bound else math.inf
        return ratio if math.isfinite(ratio) else None

    @property
    def number(self) -> str:
        """What was measured, without the relation: for a counterexample, whose bound only guards the number."""
        return f"{self.what}: {spelled(self.seen)}"

    def __str__(self) -> str:
        ratio = "" if self.ratio is None or self.relation == "is" else f" (ratio {self.ratio:.3g})"
        relation = "=" if self.relation == "is" else self.relation
        return f"{self.number}, {relation} {spelled(self.bound)}{ratio}"

    def to_json(self) -> dict[str, Any]:
        """As the record keeps it."""
        return {
            "what": self.what,
            "seen": self.seen,
            "relation": self.relation,
            "bound": self.bound,
            "ratio": self.ratio,
            "passed": self.passed,
        }

    @classmethod
    def from_json(cls, payload: dict[str, Any]) -> "Finding":
        """JSON has no infinity and no NaN: null comes back as NaN, which passes nothing."""
        seen, bound = (math.nan if payload[name] is None else payload[name] for name in ("seen", "bound"))
        return cls(payload["what"], seen, payload["relation"], bound)


def spelled(value: float) -> str:
    """Whole numbers in full, others with four digits."""
    if float(value).is_integer() and abs(value) < 1e7:
        return f"{int(value):,}"
    return f"{value:.4g}"


@dataclass(frozen=True)
class Erratum:
    """One place of a paper: what stands there, what should, and the name of the function that shows it.

    `shown` names a function of `infoflow.book.counterexamples`; slips that need no number (an index) have none.
    """

    where: str
    printed: str
    repair: str
    shown: str = ""


@dataclass(frozen=True)
class Entry:
    """One statement of one paper, in our words.

    `runs` names the verb, command or construction that makes it something to run; `remark` is what we know beyond the
    statement. Every entry has a check but those whose status says that it is not executable.
    """

    id: str
    paper: str
    title: str
    statement: str
    where: str
    status: Status
    runs: str
    hypotheses: tuple[str, ...] = ()
    remark: str = ""
    errata: tuple[Erratum, ...] = ()
    related: tuple[str, ...] = ()

    @property
    def formula(self) -> str:
        """LaTeX."""
        return FORMULAS[self.id]

    @property
    def executable(self) -> bool:
        """Whether a program can check it."""
        return self.status != "stated, not executable"

    def to_json(self) -> dict[str, Any]:
        """As the record keeps it."""
        return {
            "id": self.id,
            "paper": self.paper,
            "title": self.title,
            "statement": self.statement,
            "formula": self.formula,
            "where": self.where,
            "status": self.status,
            "hypotheses": list(self.hypotheses),
            "remark": self.remark,
            "runs": self.runs,
            "errata": [
                {"where": e.where, "printed": e.printed, "repair": e.repair, "shown": e.shown or None}
                for e in self.errata
            ],
            "related": list(self.related),
        }
