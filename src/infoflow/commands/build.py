"""`infoflow build WHAT`: explicit weights for a target, or by a construction of the list, each a command of its own."""

import importlib
import time
from pathlib import Path
from typing import Any

import click

from infoflow.arguments import pairs
from infoflow.commands.options import emit, json_option, out_option, seed_option
from infoflow.commands.own_code import asked_architecture, asked_target, names_code
from infoflow.construct.catalogue import CONSTRUCTIONS, REQUIRED, Option
from infoflow.errors import InfoFlowError, unknown
from infoflow.installation import runnable

EXAMPLE = "infoflow build pairwise_max:D=4,d=4 -T 64 --eps 0.01"
DEFAULT_OUT = "out/build"


class Exact(click.Command):
    """A command that names the nearest option where one is unknown."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """click's, with the nearest option where one is unknown."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = [name for parameter in self.get_params(ctx) for name in parameter.opts if name.startswith("-")]
            raise unknown("option", error.option_name, known) from None


class Value(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no arguments here
    """An option of a construction, read as Python's callers read it; a target may be the user's own file."""

    def __init__(self, option: Option) -> None:
        self.option, self.name = option, option.kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value in its plain type."""
        mine = self.option.kind == "target" and isinstance(value, str)
        return asked_target(value) if mine else self.option.read(value)


class Builds(click.Group):
    """The first word chooses: the name of a construction (`grid`, `grid:g=8`), else it is a target."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The constructions."""
        return list(CONSTRUCTIONS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a construction; a target has none of its own."""
        return construction(name) if name in CONSTRUCTIONS else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options may stand before a target, so nothing but --help is the group's own."""
        if not args:
            raise InfoFlowError(f"expected a target or the name of a construction to build, for example {EXAMPLE}.")
        return super().parse_args(ctx, args if args[0] in ctx.help_option_names else ["--", *args])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command, list[str]]:
        """The construction of that name, with its keys as options, or the command for targets."""
        name, _, keys = args[0].partition(":")
        if name not in CONSTRUCTIONS:
            return "", target, args
        words = pairs(filter(None, keys.split(",")), f"separated by commas after {name}:")
        given = [word for key, value in words.items() for word in (f"--{key}", value)]
        return name, construction(name), [*given, *args[1:]]

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """How the usage line ends."""
        return ["[OPTIONS]", "WHAT"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Those of a target, then the constructions."""
        target.format_options(ctx, formatter)
        with formatter.section("Constructions (infoflow build NAME --help shows the options of one)"):
            formatter.write_dl([(name, listed.summary) for name, listed in CONSTRUCTIONS.items()])


@click.group("build", cls=Builds)
def command() -> None:
    """Explicit weights with an error certificate.

    \b
    infoflow build pairwise_max:D=4,d=4 -T 64 --eps 0.01       a target, or file.py:NAME
    infoflow build truncated_linear --a -1 --b 2               a construction
    infoflow build truncated_linear:a=-1,b=2                   the same
    """


@click.command("build", cls=Exact)
@click.argument("what")
@click.option("-T", "--T", "T", type=int, help="Sequence length.")
@click.option("--eps", help="Largest error allowed.")
@click.option("--arch", help="Architecture to fit into, e.g. 'heads=4,4 embed=24,24'; default: the least.")
@click.option("--domain", nargs=2, type=float, help="Box of the tokens, two numbers; default: the target's.")
@click.option("--weight-bound", default="1", show_default=True, help="Largest weight allowed; none: no bound.")
@click.option(
    "--rule", default="chebyshev", show_default=True, help="chebyshev, plain, or the name of one other builder."
)
@seed_option
@json_option
@out_option(DEFAULT_OUT)
def target(what: str, T: int | None, eps: str | None, out: Path, as_json: bool, seed: int, **how: Any) -> None:
    """Explicit weights for a target, with an error certificate."""
    from infoflow.targets import NAMED

    name = what.partition(":")[0]
    if name not in NAMED and not names_code(what):
        raise unknown("target or construction", name, [*NAMED, *CONSTRUCTIONS])
    goal = asked_target(what)
    if T is None or eps is None:
        raise InfoFlowError(f"expected -T LENGTH and --eps ERROR to build a target, for example {EXAMPLE}.")
    from infoflow.compiler.compile import report_of, report_text
    from infoflow.construct.builders import build

    start = time.perf_counter()
    shape = None if how["arch"] is None else asked_architecture(how["arch"])
    bound = None if how["weight_bound"].lower() == "none" else _number("weight-bound", how["weight_bound"])
    network = build(goal, T, _number("eps", eps), shape, how["domain"], bound, how["rule"])
    seconds = time.perf_counter() - start
    path = network.save(out / f"{_file_name(goal.spelling or what)}_T{T}_eps{eps}.safetensors")
    report = {"target": goal.spelling, "T": T, **report_of(network), "path": str(path), "seconds": seconds}
    emit(report) if as_json else click.echo(report_text(report))


def construction(name: str) -> click.Command:
    """The command of a construction, from the list."""
    listed = CONSTRUCTIONS[name]

    def run(seed: int, as_json: bool, out: Path, **given: Any) -> None:
        module = importlib.import_module(f"infoflow.commands.constructions.{name}")
        report = module.run({key: value for key, value in given.items() if value is not None}, out, seed)
        emit(report) if as_json else click.echo(module.text(report))

    made = seed_option(json_option(out_option(DEFAULT_OUT)(run)))
    for option in reversed((*listed.options, *listed.command_options)):
        made = _click_option(option)(made)
    words = f"{listed.summary[0].upper()}{listed.summary[1:]}.\n\n\b\n{runnable(listed.example)}"
    return click.command(name, cls=Exact, help=words)(made)


def _click_option(option: Option) -> Any:
    names = (f"-{option.name}",) if option.name == "T" else ()
    words = f"{option.help[0].upper()}{option.help[1:]}."
    default = None if option.default is REQUIRED else option.default
    shown: bool | str = default is not None
    if isinstance(default, list | bool):
        shown = ",".join(f"{number:g}" for number in default) if isinstance(default, list) else ("no", "yes")[default]
    about: dict[str, Any] = {"type": Value(option), "default": default, "show_default": shown, "help": words}
    return click.option(*names, f"--{option.name}", option.name, **about)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InfoFlowError(f"expected --{name} to be a number, got {text!r}.") from None


def _file_name(spelling: str) -> str:
    """A file name from a spelling: letters, digits and a few marks stay."""
    stem = Path(spelling.partition(".py:")[0]).name if ".py:" in spelling else spelling
    kept = "".join(c if c.isalnum() or c in "-._" else "_" for c in stem)
    return kept[:80] or "target"
