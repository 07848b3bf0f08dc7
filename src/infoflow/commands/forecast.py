"""`infoflow forecast TARGET ARCH -T 64 --epochs 60`: the error training will end at, before training."""

from pathlib import Path
from typing import Any

import click

from infoflow.commands.flow_options import Enquiry, enquiry_options
from infoflow.commands.options import device_option, emit, json_option, out_option
from infoflow.commands.recipe_options import recipe_of, recipe_options
from infoflow.errors import InfoFlowError


@click.command("forecast")
@enquiry_options
@recipe_options
@click.option("--pilot", is_flag=True, help="Train four seeds for 5% of the steps and use what they reach.")
@click.option("--explain", "explained", is_flag=True, help="What is not followed, and what a change would give.")
@device_option
@out_option(None, "Folder for forecast.svg and forecast.png: the forecast against steps.")
@json_option
def command(
    enquiry: Enquiry, pilot: bool, explained: bool, device: str, out: Path | None, as_json: bool, **recipe: Any
) -> None:
    """The error that `infoflow fit` with these options will end at, with an interval and the reason.

    Without --pilot no step of the network is trained: floors come from a reduced problem, their meaning from
    calibration. --explain adds which term no head follows, and what one more head, one more layer, twice the width or
    twice the steps would give.

    \b
    infoflow forecast sum_of_maxima:D=3,d=3,seed=7 "heads=2 embed=12 width=64" -T 24 --epochs 60 --explain
    infoflow forecast pairwise_max:D=2,d=3 heads=2,2 embed=12 -T 24 --epochs 60 --warm-up 500 --rollback 8
    """
    from infoflow.forecasts.explain import Explanation, explain
    from infoflow.forecasts.forecast import Forecast, forecast

    if pilot and explained:
        raise InfoFlowError("expected --pilot or --explain, got both; an explanation is from theory alone.")
    asked, wanted = (enquiry.target, enquiry.arch, enquiry.T), recipe_of(recipe)
    found: Forecast | Explanation
    found = explain(*asked, wanted) if explained else forecast(*asked, wanted, pilot, device)
    if as_json:
        emit(found.to_json())
    else:
        click.echo(str(found))
    if out is not None:
        (found.forecast if isinstance(found, Explanation) else found).plot(out / "forecast")
