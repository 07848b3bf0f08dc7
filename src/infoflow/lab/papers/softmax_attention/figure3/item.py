"""Softmax attention Figure 3 (C.1): where a guided head looks, for three intervals, beside the explicit head."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.construct.softmax_attention import truncated_linear
from infoflow.lab.item import Context, Item, Outcome
from infoflow.lab.papers.softmax_attention.tasks import Truncated
from infoflow.lab.sweep import schedule, train_cells
from infoflow.train.run import Run

SEED = 1234
WIDTHS = (0.5, 1.5, 3.0)
SHOWN = 3  # test samples


def run(context: Context) -> Outcome:
    full = context.preset == "full"
    size, count = (30, 1000) if full else (12, 400)
    recipe = schedule(epochs=100, batch=32, lr=1e-3, evaluate_every=20) if full else schedule(60, 32, 1e-2, 20)
    tasks = {
        width: Truncated(size, size, 1, -width / 2, width / 2, hidden=10, count=count, beta=30.0, keep_samples=SHOWN)
        for width in WIDTHS
    }
    grid = {width: [Run(task, seed=SEED, recipe=recipe)] for width, task in tasks.items()}
    results = train_cells(context, grid, "figure 3").by_cell
    rows, maps = [], {}
    for width, task in tasks.items():
        (result,) = results[width]
        trained = torch.tensor(result.kept["attention"])
        built, saturated = explicit(task)
        maps[width] = (trained, built)
        beside = task.beside(SEED)
        rows.append(
            {
                "b-a": width,
                "trained MSE": result.curve_of("one channel")[-1],
                f"over {task.hidden} channels": result.curve_of("all channels")[-1],
                "first and last key, trained": ends(trained),
                "first and last key, construction": ends(built),
                "labels at a or b": saturated,
                **beside,
            }
        )
    remarks = [
        f"seed {SEED}; p = n = {size}, allowed by the construction (p >= n), although the paper asks for p > n",
        "the caption says |b - a| = 0.5, 1.5, 3, the text a = -0.5, b = 0.5; the caption is followed",
        "no numbers are printed in the paper: the figure says that attention sits on the first and last key when |b-a| "
        "is small and spreads when it grows",
    ]
    runs = [result for found in results.values() for result in found]
    return Outcome(list(rows[0]), rows, runs, remarks, {"figure3": _figure(maps)})


def explicit(task: Truncated) -> tuple[Float[Tensor, "samples n p"], float]:
    """The constructed head's attention on the same test samples, and the share of saturated labels."""
    w, t, _ = task.teacher(SEED)
    x, y = task.draw(SEED)
    net = truncated_linear(w, t, task.a, task.b, n=task.n, p=task.p, eps0=0.01)
    cut = len(x) * 4 // 5
    weights = net.head().weights(net.affine(x[cut : cut + SHOWN].mT))[..., : task.n, :]
    return weights, float(((y == task.a) | (y == task.b)).double().mean())


def ends(weights: Float[Tensor, "samples n p"]) -> float:
    """Mean attention on the first and the last key together."""
    return float((weights[..., 0] + weights[..., -1]).mean())


def _figure(maps: dict[float, tuple[Tensor, Tensor]]) -> Any:
    from infoflow.report import style

    figure, axes = style.figure(2.6 * len(maps) + 0.6, 9.0, SHOWN + 1, len(maps), sharex=True, sharey=True)
    for column, (width, (trained, built)) in enumerate(maps.items()):
        panels = [(f"trained, sample {s + 1}", trained[s]) for s in range(SHOWN)] + [
            ("construction, sample 1", built[0])
        ]
        for row, (name, weights) in enumerate(panels):
            panel, (queries, keys) = axes[row][column], weights.shape
            extent = (0.5, keys + 0.5, queries + 0.5, 0.5)
            drawn = panel.imshow(weights.numpy(), aspect="auto", extent=extent, vmin=0, vmax=1, interpolation="nearest")
            panel.grid(visible=False)
            if row == 0:
                panel.set_title(f"|b - a| = {width:g}")
            if row == SHOWN:
                panel.set_xlabel("key")
            if column == 0:
                panel.set_ylabel(f"{name}\nquery")
    figure.colorbar(drawn, ax=axes, label="attention", shrink=0.4)
    return figure


ITEM = Item(
    name="softmax_attention/figure3",
    title="Softmax attention Figure 3: heat maps of a guided head",
    quick="p = n = 12, 400 samples, 60 epochs, rate 1e-2",
    full="p = n = 30, 1000 samples, 100 epochs, rate 1e-3, batch 32, hidden 10, beta = 30, seed 1234",
    run=run,
)
