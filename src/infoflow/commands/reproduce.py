"""`infoflow reproduce ITEM`: a table or figure of a paper again, the paper's numbers beside ours."""

from pathlib import Path
from typing import Any

import click

from infoflow.commands.options import device_option, emit, json_option, out_option, resumable, seconds_option
from infoflow.errors import InfoFlowError, JobError
from infoflow.files import check_folder

ALL = Path("out/reproduce")  # where `all` and single items go when --out is not given
REGISTERED = "forecast/test"  # no paper's: our own forecasts, registered before training, against training


@click.command()
@click.argument("item", required=False)
@click.option(
    "--list",
    "list_items",
    is_flag=True,
    help="List every table and figure: presets, what has been run, whether the conclusion holds.",
)
@click.option(
    "--preset",
    type=click.Choice(["quick", "paper", "best"]),
    default="quick",
    show_default=True,
    help="quick: minutes on two cores. paper: as printed or published. best: our recipe.",
)
@click.option("--part", "parts", multiple=True, help="Only this part of an item, e.g. D=2 (may be repeated).")
@click.option(
    "--redraw", is_flag=True, help="Draw the figures again from --out/result.json; train and measure nothing."
)
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Folder with data the project never ships."
)
@seconds_option(None, "Stop training cleanly after this long; the same call goes on.")
@out_option(None)
@device_option
@json_option
def command(
    item: str | None,
    list_items: bool,
    redraw: bool,
    parts: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run ITEM (see --list), or `all`: a table or figure of a paper again, the paper's numbers beside ours.

    `forecast/test` scores the forecasts that were registered before training (results/forecast, or --data FOLDER);
    --part names a registration other than the first.
    """
    if item == REGISTERED:
        _registered(out or ALL / item, options["data"], parts, as_json)
    elif list_items:
        _list(as_json)
    elif item is None:
        raise InfoFlowError("expected an item, got none; see infoflow reproduce --list.")
    elif item == "all":
        if parts:
            raise InfoFlowError(f"expected no --part with all, got {', '.join(parts)}; name the item it belongs to.")
        _all(out, as_json, options)
    elif redraw:
        _redraw(item, out or ALL / item / options["preset"], as_json)
    else:
        folder = out or ALL / item / options["preset"]
        result = _one(item, folder, as_json, {**options, "parts": parts})
        if as_json:
            emit(result)


def _registered(folder: Path, data: Path | None, parts: tuple[str, ...], as_json: bool) -> None:
    from infoflow.forecasts.registered_report import write_report

    if any(not part.isidentifier() for part in parts):
        raise InfoFlowError(f"expected names of registrations in --part, got {', '.join(parts)}.")
    found = write_report(data or Path("results/forecast"), check_folder(folder), *parts)
    if as_json:
        emit(found)
    else:
        click.echo((folder / "table.md").read_text(encoding="utf-8"))
        click.echo(f"everything is in {folder}")


def _all(out: Path | None, as_json: bool, options: dict[str, Any]) -> None:
    """Every item in turn, then one page. An item that fails is named on the page and at the end; the others run."""
    from infoflow.lab.page import write_page
    from infoflow.lab.reproduce import listing

    results, failed = [], []
    for entry in listing():
        folder = ALL / entry.name / options["preset"] if out is None else out / entry.name
        try:
            results.append(_one(entry.name, folder, as_json, options))
        except (InfoFlowError, JobError) as error:
            results.append({"item": entry.name, "title": entry.title, "skipped": str(error)})
            if not (entry.data and isinstance(error, InfoFlowError)):  # data that is not here is no failure
                failed.append(entry.name)
            if not as_json:
                click.echo(f"not run: {error}\n")
    path = write_page(results, out or ALL, options["preset"])
    if as_json:
        emit({"results": results, "page": path})
    else:
        click.echo(f"All of it on one page: {path}")
    if failed:
        raise JobError(f"expected every item to finish, {', '.join(failed)} did not; the page says why.")


def _one(name: str, folder: Path, as_json: bool, options: dict[str, Any]) -> dict[str, Any]:
    from infoflow.lab.item import Context
    from infoflow.lab.registry import find
    from infoflow.lab.reproduce import reproduce

    if not as_json:
        entry = find(name)
        preset = entry.preset(options["preset"])
        click.echo(f"{name}: {entry.title}\n{preset}: {entry.protocol(preset)}\n")
    with resumable(folder):
        result = reproduce(name, Context(out=check_folder(folder), **options))
    if not as_json:
        click.echo((folder / "table.md").read_text(encoding="utf-8"))
        click.echo(f"{result['seconds']} s; everything is in {folder}\n")
    return {"folder": str(folder)} | {key: value for key, value in result.items() if key != "runs"}


def _redraw(name: str, folder: Path, as_json: bool) -> None:
    from infoflow.lab.reproduce import redraw

    result = redraw(name, folder)
    if as_json:
        emit({"folder": str(folder)} | {key: value for key, value in result.items() if key != "runs"})
    else:
        click.echo(f"drew {', '.join(result['figures'])} in {folder}")


def _list(as_json: bool) -> None:
    from infoflow.lab.recorded import recorded, together
    from infoflow.lab.reproduce import listing

    entries, known = listing(), recorded()
    if as_json:
        names = ("name", "title", "quick", "paper", "best", "unsaid", "differences", "data", "parts", "preparations")
        emit({"items": [{name: getattr(entry, name) for name in names} | known[entry.name] for entry in entries]})
        return
    for entry in entries:
        click.echo(f"{entry.name}\n    {entry.title}")
        for preset in ("quick", "paper", "best"):
            protocol = entry.protocol(entry.preset(preset)) if preset != "best" or entry.best else "as paper"
            click.echo(f"    {preset + ':':<7}{protocol}{_ran(known[entry.name]['run'].get(preset))}")
        for verdict in together(known[entry.name]["verdicts"]):
            click.echo(f"    {verdict['what']}: {verdict['verdict']}\n        the paper says: {verdict['conclusion']}")
            for preset, numbers in verdict["numbers"].items():
                for number in numbers:
                    click.echo(f"        {preset}: {number}")
        if entry.data:
            click.echo(f"    --data: {entry.data}")
        if entry.parts:
            whole = [part for part in entry.parts if ":" not in part]
            pieces = {part.partition(":")[0]: part for part in entry.parts if ":" in part}
            said = [f"{part} (or a piece: {pieces[part]!r})" if part in pieces else part for part in whole]
            click.echo(f"    --part: {', '.join((*entry.preparations, *said))}")


def _ran(runs: list[dict[str, Any]] | None) -> str:
    """What of a preset is in the repository."""
    if not runs:
        return ""
    said = [f"{run['models']} models" + (f", without {', '.join(run['missing'])}" if run["missing"] else "")
            for run in runs]  # fmt: skip
    return f" [run: {'; '.join(said)}]"
