"""`infoflow build grid --function "sin(2*x11)+x11*x12" --d 1 --n 2 --g 8 --variant quadratic`."""

from pathlib import Path
from typing import Any

from infoflow.construct.catalogue import CONSTRUCTIONS


def run(options: dict[str, Any], out: Path, seed: int) -> dict[str, Any]:
    """Make it, save it, attack it, measure its distance from f."""
    from infoflow.construct import makers
    from infoflow.construct.softmax_attention import figures
    from infoflow.report.style import save

    given = CONSTRUCTIONS["grid"].read(options, command=True)
    net = makers.grid(given, seed)
    function, d, n, g, variant, lazy = (given[key] for key in ("function", "d", "n", "g", "variant", "lazy"))
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
        "path": net.save(out / "grid.safetensors"),
    }
    if given["figures"] and net.N <= 2:
        report["figures"] = save(figures.grid_picture(net), out / "grid")
    return report


def text(report: dict[str, Any]) -> str:
    """The report in words."""
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
