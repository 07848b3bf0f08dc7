"""The site: strict, offline, every page has its formulas, its names and a way to the glossary."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from infoflow import book

ROOT = Path(__file__).parent.parent
pytest.importorskip("mkdocs", reason="the site needs the extra docs")
ASKS = re.compile(r"""<(?:script|img|iframe|link|source)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^"'\s>]+""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` builds it: a warning ends it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_asks_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not ASKS.findall(page.read_text(encoding="utf-8")), page.name


def test_formulas_are_mathml(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert 'class="arithmatex"' not in page.read_text(encoding="utf-8"), page.name
    assert "<math" in (site / "predict.html").read_text(encoding="utf-8")
    shown = sum(page.read_text(encoding="utf-8").count('<math xmlns="') for page in (site / "book").glob("*.html"))
    assert shown == len(book.ENTRIES)


def test_the_reference_has_every_public_name(site: Path) -> None:
    import infoflow

    text = (site / "api.html").read_text(encoding="utf-8")
    for name in infoflow.__all__:
        assert f"iflow.{name}" in text
        doc = getattr(infoflow, name).__doc__
        assert doc, name


@pytest.mark.parametrize(
    "page", [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))] + ["README.md"]
)
def test_the_page_links_to_the_glossary(page: str) -> None:
    if page != "docs/glossary.md":
        assert re.search(r"\]\((?:\.\./)?(?:docs/)?glossary\.md", (ROOT / page).read_text(encoding="utf-8"))


def test_every_block_is_a_block(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert "```" not in page.read_text(encoding="utf-8"), page.name


def test_the_front_page_lists_every_page(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert f'href="{name}"' in front, name
