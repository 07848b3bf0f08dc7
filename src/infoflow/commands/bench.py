"""`infoflow bench train`: the speed of the training engine beside the usual ways, measured in one run."""

from pathlib import Path
from typing import Any

import click

from infoflow.commands.options import device_option, emit, json_option, out_option
from infoflow.progress import Progress


@click.group()
def command() -> None:
    """Measure the speed of this installation."""


@command.command("train")
@click.option(
    "-D", "D", type=click.IntRange(1, 16), default=4, show_default=True, help="Terms of eq. (6): heads (D, D)."
)
@click.option("--models", type=click.IntRange(1, 4096), default=16, show_default=True, help="Models of the workload.")
@click.option("--quick", is_flag=True, help="Leave out the table over the number of models in a stack.")
@device_option
@out_option("out/bench")
@json_option
def train(D: int, models: int, quick: bool, device: str, out: Path, as_json: bool) -> None:
    """Model-steps per second: a plain module per seed, and this engine."""
    from infoflow.files import write_json
    from infoflow.provenance import provenance
    from infoflow.train.plan import check_device
    from infoflow.train.speed import measure

    where = check_device(device)
    with Progress("bench", 3) as bar:
        result = measure(D, models, where, quick, bar.update)
    result = {**result, **provenance(("torch", "triton", "numpy"))}
    path = write_json(out / f"train_{where.type}_D{D}.json", result)
    if as_json:
        emit(result)
    else:
        click.echo(_text(result))
        click.echo(f"written: {path}")


def _text(result: dict[str, Any]) -> str:
    rates = result["rates"]
    lines = [f"{result['workload']['target']}  {result['workload']['arch']}  T={result['workload']['T']}"]
    for name, value in rates.items():
        lines.append(f"  {name:6s} {'-' if value is None else f'{value:12,.1f}'} model-steps/s")
    lines.append(f"  ratio  {result['ratio']:12.2f} (ours over plain); {result['floor']['fraction']:.1%} of the floor")
    lines.append(f"  chosen: {result['chosen_text']}")
    for count, value in (result["scaling"] or {}).items():
        lines.append(f"  {count:>5} models {value:12,.0f} model-steps/s")
    return "\n".join(lines)
