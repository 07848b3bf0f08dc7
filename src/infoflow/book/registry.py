"""Checks and counterexamples by name. Their modules import torch, so they are loaded when something is run."""

import importlib
from collections.abc import Callable
from typing import Any

from infoflow.book.entry import Finding

Check = Callable[..., list[Finding]]  # (size, build=the construction), the second for tests that change a weight
Counterexample = Callable[[], Finding]

MODULES = {"infoflow": "infoflow", "heads": "heads", "softmax": "softmax", "rank1": "rank_one"}  # by paper


def check_of(id: str) -> Check:
    """The check of an entry."""
    module: Any = importlib.import_module(f"infoflow.book.checks.{MODULES[id.split('.')[0]]}")
    check: Check = module.CHECKS[id]
    return check


def counterexample(paper: str, name: str) -> Counterexample:
    """The function that shows an erratum."""
    module: Any = importlib.import_module(f"infoflow.book.counterexamples.{MODULES[paper]}")
    shown: Counterexample = getattr(module, name)
    return shown


def registry() -> tuple[dict[str, Check], Callable[[str], Callable[[Check], Check]]]:
    """A table of checks by id, and the decorator that fills it."""
    checks: dict[str, Check] = {}

    def checks_entry(id: str) -> Callable[[Check], Check]:
        def keep(function: Check) -> Check:
            checks[id] = function
            return function

        return keep

    return checks, checks_entry
