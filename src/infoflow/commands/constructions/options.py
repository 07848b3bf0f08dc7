"""Options of a construction: strings from the command line, taken one by one, nothing left over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from infoflow import arguments
from infoflow.errors import InfoFlowError, unknown

REQUIRED: Any = object()


class Options:
    """`options.take("a", float, -1.0)` converts and removes; `options.done()` refuses what nobody took."""

    def __init__(self, options: dict[str, str]) -> None:
        self._left = dict(options)
        self._known: list[str] = []

    def take(self, name: str, convert: Callable[[str], Any], default: Any = REQUIRED) -> Any:
        self._known.append(name)
        if name not in self._left:
            if default is REQUIRED:
                raise InfoFlowError(f"expected option --{name}, got none; add --{name} VALUE.")
            return default
        text = self._left.pop(name)
        try:
            value = convert(text)
        except InfoFlowError:
            raise
        except (ValueError, TypeError):
            kind = getattr(convert, "__name__", "value")
            raise InfoFlowError(f"expected --{name} to be a {kind}, got {arguments.shown(text)}.") from None
        if convert is int:
            return arguments.integer(f"--{name}", value, least=-arguments.LARGEST)
        return arguments.number(f"--{name}", value) if convert is float else value

    def done(self) -> None:
        for name in self._left:
            raise unknown("option", f"--{name}", [f"--{known}" for known in self._known])


def yes_or_no(text: str) -> bool:
    """`--lazy yes`; also true/false, on/off, 1/0."""
    known = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
    if text.lower() not in known:
        raise InfoFlowError(f"expected yes or no, got {text!r}.")
    return known[text.lower()]


def numbers(text: str) -> list[float]:
    """`--w 1,-2,0.5`."""
    return [float(part) for part in text.split(",")]


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
