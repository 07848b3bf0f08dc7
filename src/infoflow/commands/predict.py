"""infoflow predict TARGET ARCH -T 64: the verdict before training."""

from typing import TYPE_CHECKING

import click

from infoflow.commands.flow_options import Enquiry, count_option, enquiry_options, weight_bound_option
from infoflow.commands.options import emit, gathered, json_option
from infoflow.verdicts.predict import predict

if TYPE_CHECKING:
    from infoflow.train.recipe import Recipe


def _usual(forecast: bool, epochs: int) -> "Recipe | None":
    """The usual recipe with these epochs, where a forecast of its training is asked for."""
    if not forecast:
        return None
    from infoflow.forecasts.cells import USUAL

    return USUAL.with_(epochs=epochs)


@click.command("predict")
@enquiry_options
@click.option("--eps", type=float, default=1e-2, show_default=True, help="Error asked for, in the largest norm.")
@weight_bound_option
@count_option
@click.option("--temperature", is_flag=True, help="Add how sharp attention must become on samples (takes seconds).")
@gathered(
    "training",
    _usual,
    click.option("--forecast", is_flag=True, help="Add the error training will end at (takes seconds)."),
    click.option("--epochs", type=int, default=60, show_default=True, help="Of the training that is forecast."),
)
@json_option
def command(
    enquiry: Enquiry,
    eps: float,
    weight_bound: float | None,
    count: str,
    temperature: bool,
    training: "Recipe | None",
    as_json: bool,
) -> None:
    """What ARCH can do with TARGET: constructed, proved hard or open, with exact exponents and reasons.

    Sizes that ARCH leaves out (embed, width) mean some: constructed if any value serves, proved hard never. --forecast
    adds what training will reach with the usual recipe, where left-out sizes are those `fit` fills in.

    \b
    infoflow predict pairwise_max:D=4,d=4 heads=4,4 embed=24 -T 64
    infoflow predict pairwise_max:D=4,d=4 heads=4,4 -T 64
    infoflow predict kth_largest:k=2 heads=1 embed=4 -T 64 --eps 1e-4
    """
    target, arch, T = enquiry.target, enquiry.arch, enquiry.T
    found = predict(target, arch, T, eps, weight_bound, count, temperature)  # type: ignore[arg-type]
    trained = None
    if training is not None:
        from infoflow.forecasts.forecast import forecast

        trained = forecast(target, arch, T, training)
    if as_json:
        emit(found.to_json() | ({} if trained is None else {"forecast": trained.to_json()}))
        return
    click.echo(str(found))
    if trained is not None:
        click.echo(f"\nwhat training will reach:\n{trained}")
