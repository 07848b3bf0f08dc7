"""What the reports of the two single heads share."""

from pathlib import Path
from typing import Any


def saved(made: Any, out: Path) -> dict[str, Any]:
    """Save a single head of `infoflow.construct.single_heads`; the entries that every report of one has."""
    T, eps = made.head.T, made.eps
    return {
        "construction": made.kind,
        "path": made.save(out / f"{made.kind}_T{T}_eps{eps:g}.safetensors"),
        "target": made.target.spelling,
        "T": T,
        "eps": eps,
        "heads": 1,
    }
