"""`infoflow build exponential_head --target d_retrieval:D=4,d=4 -T 64 --eps 0.1`: D extrema through one head."""

from pathlib import Path
from typing import Any

from infoflow.commands.constructions.single_head import saved
from infoflow.construct.catalogue import CONSTRUCTIONS


def run(options: dict[str, Any], out: Path, seed: int) -> dict[str, Any]:
    """Make it, save it, attack it."""
    from infoflow.construct import makers
    from infoflow.construct.single_head_plans import ExponentialHead

    made = makers.exponential_head(CONSTRUCTIONS["exponential_head"].read(options, command=True), seed)
    assert isinstance(made.head, ExponentialHead)
    return {
        **saved(made, out),
        "head_dim": made.head.head_dim,
        "units": made.head.units,
        "beta": made.head.beta,
        "largest_log_weight": made.head.largest_log_weight,
        "bound": made.certificate.bound,
        "attacked": made.attack(seed),
    }


def text(report: dict[str, Any]) -> str:
    """The report in words."""
    attacked = "not attacked" if report["attacked"] is None else f"found {report['attacked']:.4g}"
    return "\n".join(
        [
            f"one head of dimension {report['head_dim']}, uniform attention, T={report['T']}, {report['target']}",
            f"  values e^(beta (f - 1)), beta={report['beta']:.4g}; {report['units']} tanh units a coordinate",
            f"  largest weight e^{report['largest_log_weight']:.4g}: lower bounds on heads need bounded weights",
            f"  error at most {report['bound']:.4g}, {attacked} (evaluated in log space)",
            f"  wrote {report['path']}",
        ]
    )
