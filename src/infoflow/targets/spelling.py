"""From a spelling to a named target: `name:key=value,...`.

A spelling may come from anywhere: a header, a store, a request. Nothing here can run a user's file; what can
(`file.py:NAME` as an argument) stands in `infoflow.commands.own_code`, which no room can import.
"""

from collections.abc import Callable
from typing import Any

from infoflow.arguments import shown
from infoflow.errors import InfoFlowError, unknown
from infoflow.targets.functions import of_callable
from infoflow.targets.named import NAMED
from infoflow.targets.target import Target

TargetLike = Target | str | Callable[..., Any]


def target_of(target: TargetLike) -> Target:
    """A target as it is, the one a spelling names, or a plain function `def F(X, d=3)`: every verb takes all three."""
    if isinstance(target, Target):
        return target
    return of_callable(target) if callable(target) else parse(target)


def parse(spelling: str) -> Target:
    """The named target a spelling stands for, wherever the spelling comes from."""
    if not isinstance(spelling, str):
        raise InfoFlowError(f"expected a target or its spelling such as 'pairwise_max:D=4,d=4', got {shown(spelling)}.")
    name, colon, rest = spelling.strip().partition(":")
    if ".py" in spelling:
        raise InfoFlowError(
            f"expected a named target, got {spelling!r}; code is run only when an argument of the command names it "
            "(--target FILE.py:NAME), and in Python you import it and pass the target itself."
        )
    if name not in NAMED:
        raise unknown("target", name, list(NAMED))
    if colon and not rest:
        raise InfoFlowError(f"expected key=value after the colon of {spelling!r}, got nothing.")
    return NAMED[name].build(**_read_keys(name, rest))


def _read_keys(name: str, text: str) -> dict[str, Any]:
    readers = NAMED[name].readers
    found: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise InfoFlowError(f"expected key=value separated by commas after {name}:, got {part!r}.")
        if key not in readers:
            if not readers:
                raise InfoFlowError(f"expected {name} without keys, got {key!r}.")
            raise unknown(f"key of {name}", key, list(readers))
        if key in found:
            raise InfoFlowError(f"expected each key once, {key!r} comes twice.")
        try:
            found[key] = readers[key](value)
        except ValueError:
            kinds = {int: "an integer", float: "a number"}
            kind = kinds.get(readers[key], "positions like 1..3+7 (from 1 on; sets joined by /)")  # type: ignore[call-overload]
            raise InfoFlowError(f"expected {key} to be {kind}, got {value!r}.") from None
    return found
