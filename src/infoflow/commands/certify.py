"""`infoflow certify FILE...`: the bound of saved networks recomputed from their tensors, attacked, in balls."""

from pathlib import Path
from typing import Any

import click

from infoflow.arguments import attack_seconds
from infoflow.commands.options import emit, json_option, seconds_option, seed_option


@click.command("certify")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", "spelling", help="Target; default: the one the file names.")
@click.option("-T", "--T", "T", type=int, help="Sequence length; default: the one the file names.")
@seconds_option(10.0, "Attack time per file.", attack_seconds)
@seed_option
@json_option
def command(
    files: tuple[Path, ...], spelling: str | None, T: int | None, seconds: float, seed: int, as_json: bool
) -> int:
    """Recompute the bound of saved networks and attack it.

    Exit code 1 when a certificate does not hold.
    """
    from infoflow.construct.certification import certify
    from infoflow.nn.files import load
    from infoflow.targets.spelling import parse

    results: list[dict[str, Any]] = []
    target = parse(spelling) if spelling is not None else None
    for file in files:
        certificate = certify(load(file), target, T, seconds=seconds, seed=seed)
        results.append({"path": str(file), **certificate.to_json()})
        if not as_json:
            click.echo(_text(results[-1]))
    if as_json:
        emit({"files": results})
    return 0 if all(result["holds"] for result in results) else 1


def _text(result: dict[str, Any]) -> str:
    def number(value: Any) -> str:
        return "none" if value is None else f"{value:.4g}"

    lines = [
        f"{result['path']}: {'holds' if result['holds'] else 'DOES NOT HOLD'}",
        f"  bound {number(result['bound'])}, attacked {number(result['attacked'])}, ratio {number(result['ratio'])}",
        f"  {result['arithmetic']}",
    ]
    lines += [f"  {name}: {value:.4g}" for name, value in {**result["parts"], **result["measured"]}.items()]
    lines += [f"  because {reason}" for reason in result["reasons"]]
    return "\n".join(lines)
