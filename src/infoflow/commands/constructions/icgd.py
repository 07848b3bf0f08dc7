"""`infoflow build icgd --loss squared --data FILE.json --eta 0.5 --steps 200 --ridge 0.1`: descent in context.

The data: {"x": d rows of n numbers, "y": n numbers, "w0": d numbers (optional), "x_u": d numbers (optional)}.
"""

from pathlib import Path
from typing import Any

from infoflow import reading
from infoflow.commands.constructions.options import Options, yes_or_no
from infoflow.errors import InfoFlowError


def run(options: dict[str, str], out: Path, seed: int) -> dict[str, Any]:
    import torch

    from infoflow.construct.softmax_attention import figures
    from infoflow.construct.softmax_attention.descent import in_context_gd
    from infoflow.construct.softmax_attention.saving import save_descent
    from infoflow.construct.softmax_attention.trajectory import Problem
    from infoflow.report.style import save

    left = Options(options)
    loss, file = left.take("loss", str, "squared"), left.take("data", str)
    eta, steps, ridge = left.take("eta", float, 0.5), left.take("steps", int, 200), left.take("ridge", float, 0.0)
    heads, p, tau = left.take("heads", str, "soft"), left.take("p", int, 256), left.take("tau", float, None)
    knots, draw = left.take("knots", int, 32), left.take("figures", yes_or_no, True)
    left.done()
    data = read(Path(file))
    x, y, w0 = (torch.tensor(data[name], dtype=torch.float64) for name in ("x", "y", "w0"))
    problem = Problem(x, y, w0)
    (d, n), more = x.shape, {"ridge": ridge, "p": p, "tau": tau, "knots": knots}
    net = in_context_gd(loss, d, n, eta, steps, heads, data=problem, **more)
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
    if data["x_u"] is not None:
        report["prediction"] = net.predict(problem, torch.tensor(data["x_u"], dtype=torch.float64))
    report["path"] = save_descent(net, out / "icgd.safetensors")
    if draw:
        report["figures"] = save(figures.trajectories(net, problem), out / "icgd")
    return report


def read(path: Path) -> dict[str, Any]:
    """The data of a file, checked: lists of finite numbers of the right lengths and nothing else."""
    payload = reading.data_of(path, "a data file")
    if not isinstance(payload, dict) or not {"x", "y"} <= payload.keys():
        raise InfoFlowError(f'expected an object with "x" (d rows of n numbers) and "y" in {path}; correct the file.')
    for name in payload.keys() - {"x", "y", "w0", "x_u"}:
        raise InfoFlowError(f'expected only "x", "y", "w0" and "x_u" in {path}, got {name!r}; remove it.')
    rows = payload["x"]
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) and row for row in rows):
        raise InfoFlowError(f'expected "x" in {path} as d rows of n numbers, got something else.')
    if len({len(row) for row in rows}) != 1:
        raise InfoFlowError(f'expected rows of equal length in "x" of {path}, got different ones.')
    d, n = len(rows), len(rows[0])
    values = {
        "x": [_vector(f"row {i + 1} of x", row, n) for i, row in enumerate(rows)],
        "y": _vector("y", payload["y"], n),
        "w0": _vector("w0", payload.get("w0", [0.0] * d), d),
        "x_u": None,
    }
    if payload.get("x_u") is not None:
        values["x_u"] = _vector("x_u", payload["x_u"], d)
    return values


def _vector(name: str, values: Any, length: int) -> list[float]:
    plain = isinstance(values, list) and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    if not plain or len(values) != length:
        found = f"{len(values)} entries" if isinstance(values, list) else type(values).__name__
        raise InfoFlowError(f"expected {length} numbers in {name}, got {found}; correct the data.")
    try:
        numbers = [float(value) for value in values]
    except OverflowError:
        numbers = [float("inf")]
    if not all(-1e150 < value < 1e150 for value in numbers):
        raise InfoFlowError(f"expected finite numbers in {name}, got one that is not; correct the data.")
    return numbers


def text(report: dict[str, Any]) -> str:
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
