"""`infoflow reproduce ITEM`: a table or figure of a paper again, the paper's numbers beside ours."""

from pathlib import Path

import click

from infoflow.commands.options import device_option, emit, json_option
from infoflow.errors import InfoFlowError


@click.command()
@click.argument("item", required=False)
@click.option("--list", "list_items", is_flag=True, help="List the items and what their presets do.")
@click.option("--preset", type=click.Choice(["quick", "full"]), default="quick", show_default=True)
@click.option("--part", "parts", multiple=True, help="Only this part of an item, e.g. D=2 (may be repeated).")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Folder with data the project never ships."
)
@click.option("--seconds", type=float, help="Stop training cleanly after this long; the same call goes on.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the files made.")
@device_option
@json_option
def command(
    item: str | None,
    list_items: bool,
    preset: str,
    parts: tuple[str, ...],
    engine: str,
    data: Path | None,
    seconds: float | None,
    out: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Run ITEM (see --list), or `all`. The quick preset takes minutes on two cores, full is the paper's protocol."""
    from infoflow.lab.reproduce import listing

    if list_items:
        _list(as_json)
        return
    if item is None:
        raise InfoFlowError("expected an item, got none; see infoflow reproduce --list.")
    names = [entry.name for entry in listing()] if item == "all" else [item]
    results = []
    for name in names:
        folder = out if out is None or item != "all" else out / name
        results.append(
            _one(name, preset, folder, device, engine, data, parts, seconds, as_json, skip_missing=item == "all")
        )
    if item == "all":
        _page(results, out or Path("out/reproduce"), preset, as_json)
    if as_json:
        emit({"results": results} if item == "all" else results[0])


def _one(
    name: str,
    preset: str,
    out: Path | None,
    device: str,
    engine: str,
    data: Path | None,
    parts: tuple[str, ...],
    seconds: float | None,
    as_json: bool,
    skip_missing: bool,
) -> dict[str, object]:
    from infoflow.lab.registry import find
    from infoflow.lab.reproduce import reproduce

    if skip_missing and find(name).data and data is None and preset == "full":
        return {"item": name, "skipped": f"needs --data with {find(name).data}"}
    if not as_json:
        entry = find(name)
        click.echo(f"{name}: {entry.title}\n{preset}: {entry.quick if preset == 'quick' else entry.full}\n")
    folder = out or Path("out/reproduce") / name / preset
    result = reproduce(name, preset, folder, device, engine, data, parts, seconds)  # type: ignore[arg-type]
    if not as_json:
        click.echo((folder / "table.md").read_text(encoding="utf-8"))
        click.echo(f"{result['seconds']} s; everything is in {folder}\n")
    return {"folder": str(folder)} | {key: value for key, value in result.items() if key != "runs"}


def _list(as_json: bool) -> None:
    from infoflow.lab.reproduce import listing

    entries = listing()
    if as_json:
        emit(
            {
                "items": [
                    {"name": e.name, "title": e.title, "quick": e.quick, "full": e.full, "data": e.data}
                    for e in entries
                ]
            }
        )
        return
    for entry in entries:
        click.echo(f"{entry.name}\n    {entry.title}\n    quick: {entry.quick}\n    full:  {entry.full}")
        if entry.data:
            click.echo(f"    --data: {entry.data}")


def _page(results: list[dict[str, object]], out: Path, preset: str, as_json: bool) -> None:
    """One self-contained page with every table and figure."""
    from infoflow.lab.page import write_page

    path = write_page(results, out, preset)
    if not as_json:
        click.echo(f"All of it on one page: {path}")
