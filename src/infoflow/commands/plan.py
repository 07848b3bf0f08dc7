"""infoflow plan TARGET -T 64: the cheapest architectures, and why no cheaper one."""

import click

from infoflow.commands.flow_options import count_option, target_argument, weight_bound_option
from infoflow.commands.options import emit, json_option, length_option
from infoflow.commands.own_code import asked_target
from infoflow.verdicts.plan import plan


@click.command("plan")
@target_argument
@length_option
@click.option("--max-layers", type=int, default=6, show_default=True, help="Deepest architecture considered.")
@click.option("--max-heads", type=int, default=8, show_default=True, help="Most heads in one layer.")
@weight_bound_option
@count_option
@json_option
def command(
    target: str, T: int, max_layers: int, max_heads: int, weight_bound: float | None, count: str, as_json: bool
) -> None:
    """Architectures that no other one beats in layers, total heads, embedding and parameters together.

    \b
    infoflow plan pairwise_max:D=4,d=4 -T 64
    """
    found = plan(asked_target(target), T, max_layers, max_heads, weight_bound, count)  # type: ignore[arg-type]
    if as_json:
        emit(found.to_json())
    else:
        click.echo(str(found))
