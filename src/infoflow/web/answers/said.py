"""The same question as a command and as Python, for the page to copy; both run as they stand."""

import json
import shlex
from typing import Any


def said(command: str, python: str) -> dict[str, str]:
    """The same answer from the command line and from Python."""
    return {"command": f"infoflow {command}", "python": f"import infoflow as iflow\n\n{python}"}


def words(*parts: Any) -> str:
    """Words of a command line, quoted where a shell needs it."""
    return " ".join(shlex.quote(str(part)) for part in parts)


def numbers(tokens: Any) -> str:
    """Rows of numbers as JSON without spaces, short where the number is."""
    return json.dumps(tokens, separators=(",", ":"))
