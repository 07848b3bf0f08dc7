"""`infoflow build WHAT`: explicit weights for a target, or one of the named constructions."""

import importlib
import time
from pathlib import Path
from typing import Any

import click

from infoflow.commands.options import emit, json_option, out_option, seed_option
from infoflow.commands.own_code import asked_architecture, asked_target, names_code
from infoflow.errors import InfoFlowError, unknown

# name -> what it is; infoflow.commands.constructions.<name> defines run(options, out, seed) and text(report).
CONSTRUCTIONS: dict[str, str] = {
    "truncated_linear": "one softmax head computes a truncated linear map",
    "grid": "attention as a lookup on a grid",
    "icgd": "gradient descent in context",
    "memorizer": "a rank-1 Transformer that memorises a data set",
    "context_map": "a contextual map",
    "equivariant": "a permutation-equivariant approximation",
    "codec": "the codec of Theorem 6",
    "memory_head": "one head that remembers every token, all work in the read-out",
    "exponential_head": "D extrema through one uniform head, with unbounded weights",
}
EXAMPLE = "infoflow build pairwise_max:D=4,d=4 -T 64 --eps 0.01"


@click.command("build", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("what")
@click.option("-T", "--T", "T", type=int, help="Sequence length (targets).")
@click.option("--eps", help="Largest error allowed (targets).")
@click.option("--arch", help="Architecture to fit into, e.g. 'heads=4,4 embed=24,24'; default: the least.")
@click.option("--domain", nargs=2, type=float, help="Box of the tokens, two numbers; default: the target's.")
@click.option("--weight-bound", default="1", show_default=True, help="Largest weight allowed; none: no bound.")
@click.option(
    "--rule",
    default="chebyshev",
    show_default=True,
    help="chebyshev, plain, or one other builder alone.",
)
@seed_option
@json_option
@out_option("out/build")
@click.pass_context
def command(
    context: click.Context,
    what: str,
    T: int | None,
    eps: str | None,
    arch: str | None,
    domain: tuple[float, float] | None,
    weight_bound: str,
    rule: str,
    seed: int,
    as_json: bool,
    out: Path,
) -> None:
    """Explicit weights with an error certificate.

    WHAT is a target (pairwise_max:D=4,d=4 or file.py:NAME) or a construction: truncated_linear, grid, icgd, memorizer,
    context_map, equivariant, codec, memory_head, exponential_head. Options of a construction are spelled --a -1 or
    truncated_linear:a=-1,b=2.
    """
    name, _, keys = what.partition(":")
    if name in CONSTRUCTIONS:
        given = {"T": T, "eps": eps, "arch": arch, "rule": rule if rule != "chebyshev" else None}
        options = {key: str(value) for key, value in given.items() if value is not None}
        report, text = _construct(name, {**_keys(keys), **options, **_extra(context.args)}, out, seed)
    else:
        if context.args:
            raise InfoFlowError(f"expected no option {context.args[0]!r} with a target; see infoflow build --help.")
        report, text = _target(what, T, eps, arch, domain, weight_bound, rule, out)
    emit(report) if as_json else click.echo(text)


def _construct(name: str, options: dict[str, str], out: Path, seed: int) -> tuple[dict[str, Any], str]:
    module = importlib.import_module(f"infoflow.commands.constructions.{name}")
    report: dict[str, Any] = module.run(options, out, seed)
    return report, module.text(report)


def _keys(text: str) -> dict[str, str]:
    result = {}
    for word in filter(None, text.split(",")):
        key, equals, value = word.partition("=")
        if not equals:
            raise InfoFlowError(f"expected key=value in the options of a construction, got {word!r}.")
        result[key] = value
    return result


def _extra(words: list[str]) -> dict[str, str]:
    """`--key value` and `--key=value` pairs nobody else took."""
    result: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            raise InfoFlowError(f"expected options like --key VALUE, got {word!r}.")
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not left:
                raise InfoFlowError(f"expected a value after --{key}, got none.")
            value = left.pop(0)
        result[key] = value
    return result


def _target(
    what: str,
    T: int | None,
    eps: str | None,
    arch: str | None,
    domain: tuple[float, float] | None,
    weight_bound: str,
    rule: str,
    out: Path,
) -> tuple[dict[str, Any], str]:
    from infoflow.targets import NAMED

    name = what.partition(":")[0]
    if name not in NAMED and not names_code(what):
        raise unknown("target or construction", name, [*NAMED, *CONSTRUCTIONS])
    target = asked_target(what)
    if T is None or eps is None:
        raise InfoFlowError(f"expected -T LENGTH and --eps ERROR to build a target, for example {EXAMPLE}.")
    from infoflow.compiler.compile import report_of, report_text
    from infoflow.construct.builders import build

    start = time.perf_counter()
    shape = None if arch is None else asked_architecture(arch)
    network = build(target, T, _number("eps", eps), shape, domain, _bound(weight_bound), rule)
    seconds = time.perf_counter() - start
    path = network.save(out / f"{_file_name(target.spelling or what)}_T{T}_eps{eps}.safetensors")
    report = {"target": target.spelling, "T": T, **report_of(network), "path": str(path), "seconds": seconds}
    return report, report_text(report)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InfoFlowError(f"expected --{name} to be a number, got {text!r}.") from None


def _bound(text: str) -> float | None:
    if text.lower() == "none":
        return None
    return _number("weight-bound", text)


def _file_name(spelling: str) -> str:
    """A file name from a spelling: letters, digits and a few marks stay."""
    stem = Path(spelling.partition(".py:")[0]).name if ".py:" in spelling else spelling
    kept = "".join(c if c.isalnum() or c in "-._" else "_" for c in stem)
    return kept[:80] or "target"
