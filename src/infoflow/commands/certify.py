"""`infoflow certify FILE...`: how wrong saved networks, built or trained, can be: proved bound and attack."""

from pathlib import Path
from typing import Any

import click

from infoflow.arguments import attack_seconds
from infoflow.commands.options import emit, json_option, seconds_option, seed_option
from infoflow.commands.own_code import asked_target

MOST_TOKENS = 6  # of the worst sequence that are printed; --json has all


@click.command("certify")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", "spelling", help="Target; default: the one the file names.")
@click.option("-T", "--T", "T", type=int, help="Sequence length; default: the one the file names.")
@click.option("--eps", type=float, help="What is asked: the largest error; default: what the file was built for.")
@seconds_option(10.0, "Time per file for the attack and, for a trained network, the search.", attack_seconds)
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
    """How wrong can a saved network be? Prove a bound of its error and attack it.

    The bound of a built network is computed again from its file; that of a trained one-layer network is found by a
    search that may stop at any time, and a longer one proves a smaller bound. A certificate holds when the bound is
    within what was asked; where nothing was asked of a trained network, the claim is the bound itself. Exit code 1 when
    one does not hold; "holds if ..." names what somebody stated and nobody proved.

    \b
    infoflow certify out/fit/weights/*.safetensors --seconds 30
    infoflow certify FILE --target sum_of_maxima:D=2,d=2 -T 1024 --eps 0.1 --json
    """
    from infoflow.nn.files import load
    from infoflow.verbs import certify

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
    if result["worst"] is not None:
        lines.append(f"  attacked at {_tokens(result['worst'])}")
    lines += [f"  because {reason}" for reason in result["reasons"]]
    return "\n".join(lines)


def _tokens(worst: list[list[float]]) -> str:
    """A sequence as its distinct tokens and how often each stands there, the first few of them."""
    counts: dict[str, int] = {}
    for token in worst:
        words = "(" + ", ".join(f"{value:.3g}" for value in token) + ")"
        counts[words] = counts.get(words, 0) + 1
    shown = [f"{count} x {words}" for words, count in list(counts.items())[:MOST_TOKENS]]
    return ", ".join(shown) + (f" and {len(counts) - MOST_TOKENS} more" if len(counts) > MOST_TOKENS else "")
