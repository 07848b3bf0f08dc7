"""Write the measured tables into README.md and docs/*.md from the recorded JSON; `--check` only compares.

A page marks a table by `<!-- table NAME -->` and `<!-- end -->`; NAME is a function below. Nothing measured is typed
by hand. Run: python docs/tables.py [--check]
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TABLES: dict[str, Callable[[], str]] = {}
MARK = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(function: Callable[[], str]) -> Callable[[], str]:
    TABLES[function.__name__] = function
    return function


def recorded(name: str) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads((ROOT / name).read_text(encoding="utf-8"))
    return payload


def markdown(head: list[str], rows: list[list[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def source(payload: dict[str, Any]) -> str:
    """Where the numbers come from, under the table."""
    made = payload["provenance"]
    return f"\n<sub>`{made['command']}`, commit {made['commit']}, {made['machine']}</sub>\n"


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        name = match.group(2)
        if name not in TABLES:
            raise SystemExit(f"tables: no table is called {name!r}")
        return match.group(1) + TABLES[name]() + match.group(3)

    return MARK.sub(replace, text)


def main() -> None:
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        fresh = filled(text)
        if fresh != text:
            stale.append(page.relative_to(ROOT))
            if "--check" not in sys.argv:
                page.write_text(fresh, encoding="utf-8")
    if stale and "--check" in sys.argv:
        raise SystemExit(f"tables: out of date in {', '.join(map(str, stale))}; run python docs/tables.py")


if __name__ == "__main__":
    main()
