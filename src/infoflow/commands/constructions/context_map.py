"""`infoflow build context_map --data FILE.json --scale auto|sufficient|paper`: Theorem 2 with a certificate."""

from pathlib import Path
from typing import Any

from infoflow.commands.constructions.options import Options
from infoflow.errors import InfoFlowError


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise InfoFlowError(f"expected true or false, got {text!r}.")
    return text.lower() in ("true", "1")


def run(options: dict[str, str], out: Path, seed: int) -> dict[str, Any]:
    from infoflow.construct.rank_one.context_map import ContextMap
    from infoflow.construct.rank_one.data import read_data

    left = Options(options)
    path, scale, mask = left.take("data", Path), left.take("scale", str, "auto"), left.take("mask", str, "none")
    head_size, draws = left.take("head_size", int, 1), left.take("draws", int, None)
    merge = left.take("merge", _flag, False)
    left.done()
    if draws is not None and draws < 1:
        raise InfoFlowError(f"expected --draws of at least 1, got {draws}.")
    made = ContextMap.fit(read_data(path, ("X",))["X"], scale, head_size, mask, merge, draws, seed)
    saved = made.save(out / f"context_map_{scale}.safetensors")
    return {"construction": "context_map", **made.to_json(), "certificate": made.certificate.to_json(), "path": saved}


def text(report: dict[str, Any]) -> str:
    kept = "and float64 keeps them apart" if report["float64"] else "but float64 cannot tell them apart"
    return "\n".join(
        [
            f"contextual map, scale {report['scale']}: {report['contexts']} contexts of {report['tokens']} tokens",
            f"  ids at least 10^{report['log10_gap']:.6g} apart ({report['method']}, {report['bits']} bits), {kept}",
            f"  the theorem's (8) promises 10^{report['paper_log10_gap']:.6g}",
            f"  saved {report['path']}",
        ]
    )
