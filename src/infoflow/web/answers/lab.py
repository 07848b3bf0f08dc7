"""The papers' tables and figures as they were reproduced: recorded with the package."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from infoflow.web import questions


@cache
def recorded(name: str) -> Any:
    """What `python docs/tables.py` wrote into the package from the repository's results."""
    return json.loads(files("infoflow.web").joinpath("recorded", f"{name}.json").read_text(encoding="utf-8"))


def lab(question: questions.Lab) -> dict[str, Any]:
    found: dict[str, Any] = recorded("lab")
    return found
