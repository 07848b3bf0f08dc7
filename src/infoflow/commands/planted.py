"""`infoflow planted DIR --count 1000`: networks whose mechanism is known, hidden, and scores of answers to them."""

from pathlib import Path
from typing import Any

import click

from infoflow import arguments
from infoflow.commands.options import checked, emit, json_option, seed_option
from infoflow.errors import InfoFlowError
from infoflow.files import check_folder
from infoflow.reading import json_of

MOST = 4000
DIGITS = 9  # of a network's number in a file of answers


@click.command()
@click.argument(
    "folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), callback=checked(check_folder)
)
@click.option("--count", default=1000, show_default=True, type=click.IntRange(1, MOST), help="Networks to make.")
@click.option("--salt", default=None, help="A secret: every fifth network is drawn with it and its truth not written.")
@click.option(
    "--score",
    "answers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON with answers to score: {number: answer}.",
)
@seed_option
@json_option
def command(folder: Path, count: int, salt: str | None, answers: Path | None, seed: int, as_json: bool) -> None:
    """Networks whose mechanism is known, hidden: a yardstick for methods that explain networks.

    Makes COUNT networks in DIR with a truth file each: the job of every head, who feeds whom, directions, errors. A
    call that was stopped goes on where it was. With --score FILE the answers of a method are scored instead; with the
    salt also those to the hidden part.
    """
    payload = scored(folder, answers, salt) if answers is not None else made(folder, count, seed, salt)
    if as_json:
        emit(payload)
    elif answers is None:
        hidden = len(payload["hidden"])
        click.echo(f"{payload['count']} networks in {folder}" + (f", the truth of {hidden} hidden" if hidden else ""))
    else:
        click.echo(table(payload))


def made(folder: Path, count: int, seed: int, salt: str | None) -> dict[str, Any]:
    from infoflow.probes.benchmark.make import make_benchmark

    return make_benchmark(folder, count, seed, salt)


def scored(folder: Path, answers: Path, salt: str | None) -> dict[str, Any]:
    from infoflow.probes.benchmark.hidden_part import score_with

    found = json_of(answers, "answers to a benchmark")
    if not isinstance(found, dict) or not all(key.isdecimal() and len(key) <= DIGITS for key in found):
        raise InfoFlowError('expected answers as {"0": {...}, "1": {...}}, numbers of networks as keys, got others.')
    given = {arguments.integer("a network's number", int(key), 0): value for key, value in found.items()}
    return score_with(folder, given, salt)


def table(payload: dict[str, Any]) -> str:
    """task, level, score with its interval, a line each."""
    lines = []
    for task, levels in payload.items():
        for level, row in levels.items():
            for name in ("macro_f1", "auroc", "f1", "mean"):
                if row.get(name) and row[name]["value"] is not None:
                    low, high = row[name]["interval"]
                    span = "" if low is None else f"  [{low:.3f}, {high:.3f}]"
                    count = f"{row['networks']} network" + "s" * (row["networks"] > 1)
                    lines.append(f"{task:<11} {level:<22} {name:<9} {row[name]['value']:.3f}{span}  {count}")
    return "\n".join(lines)
