"""The command line: one lazy group; every command lives in `infoflow.commands.<name>` and is loaded when it is called.

Exit codes: 0 done, 1 the job failed, 2 the call was wrong, 130 stopped by Ctrl-C. A traceback reaching the user is a
bug.
"""

import importlib
import io
import os
import sys
from typing import Any

import click

from infoflow import reading
from infoflow.cost import available_memory, keep_freed_memory, out_of_memory, spelled_bytes
from infoflow.errors import InfoFlowError, JobError, printable, unknown
from infoflow.files import unwritten
from infoflow.installation import program, runnable

# name -> one line for `infoflow --help`; the module infoflow.commands.<name> defines `command`.
COMMANDS: dict[str, str] = {
    "targets": "List the named targets with their keys, domains and samplers.",
    "predict": "What an architecture can do with a target, before training.",
    "forecast": "The error training will end at, with an interval, before training.",
    "plan": "The cheapest architectures for a target, and why no cheaper one.",
    "trace": "Information sets, layer by layer, for one input.",
    "scale": "The cost exponent against the sequence length.",
    "build": "Explicit weights with an error certificate.",
    "certify": "Recompute the bound of saved networks and attack it.",
    "refute": "Two inputs a model cannot tell apart.",
    "fit": "Train many small Transformers at once.",
    "probe": "What each head of a trained or pretrained model does.",
    "planted": "Networks whose mechanism is known, hidden: a yardstick for methods.",
    "book": "Every statement of the papers: its status, what is wrong in print, its check.",
    "errata": "What is wrong in print in a paper, with repairs and numbers.",
    "reproduce": "The tables and figures of the papers, again.",
    "bench": "Measure the speed of this installation.",
    "serve": "The explorer: see information flow in the browser.",
    "demo": "A tour: predictions, weights, certificates, one report.",
}


class LazyGroup(click.Group):
    """Loads a command's module only when that command is asked for, so `--help` never imports torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, in the order of a first reading."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command, imported now."""
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"infoflow.commands.{name}").command
        command.help = runnable(command.help or "")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """click's, with the nearest command where one is unknown."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise unknown("command", args[0], list(COMMANDS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and summaries, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="infoflow", prog_name="infoflow")
@click.option(
    "--text-limit",
    type=click.IntRange(min=1),
    metavar="MIB",
    default=reading.LARGEST_TEXT >> 20,
    show_default=True,
    help="Largest text or data file that is read, unpacked, in MiB.",
)
@click.pass_context
def cli(context: click.Context, text_limit: int) -> None:
    """Know what a Transformer can compute before you train it, and get the proof as weights."""
    context.with_resource(reading.limit(text_limit << 20))


def main(argv: list[str] | None = None) -> None:
    """Run the command line; turn every expected failure into one sentence and an exit code."""
    keep_freed_memory()
    if isinstance(sys.stdout, io.TextIOWrapper):  # the name of a file may be no text at all
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _refuse_files(sys.argv[1:] if argv is None else argv)
        result: Any = cli.main(args=argv, prog_name=program(), standalone_mode=False)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except (Exception, KeyboardInterrupt) as error:
        ending = ending_of(error)
        if ending is None:
            raise
        click.echo(f"infoflow: {runnable(ending[0])}", err=True)
        sys.exit(ending[1])
    sys.exit(result if isinstance(result, int) else 0)


def _refuse_files(words: list[str]) -> None:
    """A shell writes the names of files for `*`, and whoever made a folder may have called one of them --target=..."""
    for word in words:
        if word.startswith("-") and os.path.lexists(word):
            raise InfoFlowError(
                f"expected an option, {word!r} is a file here; write ./{word} for the file, or move it."
            )


def ending_of(error: BaseException) -> tuple[str, int] | None:
    """The sentence and the exit code of a failure; None for a bug, whose traceback we want to see.

    The checks of each call come first. What they cannot foresee ends here: memory that others took meanwhile, a full
    disk, numbers beyond floating point, a nesting deeper than Python's stack.
    """
    if isinstance(error, click.exceptions.Abort):
        error = error.__cause__ or KeyboardInterrupt()
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "stopped by Ctrl-C; nothing was left half-written.", 130
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        hint = f" (try: {context.command_path} --help)" if context is not None else ""
        return printable(error.format_message()) + hint, 2
    if isinstance(error, InfoFlowError):
        return str(error), 2
    if isinstance(error, JobError):
        return str(error), 1
    if out_of_memory(error):
        free = spelled_bytes(available_memory())
        return f"expected the call to fit in memory, {free} of which are free now; take smaller sizes.", 1
    if isinstance(error, OSError):
        return unwritten(error), 1
    if isinstance(error, OverflowError):
        return f"expected numbers that floating point can hold, one is too large ({error}); take smaller ones.", 2
    if isinstance(error, RecursionError):
        return "expected an input that is nested less deeply, this one is beyond Python's stack; simplify it.", 2
    return None
