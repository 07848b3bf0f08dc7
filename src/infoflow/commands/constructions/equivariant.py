"""`infoflow build equivariant --function mean_product --d 1 --n 2 --D 16`: Proposition 1 as weights."""

from pathlib import Path
from typing import Any

from infoflow.construct.catalogue import CONSTRUCTIONS
from infoflow.errors import InfoFlowError


def run(options: dict[str, Any], out: Path, seed: int) -> dict[str, Any]:
    """Make it, save it, and measure its L2 error."""
    from infoflow.construct import makers
    from infoflow.construct.rank_one.equivariant import FUNCTIONS, function_named, l2_error

    given = CONSTRUCTIONS["equivariant"].read(options, command=True)
    name, d, n, D, labels, points = (given[key] for key in ("function", "d", "n", "D", "labels", "points"))
    if points < 1:
        raise InfoFlowError(f"expected --points of at least 1, got {points}.")
    stem = name if name in FUNCTIONS else "expression"
    network = makers.equivariant(given, seed)
    made = network.built
    l2 = l2_error(made, function_named(name, d, n), points, seed)
    path = network.save(out / f"equivariant_{stem}_d{d}_n{n}_D{D}.safetensors")
    return {
        "construction": "equivariant",
        "function": name,
        "d": d,
        "n": n,
        "D": D,
        "labels": labels,
        "l2": l2,
        "classes": made.classes,
        "certificate": network.certificate.to_json(),
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
    """The report in words."""
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
