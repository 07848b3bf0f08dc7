"""`infoflow refute`: two inputs a saved model, or a PyTorch model of the user's own, cannot tell apart."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from infoflow.commands.options import emit, gathered, json_option, out_option, seconds_option, seed_option
from infoflow.commands.own_code import asked_target, made_by, names_code
from infoflow.errors import InfoFlowError
from infoflow.files import write_json
from infoflow.progress import Progress

if TYPE_CHECKING:
    from infoflow.targets import Target

SHARE = 0.1  # of the search's time, that the twin bound of a trained network gets


@dataclass(frozen=True)
class Override:
    """What the model is said to compute; what is not said here, its file says."""

    spelling: str | None
    T: int | None

    def of(self, header: dict[str, Any]) -> tuple["Target | None", int]:
        """Target and length, of the file where they are not given; the file's words are never code."""
        from infoflow.targets import parse

        named = header.get("target")
        target = asked_target(self.spelling) if self.spelling else parse(named) if isinstance(named, str) else None
        length = self.T if self.T is not None else header.get("T")
        if not isinstance(length, int):
            raise InfoFlowError("expected a sequence length, the model names none; add -T LENGTH.")
        return target, length


@dataclass(frozen=True)
class Hardmax:
    """The size of the hardmax layer whose collision is shown."""

    d: int
    n: int


@click.command("refute")
@click.argument("model")
@gathered(
    "override",
    Override,
    click.option("--target", "spelling", help="Target; default: the one the file names."),
    click.option("-T", "--T", "T", type=int, help="Sequence length; default: the one the file names."),
)
@seconds_option(60.0, "Time for the search.")
@gathered(
    "hardmax",
    Hardmax,
    click.option("--d", "d", type=int, default=3, show_default=True, help="Dimension (hardmax only)."),
    click.option("--n", "n", type=int, default=5, show_default=True, help="Length (hardmax only)."),
)
@seed_option
@json_option
@out_option("out/refute")
def command(
    model: str, override: Override, seconds: float, hardmax: Hardmax, seed: int, as_json: bool, out: Path
) -> None:
    """Two inputs with one read-out state and different targets.

    MODEL is FILE.safetensors, or file.py:FUNCTION with a function that returns a PyTorch module and its adapter (an
    object with state(X) and target(X)), or the word hardmax: the collision every hardmax attention layer has.
    Finding nothing is no certificate.
    """
    if model == "hardmax":
        _hardmax(hardmax, seed, as_json)
        return
    from infoflow.refutations import refute

    network, header = _from_function(model) if names_code(model) else _from_file(model)
    target, length = override.of(header)
    with Progress("refuting", 100) as bar:
        found = refute(
            network,
            target,
            length,
            seed=seed,
            seconds=seconds,
            watch=lambda seen: bar.update(min(int(100 * seen.share), 99)),
        )
    report = {"model": model, "target": getattr(target, "spelling", None), "T": length, **found.to_json()}
    agreement = _agreement(found, _bound(network, target, length, header, seconds))
    report |= {} if agreement is None else {"agreement": agreement}
    files = _write(found, out, report) if found else []
    if as_json:
        emit({**report, "files": files})
        return
    click.echo(str(found))
    if agreement is not None:
        click.echo(f"  {agreement}")
    for file in files:
        click.echo(f"  wrote {file}")


def _bound(network: Any, target: Any, T: int, header: dict[str, Any], seconds: float) -> float | None:
    """What `certify` proves of the same network: a built one's bound computed again from its tensors, a trained one's
    searched for in a tenth of the time more; None where nothing is proved of it."""
    from infoflow.nn import Transformer
    from infoflow.verbs import certify

    if "certificate" in header:
        certificate = certify(network, target, T, seconds=0, balls=False)
    elif isinstance(network, Transformer) and target is not None and header.get("task") is None:
        certificate = certify(network, target, T, seconds=SHARE * seconds)
    else:
        return None
    return None if certificate.reasons else certificate.bound


def _agreement(found: Any, bound: float | None) -> str | None:
    """How a pair and a certificate of the same network stand to each other.

    One state, targets `gap` apart: some error is at least gap / 2. An error of at most `bound` on every input: no two
    inputs of one state have targets more than 2 bound apart.
    """
    if bound is None:
        return None
    if not found:
        return (
            f"the certificate agrees: its error bound {bound:.4g} (proved again) allows no gap above {2 * bound:.4g} "
            "between inputs of one state"
        )
    if found.certified_error is not None and found.certified_error > bound:
        return f"THIS CONTRADICTS the certificate, whose error bound is {bound:.4g} (proved again): one is wrong"
    return (
        f"the certificate agrees: its error bound {bound:.4g} (proved again) allows gaps up to {2 * bound:.4g}; "
        f"this gap of {found.gap:.4g} says that some error is at least {found.gap / 2:.4g}"
    )


def _write(found: Any, out: Path, report: dict[str, Any]) -> list[Path]:
    from infoflow.refutations.figures import collision_figure
    from infoflow.report.style import save

    return [write_json(out / "collision.json", report), *save(collision_figure(found), out / "collision")]


def _from_file(path: str) -> tuple[Any, dict[str, Any]]:
    from infoflow.nn import Transformer
    from infoflow.nn.files import load

    network = load(path)
    if not isinstance(network, Transformer):
        raise InfoFlowError(f"expected a saved Transformer, {path} holds a {type(network).__name__}.")
    return network, network.header


def _from_function(spelling: str) -> tuple[Any, dict[str, Any]]:
    """Run the user's function; the module goes to float64 and evaluation mode, the adapter speaks for it."""
    from torch import nn

    made = made_by(spelling)
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], nn.Module):
        raise InfoFlowError(f"expected {spelling} to return (module, adapter), got {type(made).__name__}.")
    network, adapter = made
    network.double().eval()
    return adapter, {"T": getattr(adapter, "T", None)}


def _hardmax(size: Hardmax, seed: int, as_json: bool) -> None:
    from infoflow.construct.rank_one.hardmax import run, text

    report = run(asdict(size), seed)
    if as_json:
        emit({"model": "hardmax", **report})
    else:
        click.echo(text(report))
