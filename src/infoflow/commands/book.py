"""`infoflow book`: every statement of the papers, what is known about it, and its check."""

from pathlib import Path
from typing import Any

import click

from infoflow import arguments
from infoflow.book import check, selected
from infoflow.book.text import explained, listing, run_table
from infoflow.commands.options import checked, emit, encode, json_option
from infoflow.files import write_json


@click.command("book")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--check", "run", is_flag=True, help="Run the checks and counterexamples (of these, or of all).")
@click.option("--size", type=click.Choice(["quick", "full"]), default="quick", show_default=True, help="Of the checks.")
@click.option(
    "--jobs",
    type=int,
    callback=checked(lambda value: arguments.integer("jobs", value)),
    help="Processes; default: one per core.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON file for the run, with its provenance; statements it has already and that are not run stay.",
)
@json_option
@click.pass_context
def command(
    context: click.Context,
    ids: tuple[str, ...],
    run: bool,
    size: Any,
    jobs: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """List the statements of the four papers, explain some, or check them. A name means all below it (`softmax`).

    \b
    infoflow book
    infoflow book rank1.theorem1
    infoflow book --check softmax --jobs 2
    """
    entries = selected(ids)
    if not run:
        if as_json:
            emit({"entries": [entry.to_json() for entry in entries]})
        else:
            click.echo("\n\n".join(map(explained, entries)) if ids else listing(entries))
        return
    found = check(ids, size, jobs)
    report = {"size": size, "entries": [row.to_json() for row in found]}
    if out is not None:
        from infoflow.book.recorded import joined
        from infoflow.provenance import provenance
        from infoflow.reading import json_of

        old = json_of(out, "a run of the book") if out.is_file() else None
        write_json(out, encode(joined({"provenance": provenance(), **report}, old)))
    if as_json:
        emit(report)
    else:
        click.echo(run_table(found))
    context.exit(0 if all(row.passed for row in found) else 1)
