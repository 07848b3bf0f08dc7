"""`infoflow build truncated_linear --a -1 --b 2 --n 4 --eps 0.01`: one head (or H) for Range_[a,b](w.x + t)."""

from pathlib import Path
from typing import Any

from infoflow.commands.constructions.options import Options, numbers, yes_or_no


def run(options: dict[str, str], out: Path, seed: int) -> dict[str, Any]:
    import torch

    from infoflow.construct.softmax_attention import figures
    from infoflow.construct.softmax_attention.multi_head import multi_head_truncated_linear
    from infoflow.construct.softmax_attention.saving import save_truncated_linear
    from infoflow.construct.softmax_attention.truncated_linear import truncated_linear
    from infoflow.errors import InfoFlowError
    from infoflow.report.style import save

    left = Options(options)
    a, b, n = left.take("a", float, -1.0), left.take("b", float, 1.0), left.take("n", int, 4)
    w, t = left.take("w", numbers, [1.0]), left.take("t", float, 0.0)
    eps, p, H = left.take("eps", float, None), left.take("p", int, None), left.take("H", int, None)
    eps0, grid = left.take("eps0", float, 0.01), left.take("grid", str, "paper")
    draw = left.take("figures", yes_or_no, True)
    left.done()
    if H is not None:
        if eps is not None or p is not None:
            raise InfoFlowError("expected --H alone (p = (n-2) H follows), got --eps or --p beside it; drop one.")
        net: Any = multi_head_truncated_linear(w, t, a, b, n=n, H=H, eps0=eps0)
        anchors, beta = net.p, net.beta
    else:
        if eps is None and p is None:
            eps = 0.01
        net = truncated_linear(w, t, a, b, eps, n=n, p=p, eps0=eps0 if p is not None else None, grid=grid)
        anchors, beta = net.anchors.p, net.beta
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
        "path": save_truncated_linear(net, out / "truncated_linear.safetensors"),
    }
    if draw:
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
    heads = "one head" if report["heads"] == 1 else f"{report['heads']} heads"
    lines = [
        f"Range_[{report['a']:g}, {report['b']:g}](w.x + t), {heads}, {report['p']} anchors, beta {report['beta']:.4g}",
        f"  error at most {report['bound']:.4g} for every real w.x + t; the attack found {report['attacked']:.4g}",
        f"  wrote {report['path']}",
    ]
    return "\n".join([*lines, *(f"  drew {path}" for path in report.get("figures", []))])
