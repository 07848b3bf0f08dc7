"""The Flow view: what the page shows is what `trace` computes."""

import json
import shlex
from typing import Any

import numpy as np

import infoflow as iflow
from infoflow.cli import cli

APPENDIX_E = [[0, -1], [0.7, 0.7], [0, 1], [-0.2, -0.9]]


def nodes(page: Any) -> dict[str, str]:
    """Every node's words by 'position-layer'."""
    found = page.query_selector_all("[data-node]")
    return {node.get_attribute("data-node"): node.get_attribute("aria-label") for node in found}


def spoken(members: tuple[int, ...]) -> str:
    """A set as the page says it."""
    if len(members) < 2:
        return str(members[0]) if members else "nothing"
    return f"{', '.join(map(str, members[:-1]))} and {members[-1]}"


def test_appendix_e_is_the_first_picture_and_is_the_papers(window: Any) -> None:
    page = window.open("")
    flow = iflow.trace("min_pair:d=2", "heads=1,1 embed=4", np.array(APPENDIX_E))
    shown = nodes(page)
    for layer in range(3):
        for position in range(1, 6):
            if layer < 2 or position == 5:
                assert shown[f"{position}-{layer}"].endswith(f"knows {spoken(flow.members(position, layer))}")
    assert "tokens 1 and 3" in page.inner_text("#verdict")
    assert len(page.query_selector_all(".flow.picture .band")) == 2


def test_a_moved_token_changes_the_winner_and_the_address(window: Any) -> None:
    page = window.open("")
    page.focus('.plane [data-token="3"]')
    for _ in range(10):
        page.keyboard.press("Shift+ArrowDown")
    page.wait_for_function("() => new URLSearchParams(location.search).get('tokens').includes(';0,-1;')")
    page.wait_for_function("() => document.querySelector('#verdict').innerText.includes('2 and 4')")
    tokens = [[float(v) for v in row.split(",")] for row in page.evaluate(
        "new URLSearchParams(location.search).get('tokens')").split(";")]  # fmt: skip
    assert tokens[2] == [0, -1]
    flow = iflow.trace("min_pair:d=2", "heads=1,1 embed=4", np.array(tokens))
    assert flow.members(5, 2) == (2, 4)
    page.reload()
    page.wait_for_selector("main[data-ready]")
    assert "2 and 4" in page.inner_text("#verdict")


def test_what_is_copied_runs_and_gives_the_same_sets(window: Any, capsys: Any) -> None:
    page = window.open("?view=flow&target=max_plus_min&arch=heads=2+embed=2&T=6&seed=4")
    page.click("text=Copy as command")
    words = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    assert words[0] == "infoflow"
    cli.main(args=[*words[1:], "--json"], prog_name="infoflow", standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    asked = window.ask("trace", {"target": "max_plus_min", "arch": "heads=2 embed=2", "T": 6, "seed": 4})
    assert told["sets"] == asked["sets"]
    page.click("text=Copy as Python")
    python = page.evaluate("navigator.clipboard.readText()")
    made: dict[str, Any] = {}
    exec(python, made)
    assert made["flow"].members(7, 1) == tuple(asked["sets"][1][6])


def test_layers_are_stepped_through_with_the_keyboard(window: Any) -> None:
    page = window.open("")
    assert not page.query_selector_all(".flow .node.later")
    page.keyboard.press("ArrowLeft")
    assert len(page.query_selector_all(".flow .node.later")) == 1
    page.keyboard.press("ArrowLeft")
    assert len(page.query_selector_all(".flow .node.later")) == 6
    page.focus('[data-node="2-1"]')
    page.keyboard.press("Enter")
    assert "{2,4}" in page.inner_text("main")


def test_a_wrong_call_gets_the_sentence_of_the_command_line(window: Any) -> None:
    page = window.open("?view=flow&target=min_pairs&arch=heads=1,1+embed=4&T=5")
    assert "did you mean 'min_pair'?" in page.inner_text("[role=alert]")
    assert window.complaints  # the browser notes the refused request
    window.complaints.clear()


def test_a_picture_is_saved_as_svg_and_png(window: Any, tmp_path: Any) -> None:
    page = window.open("")
    for words, first in (("Save SVG", b"<svg"), ("Save PNG", b"\x89PNG")):
        with page.expect_download() as download:
            page.click(f"text={words}")
        data = (download.value.path()).read_bytes()
        assert data.startswith(first)
        assert len(data) > 3000
