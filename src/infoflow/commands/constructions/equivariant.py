"""`infoflow build equivariant --function mean_product --d 1 --n 2 --D 16`: Proposition 1 as weights."""

from pathlib import Path
from typing import Any

from infoflow.commands.constructions.options import Options
from infoflow.errors import InfoFlowError


def run(options: dict[str, str], out: Path, seed: int) -> dict[str, Any]:
    from infoflow.construct.rank_one.equivariant import FUNCTIONS, approximate_equivariant, function_named, l2_error
    from infoflow.construct.rank_one.off_ramps import certificate_of, save_equivariant

    left = Options(options)
    name = left.take("function", str, "mean_product")
    d, n, D = left.take("d", int, 1), left.take("n", int, 2), left.take("D", int, 16)
    labels, points = left.take("labels", str, "centre"), left.take("points", int, 4000)
    left.done()
    function = function_named(name, d, n)
    if points < 1:
        raise InfoFlowError(f"expected --points of at least 1, got {points}.")
    stem = name if name in FUNCTIONS else "expression"
    made = approximate_equivariant(function, d, n, D, labels)
    l2 = l2_error(made, function, points, seed)
    path = save_equivariant(made, name, labels, out / f"equivariant_{stem}_d{d}_n{n}_D{D}.safetensors")
    return {
        "construction": "equivariant",
        "function": name,
        "d": d,
        "n": n,
        "D": D,
        "labels": labels,
        "l2": l2,
        "classes": made.classes,
        "certificate": certificate_of(made).to_json(),
        "gap": made.gap,
        "delta": made.delta,
        "strip_measure": made.strip_measure(),
        "domain": made.domain,
        "widths": [made.network.config.encoder_width, made.network.config.widths[0]],
        "path": path,
    }


def _number(value: float | None) -> str:
    return "(not proved)" if value is None else f"{value:.3g}"


def text(report: dict[str, Any]) -> str:
    widths = report["widths"]
    return "\n".join(
        [
            f"{report['function']} on [0,1]^({report['d']} x {report['n']}), {report['D']} steps a coordinate, "
            f"{report['labels']} labels: L2 error {report['l2']:.4g}",
            f"  {report['classes']} classes, hidden widths {widths[0]} and {widths[1]}, one rank-1 head",
            f"  off the ramps at most {_number(report['certificate']['bound'])} from the step function (float64)",
            f"  ramps of width {report['delta']:.3g} take {report['strip_measure']:.3g} of the cube; "
            f"0 outside it, for entries up to {report['domain']:.3g}",
            f"  saved {report['path']}",
        ]
    )
