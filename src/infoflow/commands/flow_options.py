"""What the commands of the framework share: TARGET, ARCH, the count, the weight class."""

from typing import Any

import click

from infoflow.errors import InfoFlowError
from infoflow.verdicts.estimate import COUNTS

target_argument = click.argument("target")
arch_argument = click.argument("arch", nargs=-1, required=True)
count_option = click.option(
    "--count",
    type=click.Choice(COUNTS),
    default="ordered",
    show_default=True,
    help="Which number of comparisons the target is said to require.",
)


def _bound(ctx: Any, parameter: Any, text: str) -> float | None:
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InfoFlowError(f"expected --weight-bound to be a number or none, got {text!r}.") from None


weight_bound_option = click.option(
    "--weight-bound",
    default="1",
    show_default=True,
    callback=_bound,
    help="The weight class every answer speaks of; none for unbounded weights.",
)
