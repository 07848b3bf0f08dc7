"""infoflow predict TARGET ARCH -T 64: the verdict before training."""

import click

from infoflow.commands.flow_options import arch_argument, count_option, target_argument, weight_bound_option
from infoflow.commands.options import emit, join_words, json_option, length_option
from infoflow.commands.own_code import asked_architecture, asked_target
from infoflow.verdicts.predict import predict


@click.command("predict")
@target_argument
@arch_argument
@length_option
@click.option("--eps", type=float, default=1e-2, show_default=True, help="Error asked for, in the largest norm.")
@weight_bound_option
@count_option
@click.option("--temperature", is_flag=True, help="Add how sharp attention must become on samples (takes seconds).")
@click.option("--forecast", is_flag=True, help="Add the error training will end at (takes seconds).")
@click.option("--epochs", type=int, default=60, show_default=True, help="Of the training that is forecast.")
@json_option
def command(
    target: str,
    arch: tuple[str, ...],
    T: int,
    eps: float,
    weight_bound: float | None,
    count: str,
    temperature: bool,
    forecast: bool,
    epochs: int,
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
    parsed, asked = asked_architecture(join_words(arch)), asked_target(target)
    found = predict(asked, parsed, T, eps, weight_bound, count, temperature)  # type: ignore[arg-type]
    trained = None
    if forecast:
        from infoflow.forecasts.cells import USUAL
        from infoflow.forecasts.forecast import forecast as foretell

        trained = foretell(asked, parsed, T, USUAL.with_(epochs=epochs))
    if as_json:
        emit(found.to_json() | ({} if trained is None else {"forecast": trained.to_json()}))
        return
    click.echo(str(found))
    if trained is not None:
        click.echo(f"\nwhat training will reach:\n{trained}")
