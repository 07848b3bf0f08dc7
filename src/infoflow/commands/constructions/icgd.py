"""`infoflow build icgd --loss squared --data FILE.json --eta 0.5 --steps 200 --ridge 0.1`: descent in context.

The data: {"x": d rows of n numbers, "y": n numbers, "w0": d numbers (optional), "x_u": d numbers (optional)}.
"""

from pathlib import Path
from typing import Any

from infoflow.construct.catalogue import CONSTRUCTIONS


def run(options: dict[str, Any], out: Path, seed: int) -> dict[str, Any]:
    """Make it, save it, run it on its data beside exact descent."""
    from infoflow.construct import makers
    from infoflow.construct.softmax_attention import figures
    from infoflow.report.style import save

    given = CONSTRUCTIONS["icgd"].read(options, command=True)
    problem, asked = makers.descent_data(given["data"])
    net = makers.icgd(given, seed)
    loss, eta, steps, ridge = (given[key] for key in ("loss", "eta", "steps", "ridge"))
    result = net.run(problem)
    certificate = net.check(net.certificate)
    report: dict[str, Any] = {
        "construction": "icgd",
        "loss": loss,
        "eta": eta,
        "steps": steps,
        "ridge": ridge,
        "w": result.w,
        "w_exact": result.exact[-1],
        "deviation": result.deviation,
        "bound": certificate.bound,
        "holds": certificate.holds,
        "heads": net.heads,
        "heads_per_step": net.heads_per_step,
        "gradient_error": net.gradient_heads.error,
        "domain": {"arguments": net.domain.arguments, "source": net.domain.source},
    }
    if asked is not None:
        report["prediction"] = net.predict(problem, asked)
    report["path"] = net.save(out / "icgd.safetensors")
    if given["figures"]:
        report["figures"] = save(figures.trajectories(net, problem), out / "icgd")
    return report


def text(report: dict[str, Any]) -> str:
    """The report in words."""
    bound = "none" if report["bound"] is None else f"{report['bound']:.4g}"
    weights = ", ".join(f"{float(value):.6g}" for value in report["w"][:8])
    lines = [
        f"{report['steps']} steps of gradient descent in context, {report['loss']} loss, eta {report['eta']:g}",
        f"  w = [{weights}{', ...' if len(report['w']) > 8 else ''}]",
        f"  {report['heads_per_step']} heads a step, {report['heads']} in all",
        f"  deviation from exact descent {report['deviation']:.3g}, proved bound {bound}",
        f"  domain |z| <= {report['domain']['arguments']:.4g}: {report['domain']['source']}",
        f"  wrote {report['path']}",
    ]
    if "prediction" in report:
        lines.append(f"  prediction at x_u: {report['prediction']:.6g}")
    return "\n".join([*lines, *(f"  drew {path}" for path in report.get("figures", []))])
