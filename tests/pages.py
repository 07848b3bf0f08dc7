"""The code of README and docs, run as a reader would paste it, and what it prints compared with the page.

    ```python                     runs; the blocks of a page share their names and a folder of their own
    ```python title="mine.py"     is written to that folder (a title with any ending)
    ```console                    lines after `$` are commands, the others what they print
    ```text                       straight after ```python: what it prints; elsewhere it is only shown
    ```text factor=3              the same, numbers within a factor of 3: training is not the same on every machine, and
                                  a search bounded by time finds less on a busy one; a console block may say it as well
    <!-- nightly -->              before a block: takes long, runs in `make nightly`
    <!-- not run: REASON -->      before a block: needs what a test does not have

In expected output `...` stands for anything in a line, or for any lines. Numbers with a point or an exponent agree
within a tenth, because searches are bounded by time; whole numbers agree exactly.
"""

import contextlib
import glob
import io
import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- (nightly|not run: [^\n]+) -->\s*\Z")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
LANGUAGES = {"python", "console", "text", "json", "mermaid"}
TOLERANCE = 1.1


@dataclass(frozen=True)
class Block:
    language: str
    title: str  # of a file that the block is
    code: str
    output: str | None  # what a python block is said to print
    factor: float  # within which the numbers of the output agree
    mark: str  # "", "nightly" or "not run: REASON"
    line: int


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order; a text straight after python is its output."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    before = 0
    for match in FENCE.finditer(text):
        language, info, code = match.groups()
        between = text[before : match.start()]
        before = match.end()
        stated = re.search(r"factor=(\d+)", info)
        factor = float(stated.group(1)) if stated else TOLERANCE
        if language == "text" and found and found[-1].language == "python" and not between.strip():
            found[-1] = replace(found[-1], output=code, factor=factor)
            continue
        title = re.search(r'title="([^"]+)"', info)
        mark = MARK.search(between)
        line = text.count("\n", 0, match.start()) + 1
        name, marked = title.group(1) if title else "", mark.group(1) if mark else ""
        found.append(Block(language, name, code, None, factor, marked, line))
    return found


@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Files of the folder can be imported, and are forgotten afterwards: another page has its own mine.py."""
    known = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]


def run_page(page: Path, folder: Path, nightly: bool) -> int:
    """Run the blocks of a page in `folder`, and say how many; AssertionError names the line of the page."""
    with importable(folder):
        return _run_blocks(page, folder, nightly)


def _run_blocks(page: Path, folder: Path, nightly: bool) -> int:
    names: dict[str, Any] = {"__name__": "__page__"}
    run = 0
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        assert block.language in LANGUAGES, f"{where}: expected one of {LANGUAGES}, got {block.language!r}"
        if block.mark.startswith("not run") or (block.mark == "nightly" and not nightly):
            continue
        run += 1
        if block.title:
            (folder / block.title).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            printed = run_python(block.code, names, where)
            same = block.output is None or agrees(block.output, printed, block.factor)
            assert same, f"{where} printed:\n{printed}"
        elif block.language == "console":
            for command, expected in commands(block.code):
                printed, code = run_command(command)
                assert code == 0 or "infoflow: " in expected, f"{where}: {command} ended with {code}:\n{printed}"
                assert agrees(expected, printed, block.factor), f"{where}: {command} printed:\n{printed}"
    return run


def run_python(code: str, names: dict[str, Any], where: str) -> str:
    """What the code prints; its last expression is not shown, as in a file."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, where, "exec"), names)
    except Exception:
        raise AssertionError(f"{where} failed:\n{traceback.format_exc(limit=-3)}") from None
    return printed.getvalue()


def commands(code: str) -> Iterator[tuple[str, str]]:
    """(command, what it prints); a command ending in a backslash goes on."""
    command, expected = "", []
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            if command:
                yield command, "\n".join(expected)
            command, expected = line[2:], []
        else:
            expected.append(line)
    if command:
        yield command, "\n".join(expected)


def run_command(command: str) -> tuple[str, int]:
    """In this process where it is one call of infoflow, which spares the start of another; else in a shell."""
    bare = command.partition(" #")[0].strip()
    words = shlex.split(bare)
    if words[0] == "infoflow" and not re.search(r"[|&;<>$`]", bare):
        return run_infoflow([name for word in words[1:] for name in expanded(word)])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(bare, shell=True, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr, done.returncode


def expanded(word: str) -> list[str]:
    return sorted(glob.glob(word)) or [word] if "*" in word else [word]


def run_infoflow(words: list[str]) -> tuple[str, int]:
    from infoflow.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            main(words)
        except SystemExit as end:
            return printed.getvalue(), int(end.code or 0)
    return printed.getvalue(), 0


def agrees(expected: str, printed: str, factor: float = TOLERANCE) -> bool:
    """Whether what was printed is what the page says; a page that says nothing agrees with anything."""
    wanted = [line.rstrip() for line in expected.strip("\n").splitlines()]
    got = [line.rstrip() for line in printed.strip("\n").splitlines() if not progress(line)]
    return not wanted or _lines(tuple(wanted), tuple(got), factor)


def progress(line: str) -> bool:
    return re.match(r"^[a-z][a-z ]* \d+%  \d+ s", line) is not None


@cache
def _lines(wanted: tuple[str, ...], got: tuple[str, ...], factor: float) -> bool:
    if not wanted:
        return not got
    if wanted[0].strip() == "...":
        return any(_lines(wanted[1:], got[skip:], factor) for skip in range(len(got) + 1))
    return bool(got) and same_line(wanted[0], got[0], factor) and _lines(wanted[1:], got[1:], factor)


def same_line(wanted: str, got: str, factor: float) -> bool:
    """Equal words, numbers that agree, `...` for anything; runs of spaces count as one."""
    parts = [" ".join(part.split()) for part in wanted.split("...")]
    got = " ".join(got.split())
    numbers: list[str] = []
    pattern = ".*?".join(_pattern(part, numbers) for part in parts)
    match = re.fullmatch(r"\s*" + pattern.replace(".*?", r"\s*.*?\s*") + r"\s*", got)
    return match is not None and all(close(*pair, factor) for pair in zip(numbers, match.groups(), strict=True))


def _pattern(text: str, numbers: list[str]) -> str:
    """A pattern with a group for every number of the text, which are added to `numbers`."""
    pieces, last = [], 0
    for match in NUMBER.finditer(text):
        pieces += [re.escape(text[last : match.start()]), r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"]
        numbers.append(match.group())
        last = match.end()
    return "".join([*pieces, re.escape(text[last:])])


def close(wanted: str, got: str, factor: float) -> bool:
    if wanted == got:
        return True
    if not re.search(r"[.e]", wanted):
        return False
    one, other = float(wanted), float(got)
    return one * other > 0 and 1 / factor <= one / other <= factor
