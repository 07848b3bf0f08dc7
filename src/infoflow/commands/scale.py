"""infoflow scale TARGET ARCH --T 8..4096: exponents against the sequence length."""

from pathlib import Path

import click

from infoflow.arguments import lengths as read_lengths
from infoflow.commands.flow_options import arch_argument, count_option, target_argument
from infoflow.commands.options import emit, join_words, json_option, out_option
from infoflow.commands.own_code import asked_architecture, asked_target
from infoflow.verdicts.scale import scale


@click.command("scale")
@target_argument
@arch_argument
@click.option("-T", "--T", "lengths", required=True, help="Lengths: 8..4096 doubles, 8..64:8 steps, 3,4,5 lists.")
@count_option
@out_option("out/scale")
@json_option
def command(target: str, arch: tuple[str, ...], lengths: str, count: str, out: Path, as_json: bool) -> None:
    """Exponents at each length as a table and a figure, and the first length where counting turns positive.

    \b
    infoflow scale triangle_center heads=2,2 embed=24 --T 8..4096 --count lower
    """
    from infoflow.report import style

    parsed = asked_architecture(join_words(arch))
    found = scale(asked_target(target), parsed, read_lengths(lengths), count)  # type: ignore[arg-type]
    paths = style.save(found.figure(), out / "exponents")
    if as_json:
        emit({**found.to_json(), "figures": paths})
    else:
        click.echo(f"{found}\nfigure: {paths[0]}")
