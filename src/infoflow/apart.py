"""Apart from the current folder, which may be a stranger's: you go there to look at its files.

Python looks for modules there when it is started with `-c` or `-m` (so do the children of multiprocessing and the
workers of Ray), and matplotlib reads a `matplotlibrc` there. All of that is code, or as good as code, of whoever made
the folder. So whatever starts a Python goes through here, and so does the first import of matplotlib.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.context import SpawnContext
from pathlib import Path
from threading import Thread
from typing import Any

OWN = Path(__file__).parent.parent  # where this package was found
SAFE = "PYTHONSAFEPATH"  # a Python that sees it leaves the current folder out of its search


@contextmanager
def processes() -> Iterator[SpawnContext]:
    """New processes (`spawn`: a fork of a process with torch threads may hang) that look for modules where we do."""
    before = os.environ.get(SAFE)
    os.environ[SAFE] = "1"
    try:
        yield get_context("spawn")
    finally:
        if before is None:
            del os.environ[SAFE]
        else:
            os.environ[SAFE] = before


def end_with_parent() -> None:
    """For the first call of a worker: when the process that started it is killed, the worker ends too."""
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_behind, args=(parent,), daemon=True).start()


def _end_behind(parent: Any) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def folder() -> Iterator[None]:
    """Meanwhile the current folder is the one of this package; a caller who imports from theirs keeps it."""
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = None
    if here is None or not {"", here}.isdisjoint(sys.path):
        yield
        return
    with chdir(OWN):
        yield


def forget_folder() -> None:
    """For `python -m infoflow`: Python has put the current folder first, before any installed package."""
    if sys.path and sys.path[0] in ("", os.path.abspath(os.curdir)) and Path(sys.path[0]).resolve() != OWN.resolve():
        del sys.path[0]
