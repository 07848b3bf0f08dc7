"""One checker of arguments: the command line and Python refuse the same values with the same sentence.

Each function takes the name a person knows the value by, and returns the value in its plain type. numpy's integers and
floats count as integers and numbers; text, booleans, NaN and infinity never do.
"""

import dataclasses
import math
import numbers
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from infoflow.errors import SHOWN, InfoFlowError

LARGEST = 2**53  # sizes and lengths: up to here every integer is a float, too
LARGEST_SEED = 2**63 - 1  # what numpy and torch both take
MOST_LENGTHS = 100_000  # in one range such as 8..4096:8


def integer(name: str, value: Any, least: int = 1, most: int = LARGEST) -> int:
    """A whole number from `least` to `most`, or one sentence."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise InfoFlowError(f"expected {name} to be an integer of at least {least}, got {shown(value)}.")
    if int(value) > most:
        raise InfoFlowError(f"expected {name} to be at most {most}, got {shown(int(value))}; take a smaller one.")
    return int(value)


def seed(value: Any, name: str = "seed") -> int:
    """A seed numpy and torch both take."""
    return integer(name, value, 0, LARGEST_SEED)


def number(name: str, value: Any, above: float = -math.inf, least: float = -math.inf) -> float:
    """A finite real number, larger than `above` and not smaller than `least`."""
    plain = isinstance(value, numbers.Real) and not isinstance(value, bool)
    found = _float(value) if plain else math.nan
    if math.isfinite(found) and found > above and found >= least:
        return found
    wanted = "a finite number"
    if math.isfinite(above):
        wanted = f"a finite number above {above:g}"
    elif math.isfinite(least):
        wanted = f"a finite number of at least {least:g}"
    raise InfoFlowError(f"expected {name} to be {wanted}, got {shown(value)}.")


def interval(name: str, value: Any) -> tuple[float, float]:
    """(low, high) with low < high, both finite."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise InfoFlowError(f"expected {name} to be two numbers (low, high), got {shown(value)}.") from None
    ends = number(f"the lower end of {name}", low), number(f"the upper end of {name}", high)
    if not ends[0] < ends[1]:
        raise InfoFlowError(f"expected {name} (low, high) with low < high, got {shown(ends)}.")
    return ends


def eps(value: Any) -> float:
    """A positive error."""
    return number("eps", value, above=0)


def seconds(value: Any) -> float:
    """A positive time."""
    return number("seconds", value, above=0)


def attack_seconds(value: Any) -> float:
    """0 leaves the attack out."""
    return number("seconds", value, least=0)


def weight_bound(value: Any) -> float | None:
    """A positive number, or None for unbounded weights."""
    return None if value is None else number("the weight bound", value, above=0)


def array(name: str, value: Any) -> Any:
    """Finite real numbers as a float64 array of numpy."""
    import numpy as np

    try:
        found = np.asarray(value)
        if found.dtype.kind in "cmM" or (found.dtype.kind in "USOV" and not isinstance(value, (list, tuple))):
            raise TypeError
        found = found.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InfoFlowError(f"expected {name} to be real numbers, got {shown(value)}.") from None
    if not np.isfinite(found).all():
        raise InfoFlowError(f"expected {name} to be finite numbers, got {shown(value)}.")
    return found


def path(name: str, value: Any) -> Path:
    """A path the system can look up, or one sentence."""
    try:
        if isinstance(value, (str, Path)) and "\0" not in str(value):
            Path(value).exists()
            return Path(value)
    except OSError:  # a name longer than any file has
        pass
    raise InfoFlowError(f"expected {name} to be the path of a file or folder, got {shown(value)}.")


def fields(instance: Any) -> None:
    """Refuse a field of a dataclass whose value is not of its annotated type: numbers, flags, choices, or None."""
    hints = get_type_hints(type(instance))
    for field in dataclasses.fields(instance):
        value, options = getattr(instance, field.name), get_args(hints[field.name])
        if type(None) in options:
            if value is None:
                continue
            options = tuple(option for option in options if option is not type(None))
        kind = options[0] if len(options) == 1 else hints[field.name]
        words = get_args(kind) or options
        if kind is bool and not isinstance(value, bool):
            raise InfoFlowError(f"expected {field.name} to be True or False, got {shown(value)}.")
        if kind is int:
            integer(field.name, value, least=-LARGEST)
        elif kind is float:
            number(field.name, value)
        elif words and all(isinstance(word, str) for word in words):
            choice(field.name, value, words)


def device(value: Any) -> str:
    """cpu, cuda or cuda:K; whether it is there is found where it is used."""
    if not isinstance(value, str) or not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", value):
        raise InfoFlowError(f"expected device cpu, cuda or cuda:K, got {shown(value)}.")
    return value


def choice(name: str, value: Any, options: Sequence[str]) -> str:
    """One of the options, or one sentence that lists them."""
    if not isinstance(value, str) or value not in options:
        raise InfoFlowError(f"expected {name} to be one of {', '.join(options)}, got {shown(value)}.")
    return value


def pairs(words: Iterable[str], where: str) -> dict[str, str]:
    """`key=value` words, each key once: the keys of a target, a task, a construction or an architecture."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = (piece.strip() for piece in word.partition("="))
        if not equals or not key or not value:
            raise InfoFlowError(f"expected key=value {where}, got {shown(word)}.")
        if key in found:
            raise InfoFlowError(f"expected each key once, {key!r} comes twice.")
        found[key] = value
    return found


def lengths(text: str) -> list[int]:
    """`8..4096` doubles from 8 to 4096; `8..64:8` steps by 8; `3,4,5` is a list; `64` is one length.

    A range rises from a length of at least 1; what it holds is counted before it is made.
    """
    try:
        if ".." not in text:
            found = [int(part) for part in text.split(",")]
            return [integer("a length", T) for T in found]
        low, _, rest = text.partition("..")
        high, colon, step = rest.partition(":")
        first, last, stride = int(low), int(high), int(step) if colon else None
    except InfoFlowError:
        raise
    except ValueError:
        raise InfoFlowError(
            f"expected lengths like 64, 3,4,5, 8..4096 or 8..64:8, got {shown(text)}; correct the range."
        ) from None
    integer("the first length of a range", first)
    integer("the last length of a range", last)
    if last < first:
        raise InfoFlowError(f"expected a range that rises, got {shown(text)}; write {last}..{first}.")
    if stride is None:
        return [*(first * 2**k for k in range((last // first).bit_length()) if first * 2**k < last), last]
    integer("the step of a range", stride)
    count = (last - first) // stride + 1
    if count > MOST_LENGTHS:
        raise InfoFlowError(
            f"expected at most {MOST_LENGTHS} lengths in a range, {shown(text)} holds {count}; take a larger step, or "
            f"leave it out: {first}..{last} doubles."
        )
    return list(range(first, last + 1, stride))


def shown(value: Any) -> str:
    """A value as a sentence repeats it: short, and never itself a reason to fail."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >> 256:
        return f"about {'-' if value < 0 else ''}10^{int((abs(value).bit_length() - 1) * math.log10(2))}"
    try:
        text = repr(value)
    except Exception as error:  # a stranger's __repr__ may raise anything
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _float(value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, ValueError, TypeError):
        return math.inf
