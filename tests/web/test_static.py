"""The static copy: opened from a plain file server, every example of every view works, without a request that fails."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from infoflow.web.static import spelled, write_static

KEPT = {"flow": [0, 3], "predict": [2], "build": [1], "refute": [0]}  # of the examples; the others take minutes


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: Any) -> None:
        """Nothing on the terminal."""


@pytest.fixture(scope="module")
def copy(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    every = json.loads((assets / "examples.json").read_text(encoding="utf-8"))
    few = {view: [every[view][number] for number in numbers] for view, numbers in KEPT.items()}
    few["predict"][0].pop("forecast", None)
    few["refute"][0]["question"]["seconds"] = 2
    folder = tmp_path_factory.mktemp("static")
    assert write_static(folder, few) == len(json.loads((folder / "data/index.json").read_text(encoding="utf-8")))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_the_static_copy_works_without_an_explorer(browser: Any, copy: str) -> None:
    from tests.web.conftest import Window

    window = Window(browser, copy)
    for view in ("flow", "predict", "build", "book", "lab", "heads"):
        page = window.open(f"?view={view}")
        assert page.locator("[role=alert]").count() == 0
        assert "static copy" in page.inner_text("footer")
    page = window.open("?view=flow")
    page.select_option("label:has-text('Example') + select", "1")
    page.wait_for_function("() => document.querySelector('#verdict').innerText.includes('all 12 tokens')")
    page = window.open("?view=refute")
    page.click("text=Search two such inputs")
    page.wait_for_selector("figure[data-done]")
    page = window.open("?view=build")
    with page.expect_download() as download:
        page.click("text=Download safetensors")
    assert download.value.suggested_filename.endswith(".safetensors")
    page.click("text=Attack it for two seconds")
    page.wait_for_selector("text=Two seconds of attack found")
    window.context.close()
    assert not window.complaints


def test_questions_are_spelled_as_the_page_spells_them() -> None:
    question = {"target": "min_pair:d=2", "T": 8, "eps": 0.05, "seconds": 2.0, "tokens": [[0.0, -1], [0.7, 1e-3]]}
    expected = '{"T":8,"eps":0.05,"seconds":2,"target":"min_pair:d=2","tokens":[[0,-1],[0.7,0.001]]}'
    assert spelled(question) == expected
