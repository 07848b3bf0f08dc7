"""From a spelling to a target: `name:key=value,...` for the named ones, `file.py:NAME` for a user's own."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from infoflow.arguments import shown
from infoflow.errors import InfoFlowError, unknown
from infoflow.targets.named import NAMED
from infoflow.targets.target import Target


def target_of(target: Target | str) -> Target:
    """A target as it is, or the one a spelling names: every verb takes either."""
    return target if isinstance(target, Target) else parse(target)


def parse(spelling: str, files: bool = True) -> Target:
    """The target a spelling names. `files=False` refuses `file.py:NAME`: use it on spellings read from a file, which
    must not be able to run code."""
    if not isinstance(spelling, str):
        raise InfoFlowError(f"expected a target or its spelling such as 'pairwise_max:D=4,d=4', got {shown(spelling)}.")
    name, colon, rest = spelling.strip().partition(":")
    path, _, attribute = spelling.strip().rpartition(":")
    if path.endswith(".py") or name.endswith(".py"):
        if not files:
            raise InfoFlowError(
                f"expected a named target, got {spelling!r}, code that is not run because a file names it; "
                "pass it yourself (--target)."
            )
        return _from_file(path if path.endswith(".py") else name, attribute if path.endswith(".py") else "")
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
            kind = "an integer" if readers[key] is int else "positions like 1..3+7 (from 1 on; sets joined by /)"
            raise InfoFlowError(f"expected {key} to be {kind}, got {value!r}.") from None
    return found


def _from_file(path: str, attribute: str) -> Target:
    """Run the user's file in a fresh module and take the target (or the function that makes one) from it."""
    file = Path(path)
    if not attribute.isidentifier():
        raise InfoFlowError(f"expected file.py:NAME, got {path}:{attribute}; add the name of the target in the file.")
    if not file.is_file():
        raise InfoFlowError(f"expected a Python file with a target, {path} is no file.")
    module_spec = importlib.util.spec_from_file_location(f"infoflow_user_target_{file.stem}", file)
    if module_spec is None or module_spec.loader is None:
        raise InfoFlowError(f"expected a Python file with a target, {path} cannot be loaded.")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except InfoFlowError as error:
        raise InfoFlowError(f"expected {path} to define a target, it failed: {error}") from None
    except (Exception, SystemExit) as error:
        raise InfoFlowError(f"expected {path} to run, it failed with {type(error).__name__}: {error}") from None
    found = getattr(module, attribute, None)
    if found is None:
        names = [name for name, value in vars(module).items() if isinstance(value, Target)]
        raise unknown(f"target in {path}", attribute, names)
    if not isinstance(found, Target):
        raise InfoFlowError(f"expected {attribute} in {path} to be a Target, got {type(found).__name__}.")
    return replace(found, spelling=f"{path}:{attribute}")
