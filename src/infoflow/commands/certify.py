"""`infoflow certify FILE...`: how wrong saved networks, built or trained, can be: proved bound and attack."""

from pathlib import Path
from typing import Any

import click

from infoflow.arguments import attack_seconds
from infoflow.commands.options import emit, gathered, json_option, out_option, seconds_option, seed_option
from infoflow.commands.own_code import asked_target, made_by, names_code
from infoflow.errors import InfoFlowError, printable
from infoflow.files import write_json
from infoflow.reading import json_of


def _asked(spelling: str | None, T: int | None, eps: float | None, vocabulary: Path | None) -> dict[str, Any]:
    """What `certify` is asked about every file."""
    target = None if spelling is None else asked_target(spelling)
    table = None if vocabulary is None else json_of(vocabulary, "a vocabulary")
    return {"target": target, "T": T, "eps": eps, "vocabulary": table}


@click.command("certify")
@click.argument("files", nargs=-1, required=True)
@gathered(
    "asked",
    _asked,
    click.option("--target", "spelling", help="Target; default: the one the file names."),
    click.option("-T", "--T", "T", type=int, help="Sequence length; default: the one the file names."),
    click.option("--eps", type=float, help="What is asked: the largest error; default: what the file was built for."),
    click.option(
        "--vocabulary",
        type=click.Path(path_type=Path),
        help="JSON file: token vectors [[..], ..], or probabilities [..] of a network over token numbers.",
    ),
)
@seconds_option(10.0, "Time per file for the attack and, for a trained network, the search.", attack_seconds)
@seed_option
@json_option
@out_option(None, "Folder for certificate.json and a picture of each file's bound, attack and worst input.")
def command(
    files: tuple[str, ...], asked: dict[str, Any], seconds: float, seed: int, as_json: bool, out: Path | None
) -> int:
    """How wrong can a saved network be? Prove a bound of its error and attack it.

    The bound of a built network is computed again from its file; that of a trained one-layer network is found by a
    search that may stop at any time, and a longer one proves a smaller bound. A certificate holds when the bound is
    within what was asked; where nothing was asked of a trained network, the claim is the bound itself. Exit code 1 when
    one does not hold; "holds if ..." names what somebody stated and nobody proved.

    A PyTorch module of your own enters as file.py:FUNCTION with a function that returns an infoflow.OneLayer.

    \b
    infoflow certify out/fit/weights/*.safetensors --seconds 30
    infoflow certify FILE --target sum_of_maxima:D=2,d=2 -T 1024 --eps 0.1 --json
    """
    from infoflow.verbs import certify

    results: list[dict[str, Any]] = []
    written: list[Path] = []
    for file in files:
        try:
            certificate = certify(_network(file), **asked, seconds=seconds, seed=seed)
        except InfoFlowError as refusal:
            told = file in str(refusal)
            raise InfoFlowError(str(refusal) if told else f"{file}: {refusal}") from None
        results.append({"path": file, **certificate.to_json()})
        if not as_json:
            click.echo(f"{printable(file)}: {certificate}")
        written += [] if out is None else _drawn(certificate, file, out)
    written += [] if out is None else [write_json(out / "certificate.json", {"files": results})]
    if as_json:
        emit({"files": results, "written": written} if written else {"files": results})
    else:
        for path in written:
            click.echo(f"wrote {printable(str(path))}")
    return 0 if all(result["holds"] for result in results) else 1


def _drawn(certificate: Any, file: str, out: Path) -> list[Path]:
    """The picture of one certificate, named after its file."""
    from infoflow.proofs.figures import certificate_figure
    from infoflow.report.style import save

    return save(certificate_figure(certificate), out / Path(file.replace(":", "_")).stem)


def _network(file: str) -> Any:
    """A saved network, or what the user's function describes."""
    from infoflow.nn.files import load

    if not names_code(file):
        return load(Path(file))
    from infoflow.proofs.adapter import OneLayer

    made = made_by(file)
    if not isinstance(made, OneLayer):
        raise InfoFlowError(f"expected {file} to return an infoflow.OneLayer, got {type(made).__name__}.")
    return made
