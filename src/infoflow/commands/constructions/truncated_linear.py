"""`infoflow build truncated_linear --a -1 --b 2 --n 4 --eps 0.01`: one head (or H) for Range_[a,b](w.x + t)."""

from pathlib import Path
from typing import Any

from infoflow.construct.catalogue import CONSTRUCTIONS


def run(options: dict[str, Any], out: Path, seed: int) -> dict[str, Any]:
    """Make it, save it, attack it."""
    import torch

    from infoflow.construct import makers
    from infoflow.construct.softmax_attention import figures
    from infoflow.report.style import save

    given = CONSTRUCTIONS["truncated_linear"].read(options, command=True)
    net: Any = makers.truncated_linear(given, seed)
    a, b, n, H = (given[key] for key in ("a", "b", "n", "H"))
    anchors, beta = net.p if H is not None else net.anchors.p, net.beta
    certificate = net.certificate.with_attack(net.attack(seed, 5.0))
    report: dict[str, Any] = {
        "construction": "truncated_linear",
        "a": a,
        "b": b,
        "n": n,
        "p": anchors,
        "beta": beta,
        "heads": net.heads,
        "bound": certificate.bound,
        "attacked": certificate.attacked,
        "holds": certificate.holds,
        "parts": certificate.parts,
        "path": net.save(out / "truncated_linear.safetensors"),
    }
    if given["figures"]:
        made = {"rates": figures.error_rates(a, b, max(3, min(n, 6)))}
        if H is None:
            z = torch.linspace(a - 0.2 * (b - a), b + 0.2 * (b - a), min(n, 5), dtype=torch.float64)
            direction = net.w / net.w.square().sum().clamp(min=1e-300)
            X = direction[:, None] * (z - net.t)
            made["selection"] = figures.selection_picture(net, X)
            if anchors <= 256 and len(z) == n:
                made["heat_map"] = figures.heat_map(net.head(), net.affine(X), n)
        report["figures"] = [path for name, each in made.items() for path in save(each, out / name)]
    return report


def text(report: dict[str, Any]) -> str:
    """The report in words."""
    heads = "one head" if report["heads"] == 1 else f"{report['heads']} heads"
    lines = [
        f"Range_[{report['a']:g}, {report['b']:g}](w.x + t), {heads}, {report['p']} anchors, beta {report['beta']:.4g}",
        f"  error at most {report['bound']:.4g} for every real w.x + t; the attack found {report['attacked']:.4g}",
        f"  wrote {report['path']}",
    ]
    return "\n".join([*lines, *(f"  drew {path}" for path in report.get("figures", []))])
