"""`infoflow targets`: every named target with its keys, defaults, domain, sampler, law of random matrices, outputs."""

from typing import Any

import click

from infoflow.commands.options import emit, json_option
from infoflow.targets.described import describe
from infoflow.targets.named import NAMED
from infoflow.targets.target import SAMPLERS


def _text(entries: list[dict[str, Any]]) -> str:
    lines = []
    for entry in entries:
        low, high = entry["domain"]
        keys = ", ".join(f"{key}={'all' if value is None else value}" for key, value in entry["keys"].items())
        lines += [
            f"{entry['name']}   {entry['formula']}",
            f"    keys     {keys or 'none'}",
            f"    domain   [{low:g}, {high:g}]^d   sampler {entry['sampler']}   outputs {entry['outputs']}",
            f"    random   {entry['law']}",
        ]
        if entry["certified_inputs"]:
            lines.append(f"    certified for inputs {entry['certified_inputs']} (at a tie the value jumps)")
    lines += ["", "Samplers:"]
    lines += [f"    {name:<15} {law}" for name, law in SAMPLERS.items()]
    lines += [
        "",
        "Spell a target as name:key=value,... (keys are case-sensitive; positions from 1, as 1..3+7; sets joined by /)",
        "or as file.py:NAME for a Target of your own, or a function def NAME(X, d=3) of torch tensors (..., T, d).",
    ]
    return "\n".join(lines)


@click.command("targets")
@json_option
def command(as_json: bool) -> None:
    """List the named targets with their keys, domains and samplers."""
    entries = [describe(name) for name in NAMED]
    if as_json:
        emit({"targets": entries, "samplers": SAMPLERS})
    else:
        click.echo(_text(entries))
