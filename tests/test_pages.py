"""Every code block and command of README and docs runs, and prints what the page says."""

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("pages", HERE / "pages.py")
assert _spec is not None
assert _spec.loader is not None
reader = importlib.util.module_from_spec(_spec)
sys.modules["pages"] = reader  # its dataclass looks itself up
_spec.loader.exec_module(reader)

NAMES = [str(page.relative_to(reader.ROOT)) for page in reader.pages()]


def has(name: str, mark: str) -> bool:
    found = [block for block in reader.blocks(reader.ROOT / name) if block.language in ("python", "console")]
    return any(block.mark == mark for block in found)


@pytest.mark.parametrize("name", [name for name in NAMES if has(name, "")])
def test_the_page_is_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert reader.run_page(reader.ROOT / name, tmp_path, nightly=False)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in NAMES if has(name, "nightly")])
def test_the_long_blocks_are_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert reader.run_page(reader.ROOT / name, tmp_path, nightly=True)


@pytest.mark.parametrize(
    ("wanted", "got", "same"),
    [
        ("bound 0.005, attacked 0.0031", "bound 0.005, attacked 0.00308", True),
        ("bound 0.005, attacked 0.0031", "bound 0.005, attacked 0.0041", False),
        ("heads=4,4 T=64", "heads=4,4   T=64", True),
        ("heads=4,4 T=64", "heads=4,3 T=64", False),
        ("built in ... s", "built in 0.3 s", True),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nb\nc", False),
        ("a", "a\nb", False),
        ("", "anything", True),
        ("open", "training 5%  15 s, 3 s left  0.1 models/s\nopen", True),
    ],
)
def test_what_agrees(wanted: str, got: str, same: bool) -> None:
    assert reader.agrees(wanted, got) is same


def test_a_false_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reader, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    for text, true in (
        ("```python\nprint(1 + 1)\n```\n\n```text\n2\n```\n", True),
        ("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", False),
        ("```python\nprint(nobody)\n```\n", False),
        ("```console\n$ infoflow predict min_pair heads=1,1 -T 8\n...\nverdict      constructed\n...\n```\n", True),
        ("```console\n$ infoflow predict min_pair heads=1 -T 8\n...\nverdict      constructed\n...\n```\n", False),
        ("```console\n$ infoflow predict min_pear heads=1 -T 8\n```\n", False),
        ("```bash\nls\n```\n", False),
        ("<!-- not run: needs a cluster -->\n```console\n$ nobody\n```\n", True),
        ("<!-- nightly -->\n```python\nraise ValueError\n```\n", True),
    ):
        page.write_text(text, encoding="utf-8")
        if true:
            reader.run_page(page, tmp_path, nightly=False)
        else:
            with pytest.raises(AssertionError):
                reader.run_page(page, tmp_path, nightly=False)


@pytest.mark.parametrize("name", ["construction", "target", "task", "lab_item"])
def test_what_is_added_is_shown_in_under_forty_lines(name: str) -> None:
    found = reader.blocks(reader.ROOT / "docs" / "adding" / f"{name}.md")
    assert sum(block.code.count("\n") for block in found if block.language == "python") < 40
