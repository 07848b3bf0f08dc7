"""One explorer and one browser for all tests. Where Chromium cannot be had, the tests that need it say so and skip."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an explorer in its own process, on a free port."""
    pytest.importorskip("starlette", reason="the extra web is not installed")
    folder = tmp_path_factory.mktemp("folder")
    command = [sys.executable, "-m", "infoflow", "serve", "--port", "0", "--folder", str(folder)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    line = server.stdout.readline()
    yield line.split()[4]
    server.terminate()
    server.wait(10)
    server.stdout.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium on this machine; install it: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        found.close()


class Window:
    """A page that remembers everything the browser complained about."""

    def __init__(self, browser: Any, address: str, width: int = 1440, theme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme,
                                           permissions=["clipboard-read", "clipboard-write"])  # fmt: skip
        self.page, self.address, self.complaints = self.context.new_page(), address, []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, query: str) -> Any:
        self.page.goto(self.address + query)
        self.page.wait_for_selector("main[data-ready]")
        return self.page

    def ask(self, verb: str, question: dict[str, Any]) -> Any:
        """The API's answer, through the page's own origin."""
        words = {"content-type": "application/json"}
        return self.page.request.post(f"{self.address}api/{verb}", data=question, headers=words).json()


@pytest.fixture
def window(browser: Any, explorer: str) -> Iterator[Window]:
    found = Window(browser, explorer)
    yield found
    found.context.close()
    assert not found.complaints


@pytest.fixture(params=[(1440, "light"), (1440, "dark"), (360, "light"), (360, "dark")], ids=lambda p: f"{p[1]}-{p[0]}")
def any_window(request: pytest.FixtureRequest, browser: Any, explorer: str) -> Iterator[Window]:
    found = Window(browser, explorer, *request.param)
    yield found
    found.context.close()
    assert not found.complaints


@pytest.fixture(scope="session")
def assets() -> Path:
    from infoflow.web.app import ASSETS

    return ASSETS
