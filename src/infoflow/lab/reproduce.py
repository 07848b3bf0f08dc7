"""`reproduce(item)`: run one item of the lab and leave result.json, the table and the figures."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from infoflow.errors import InfoFlowError, printable
from infoflow.files import write_json, write_text
from infoflow.lab import item as items
from infoflow.lab.item import Context, Item, Outcome, draw, markdown
from infoflow.lab.registry import ITEMS, find
from infoflow.provenance import provenance
from infoflow.reading import json_of


def reproduce(name: str, context: Context) -> dict[str, Any]:
    """Run an item; finished runs in its store are never trained again, so a stopped call goes on where it stopped."""
    item = find(name)
    context = replace(context, preset=item.preset(context.preset))
    known = (*item.preparations, *item.parts)
    for part in context.parts:
        if part not in known:
            raise InfoFlowError(f"expected parts among {', '.join(known) or '(none)'} of {name}, got {part!r}.")
    start = time.perf_counter()
    outcome = item.run(context)
    return items.write(item, context, outcome, time.perf_counter() - start)


def redraw(name: str, out: str | Path) -> dict[str, Any]:
    """Remarks and figures again from `out/result.json`: what was trained and measured stays as it is."""
    item, folder = find(name), Path(out)
    if item.told is None:
        able = ", ".join(entry.name for entry in listing() if entry.told)
        raise InfoFlowError(f"expected an item whose figures its result alone makes ({able}), got {name}.")
    result = json_of(folder / "result.json", f"a result of {name}")
    if not isinstance(result, dict) or result.get("item") != name or not isinstance(result.get("rows"), list):
        asked = result.get("item") if isinstance(result, dict) else None
        raise InfoFlowError(f"expected a result of {name} in {folder}, got one of {asked!r}.")
    try:
        said, figures = item.told(result)
        remarks = [printable(remark) for remark in dict.fromkeys([*result["remarks"], *said])]
        table = markdown(Outcome(result["columns"], result["rows"], remarks=remarks))
        heading = f"# {item.title} ({printable(result['preset'])})"
        drawn = draw(figures, folder)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # rows of anybody's
        raise InfoFlowError(f"expected rows as {name} writes them in {folder}, got others ({error!r}).") from None
    result |= {"remarks": remarks, "figures": drawn, "redrawn": provenance()}
    write_json(folder / "result.json", result)
    write_text(folder / "table.md", f"{heading}\n\n{table}")
    return result


def listing() -> list[Item]:
    """Every item, in the order of the papers."""
    return [find(name) for name in ITEMS]
