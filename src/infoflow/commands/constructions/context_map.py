"""`infoflow build context_map --data FILE.json --scale auto|sufficient|paper`: Theorem 2 with a certificate."""

from pathlib import Path
from typing import Any

from infoflow.construct.catalogue import CONSTRUCTIONS


def run(options: dict[str, Any], out: Path, seed: int) -> dict[str, Any]:
    """Make it, save it, and say how far apart its ids are."""
    from infoflow.construct import makers

    given = CONSTRUCTIONS["context_map"].read(options, command=True)
    made = makers.context_map(given, seed)
    saved = made.save(out / f"context_map_{given['scale']}.safetensors")
    return {"construction": "context_map", **made.to_json(), "certificate": made.certificate.to_json(), "path": saved}


def text(report: dict[str, Any]) -> str:
    """The report in words."""
    kept = "and float64 keeps them apart" if report["float64"] else "but float64 cannot tell them apart"
    return "\n".join(
        [
            f"contextual map, scale {report['scale']}: {report['contexts']} contexts of {report['tokens']} tokens",
            f"  ids at least 10^{report['log10_gap']:.6g} apart ({report['method']}, {report['bits']} bits), {kept}",
            f"  the theorem's (8) promises 10^{report['paper_log10_gap']:.6g}",
            f"  saved {report['path']}",
        ]
    )
