"""The cache of compiled code loads what this user compiled, whole, and nothing else: all the rest is made again."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from infoflow import kernels

FLAGS = ["-O1", "-shared", "-fPIC"]
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "seven.c").write_text("int seven(void) { return 7; }\n")
    return tmp_path / "seven.c"


def kept() -> Path:
    """The one library in the cache, and nothing half-made beside it."""
    (found,) = kernels.cache_folder().iterdir()
    return found


def test_it_is_compiled_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.library(source, FLAGS).seven() == 7
    first = kept()
    monkeypatch.setattr(kernels, "_compile", None)  # not called again
    assert kernels.library(source, FLAGS).seven() == 7
    assert kept() == first
    assert kernels.cache_folder().stat().st_mode & 0o777 == 0o700
    assert first.stat().st_mode & 0o777 == 0o600


def another(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(path, 12345, 12345)


def linked(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere.so")
    path.symlink_to(path.parent.parent / "elsewhere.so")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


SPOILERS: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "flipped": flipped,
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"0"),
    "others may write": lambda path: path.chmod(0o666),
    "the group may write": lambda path: path.chmod(0o620),
    "another's": another,
    "a link": linked,
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("spoil", SPOILERS.values(), ids=SPOILERS)
def test_what_is_not_ours_or_not_whole_is_made_again(
    source: Path, spoil: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels.compiled(source, FLAGS)  # not loaded: a mapped file must not be cut
    spoil(kept())
    made: list[Path] = []
    compile_ = kernels._compile
    monkeypatch.setattr(kernels, "_compile", lambda *a: made.append(compile_(*a)) or made[-1])
    assert kernels.library(source, FLAGS).seven() == 7
    assert made == [kept()]
    assert kept().is_file()
    assert not kept().is_symlink()


def test_source_flags_and_compiler_name_the_file(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.library(source, FLAGS)
    kernels.library(source, [*FLAGS, "-O2"])
    compiler = tmp_path / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("cc")} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.environ['PATH']}")
    kernels.library(source, FLAGS)
    source.write_text("int seven(void) { return 70 / 10; }\n")
    assert kernels.library(source, FLAGS).seven() == 7
    assert len({path.name.split("-")[1] for path in kernels.cache_folder().iterdir()}) == 4


def test_a_folder_of_others_is_not_used(source: Path, tmp_path: Path) -> None:
    kernels.cache_folder().chmod(0o770)
    with pytest.raises(OSError, match="can be written to by others"):
        kernels.library(source, FLAGS)
    (tmp_path / "cache" / "infoflow").rename(tmp_path / "cache" / "real")
    (tmp_path / "cache" / "real").chmod(0o700)
    (tmp_path / "cache" / "infoflow").symlink_to(tmp_path / "cache" / "real")
    with pytest.raises(OSError, match="is a link"):
        kernels.library(source, FLAGS)


def test_another_folder_in_its_place_is_not_loaded(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who may rename what stands above the cache waits until its file was looked at."""
    path = kernels.compiled(source, FLAGS)
    (tmp_path / "eight.c").write_text("int seven(void) { return 8; }\n")
    eight = kernels.compiled(tmp_path / "eight.c", FLAGS)

    def swapped(*call: object) -> Path:
        path.parent.rename(tmp_path / "away")
        path.parent.mkdir(mode=0o700)
        shutil.copy(tmp_path / "away" / eight.name, path)
        return path

    monkeypatch.setattr(kernels, "compiled", swapped)
    with pytest.raises(OSError, match="was changed"):
        kernels.library(source, FLAGS)


def test_no_folder_depends_on_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unpacked archive belongs to whoever unpacked it, and so would a library in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert kernels.cache_folder() == tmp_path / "home" / ".cache" / "infoflow"
    monkeypatch.setenv("HOME", "home")
    with pytest.raises(OSError, match="current folder"):
        kernels.cache_folder()
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)  # of nobody on this machine
    with pytest.raises(OSError, match="home"):
        kernels.cache_folder()


def test_no_library_is_an_oserror(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source.write_text("this is not C")
    with pytest.raises(OSError, match="compiler failed"):
        kernels.library(source, FLAGS)
    assert not list(kernels.cache_folder().iterdir())
    monkeypatch.setenv("PATH", "")
    with pytest.raises(OSError, match="no C compiler"):
        kernels.library(source, FLAGS)


def test_a_changed_header_is_compiled_again(source: Path, tmp_path: Path) -> None:
    (tmp_path / "number.h").write_text("#define NUMBER 7\n")
    source.write_text('#include "number.h"\nint seven(void) { return NUMBER; }\n')
    first = kernels.compiled(source, FLAGS)
    assert kernels.compiled(source, FLAGS) == first
    (tmp_path / "number.h").write_text("#define NUMBER 8\n")
    assert kernels.library(source, FLAGS).seven() == 8
