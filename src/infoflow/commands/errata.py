"""`infoflow errata [PAPER]`: what is wrong in print, with the repair and the number that shows it."""

from pathlib import Path

import click

from infoflow.book.errata import errata, markdown, plain
from infoflow.commands.options import emit, json_option
from infoflow.files import write_text


@click.command("errata")
@click.argument("paper", required=False)
@click.option("--markdown", "as_markdown", is_flag=True, help="Tables in Markdown, as for a letter to the authors.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the Markdown page to this file.")
@json_option
def command(paper: str | None, as_markdown: bool, out: Path | None, as_json: bool) -> None:
    """What is wrong in print in PAPER (infoflow, heads, softmax, rank1), or in all four.

    The numbers are recorded ones; `infoflow book --check PAPER` computes them again.
    """
    rows = errata(paper)
    if out is not None:
        write_text(out, markdown(rows))
    if as_json:
        emit({"errata": [row.to_json() for row in rows], "file": out})
    elif out is not None:
        click.echo(f"wrote {out}")
    else:
        click.echo(markdown(rows) if as_markdown else plain(rows))
