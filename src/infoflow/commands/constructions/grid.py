"""`infoflow build grid --function "sin(2*x11)+x11*x12" --d 1 --n 2 --g 8 --variant quadratic`."""

from pathlib import Path
from typing import Any

from infoflow.commands.constructions.options import Options, yes_or_no


def run(options: dict[str, str], out: Path, seed: int) -> dict[str, Any]:
    from infoflow.construct.softmax_attention import figures
    from infoflow.construct.softmax_attention.expression import parse
    from infoflow.construct.softmax_attention.grid import grid_approximator
    from infoflow.construct.softmax_attention.saving import save_grid
    from infoflow.errors import unknown
    from infoflow.report.style import save

    left = Options(options)
    function, d, n = left.take("function", str), left.take("d", int, 1), left.take("n", int, 1)
    g, variant = left.take("g", int, 8), left.take("variant", str, "two-layer")
    numbers = {"B": 1.0, "delta": 0.05, "eps1": 1e-3, "c": 8.0}
    settings = {name: left.take(name, float, default) for name, default in numbers.items()}
    lipschitz, lazy = left.take("lipschitz", float, None), left.take("lazy", yes_or_no, False)
    heads, draw = left.take("heads", str, "factored"), left.take("figures", yes_or_no, True)
    left.done()
    if heads not in ("factored", "paper"):
        raise unknown("choice of heads", heads, ["factored", "paper"])
    f, paper = parse(function, d, n), heads == "paper"
    net = grid_approximator(f, d, n, g, variant, lipschitz=lipschitz, lazy=lazy, paper_heads=paper, **settings)
    certificate = net.check(net.certificate, seed).with_attack(net.attack(seed, 5.0))
    count = max(16, min(4096, 100_000_000 // max(1, net.cells if not lazy else 1)))
    report: dict[str, Any] = {
        "construction": "grid",
        "function": function,
        "d": d,
        "n": n,
        "g": g,
        "variant": variant,
        "cells": net.cells,
        "heads": net.heads,
        "l2": net.l2(count, seed),
        "sup": net.sup(count, seed),
        "bound": certificate.bound,
        "norm": "sup" if variant == "quadratic" else "l2",
        "bound_on_cores": None if variant == "quadratic" else net.core_bound,
        "attacked": certificate.attacked,
        "holds": certificate.holds,
        "verdict": certificate.verdict,
        "reasons": certificate.why_not,
        "promises": certificate.promises,
        "assumptions": certificate.assumptions,
        "path": save_grid(net, function, lipschitz, out / "grid.safetensors"),
    }
    if draw and net.N <= 2:
        report["figures"] = save(figures.grid_picture(net), out / "grid")
    return report


def text(report: dict[str, Any]) -> str:
    heads = report["heads"]
    bound = "none (no modulus of continuity)" if report["bound"] is None else f"{report['bound']:.4g}"
    lines = [
        f"{report['function']} on {report['d']} x {report['n']}, {report['variant']}, {report['g']} cells a coordinate",
        f"  heads {heads['built']} (factored two-layer {heads['factored']}, paper {heads['paper']})",
        f"  measured L2 {report['l2']:.4g}, sup {report['sup']:.4g}; proved bound ({report['norm']} norm) {bound}",
        f"  {report['verdict']}" + (f": {report['reasons'][0]}" if report["reasons"] else ""),
        f"  wrote {report['path']}",
    ]
    return "\n".join([*lines, *(f"  drew {path}" for path in report.get("figures", []))])
