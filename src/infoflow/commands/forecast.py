"""`infoflow forecast TARGET ARCH -T 64 --epochs 60`: the error training will end at, before training."""

from pathlib import Path
from typing import Any

import click

from infoflow.commands.flow_options import arch_argument, target_argument
from infoflow.commands.options import emit, join_words, json_option, length_option, out_option
from infoflow.commands.own_code import asked_architecture, asked_target
from infoflow.commands.recipe_options import recipe_of, recipe_options


@click.command("forecast")
@target_argument
@arch_argument
@length_option
@recipe_options
@out_option(None, "Folder for forecast.svg and forecast.png: the forecast against steps.")
@json_option
def command(target: str, arch: tuple[str, ...], T: int, out: Path | None, as_json: bool, **recipe: Any) -> None:
    """The error that `infoflow fit` with these options will end at, with an interval and the reason.

    No step of the network is trained: floors come from a reduced problem, their meaning from calibration.

    \b
    infoflow forecast sum_of_maxima:D=3,d=3,seed=7 "heads=2 embed=12 width=64" -T 24 --epochs 60
    infoflow forecast pairwise_max:D=2,d=3 heads=2,2 embed=12 -T 24 --epochs 60 --warm-up 500 --rollback 8
    """
    from infoflow.forecasts.forecast import forecast

    found = forecast(asked_target(target), asked_architecture(join_words(arch)), T, recipe_of(recipe))
    if as_json:
        emit(found.to_json())
    else:
        click.echo(str(found))
    if out is not None:
        found.plot(out / "forecast")
