"""infoflow plan TARGET -T 64: the cheapest architectures, and why no cheaper one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from infoflow.commands.flow_options import count_option, target_argument, weight_bound_option
from infoflow.commands.options import emit, gathered, json_option, length_option
from infoflow.commands.own_code import asked_target
from infoflow.errors import InfoFlowError
from infoflow.verdicts.plan import Plan, plan

if TYPE_CHECKING:
    from infoflow.forecasts.choose import Choice


@dataclass(frozen=True)
class Largest:
    """The largest architecture that is considered."""

    max_layers: int
    max_heads: int


@dataclass(frozen=True)
class Allowance:
    """What a network that is trained may cost."""

    parameters: int
    epochs: int


def _allowance(forecast: bool, parameters: int | None, epochs: int) -> Allowance | None:
    if forecast != (parameters is not None):
        raise InfoFlowError("expected --forecast and --parameters together, got one of them.")
    return None if parameters is None else Allowance(parameters, epochs)


@click.command("plan")
@target_argument
@length_option
@gathered(
    "largest",
    Largest,
    click.option("--max-layers", type=int, default=6, show_default=True, help="Deepest architecture considered."),
    click.option("--max-heads", type=int, default=8, show_default=True, help="Most heads in one layer."),
)
@weight_bound_option
@count_option
@gathered(
    "allowance",
    _allowance,
    click.option("--forecast", is_flag=True, help="Rank by the error training will end at, within --parameters."),
    click.option("--parameters", type=int, default=None, help="Most parameters, with --forecast."),
    click.option("--epochs", type=int, default=60, show_default=True, help="Of the training that is forecast."),
)
@json_option
def command(
    target: str,
    T: int,
    largest: Largest,
    weight_bound: float | None,
    count: str,
    allowance: Allowance | None,
    as_json: bool,
) -> None:
    """Architectures that no other one beats in layers, total heads, embedding and parameters together.

    With --forecast: those of least forecast error within a budget of parameters, for the usual recipe.

    \b
    infoflow plan pairwise_max:D=4,d=4 -T 64
    infoflow plan pairwise_max:D=2,d=3 -T 24 --forecast --parameters 5000 --epochs 60
    """
    found: Choice | Plan
    if allowance is not None:
        from infoflow.forecasts.cells import USUAL
        from infoflow.forecasts.choose import choose

        recipe = USUAL.with_(epochs=allowance.epochs)
        found = choose(asked_target(target), T, allowance.parameters, recipe, min(largest.max_layers, 3))
    else:
        sizes = largest.max_layers, largest.max_heads
        found = plan(asked_target(target), T, *sizes, weight_bound, count)  # type: ignore[arg-type]
    if as_json:
        emit(found.to_json())
    else:
        click.echo(str(found))
