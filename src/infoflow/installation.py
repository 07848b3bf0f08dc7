"""How this installation is called and extended: the words a person can type as they stand."""

import importlib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from infoflow.errors import InfoFlowError

# "infoflow" where a command follows, at the start of a line or after a space, a bracket, a quote or a backtick.
CALL = re.compile(r"(?<![^\s(`'\"])infoflow(?= [a-z-])")


def program() -> str:
    """What starts this very command line: "infoflow" where the shell finds it, else the path to it."""
    called = Path(sys.argv[0]) if sys.argv else Path("infoflow")
    if called.name != "infoflow":  # python -m infoflow, or a test
        return f"{_near(Path(sys.executable))} -m infoflow" if called.name == "__main__.py" else "infoflow"
    found = shutil.which("infoflow")
    return "infoflow" if found and os.path.samefile(found, called) else _near(called)


def runnable(text: str) -> str:
    """The text with every `infoflow ...` spelled so that it runs from here."""
    called = program()
    return text if called == "infoflow" else CALL.sub(lambda _: called, text)


def activation() -> str | None:
    """The line that makes plain `infoflow` work in this shell; None where it does already."""
    script = Path(sys.argv[0]).parent / "activate" if sys.argv else Path("activate")
    return f"source {_near(script)}" if program() != "infoflow" and script.is_file() else None


def extra(module: str, name: str, what: str) -> Any:
    """Import a module that the extra `name` brings, or say in one sentence how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        python = _near(Path(sys.executable))
        raise InfoFlowError(
            f"{what} needs {module.partition('.')[0]}, which is not installed; "
            f"run: {python} -m pip install 'infoflow[{name}]'"
        ) from None


def _near(path: Path) -> str:
    """The path from the current folder where it lies below it."""
    full = path if path.is_absolute() else Path.cwd() / path
    return str(full.relative_to(Path.cwd())) if full.is_relative_to(Path.cwd()) else str(full)
