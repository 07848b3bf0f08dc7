"""Text and JSON from outside: one reader, with one cap. What comes from a disk is hostile.

    text(path, "a tagged text")            UTF-8, plain or gzipped, at most 128 MiB of it
    json_of(path, "the data of a run")     one JSON value, of finite numbers
    with limit(1 << 30): ...               the cap of both raised for a while (`infoflow --text-limit MIB`)

A gzipped text is unpacked piece by piece and refused at the cap, so an archive of a few megabytes cannot fill the
memory. Whatever is wrong with the file is an `InfoFlowError` of one sentence.
"""

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader
from math import isfinite
from pathlib import Path
from typing import Any

from infoflow.errors import InfoFlowError

LARGEST_TEXT = 128 << 20  # bytes of one file, unpacked
LARGEST_JSON = 16 << 20  # bytes of a header or a record, which we wrote small; parsed it takes up to 25 times as much
DEEPEST = 64  # levels of a JSON value; ours have fewer than ten
PIECE = 1 << 20  # bytes unpacked at a time
_cap: ContextVar[int] = ContextVar("cap of a text", default=LARGEST_TEXT)


@contextmanager
def limit(size: int) -> Iterator[None]:
    """Read texts of up to so many bytes, unpacked."""
    if type(size) is not int or size < 1:
        raise InfoFlowError(f"expected a number of bytes for the largest text, got {size!r}.")
    token = _cap.set(size)
    try:
        yield
    finally:
        _cap.reset(token)


def plain(path: str | Path, what: str) -> Path:
    """The path, unless a pipe or a device is there: one would be waited for without end, the other read without end.
    A path below /dev is one that somebody typed, or their shell (`--text <(zcat ...)`)."""
    path = Path(path)
    if os.path.exists(path) and not os.path.isfile(path) and not str(path).startswith("/dev/"):
        kind = "a folder" if os.path.isdir(path) else "no plain file"
        raise InfoFlowError(f"expected {what} at {path}, it is {kind}; check the path.")
    return path


def text(path: str | Path, what: str = "a text") -> str:
    """UTF-8 from outside, unpacked where it is gzipped; `what` names it in the sentence of a refusal."""
    path = plain(path, what)
    try:
        with path.open("rb") as raw:
            data = _capped(path, raw)
        return data.decode("utf-8").removeprefix("\ufeff")
    except FileNotFoundError:
        raise InfoFlowError(f"expected {what} at {path}, found no file there; check the path.") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, ValueError) as error:
        if isinstance(error, InfoFlowError):
            raise
        raise InfoFlowError(f"expected {what} in UTF-8, plain or gzipped, could not read {path} ({error}).") from None


def json_of(path: str | Path, what: str = "a JSON file") -> Any:
    """The JSON value of a record or a configuration; NaN and infinity are refused, for no number of ours is one."""
    return parsed(text(path, what), f"{what} in {path}")


def data_of(path: str | Path, what: str = "data in JSON") -> Any:
    """The same for numbers a user brings: as long as a text may be."""
    return parsed(text(path, what), f"{what} in {path}", _cap.get())


def parsed(written: str, where: str, most: int = LARGEST_JSON) -> Any:
    """The value of a JSON text; `where` names it in the sentence of a refusal."""
    if len(written) > most:
        raise InfoFlowError(f"expected at most {most} characters of JSON for {where}, got {len(written)}.")
    try:
        value = json.loads(written, parse_constant=_refuse, parse_float=_finite)
        if _depth(value) > DEEPEST:
            raise RecursionError  # it parses, but copying or writing it again would not end well
        return value
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InfoFlowError(f"expected JSON for {where}, got something that does not parse ({reason}).") from None


def _depth(value: Any) -> int:
    """Levels of lists and objects, counted without recursion; at most one more than DEEPEST."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        children = [c.values() if isinstance(c, dict) else c for c in level if isinstance(c, (dict, list))]
        level = [child for some in children for child in some]
        depth += 1
    return depth


def _finite(word: str) -> float:
    """1e999 is infinity to Python."""
    value = float(word)
    return value if isfinite(value) else _refuse(word)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _capped(path: Path, raw: BufferedReader) -> bytearray:
    most, found = _cap.get(), bytearray()
    packed = path.suffix == ".gz" or raw.peek(2)[:2] == b"\x1f\x8b"
    source: Any = gzip.GzipFile(fileobj=raw) if packed else raw
    while piece := source.read(PIECE):
        found += piece
        if len(found) > most:
            raise InfoFlowError(
                f"expected at most {_mebibytes(most)} of text, unpacked, {path} holds more; if you trust it, raise "
                "the limit: infoflow --text-limit MIB ..."
            )
    return found


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:g} MiB"
