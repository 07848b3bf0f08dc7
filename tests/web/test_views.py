"""Every view is opened in both themes and widths, used, and held against the API's numbers."""

import json
import shlex
from typing import Any

import pytest

import infoflow as iflow
from infoflow.cli import cli

VIEWS = ["flow", "predict", "build", "refute", "book", "lab", "heads"]


def test_every_view_opens_fits_and_can_be_read(any_window: Any) -> None:
    """No error, nothing wider than the window, one heading, every control and picture with a name."""
    for view in VIEWS:
        page = any_window.open(f"?view={view}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        assert page.locator("h1").count() == 1
        assert page.locator("nav [aria-current=page]").inner_text().lower() == view
        unnamed = page.evaluate("""() => [...document.querySelectorAll("input, select, textarea, button, canvas, svg")]
            .filter((node) => node.offsetParent !== null || node.tagName === "svg")
            .filter((node) => !node.closest("[aria-hidden]"))
            .filter((node) => !(node.labels?.length || node.getAttribute("aria-label") || node.textContent.trim()))
            .map((node) => node.outerHTML.slice(0, 90))""")
        assert not unnamed, (view, unnamed)


def test_text_has_contrast_in_both_themes(any_window: Any) -> None:
    """Ink, muted text and the colours of words against the card: at least 4.5 to 1 (WCAG AA)."""
    page = any_window.open("?view=flow")
    ratios = page.evaluate("""() => {
        const style = getComputedStyle(document.documentElement);
        const light = (name) => { const c = style.getPropertyValue(name).trim();
            const [r, g, b] = [1, 3, 5].map((at) => parseInt(c.slice(at, at + 2), 16) / 255)
                .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const pairs = ["--ink", "--muted", "--blue", "--orange", "--green", "--yellow", "--purple"]
            .flatMap((name) => ["--card", "--paper"].map((ground) => [name, ground]));
        return Object.fromEntries(pairs.map(([a, b]) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
            return [a + b, (x + 0.05) / (y + 0.05)]; })); }""")
    assert min(ratios.values()) >= 4.5, ratios


def test_predict_says_what_predict_says(window: Any, capsys: Any) -> None:
    page = window.open("?view=predict&target=sum_of_maxima:D=2,d=2&arch=heads=2+embed=8&T=16&eps=0.01")
    found = iflow.predict("sum_of_maxima:D=2,d=2", "heads=2 embed=8", T=16)
    assert page.inner_text("#verdict").startswith("✓\nYes") == (found.verdict == "constructed")
    assert found.constructed is not None
    assert f"{found.constructed.bound:.3g}" in page.inner_text("main")
    asked = window.ask("predict", {"target": "sum_of_maxima:D=2,d=2", "arch": "heads=2 embed=8", "T": 16})
    assert asked["fewer"][0]["verdict"] == iflow.predict("sum_of_maxima:D=2,d=2", "heads=1 embed=8", T=16).verdict
    assert asked["fewer"][0]["sentence"] in page.inner_text("main")
    plan = iflow.plan("sum_of_maxima:D=2,d=2", T=16)
    assert len(page.query_selector_all("figure:has-text('cheapest') .mark")) - 0 >= len(plan.options)
    page.click("text=Copy as command >> nth=0")
    words = shlex.split(page.evaluate("() => navigator.clipboard.readText()"))
    cli.main(args=[*words[1:], "--json"], prog_name="infoflow", standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["verdict"] == found.verdict


def test_one_head_fewer_is_asked_for_with_a_button(window: Any) -> None:
    page = window.open("?view=predict")
    assert "Yes" in page.inner_text("#verdict")
    page.click("[aria-label='one head fewer in layer 1']")
    page.wait_for_function("() => document.querySelector('#verdict').innerText.includes('Open')")
    assert "arch=heads=3,4" in page.url


def test_build_hands_out_a_network_that_holds(window: Any) -> None:
    page = window.open("?view=build&target=sum_of_maxima:D=2,d=2&T=6&eps=0.05")
    net = iflow.build("sum_of_maxima:D=2,d=2", T=6, eps=0.05)
    assert net.certificate is not None
    assert f"at most {float(f'{net.certificate.bound:.3g}'):g} " in page.inner_text("#verdict")
    with page.expect_download() as download:
        page.click("text=Download safetensors")
    path = str(download.value.path()) + ".safetensors"
    download.value.save_as(path)
    again = iflow.certify(iflow.load(path), seconds=0.2)
    assert again.holds
    assert again.bound == pytest.approx(net.certificate.bound, rel=1e-6)
    page.click("[aria-label=head] button >> nth=1")
    page.wait_for_selector("[aria-label=head] button[aria-pressed=true] >> text=2")
    seen = window.ask("attention", {"target": "sum_of_maxima:D=2,d=2", "T": 6, "eps": 0.05, "layer": 1, "head": 2})
    assert f"looks at token {seen['winners'][0]}" in page.inner_text("main")


def test_a_built_network_keeps_what_is_predicted(window: Any) -> None:
    page = window.open("")
    page.click("text=Measure a built network")
    page.wait_for_selector("p.measured", timeout=60000)
    assert page.inner_text("p.measured").startswith("All 20 entries agree")
    tokens = [[0, -1], [0.7, 0.7], [0, 1], [-0.2, -0.9]]
    asked = {"target": "min_pair:d=2", "arch": "heads=1,1 embed=4,4", "tokens": tokens, "weights": "built"}
    found = window.ask("measure", asked)
    assert found["measured"][1][:4] == found["predicted"][1][:4]
    assert found["measured"][2][0] == found["predicted"][2][4]


def test_refute_moves_two_sequences_apart_and_stops(window: Any) -> None:
    query = "target=sum_of_maxima:D=2,d=2&arch=heads=1+embed=2+width=4&T=4"
    page = window.open(f"?view=refute&{query}&weights=random&seed=1&seconds=3")
    page.click("text=Search two such inputs")
    page.wait_for_selector("figure[data-done]", timeout=60000)
    words = page.inner_text("#verdict")
    assert "apart, the states" in words
    page = window.open(f"?view=refute&{query}&weights=random&seed=1&seconds=60")
    page.click("text=Search two such inputs")
    page.wait_for_selector(".twins")
    page.click("text=Stop")
    assert "has ended" in page.inner_text("main")


def test_the_book_is_filtered_and_a_check_runs(window: Any) -> None:
    page = window.open("?view=book")
    assert page.locator(".entry").count() == len(iflow.book.ENTRIES)
    page.select_option("label:has-text('Paper') + select", "heads")
    assert page.locator(".entry").count() == sum(entry.paper == "heads" for entry in iflow.book.ENTRIES.values())
    page.click("text=The intrinsic dimension is intrinsic")
    page.click("details[open] >> text=Run its check now")
    page.wait_for_selector("details[open] .chip:has-text('passed in')", timeout=60000)


def test_the_lab_shows_the_recorded_rows(window: Any) -> None:
    from infoflow.web.answers.lab import recorded

    page = window.open("?view=lab&item=infoflow/table11")
    item = next(item for item in recorded("lab")["items"] if item["name"] == "infoflow/table11")
    assert page.locator("main tbody tr").count() >= len(item["runs"][0]["rows"])
    assert page.locator(".lab .seed").count() - 1 == sum(map(len, item["runs"][0]["seeds"]))  # one in the legend
    page.click("button:has-text('head_count/synthetic')")
    assert "item=head_count/synthetic" in page.url.replace("%2F", "/")


def test_heads_are_counted_and_their_cost_shown(window: Any) -> None:
    page = window.open("?view=heads")
    found = window.ask("heads", {})
    assert page.locator("[data-head]").count() == len(found["heads"])
    one = found["heads"][3]
    page.focus(f"[data-head='{one['layer']}-{one['head']}']")
    assert f"Layer {one['layer']}, head {one['head']}: {one['label']}" in page.inner_text("main")
    page.select_option("label:has-text('Model') + select", "minilm")
    page.wait_for_function("() => document.querySelectorAll('[data-head]').length === 72")
