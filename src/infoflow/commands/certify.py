"""`infoflow certify FILE...`: the bound of saved networks recomputed from their tensors, attacked, in balls."""

from pathlib import Path
from typing import Any

import click

from infoflow.arguments import attack_seconds
from infoflow.commands.options import emit, json_option, seconds_option, seed_option
from infoflow.commands.own_code import asked_target


@click.command("certify")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", "spelling", help="Target; default: the one the file names.")
@click.option("-T", "--T", "T", type=int, help="Sequence length; default: the one the file names.")
@click.option("--eps", type=float, help="What is asked: the largest error; default: what the file was built for.")
@seconds_option(10.0, "Attack time per file.", attack_seconds)
@seed_option
@json_option
def command(
    files: tuple[Path, ...],
    spelling: str | None,
    T: int | None,
    eps: float | None,
    seconds: float,
    seed: int,
    as_json: bool,
) -> int:
    """Recompute the bound of saved networks and attack it.

    A certificate holds when the bound, recomputed from the file, is within what was asked. Exit code 1 when one does
    not hold; "holds if ..." names what somebody stated and nobody proved.
    """
    from infoflow.compiler.certification import certify
    from infoflow.nn.files import load

    results: list[dict[str, Any]] = []
    target = asked_target(spelling) if spelling is not None else None
    for file in files:
        certificate = certify(load(file), target, T, seconds=seconds, seed=seed, eps=eps)
        results.append({"path": str(file), **certificate.to_json()})
        if not as_json:
            click.echo(_text(results[-1]))
    if as_json:
        emit({"files": results})
    return 0 if all(result["holds"] for result in results) else 1


def _text(result: dict[str, Any]) -> str:
    def number(value: Any) -> str:
        return "none" if value is None else f"{value:.4g}"

    attacked = "not attacked" if result["attacked"] is None else f"attacked {number(result['attacked'])}"
    ratio = f", ratio {number(result['ratio'])}" if result["ratio"] is not None else ""
    lines = [
        f"{result['path']}: {result['verdict'] if result['holds'] else 'DOES NOT HOLD'}",
        f"  claim: {result['claim']['text']}",
        f"  bound {number(result['bound'])}, {attacked}{ratio}",
        f"  arithmetic: {result['arithmetic']}",
    ]
    lines += [f"  assuming {assumption}" for assumption in result["assumptions"]]
    lines += [f"  {name}: {value:.4g}" for name, value in {**result["parts"], **result["measured"]}.items()]
    lines += [f"  because {reason}" for reason in result["reasons"]]
    return "\n".join(lines)
