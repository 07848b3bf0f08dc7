"""Files: written whole or not at all (a temporary name, then a rename); text from outside, read with care."""

import gzip
import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infoflow.errors import InfoFlowError

LARGEST_TEXT = 1 << 30  # bytes of text read from one file, unpacked: a small archive may hold far more


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename it onto `path` on success, remove it on failure."""
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{final.name}.", suffix=final.suffix, dir=final.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> Path:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def write_json(path: str | Path, payload: Any) -> Path:
    return write_text(path, json.dumps(payload, indent=1, sort_keys=False) + "\n")


def read_text(path: Path, what: str) -> str:
    """UTF-8 text from outside, gzipped when the name ends in .gz; `what` names it in the sentence of a refusal."""
    try:
        with path.open("rb") as raw:
            handle = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            data = handle.read(LARGEST_TEXT + 1)
        if len(data) > LARGEST_TEXT:
            raise InfoFlowError(f"expected at most {LARGEST_TEXT} bytes of text, {path} holds more.")
        text: str = data.decode("utf-8")
    except FileNotFoundError:
        raise InfoFlowError(f"expected {what} at {path}, found no file there; check the path.") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InfoFlowError(f"expected {what} in UTF-8, could not read {path} ({error}).") from None
    return text
