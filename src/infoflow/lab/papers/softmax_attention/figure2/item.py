"""Softmax attention Figure 2 (C.1): test error against p, |b - a| and H, trained models beside the construction."""

from dataclasses import replace
from typing import Any

from infoflow.files import write_json
from infoflow.lab.item import Context, Item, Outcome, printed
from infoflow.lab.papers.softmax_attention.tasks import Truncated, slope, sweep_rows
from infoflow.lab.sweep import schedule, spread
from infoflow.provenance import provenance
from infoflow.reading import json_of
from infoflow.train.plan import UNKNOWN_STACK, check_device
from infoflow.train.run import Run
from infoflow.train.speed import model_steps

FULL = schedule(epochs=50, batch=32, lr=1e-3, evaluate_every=10)
QUICK = schedule(epochs=50, batch=32, lr=1e-2, evaluate_every=25)
SWEEPS = ("p", "b-a", "H")
LABELS = {"p": "anchors p", "b-a": "length of the interval, b - a", "H": "heads H"}
PUBLIC_RUNS = 187  # of the public code's sweep, 50 epochs of 25 steps each


def plan(context: Context) -> dict[tuple[str, float], Truncated]:
    """One sweep at a time from a base point; [a, b] is centred at 0 and [-5, 5] where it is not swept."""
    ps: tuple[int, ...]
    widths: tuple[float, ...]
    heads: tuple[int, ...]
    if context.preset == "full":
        base = Truncated(n=50, p=64, H=1, a=-5.0, b=5.0)
        ps, widths, heads = (64, 128, 256, 512), (1.0, 2.0, 4.0, 8.0, 16.0), (1, 2, 4, 8, 16)
    else:
        base = Truncated(n=10, p=12, H=1, a=-5.0, b=5.0, count=400)
        ps, widths, heads = (12, 24, 48), (1.0, 4.0, 16.0), (1, 4)
    chosen = context.parts or SWEEPS
    cells: dict[tuple[str, float], Truncated] = {}
    if "p" in chosen:
        cells |= {("p", p): replace(base, p=p) for p in ps}
    if "b-a" in chosen:
        cells |= {("b-a", w): replace(base, a=-w / 2, b=w / 2) for w in widths}
    if "H" in chosen:
        cells |= {("H", H): replace(base, H=H) for H in heads}
    return cells


def run(context: Context) -> Outcome:
    rows, runs = sweep_rows(
        context, plan(context), FULL if context.preset == "full" else QUICK, "one channel", "figure 2"
    )
    for row, records in zip(rows, runs, strict=True):
        row["over 32 channels"] = spread(records, "all channels")[0]
    columns = ["sweep", "value", "trained MSE", "std", "over 32 channels", "failed", "construction", "sup",
               "mean predictor", "linear regression"]  # fmt: skip
    rates = _throughput(context)
    remarks = [*_slopes(rows), *printed(__package__)["remarks"], *(_rate_text(entry) for entry in rates)]
    return Outcome(
        columns,
        rows,
        [run for records in runs for run in records],
        remarks,
        {"figure2": _figure(rows)} if rows else {},
        {"throughput": rates},
    )


def _throughput(context: Context) -> list[dict[str, Any]]:
    """Measured where it is asked for, kept in the store by device; all that are known are reported."""
    if not context.parts or "throughput" in context.parts:
        full = context.preset == "full"
        size = {"n": 50, "p": 64, "count": 100} if full else {"n": 8, "p": 10, "count": 100}
        models, steps = (PUBLIC_RUNS, 20) if full else (17, 5)
        device = check_device(context.device)
        task = Truncated(H=1, a=-5.0, b=5.0, **size)
        runs = [Run(task, seed=seed, recipe=schedule(1, 32, 1e-3)) for seed in range(models)]
        sizes = {"stacked": UNKNOWN_STACK[device.type], "one by one": 1}
        rates = {name: model_steps(runs, size, steps, device) for name, size in sizes.items()}
        entry = {"device": device.type, "models": models, "steps": steps, "provenance": provenance()}
        entry |= {name: round(rate, 1) for name, rate in rates.items()}
        write_json(context.store / f"throughput.{device.type}.json", entry)
    known = sorted(context.store.glob("throughput.*.json"))
    return [json_of(path, "measured rates") for path in known]


def _rate_text(rates: dict[str, Any]) -> str:
    return (
        f"{rates['models']} models of the sweep on {rates['device']}: {rates['stacked']:.0f} model-steps a second "
        f"stacked, {rates['one by one']:.0f} one after the other ({rates['stacked'] / rates['one by one']:.1f} times), "
        f"over {rates['steps']} steps; the public code's {PUBLIC_RUNS} runs are {PUBLIC_RUNS * 1250} such steps"
    )


def _slopes(rows: list[dict[str, Any]]) -> list[str]:
    said = []
    for sweep in SWEEPS:
        chosen = [row for row in rows if row["sweep"] == sweep and row["trained MSE"]]
        if len(chosen) > 1:
            slopes = {
                name: slope([row["value"] for row in chosen], [row[name] for row in chosen])
                for name in ("trained MSE", "construction", "sup")
            }
            said.append(
                f"log-log slope in {sweep}: trained MSE {slopes['trained MSE']:.2f}, "
                f"construction MSE {slopes['construction']:.2f}, construction sup {slopes['sup']:.2f}"
            )
    return said


def _figure(rows: list[dict[str, Any]]) -> Any:
    from infoflow.report import style

    present = [sweep for sweep in SWEEPS if any(row["sweep"] == sweep for row in rows)]
    figure, axes = style.figure(3.4 * len(present), 3.4, 1, len(present), squeeze=False)
    lines = ("trained MSE", "construction", "mean predictor", "linear regression")
    for panel, sweep in zip(axes[0], present, strict=True):
        chosen = [row for row in rows if row["sweep"] == sweep]
        x = [row["value"] for row in chosen]
        for position, name in enumerate(lines):
            y = [row[name] if row[name] is not None else float("nan") for row in chosen]
            panel.plot(x, y, color=style.COLOURS[position], marker=style.MARKERS[position], label=name)
        panel.set(xscale="log", yscale="log", xlabel=LABELS[sweep])
    axes[0][0].set_ylabel("test MSE, the real channel")
    axes[0][0].legend(fontsize=7)
    return figure


ITEM = Item(
    name="softmax_attention/figure2",
    title="Softmax attention Figure 2: error of one layer against anchors, interval and heads",
    quick="n = 10, 400 samples, p = 12, 24, 48, three intervals, H = 1, 4, 2 seeds, rate 1e-2; throughput of 17 models",
    full="d = 10, n = 50, hidden 32, 1000 samples, 50 epochs of 25 steps, Adam 1e-3, 10 seeds; p to 512, H to 16",
    run=run,
    parts=(*SWEEPS, "throughput"),
)
