"""infoflow trace TARGET ARCH --tokens '[[0,-1],[0.7,0.7]]': information sets, layer by layer."""

import json
from pathlib import Path
from typing import Any

import click

from infoflow.commands.flow_options import arch_argument, target_argument
from infoflow.commands.options import emit, join_words, json_option, out_option, seed_option
from infoflow.commands.own_code import asked_architecture, asked_target
from infoflow.errors import InfoFlowError
from infoflow.flow.trace import check_length, trace
from infoflow.targets import Target


@click.command("trace")
@target_argument
@arch_argument
@click.option("--tokens", help="The input as JSON: T rows of d numbers.")
@click.option("-T", "--T", "T", type=int, help="Draw a random input of this length instead.")
@seed_option
@click.option("--ties", type=click.Choice(["first", "last", "all"]), default="first", show_default=True)
@click.option("--cls-attends", is_flag=True, help="Let the CLS attend in every layer, also without a read.")
@out_option(None, "Write the figure into this folder.")
@json_option
def command(
    target: str,
    arch: tuple[str, ...],
    tokens: str | None,
    T: int | None,
    seed: int,
    ties: str,
    cls_attends: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Information sets of one input, the winners of every head, and whether the target is learned.

    \b
    infoflow trace min_pair:d=2 heads=1,1 embed=4 --tokens '[[0,-1],[0.7,0.7],[0,1],[-0.2,-0.9]]'
    infoflow trace pairwise_max:D=4,d=4 heads=4,4 embed=24 -T 8 --seed 0 --out out/trace
    """
    goal = asked_target(target)
    X = _tokens(goal, tokens, T, seed)
    flow = trace(goal, asked_architecture(join_words(arch)), X, ties, not cls_attends)  # type: ignore[arg-type]
    paths = []
    if out is not None:
        from infoflow.report import style

        paths = style.save(flow.figure(), out / "flow")
    if as_json:
        emit({**flow.to_json(), **({"figures": paths} if paths else {})})
    else:
        click.echo(str(flow) + (f"\nfigure: {paths[0]}" if paths else ""))


def _tokens(target: Target, text: str | None, T: int | None, seed: int) -> Any:
    if (text is None) == (T is None):
        raise InfoFlowError("expected either --tokens '[[...], ...]' or -T for a random input; give one of them.")
    if text is None:
        assert T is not None
        check_length(target, T)
        return target.sample(1, T, seed=seed)[0]
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise InfoFlowError("expected --tokens as JSON rows like [[0,-1],[0.7,0.7]], got something else.") from None
