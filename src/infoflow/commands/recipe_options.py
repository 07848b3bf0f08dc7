"""The options of a training recipe, the same wherever something is trained or its training is forecast."""

from collections.abc import Callable
from typing import Any

import click

_NO_LIMIT = "Largest norm of a model's gradient.  [default: no limit]"
_ROLLBACK = "A model this many times above its best error returns to it, at half the rate.  [default: never]"
_RATE = "Learning rate of the query and key matrices, as a multiple of --lr."
_OPTIONS = (
    click.option("--epochs", type=int, default=None, help="Passes over the samples.  [default: 300]"),
    click.option("--steps", type=int, default=None, help="Steps, instead of epochs."),
    click.option("--lr", type=float, default=1e-2, show_default=True, help="Learning rate of AdamW."),
    click.option("--decay", type=float, default=1e-4, show_default=True, help="Weight decay of AdamW."),
    click.option("--clip", type=float, default=None, help=_NO_LIMIT),
    click.option("--rollback", type=float, default=None, help=_ROLLBACK),
    click.option("--warm-up", type=int, default=0, show_default=True, help="Steps over which the rate rises."),
    click.option("--query-key-rate", type=float, default=1.0, show_default=True, help=_RATE),
    click.option("--starts", type=int, default=1, show_default=True, help="Initial weights tried; the best goes on."),
    click.option("--start-epochs", type=int, default=0, show_default=True, help="How long each of --starts is tried."),
    click.option("--encoder", type=click.Choice(["linear", "mlp"]), default="linear", show_default=True,
                 help="How tokens enter: one linear map, or a map with a hidden layer."),
    click.option("--encoder-width", type=int, default=0, help="Hidden width of an mlp encoder.  [default: embed]"),
    click.option("--certifiable", is_flag=True, help="Half of the samples are ties and clusters in the box."),
    click.option("--batch", type=int, default=256, show_default=True, help="Samples in a step."),
    click.option("--samples", type=int, default=36_000, show_default=True, help="Training samples."),
    click.option("--validation", type=int, default=4_000, show_default=True, help="Validation samples."),
)  # fmt: skip


def recipe_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command every option of a recipe."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def recipe_of(options: dict[str, Any]) -> Any:
    """The `Recipe` of these options; without epochs and steps, that many epochs as a recipe has by itself."""
    from infoflow.train.recipe import Recipe

    if options["epochs"] is None and options["steps"] is None:
        options = options | {"epochs": Recipe().epochs}
    return Recipe(**options)
