"""What every command shares: `--json`, `-T`, `--seed`, `--out`, ARCH as one word or several, JSON with fractions."""

import functools
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from infoflow import arguments
from infoflow.files import check_folder, encode

VERSION = 1  # of the JSON every command prints
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
length_option = click.option("-T", "--T", "T", type=int, required=True, help="Sequence length.")


def gathered(name: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Options that mean one thing together: the command takes one argument `name`, what `make` says of their values."""
    keys = list(inspect.signature(make).parameters)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(**given: Any) -> Any:
            value = make(**{key: given.pop(key) for key in keys})
            return function(**{name: value}, **given)

        for option in reversed(options):
            option(command)
        return command

    return decorate


def checked(check: Callable[[Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """A click callback: the check Python's callers meet, before any work; what was not given stays None."""
    return lambda context, parameter, value: None if value is None else check(value)


seed_option = click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    callback=checked(arguments.seed),
    help="Seed of everything random.",
)


device_option = click.option(
    "--device", default="cpu", show_default=True, callback=checked(arguments.device), help="cpu, cuda or cuda:K."
)


def seconds_option(default: float | None, help: str, check: Callable[[Any], Any] = arguments.seconds) -> Decorator:
    """How long the command may take; the check refuses what makes no sense before any work."""
    return click.option(
        "--seconds", type=float, default=default, show_default=default is not None, callback=checked(check), help=help
    )


def out_option(default: str | None, help: str = "Folder for the files made.") -> Decorator:
    """A folder that is tried before the work, for a place where nothing can be written is found soon enough."""
    return click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        default=None if default is None else Path(default),
        show_default=default is not None,
        callback=checked(check_folder),
        help=help,
    )


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Ctrl-C in a call that keeps what is done says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped by Ctrl-C; the same call goes on from what is in {folder}.") from None


def emit(payload: dict[str, Any]) -> None:
    """Print the one JSON object of a command, with the version first."""
    click.echo(json.dumps({"version": VERSION, **encode(payload)}))


def join_words(words: tuple[str, ...]) -> str:
    """ARCH may be one quoted word or several."""
    return " ".join(words)
