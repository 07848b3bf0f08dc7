"""infoflow plan TARGET -T 64: the cheapest architectures, and why no cheaper one."""

from typing import TYPE_CHECKING

import click

from infoflow.commands.flow_options import count_option, target_argument, weight_bound_option
from infoflow.commands.options import emit, json_option, length_option
from infoflow.commands.own_code import asked_target
from infoflow.errors import InfoFlowError
from infoflow.verdicts.plan import Plan, plan

if TYPE_CHECKING:
    from infoflow.forecasts.choose import Choice


@click.command("plan")
@target_argument
@length_option
@click.option("--max-layers", type=int, default=6, show_default=True, help="Deepest architecture considered.")
@click.option("--max-heads", type=int, default=8, show_default=True, help="Most heads in one layer.")
@weight_bound_option
@count_option
@click.option("--forecast", is_flag=True, help="Rank by the error training will end at, within --parameters.")
@click.option("--parameters", type=int, default=None, help="Most parameters, with --forecast.")
@click.option("--epochs", type=int, default=60, show_default=True, help="Of the training that is forecast.")
@json_option
def command(
    target: str,
    T: int,
    max_layers: int,
    max_heads: int,
    weight_bound: float | None,
    count: str,
    forecast: bool,
    parameters: int | None,
    epochs: int,
    as_json: bool,
) -> None:
    """Architectures that no other one beats in layers, total heads, embedding and parameters together.

    With --forecast: those of least forecast error within a budget of parameters, for the usual recipe.

    \b
    infoflow plan pairwise_max:D=4,d=4 -T 64
    infoflow plan pairwise_max:D=2,d=3 -T 24 --forecast --parameters 5000 --epochs 60
    """
    if forecast != (parameters is not None):
        raise InfoFlowError("expected --forecast and --parameters together, got one of them.")
    found: Choice | Plan
    if forecast and parameters is not None:
        from infoflow.forecasts.cells import USUAL
        from infoflow.forecasts.choose import choose

        found = choose(asked_target(target), T, parameters, USUAL.with_(epochs=epochs), min(max_layers, 3))
    else:
        found = plan(asked_target(target), T, max_layers, max_heads, weight_bound, count)  # type: ignore[arg-type]
    if as_json:
        emit(found.to_json())
    else:
        click.echo(str(found))
