"""`reproduce(item)`: run one item of the lab and leave result.json, the table and the figures."""

import time
from pathlib import Path
from typing import Any

from infoflow.errors import InfoFlowError
from infoflow.lab import item as items
from infoflow.lab.item import Context, Item, Preset
from infoflow.lab.registry import ITEMS, find


def reproduce(
    name: str,
    preset: Preset = "quick",
    out: str | Path | None = None,
    device: str = "cpu",
    engine: str = "local",
    data: str | Path | None = None,
    parts: tuple[str, ...] = (),
    seconds: float | None = None,
) -> dict[str, Any]:
    """Run an item; finished runs in its store are never trained again, so a stopped call goes on where it stopped."""
    item = find(name)
    preset = item.preset(preset)
    known = (*item.preparations, *item.parts)
    for part in parts:
        if part not in known:
            raise InfoFlowError(f"expected parts among {', '.join(known) or '(none)'} of {name}, got {part!r}.")
    folder = Path(out) if out is not None else Path("out/reproduce") / name / preset
    context = Context(preset, folder, device, engine, Path(data) if data is not None else None, tuple(parts), seconds)
    start = time.perf_counter()
    outcome = item.run(context)
    return items.write(item, context, outcome, time.perf_counter() - start)


def listing() -> list[Item]:
    return [find(name) for name in ITEMS]
