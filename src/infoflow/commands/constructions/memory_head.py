"""`infoflow build memory_head --target d_retrieval:D=2,d=1 -T 8 --eps 0.1`: one head that remembers every token."""

from pathlib import Path
from typing import Any

from infoflow.commands.constructions.single_head import saved
from infoflow.construct.catalogue import CONSTRUCTIONS


def run(options: dict[str, Any], out: Path, seed: int) -> dict[str, Any]:
    """Make it, save it, attack it."""
    from infoflow.construct import makers
    from infoflow.construct.single_heads import MemoryHead

    made = makers.memory_head(CONSTRUCTIONS["memory_head"].read(options, command=True), seed)
    assert isinstance(made.head, MemoryHead)
    return {
        **saved(made, out),
        "head_dim": made.head.T * made.head.d,
        "levels": made.head.levels,
        "knots": made.head.knots,
        "parameters": made.head.parameters,
        "parameters_merged": made.head.parameters_merged,
        "parameters_bottleneck": made.head.parameters_bottleneck,
        "bound": made.certificate.bound,
        "attacked": made.attack(seed),
    }


def text(report: dict[str, Any]) -> str:
    """The report in words."""
    attacked = "not attacked" if report["attacked"] is None else f"found {report['attacked']:.4g}"
    counts = f"{report['parameters']:,} dense, {report['parameters_merged']:,} that are not 0 by construction, "
    return "\n".join(
        [
            f"one head of dimension {report['head_dim']} that remembers all {report['T']} tokens, {report['target']}",
            f"  five-layer ReLU read-out, {report['levels']} levels, {report['knots']} hats a coordinate",
            f"  parameters {counts}{report['parameters_bottleneck']:,} with a linear bottleneck",
            f"  error at most {report['bound']:.4g}, {attacked}",
            f"  wrote {report['path']}",
        ]
    )
