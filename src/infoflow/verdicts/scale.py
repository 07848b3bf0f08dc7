"""scale: exponents against the sequence length, and the first length at which the counting exponent is positive."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from infoflow import arguments, cost
from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.flow import counting
from infoflow.flow.trace import check_length
from infoflow.report.html import Shown, columns
from infoflow.targets import Target
from infoflow.targets.named import TargetLike, target_of
from infoflow.verdicts.estimate import Count, estimate_counting, estimate_flow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Measured on one core: rows of the table by layers, lengths tried by their counts, and by additions alone.
ROWS_A_SECOND, LENGTHS_A_SECOND, STEPS_A_SECOND = 500.0, 1e4, 1e6
PATIENCE = 2_000_000  # lengths that are tried before a long range is spoken of


@dataclass(frozen=True)
class Row:
    """One length: the requirement, the smallest set that meets it, and both exponents (None: infeasible)."""

    T: int
    required: int | None
    smallest_set: int | None
    counting: Fraction | None
    flow: Fraction


@dataclass(frozen=True, repr=False)
class Scaling(Shown):
    """Rows for the asked lengths; `first_positive_T` is the first T between the least and the greatest of them, every
    length tried, at which the counting exponent is positive (or nothing is feasible)."""

    target: str
    arch: Architecture
    count: Count
    rows: tuple[Row, ...]
    first_positive_T: int | None
    basis: str = ""  # where the requirement is itself an estimate: what was seen, at the last length
    kind: str = "estimate"

    def to_json(self) -> dict[str, Any]:
        """As `infoflow scale --json` prints it."""
        return asdict(self) | {"arch": str(self.arch)}

    def __str__(self) -> str:
        def show(value: Fraction | None) -> str:
            return "infeasible" if value is None else str(value)

        head = ["T", f"required ({self.count})", "smallest set", "counting exponent", "flow exponent"]
        rows = [[r.T, r.required, r.smallest_set, show(r.counting), show(r.flow)] for r in self.rows]
        first = self.first_positive_T
        last = "never in this range" if first is None else f"first at T={first}"
        title = f"{self.target}  {self.arch}  (estimates)"
        seen = f"\nthe number of tokens compared at once is {self.basis}" if self.basis else ""
        return f"{title}\n\n{columns(head, rows)}\n\ncounting exponent positive: {last}{seen}"

    def figure(self) -> "Figure":
        """Both exponents against the length."""
        series: dict[str, list[Fraction | None]] = {
            f"counting ({self.count})": [row.counting for row in self.rows],
            "cheapest flow": [row.flow for row in self.rows],
        }
        return draw_exponents([row.T for row in self.rows], series, self.target)


def scale(target: TargetLike, arch: Architecture | str, lengths: list[int], count: Count = "ordered") -> Scaling:
    """The exponents at each length, and the first length in their range where the counting exponent is positive."""
    target, arch = target_of(target), Architecture.of(arch)
    if not isinstance(lengths, Sequence) or isinstance(lengths, str) or not lengths:
        raise InfoFlowError(f"expected a list of lengths such as [8, 16, 32], got {arguments.shown(lengths)}.")
    lengths = sorted({arguments.integer("a length", T) for T in lengths})
    check_length(target, lengths[0])
    cost.work(len(lengths) * arch.layers, ROWS_A_SECOND, f"the exponents at {len(lengths)} lengths", "their number")
    rows, basis = [], ""
    for T in lengths:
        counted = estimate_counting(target, arch, T, count)
        if counted.required[count] is None:
            why = f": {counted.basis}; predict gives its flow" if counted.estimated else "; take another --count"
            raise InfoFlowError(f"expected a count this target has, {count!r} is not one{why}.")
        basis = counted.basis
        flow = estimate_flow(target, arch, T, count)
        rows.append(Row(T, counted.required[count], counted.smallest_set, counted.exponent, flow.exponent))
    first = first_positive(target, arch, lengths[0], lengths[-1], count)
    return Scaling(target.spelling, arch, count, tuple(rows), first, basis)


def first_positive(target: Target, arch: Architecture, low: int, high: int, count: Count) -> int | None:
    """The least T in low..high whose requirement exceeds what sets of cost 0 can count.

    The exponent is positive exactly when excess(T) = required(T) - (5) at cost 0 is positive (or d > E for all layers).
    Beyond a small T the excess is a polynomial in T: its difference table, built from exact values and checked on three
    more, then gives every later value by additions, so every length is tried and nothing is assumed monotone.
    """
    d = target.dim
    if max(arch.embeds) < d:
        return low
    dimension = target.comparison(low).dimension

    def excess(T: int) -> int:
        required = target.comparison(T).required[count]
        assert required is not None
        return required - counting.count_at(Fraction(0), T, d, arch.heads, arch.embeds, dimension)

    start = max(low, max(arch.embeds) // d + 1, dimension * len(target.terms) + 1)
    one_by_one = max(0, min(start, high + 1) - low)
    cost.work(one_by_one * arch.layers, LENGTHS_A_SECOND, f"trying {one_by_one} lengths", "embed or the last length")
    for T in range(low, min(start, high + 1)):
        if excess(T) > 0:
            return T
    order = max(dimension, 2)
    differences = _difference_table([excess(start + i) for i in range(order + 4)])
    if any(differences[order + 1 :]):
        left = max(0, high - start)
        cost.work(left * arch.layers, LENGTHS_A_SECOND, f"trying {left} lengths", "the last length")
        return next((T for T in range(start, high + 1) if excess(T) > 0), None)
    return _first_positive_value(differences[: order + 1], start, high)


def _difference_table(values: list[int]) -> list[int]:
    """f(0), (delta f)(0), (delta^2 f)(0), ..."""
    table = []
    while values:
        table.append(values[0])
        values = [b - a for a, b in pairwise(values)]
    return table


def _first_positive_value(differences: list[int], start: int, high: int) -> int | None:
    state = list(differences)
    for T in range(start, high + 1):
        if state[0] > 0:
            return T
        if all(difference <= 0 for difference in state):  # then no later value is larger than this one
            return None
        if start + PATIENCE == T:  # most ranges end long before
            cost.work(high - T, STEPS_A_SECOND, f"trying every length from {start} to {high}", "the last length")
        for i in range(len(state) - 1):
            state[i] += state[i + 1]
    return None


def draw_exponents(lengths: list[int], series: dict[str, list[Fraction | None]], title: str) -> "Figure":
    """Exponents against T on a logarithmic axis; a length that no set serves is left out of its line."""
    from infoflow.report import style

    made, axes = style.figure(6.4, 3.6)
    for number, (name, values) in enumerate(series.items()):
        shown = [float("nan") if value is None else float(value) for value in values]
        axes.plot(lengths, shown, label=name, marker=style.MARKERS[number % len(style.MARKERS)], clip_on=False)
    axes.set_xscale("log", base=2)
    if axes.get_ylim()[1] > 1:
        axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(0, max(1.0, 1.2 * axes.get_ylim()[1]))  # an exponent is never below 0
    axes.set_xlabel("sequence length T")
    axes.set_ylabel("exponent (parameters $\\varepsilon^{-\\mathrm{exponent}}$)")
    axes.set_title(title)
    if len(lengths) <= 12:
        axes.set_xticks(lengths, [str(T) for T in lengths])
        axes.minorticks_off()
    axes.legend(frameon=False)
    return made
