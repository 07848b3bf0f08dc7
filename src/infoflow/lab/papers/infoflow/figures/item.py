"""InfoFlow Figures 2, 3, 5 and the example of Appendix E, drawn from the objects themselves."""

from typing import Any

import numpy as np

from infoflow import targets
from infoflow.architecture import Architecture
from infoflow.flow.trace import trace
from infoflow.lab.item import Compared, Context, Item, Judgement, Outcome
from infoflow.targets.trees import ComparisonTree, comparison_trees

FIGURE_2 = np.array([[0.1], [0.3], [0.4], [0.2]])
APPENDIX_E = np.array([[0.0, -1.0], [0.7, 0.7], [0.0, 1.0], [-0.2, -0.9]])


def run(context: Context) -> Outcome:
    """The paper's worked examples, traced: nothing is trained."""
    flow = trace(targets.min_pair(d=2), Architecture((1, 1), (4, 4)), APPENDIX_E)
    said = flow.to_json()
    trees = comparison_trees(targets.max_plus_min(), T=4)
    roots = [tuple(position + 1 for position in tree.run(FIGURE_2).root) for tree in trees]
    rows = [
        {"what": "Figure 2, root of the maximum's tree", "paper": "{3}", "ours": _braces(roots[0])},
        {"what": "Figure 2, root of the minimum's tree", "paper": "{1}", "ours": _braces(roots[1])},
        {
            "what": "Appendix E, I(t,1)",
            "paper": "{1,3} {2,4} {1,3} {3,4}",
            "ours": " ".join(map(_braces, said["sets"][1][:4])),
        },
        {"what": "Appendix E, I(5,2)", "paper": "{1,3}", "ours": _braces(said["sets"][2][4])},
        {"what": "Appendix E, active set", "paper": "{1,3}", "ours": _braces(said["active"])},
    ]
    figures = {"figure2": _trees(trees), "figure3": _modes(), "figure5": flow.figure()}
    remarks = [
        "Appendix E as printed (arXiv:2605.17930v1) maximises +min and then selects (1,2,3,1), which misses the active "
        "set; with the sign turned the printed sets come out"
    ]
    return Outcome(["what", "paper", "ours"], rows, remarks=remarks, figures=figures)


def _braces(members: Any) -> str:
    return "{" + ",".join(str(member) for member in members) + "}"


def _trees(trees: tuple[ComparisonTree, ...]) -> Any:
    """Figure 2: each node with the position that won below it; the path of the final winner is coloured."""
    from infoflow.report import style

    figure, both = style.figure(8.4, 3.4, 1, 2)
    for axes, tree, title in zip(both, trees, ("maximum of x(t)", "minimum of x(t)"), strict=True):
        done = tree.run(FIGURE_2)
        sets = [*tree.leaves, *done.winners]
        x, y = [float(leaf) for leaf in range(tree.size)], [0.0] * tree.size
        for left, right in tree.merges:
            x.append((x[left] + x[right]) / 2)
            y.append(max(y[left], y[right]) + 1)
        for node, children in enumerate(tree.merges, tree.size):
            for child in children:
                won = sets[child] == sets[node]
                colour = style.COLOURS[0] if won and sets[node] == done.root else style.MUTED
                axes.plot([x[node], x[child]], [y[node], y[child]], color=colour, lw=2.4 if won else 1.0, zorder=1)
        for node, members in enumerate(sets):
            value = f"\nx = {FIGURE_2[members[0], 0]:g}" if node < tree.size else ""
            face = style.COLOURS[0] if members == done.root else "#ffffff"
            ink = "#ffffff" if members == done.root else style.INK
            axes.scatter(x[node], y[node], s=620, color=face, edgecolors=style.INK, zorder=2)
            axes.text(x[node], y[node], _braces(p + 1 for p in members), ha="center", va="center", color=ink, zorder=3)
            axes.text(x[node], y[node] - 0.28, value, ha="center", va="top", fontsize=8, color=style.MUTED)
        axes.set_title(title)
        axes.set_ylim(-0.9, 2.5)
        axes.set_xlim(-0.6, 3.6)
        axes.axis("off")
    return figure


def _modes() -> Any:
    """Figure 3: what token 3 learns under each of the three modes."""
    from infoflow.report import style

    figure, three = style.figure(8.4, 2.7, 1, 3)
    modes = (
        ("I: max position", {2}, "argmax"),
        ("II: global", {1, 2, 3, 4}, "all"),
        ("III: fixed positions", {1, 4}, "fixed"),
    )
    for position, (axes, (title, read, word)) in enumerate(zip(three, modes, strict=True)):
        colour = style.COLOURS[position]
        for token in range(1, 5):
            used = token in read
            axes.annotate(
                "", (3, 0.16), (token, 0.86),
                arrowprops={"arrowstyle": "-|>", "color": colour if used else style.FAINT,
                            "ls": "-" if used else "--", "lw": 2.0 if used else 1.0},
            )  # fmt: skip
            axes.scatter(token, 1, s=420, color=colour if used else "#ffffff", edgecolors=style.INK, zorder=3)
            axes.text(token, 1, str(token), ha="center", va="center", color="#ffffff" if used else style.INK, zorder=4)
        axes.annotate(
            "", (3.06, 0.16), (3.06, 0.86), arrowprops={"arrowstyle": "-|>", "color": style.COLOURS[4], "lw": 2.0}
        )
        axes.scatter(3, 0, s=420, color="#ffffff", edgecolors=style.INK, zorder=3)
        axes.text(3, 0, "3'", ha="center", va="center", zorder=4)
        axes.text(0.55, 0.12, word, fontsize=8, color=colour)
        axes.text(0.55, -0.02, "+ residual", fontsize=8, color=style.COLOURS[4])
        axes.set_title(title)
        axes.set_xlim(0.4, 4.6)
        axes.set_ylim(-0.3, 1.3)
        axes.axis("off")
    return figure


def judge(result: dict[str, Any]) -> dict[str, Judgement]:
    """Whether the sets, trees and flows of the figures are those that are printed, row by row."""
    same = [row for row in result["rows"] if row["ours"] == row["paper"]]
    trees = [row for row in result["rows"] if row["what"].startswith("Figure 2")]
    flow = [row for row in result["rows"] if row["what"].startswith("Appendix E")]
    found = {
        name: Judgement(
            all(row in same for row in rows), f"{sum(row in same for row in rows)} of {len(rows)} printed sets"
        )
        for name, rows in (("Figure 2", trees), ("Figure 5", flow), ("Appendix E", flow))
    }
    for name in ("Figure 5", "Appendix E"):
        number = f"{found[name].number}, with the minus sign that the printed scores of Appendix E lack"
        found[name] = Judgement(found[name].holds, number)
    return found | {"Figure 3": Judgement(True, "drawn; there is nothing to measure")}


ITEM = Item(
    name="infoflow/figures",
    title="InfoFlow Figures 2, 3, 5 and Appendix E, drawn",
    concludes={
        "Figure 2": "the trees of maximum and minimum end in the tokens 3 and 1",
        "Figure 3": "the three modes of a head, illustrated",
        "Figure 5": "the flow of a two-layer network contains the active set",
        "Appendix E": "the information sets of the example are the printed ones",
    },
    quick="the same as paper, which takes seconds",
    paper="comparison trees, the three modes, the flow of Appendix E",
    unsaid=("not as printed: Appendix E's scores lack a minus sign; with it the printed sets come out",),
    run=run,
    judge=judge,
    compared=Compared(("what",), "ours", "paper"),
    scored="nothing is trained",
)
