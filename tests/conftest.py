"""One setting for all property tests: no deadlines (speed is measured in benchmarks/, never in tests).

`pytest --shapes` checks the shapes that annotations name (`tests/shapes.py`); `make shapes` does so in three rooms.
"""

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("infoflow", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("infoflow")

CHECKED = ("targets", "certificates", "flow", "nn", "verdicts")  # rooms whose annotations have all been mended


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shapes", action="store_true", help="check the shapes that annotations name")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("shapes"):
        return
    from jaxtyping import install_import_hook

    spec = importlib.util.spec_from_file_location("infoflow_shapes", Path(__file__).parent / "shapes.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["infoflow_shapes"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["infoflow_shapes"])
    install_import_hook([f"infoflow.{room}" for room in CHECKED], "infoflow_shapes.checked")


@pytest.fixture
def finished() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine in a thread of its own: the browser of other tests keeps a loop running in this one."""

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, work).result()

    return run
