"""What the commands of the framework share: TARGET, ARCH, the length, the count, the weight class."""

from dataclasses import dataclass
from typing import Any

import click

from infoflow.architecture import Architecture
from infoflow.commands.options import gathered, join_words, length_option
from infoflow.commands.own_code import asked_architecture, asked_target
from infoflow.errors import InfoFlowError
from infoflow.targets import Target
from infoflow.verdicts.estimate import COUNTS

target_argument = click.argument("target")
arch_argument = click.argument("arch", nargs=-1, required=True)


@dataclass(frozen=True)
class Enquiry:
    """What this architecture can do with this target at this length."""

    target: Target
    arch: Architecture
    T: int


def _enquiry(target: str, arch: tuple[str, ...], T: int) -> Enquiry:
    parsed = asked_architecture(join_words(arch))
    return Enquiry(asked_target(target), parsed, T)


enquiry_options = gathered("enquiry", _enquiry, target_argument, arch_argument, length_option)
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
