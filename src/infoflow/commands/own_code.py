"""Code of the user's own: `file.py:NAME`, run because an argument of the command names it.

This is the one place of the project that runs a file it is given. It stands in the last room, so nothing that reads
headers, stores, texts or folders can reach it (`tests/test_house.py` reads the source for both).
"""

import importlib.util
import os
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from infoflow.architecture import Architecture, from_hugging_face
from infoflow.errors import InfoFlowError, unknown
from infoflow.targets import Target, parse
from infoflow.targets.named import target_of

if TYPE_CHECKING:
    from infoflow.train.task import Task


def names_code(spelling: str) -> bool:
    """Whether an argument has the form `file.py:NAME` (or forgot the name). A file that is called so was not typed: a
    shell puts its name there for `*`, and whoever made the folder chose it."""
    path, colon, _ = spelling.strip().rpartition(":")
    if colon and os.path.lexists(spelling):
        return False
    return path.endswith(".py") or spelling.strip().endswith((".py", ".py:"))


def asked_target(spelling: str) -> Target:
    """The target an argument names: one of ours, or one in the user's file, a Target or a function `def F(X, d=3)`."""
    if not names_code(spelling):
        return parse(spelling)
    found, path, name = run(spelling, Target)
    if not isinstance(found, Target) and not callable(found):
        raise InfoFlowError(f"expected {name} in {path} to be a Target or a function, got {type(found).__name__}.")
    return replace(target_of(found), spelling=f"{path}:{name}")


def asked_task(spelling: str) -> "Task | Target":
    """What an argument asks to train: a target or task of ours, or a target, task or function in the user's file."""
    from infoflow.train.fit import task_of
    from infoflow.train.task import Task, source_of

    if not names_code(spelling):
        return task_of(spelling)
    found, path, name = run(spelling, (Target, Task))
    if isinstance(found, (Target, FunctionType)):
        return replace(target_of(found), spelling=f"{path}:{name}")
    if not isinstance(found, Task):
        kinds = "a Target, a Task or a function"
        raise InfoFlowError(f"expected {name} in {path} to be {kinds}, got {type(found).__name__}.")
    found.name, found.file_hash = f"{path}:{name}", source_of(f"{path}:{name}")
    return found


def asked_architecture(spelling: str) -> Architecture:
    """The architecture an argument spells out, or `hf:PATH` for that of a Hugging Face config.json."""
    return from_hugging_face(spelling[3:]) if spelling.startswith("hf:") else Architecture.parse(spelling)


def made_by(spelling: str) -> Any:
    """What the user's function returns."""
    function, path, name = run(spelling, FunctionType)
    try:
        return function()
    except (Exception, SystemExit) as error:  # the user's own code may raise anything; it must become one sentence
        raise InfoFlowError(f"expected {name}() of {path} to run, it failed with {_said(error)}") from None


def run(spelling: str, kind: type | tuple[type, ...]) -> tuple[Any, str, str]:
    """The attribute, its file and its name: the file is run in a fresh module. `kind` is what is looked for."""
    path, _, name = spelling.strip().rpartition(":")
    if not path.endswith(".py"):
        path, name = spelling.strip().removesuffix(":"), ""
    if not name.isidentifier():
        raise InfoFlowError(f"expected file.py:NAME, got {path}:{name}; add the name in the file.")
    file = Path(path)
    if not file.is_file():
        raise InfoFlowError(f"expected a Python file, {path} is no file; check the path.")
    specification = importlib.util.spec_from_file_location(f"infoflow_own_code_{file.stem}", file)
    if specification is None or specification.loader is None:
        raise InfoFlowError(f"expected a Python file, {path} cannot be loaded.")
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InfoFlowError(f"expected {path} to run, it failed with {_said(error)}") from None
    if not hasattr(module, name):
        names = [known for known, value in vars(module).items() if isinstance(value, kind)]
        raise unknown(f"name in {path}", name, names)
    return getattr(module, name), path, name


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
