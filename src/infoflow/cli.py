"""The command line: one lazy group; every command lives in `infoflow.commands.<name>` and is loaded when it is called.

Exit codes: 0 done, 1 the job failed, 2 the call was wrong. A traceback reaching the user is a bug.
"""

import importlib
import sys
from typing import Any

import click

from infoflow.errors import InfoFlowError, JobError, unknown
from infoflow.memory import keep_freed_memory

# name -> one line for `infoflow --help`; the module infoflow.commands.<name> defines `command`.
COMMANDS: dict[str, str] = {
    "targets": "List the named targets with their keys, domains and samplers.",
    "predict": "What an architecture can do with a target, before training.",
    "plan": "The cheapest architectures for a target, and why no cheaper one.",
    "trace": "Information sets, layer by layer, for one input.",
    "scale": "The cost exponent against the sequence length.",
    "build": "Explicit weights with an error certificate.",
    "certify": "Recompute the bound of saved networks and attack it.",
    "refute": "Two inputs a model cannot tell apart.",
    "fit": "Train many small Transformers at once.",
    "probe": "What each head of a trained or pretrained model does.",
    "reproduce": "The tables and figures of the papers, again.",
    "bench": "Measure the speed of this installation.",
    "demo": "A tour: predictions, weights, certificates, one report.",
}


class LazyGroup(click.Group):
    """Loads a command's module only when that command is asked for, so `--help` never imports torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"infoflow.commands.{name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise unknown("command", args[0], list(COMMANDS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="infoflow", prog_name="infoflow")
def cli() -> None:
    """Know what a Transformer can compute before you train it, and get the proof as weights."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line; turn every expected failure into one sentence and an exit code."""
    keep_freed_memory()
    try:
        result: Any = cli.main(args=argv, prog_name="infoflow", standalone_mode=False)
    except click.exceptions.Abort:
        _fail("interrupted.", 1)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" (try: {context.command_path} --help)" if context is not None else ""
        _fail(error.format_message() + hint, 2)
    except InfoFlowError as error:
        _fail(str(error), 2)
    except JobError as error:
        _fail(str(error), 1)
    except KeyboardInterrupt:
        _fail("interrupted.", 130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    else:
        sys.exit(result if isinstance(result, int) else 0)


def _fail(message: str, code: int) -> None:
    click.echo(f"infoflow: {message}", err=True)
    sys.exit(code)
