"""Files: written whole or not at all (a temporary name, then a rename)."""

import errno
import json
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from infoflow.errors import InfoFlowError, JobError

_NUMBER = r"(?:-?[\d.]+(?:e[-+]?\d+)?|null)"
NUMBERS = re.compile(rf"(?<=\[)\n\s*(?:{_NUMBER},\n\s*)*{_NUMBER}\n\s*(?=\])")  # no string of JSON holds a bare newline
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DISK_WORDS = ("No space left on device", "File too large", "Disk quota exceeded", "Input/output error")
TEMPORARY = re.compile(r"\.[a-z0-9_]{8}(\.\w+)?")  # a name that `atomic_path` gives
ABANDONED = 600.0  # seconds after which nobody is writing a temporary file any more
SMALLEST_SPACE = 64 << 10  # bytes that must be free where files are to be made


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename it onto `path` on success, remove it on failure.

    A disk that is full, or takes no file there, is a `JobError`: one sentence, and nothing half-written.
    """
    final = Path(path)
    temporary = final.parent / f".{secrets.token_hex(4)}{final.suffix}"  # named first: signals may come
    try:
        mode = _make_empty(temporary, final)
        yield temporary
        temporary.chmod(mode)  # safetensors makes the file anew, for this user alone
        temporary.replace(final)
    except Exception as error:
        if not disk_failed(error):
            raise
        raise JobError(unwritten(error, final)) from None
    finally:
        with suppress(OSError, ValueError):
            temporary.unlink()


def _make_empty(temporary: Path, final: Path) -> int:
    """Make the file, which nobody has made before; returns the permissions that this user gives new files."""
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        return stat.S_IMODE(temporary.stat().st_mode)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise JobError(unwritten(error, final)) from None


def disk_failed(error: BaseException) -> bool:
    """Whether the disk is what failed; safetensors and ONNX's protobuf say so in words alone."""
    return isinstance(error, OSError) or any(words in str(error) for words in DISK_WORDS)


def unwritten(error: BaseException, path: str | Path | None = None) -> str:
    """One sentence for a file the system does not give or take."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    full = (isinstance(error, OSError) and error.errno in FULL) or any(words in str(error) for words in DISK_WORDS)
    where = path if path is not None else getattr(error, "filename", None)
    advice = "free some space and call again" if full else "check the path and its permissions"
    return f"expected to read or write {where or 'a file'}, the system refused ({reason}); {advice}."


def remove_abandoned(folder: Path) -> None:
    """Remove what killed writers left half-written long ago: plain files with names that `atomic_path` gives."""
    for path in folder.glob(".*") if folder.is_dir() else ():
        with suppress(OSError):  # another process may tidy, too
            found = path.lstat()
            ours = TEMPORARY.fullmatch(path.name) and stat.S_ISREG(found.st_mode)
            if ours and time.time() - found.st_mtime > ABANDONED:
                path.unlink()


def check_folder(path: Path) -> Path:
    """Refuse, before any work, a folder in which no file can be made; what the check makes it removes again."""
    made: list[Path] = []
    try:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir()
            made.append(folder)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"0" * SMALLEST_SPACE)
            file.flush()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InfoFlowError(
            f"expected a folder in which files can be made, {path} is none ({reason}); give another."
        ) from None
    finally:
        for folder in reversed(made):
            with suppress(OSError):  # somebody else has put a file there meanwhile: then it stays
                folder.rmdir()
    return path


def write_text(path: str | Path, text: str) -> Path:
    """Write a whole file, or nothing."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def write_json(path: str | Path, payload: Any) -> Path:
    """Indented, a list of numbers on one line."""
    text = json.dumps(payload, indent=1, sort_keys=False)
    return write_text(path, NUMBERS.sub(lambda found: " ".join(found.group().split()), text) + "\n")


def write_record(path: str | Path, fields: dict[str, Any]) -> Path:
    """A field a line, values without spaces: what is kept a thousand times over, short and still readable."""
    lines = [f" {json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in fields.items()]
    return write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def encode(value: Any) -> Any:
    """JSON for what the library returns: fractions as strings, numpy and paths as plain values, non-finite as null."""
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return [encode(item) for item in sorted(value)]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return encode(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
