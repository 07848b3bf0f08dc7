"""C sources, compiled once for each user and kept: the one cache of compiled code.

    library(source, flags, link=["-lm"]) -> ctypes.CDLL, or an OSError where there is none to be had

What is loaded runs, so a file is loaded only if

- the folder and the file belong to this user, are no links, and nobody else may write to them;
- its name holds the digest of what it was made from: source with its own headers, flags, linked libraries, compiler
  and processor;
- its name holds the digest of its own bytes: a file cut short would end the process with a bus error;
- all this holds of the folder that is open while it is loaded, whatever is put in its place meanwhile.

Whatever fails one of these is removed and compiled again, in a folder of its own first, then renamed.
"""

import ctypes
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

SECONDS = 120  # for a compiler
INCLUDED = re.compile(rb'^#include "([^"]+)"', re.MULTILINE)
FOREIGN = stat.S_IWGRP | stat.S_IWOTH  # others may write


def library(source: Path, flags: Sequence[str], link: Sequence[str] = ()) -> ctypes.CDLL:
    """The compiled source, loaded; OSError where there is no compiler, no folder, or no library comes out."""
    path = compiled(source, flags, link)
    with _held(path.parent) as folder:
        if not _sound(folder / path.name):
            raise OSError(f"{path} was changed while it was looked at")
        return ctypes.CDLL(str(folder / path.name))


@contextmanager
def _held(folder: Path) -> Iterator[Path]:
    """The folder by a descriptor, where the system has such names: whoever may rename what is above it, in a folder
    that many share, could else put another in its place between the look at a file and its loading."""
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        if not _ours(os.fstat(descriptor)):
            raise OSError(f"{folder} belongs to another user or can be written to by others")
        name = Path(f"/proc/self/fd/{descriptor}")
        yield name if name.is_dir() else folder
    finally:
        os.close(descriptor)


def compiled(source: Path, flags: Sequence[str], link: Sequence[str] = ()) -> Path:
    """The file that may be loaded: from the cache, or made now."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise OSError("no C compiler")
    folder, name = cache_folder(), f"{source.stem}-{_origin(source, [*flags, *link], Path(compiler))}"
    for path in sorted(folder.glob(f"{name}-*.so")):
        if _sound(path):
            return path
        with suppress(OSError):
            path.unlink()
    return _compile(folder, name, [compiler, *flags, str(source), *link])


def cache_folder() -> Path:
    """A folder that belongs to this user and that nobody else may write to, wherever the current folder is."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "", "infoflow")
    folder = folder if folder.is_absolute() else Path("~/.cache/infoflow")  # as its specification says
    try:
        folder = folder.expanduser()
    except RuntimeError as error:  # a user without a home
        raise OSError(str(error)) from None
    if not folder.is_absolute():
        raise OSError(f"{folder} depends on the current folder, which may be a stranger's")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _ours(folder.lstat()) or folder.is_symlink():
        raise OSError(f"{folder} belongs to another user, is a link, or can be written to by others")
    return folder


def _origin(source: Path, words: Sequence[str], compiler: Path) -> str:
    """A digest of all that decides what comes out; a compiler is known by its path, size and date."""
    found = compiler.resolve().stat()
    identity = [str(compiler.resolve()), found.st_size, found.st_mtime_ns, platform.platform(), _processor(), *words]
    return hashlib.sha256(_text(source) + repr(identity).encode()).hexdigest()[:24]


def _text(source: Path) -> bytes:
    """A source and, behind it, the headers it includes from its own folders."""
    text = source.read_bytes()
    return text + b"".join(_text(source.parent / name.decode()) for name in INCLUDED.findall(text))


def _sound(path: Path) -> bool:
    """Whether this is our file, with the bytes its name promises."""
    try:
        status = path.lstat()
        if not (stat.S_ISREG(status.st_mode) and _ours(status)):
            return False
        return path.stem.rpartition("-")[2] == hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return False


def _ours(status: os.stat_result) -> bool:
    return not status.st_mode & FOREIGN and (not hasattr(os, "getuid") or status.st_uid == os.getuid())


def _compile(folder: Path, name: str, command: Sequence[str]) -> Path:
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as scratch:
        made = Path(scratch) / "made.so"
        try:
            subprocess.run([*command, "-o", str(made)], capture_output=True, timeout=SECONDS, check=True)
        except subprocess.SubprocessError as error:
            raise OSError(f"the C compiler failed ({error})") from None
        made.chmod(0o600)
        final = folder / f"{name}-{hashlib.sha256(made.read_bytes()).hexdigest()}.so"
        return made.replace(final)


def _processor() -> str:
    """Code for this processor (-march=native) may crash another that shares the folder."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return "".join(sorted({line for line in file if line.startswith(("model name", "flags"))}))
    except OSError:
        return platform.processor()
