"""`infoflow serve`: the explorer in the browser, or as a folder of files."""

from pathlib import Path

import click

from infoflow.commands.options import checked
from infoflow.files import check_folder


@click.command("serve")
@click.option("--port", type=click.IntRange(0, 65535), default=8227, show_default=True, help="0 takes a free one.")
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others can reach another.")
@click.option("--name", "names", multiple=True, help="With --host: a name under which others reach it.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    show_default=True,
    help="Folder of your own results: probe.json files in it are shown. Nothing outside it is read.",
)
@click.option(
    "--static",
    type=click.Path(file_okay=False, path_type=Path),
    callback=checked(check_folder),
    help="Write the explorer with worked examples into this folder, for any file server, and end.",
)
def command(port: int, opens: bool, host: str, names: tuple[str, ...], folder: Path, static: Path | None) -> None:
    """See information flow: a page to play with, on this machine alone. Ctrl-C ends it.

    \b
    infoflow serve --open
    infoflow serve --static out/explorer
    """
    if static is not None:
        from infoflow.web.static import write_static

        answers = write_static(static)
        click.echo(f"{static / 'index.html'} and {answers} answers: any file server will do (python -m http.server)")
        return
    from infoflow.web.serving import run

    def ready(address: str) -> None:
        click.echo(f"the explorer is at {address} (Ctrl-C ends it)")
        if opens:
            import webbrowser

            webbrowser.open(address)

    run(folder, host, port, names, ready)
