"""The rules of a foreign tokenizer, bounded before it sees a text: they rewrite it, and may do so without end.

A normalizer that replaces `a` by `aa`, forty times over, makes 2^40 letters of one, and the library ends the process.
So the growth of the rules is computed from their description, as a product over them:

    a replacement        the length of its content for the length of its pattern (one more where that may be empty)
    a table of letters   its longest entry
    bytes as letters     four
    a template           the number of its pieces, or of the tokens one stands for

A panic of the library is a `BaseException`; here it becomes one sentence like any other failure.
"""

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infoflow.errors import InfoFlowError
from infoflow.reading import data_of

LARGEST_GROWTH = 256  # letters for a letter; one rule of a tokenizer in use makes 18 (U+FDFA, unfolded)
LONGEST_PREFIX = 64  # letters put before a text
MOST_PIECES = 64  # put around a text


@contextmanager
def no_panic(what: str) -> Iterator[None]:
    """Meanwhile a panic of the tokenizers library, which no `except Exception` catches, is an error of one sentence."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:300]
        raise InfoFlowError(f"expected a tokenizer {what}, it fails there ({reason}).") from None


def expect_files(folder: Path) -> None:
    """Refuse the descriptions in a folder before the library reads one: it may take one with a version in its name."""
    for path in sorted(folder.glob("tokenizer*.json")):
        if path.name != "tokenizer_config.json":
            expect(data_of(path, "a tokenizer.json"), path)


def expect(described: Any, where: object) -> None:
    """Refuse rules that make far more of a text than it is."""
    if not isinstance(described, dict):
        raise InfoFlowError(f"expected the description of a tokenizer in {where}, got something else.")
    growth, pieces, prefix = 1, 1, 0
    for name, inner in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        for rule in _rules(described.get(name), inner):
            growth = min(growth * _growth(rule), LARGEST_GROWTH + 1)
            prefix += len(rule["prepend"]) if isinstance(rule.get("prepend"), str) else 0
    for rule in _rules(described.get("post_processor"), "processors"):
        pieces = min(pieces * _pieces(rule), MOST_PIECES + 1)
    for count, most, what in (
        (growth, LARGEST_GROWTH, "letters of one"),
        (prefix, LONGEST_PREFIX, "letters before a text"),
        (pieces, MOST_PIECES, "pieces of a text"),
    ):
        if count > most:
            raise InfoFlowError(f"expected a tokenizer that makes at most {most} {what}, that in {where} makes more.")


def _rules(described: Any, inner: str) -> Iterator[dict[str, Any]]:
    """One rule after the other; a sequence of rules holds them under `inner`."""
    left = [described]
    while left:
        rule = left.pop()
        if isinstance(rule, dict):
            yield rule
            held = rule.get(inner)
            left += held if isinstance(held, list) else []


def _growth(rule: dict[str, Any]) -> int:
    """Letters that a rule makes of one, at most."""
    kind, content, pattern = rule.get("type"), rule.get("content"), rule.get("pattern")
    if kind == "Precompiled":
        return _longest_entry(rule.get("precompiled_charsmap"))
    if kind == "ByteLevel":
        return 4
    if not isinstance(content, str):
        return 1
    plain = pattern.get("String") if isinstance(pattern, dict) else None
    return max(1, -(-len(content) // len(plain)) if isinstance(plain, str) and plain else len(content) + 1)


def _longest_entry(table: Any) -> int:
    """Of a table that sentencepiece has compiled: the size of an index, the index, and entries that end with a zero."""
    try:
        data = base64.b64decode(table, validate=True) if isinstance(table, str) else bytes(table or ())
    except (binascii.Error, TypeError, ValueError):
        return LARGEST_GROWTH + 1
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or size > len(data) - 4:
        return 1 if not data else LARGEST_GROWTH + 1
    entries = data[4 + size :].split(b"\0")
    return max(1, max(map(_letters, entries)))


def _letters(entry: bytes) -> int:
    return sum(byte & 0xC0 != 0x80 for byte in entry)  # of UTF-8: bytes that begin a letter


def _pieces(rule: dict[str, Any]) -> int:
    """Pieces of a template, or tokens that one of them stands for, whichever is more."""
    named = rule.get("special_tokens")
    tokens = list(named.values()) if isinstance(named, dict) else []
    found = [rule.get("single"), rule.get("pair"), *(token.get("ids") for token in tokens if isinstance(token, dict))]
    return max([1, *(len(each) for each in found if isinstance(each, (list, str)))])
