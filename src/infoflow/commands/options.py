"""What every command shares: `--json`, `-T`, `--out`, ARCH as one word or several, ranges, JSON with fractions."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from infoflow.errors import InfoFlowError

VERSION = 1  # of the JSON every command prints

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
length_option = click.option("-T", "--T", "T", type=int, required=True, help="Sequence length.")
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything random.")
device_option = click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:K.")


def out_option(default: str) -> Callable[[Any], Any]:
    return click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(default),
        show_default=True,
        help="Folder for the files made.",
    )


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


def emit(payload: dict[str, Any]) -> None:
    """Print the one JSON object of a command, with the version first."""
    click.echo(json.dumps({"version": VERSION, **encode(payload)}))


def join_words(words: tuple[str, ...]) -> str:
    """ARCH may be one quoted word or several."""
    return " ".join(words)


def parse_range(text: str) -> list[int]:
    """`8..4096` doubles from 8 to 4096; `8..64:8` steps by 8; `3,4,5` is a list; `64` is one length."""
    try:
        if ".." not in text:
            return [int(part) for part in text.split(",")]
        low, high = text.split("..")
        if ":" in high:
            end, step = high.split(":")
            return list(range(int(low), int(end) + 1, int(step)))
        values, value = [], int(low)
        while value < int(high):
            values.append(value)
            value *= 2
        return [*values, int(high)]
    except ValueError:
        raise InfoFlowError(
            f"expected lengths like 64, 3,4,5, 8..4096 or 8..64:8, got {text!r}; correct the range."
        ) from None
