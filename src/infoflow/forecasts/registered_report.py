"""What `infoflow reproduce forecast/test` leaves: result.json, table.md and two figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from infoflow.errors import InfoFlowError
from infoflow.files import write_json, write_text
from infoflow.forecasts.registered import COVERED, judged
from infoflow.provenance import provenance
from infoflow.report.style import COLOURS, MARKERS, MUTED, figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_FAMILIES = 12  # that a legend names one by one
ABSENT = ("learned extrapolators (LC-PFN, ifBO's FT-PFN): neither package carries its weights, so they were not run",)


def write_report(data: Path, out: Path, *names: str) -> dict[str, Any]:
    """Score what is trained and write everything into `out`."""
    try:
        found = judged(data, *names)
        table = report(found)
    except InfoFlowError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # of anybody's folder
        raise InfoFlowError(f"expected forecasts and trained cells in {data}, got others ({error!r}).") from None
    write_json(out / "result.json", {"version": 1, **found, "absent": list(ABSENT), "provenance": provenance()})
    write_text(out / "table.md", table)
    if found["cells"]:
        save(scatter(found["cells"]), out / "forecast_against_trained")
        save(cost_figure(found["rows"]), out / "accuracy_against_cost")
    return found


def report(found: dict[str, Any]) -> str:
    """The table with its goals in Markdown."""
    lines = [
        f"{found['registered']} cells registered, {found['trained']} trained, {found['untrained']} not trained yet."
    ]
    if not found["rows"]:
        return lines[0] + "\n"
    if found["untrained"]:
        lines.append("Cells are trained in the registered order, cheapest first: this part is short, small networks.")
    lines += ["", "| from | Spearman | within a target | median factor | nine in ten within | within 5 | Gflop |",
              "|---|---|---|---|---|---|---|"]  # fmt: skip
    lines += [table_line(row) for row in found["rows"]]
    lines += ["", f"The 80% interval of the forecast covers {found['coverage']:.0%} of the cells "
              f"(goal {COVERED[0]:.0%} to {COVERED[1]:.0%})."]  # fmt: skip
    for label, goals in found["goals"].items():
        said = [
            f"{name} {g['value']} (goal {g['goal']}: {'met' if g['met'] else 'missed'})" for name, g in goals.items()
        ]
        lines.append(f"{label}: " + ", ".join(said))
    lines += ["", *(f"- {absent}" for absent in ABSENT), ""]
    return "\n".join(lines)


def table_line(row: dict[str, Any]) -> str:
    low, high = row["spearman_band"]
    within = "" if row["within_target"] != row["within_target"] else f"{row['within_target']:.2f}"
    cells = [row["from"], f"{row['spearman']:.2f} ({low:.2f} to {high:.2f})", within, f"{row['median_factor']:.2f}",
             f"{row['factor_at_90']:.1f}", f"{row['within_5']:.0%}", f"{row['gflop']:,.3g}"]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def scatter(cells: list[dict[str, Any]]) -> "Figure":
    """Forecast against trained, one marker a group, with the line of equality and a factor of 5."""
    made, axes = figure(6.4, 4.2)
    least = min(min(c["trained"], c["forecast"]) for c in cells) / 2
    axes.plot([least, 1.5], [least, 1.5], color=MUTED, lw=1)
    for factor in (0.2, 5.0):
        axes.plot([least, 1.5], [factor * least, factor * 1.5], color=MUTED, lw=0.8, ls=":")
    for number, (name, chosen) in enumerate(_groups(cells).items()):
        x, y = [c["forecast"] for c in chosen], [c["trained"] for c in chosen]
        marker = MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]  # more groups than colours
        axes.plot(x, y, marker, color=COLOURS[number % len(COLOURS)], ms=3.5, alpha=0.7, mew=0, label=name)
    axes.set(
        xscale="log", yscale="log", xlabel="forecast NMSE, before training", ylabel="trained NMSE, median of seeds"
    )
    words = "A point is one network; on the line the forecast was right,\nbetween the dotted lines within a factor of 5"
    axes.set_title(words, loc="left")
    if len({c["family"] for c in cells}) <= MOST_FAMILIES:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    else:
        axes.legend(loc="lower right", fontsize=8)
    return made


def _groups(cells: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """By family, or, where a legend of families would be longer than the figure, by what is known of the target."""
    families, found = {cell["family"] for cell in cells}, dict[str, list[dict[str, Any]]]()
    for cell in sorted(cells, key=lambda cell: str(cell["family"])):
        known = "a function of one's own" if cell["target"].startswith("function:") else "maxima and minima of scores"
        found.setdefault(cell["family"] if len(families) <= MOST_FAMILIES else known, []).append(cell)
    return found


def cost_figure(rows: list[dict[str, Any]]) -> "Figure":
    """How far off the middle forecast is, against what a forecast costs."""
    made, axes = figure(6.4, 4.2)
    for number, row in enumerate(rows):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]
        axes.plot([max(row["gflop"], 1e-3)], [row["median_factor"]], marker, color=colour, label=row["from"])
    axes.set(xscale="log", yscale="log", xlabel="1e9 operations (free: 0.001)", ylabel="median factor off")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    return made
