"""What `make docs` adds to mkdocs: formulas as MathML, files outside docs/ that a page shows, the public names.

Everything happens at build time, so the site needs no network and no script of others: browsers render MathML.
"""

import html
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
OUTSIDE = re.compile(r"(\]\()((?:\.\./)+)([^)#\s]+)(#[^)\s]*)?\)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">(?:\\\((.+?)\\\)|\\\[(.+?)\\\])</\1>', re.DOTALL)
FACTOR = re.compile(r"^(```\w+) factor=\d+$", re.MULTILINE)  # for the test of the page, not for its reader


# The order in which the site lists its pages; what is named nowhere comes last, so that no page is lost.
GROUPS = {
    "Start": ("index.md", "tour.md", "learnable.md", "glossary.md"),
    "Ask": ("predict.md", "forecast.md", "forecast_record.md", "own_target.md", "targets.md"),
    "Build": ("build.md", "certify_trained.md", "refutations.md", "softmax_attention.md", "rank_one.md"),
    "Train": ("tasks.md", "training.md", "cluster.md"),
    "Look": ("probe.md", "findings.md", "head_labels.md", "information_sets.md", "planted.md"),
    "The papers": ("book.md", "book/*.md", "errata.md", "reproduce.md", "papers/*.md", "measured.md"),
    "Extend": ("design.md", "adding/*.md"),
}
LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")


def grouped(pages: list[str]) -> list[dict[str, list[str]]]:
    """The navigation: every page once."""
    left, made = list(pages), []
    for title, names in GROUPS.items():
        found = [page for name in names for page in pages if fnmatch(page, name)]
        left = [page for page in left if page not in found]
        made.append({title: found})
    return [*made, {"Project": left}]


def front(readme: str) -> str:
    """README as the first page: its links start in docs/."""
    return LINK.sub(lambda m: f"]({'../' * (not m[1].startswith('docs/'))}{m[1].removeprefix('docs/')})", readme)


def outside(source: str, upwards: str, path: str) -> Path | None:
    """The file a relative link of the page `docs/source` names, if it lies outside docs/ and inside the repository."""
    target = (ROOT / "docs" / source).parent.joinpath(upwards + path).resolve()
    if target.is_relative_to(ROOT / "docs") or not target.is_relative_to(ROOT):
        return None
    return target.relative_to(ROOT)


def placed(path: Path) -> str:
    """Where such a file lies in the site; Markdown is shown as it is, not as a page."""
    return f"files/{path.as_posix()}{'.txt' if path.suffix in ('.md', '.py') else ''}"


def on_files(files: Files, config: Any) -> Files:
    """The site carries every file outside docs/ that one of its pages links to; a missing one ends the build."""
    files.append(File.generated(config, "index.md", content=front((ROOT / "README.md").read_text(encoding="utf-8"))))
    config.nav = grouped(sorted(page.src_uri for page in files.documentation_pages()))
    wanted = {
        found
        for page in files.documentation_pages()
        for _, upwards, path, _ in OUTSIDE.findall(page.content_string)
        if (found := outside(page.src_uri, upwards, path)) is not None
    }
    for path in sorted(wanted):
        if not (ROOT / path).is_file():
            raise PluginError(f"a page links to {path}, which is not there")
        files.append(File.generated(config, placed(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    def moved(match: re.Match[str]) -> str:
        found = outside(page.file.src_uri, match.group(2), match.group(3))
        if found is None:
            return match.group(0)
        upwards = "../" * page.file.src_uri.count("/")
        return f"{match.group(1)}{upwards}{placed(found)})"

    text = FACTOR.sub(r"\1", OUTSIDE.sub(moved, markdown))
    return text.replace("<!-- public names -->", public_names())


def public_names() -> str:
    """A mkdocstrings entry for every name of `infoflow.__all__`, in its order."""
    import infoflow

    parts = []
    for name in infoflow.__all__:
        made = getattr(infoflow, name)
        parts.append(f"## `iflow.{name}`\n\n::: {made.__module__}.{made.__qualname__}\n")
    return "\n".join(parts)


def on_page_content(content: str, page: Any, config: Any, files: Files) -> str:
    from latex2mathml.converter import convert

    def rendered(match: re.Match[str]) -> str:
        inline, display = match.group(2), match.group(3)
        try:
            made: str = convert(html.unescape(inline or display), display="inline" if inline else "block")
        except Exception as error:
            raise PluginError(f"{page.file.src_uri}: no formula: {inline or display} ({error!r})") from error
        return made if inline else f'<div class="formula">{made}</div>'

    return FORMULA.sub(rendered, content)
