"""`infoflow fit TARGET ARCH -T 64 --seeds 16`: train many small Transformers at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from infoflow.architecture import Architecture
from infoflow.commands.flow_options import arch_argument, target_argument
from infoflow.commands.options import (
    checked,
    device_option,
    emit,
    gathered,
    join_words,
    json_option,
    resumable,
    seconds_option,
)
from infoflow.commands.own_code import asked_architecture, asked_task
from infoflow.commands.recipe_options import recipe_of, recipe_options
from infoflow.errors import JobError
from infoflow.files import check_folder

if TYPE_CHECKING:
    from infoflow.targets import Target
    from infoflow.train.fit import Resources, Run
    from infoflow.train.recipe import Recipe
    from infoflow.train.task import Task


@dataclass(frozen=True)
class Models:
    """The models that are asked for: one task, one architecture, several seeds."""

    task: "Task | Target"
    arch: Architecture
    T: int | None
    seeds: int

    def runs(self, recipe: "Recipe") -> "list[Run]":
        """Each of them as a run of this recipe."""
        from infoflow.train.fit import Run, seeds_of

        return [Run(self.task, self.arch, self.T, seed, recipe) for seed in seeds_of(self.seeds, recipe)]


def _models(target: str, arch: tuple[str, ...], T: int | None, seeds: int) -> Models:
    return Models(asked_task(target), asked_architecture(join_words(arch)), T, seeds)


def _resources(device: str, engine: str, address: str | None, workers: int | None) -> "Resources":
    from infoflow.train.fit import Resources

    return Resources(device, engine, address, workers)


@click.command("fit")
@gathered(
    "models",
    _models,
    target_argument,
    arch_argument,
    click.option("-T", "--T", "T", type=int, default=None, help="Sequence length; a task has its own."),
    click.option("--seeds", type=click.IntRange(1), default=16, show_default=True, help="Models: seeds 0, 1, ..."),
)
@recipe_options
@click.option("--ffn-skip", is_flag=True, help="x + F(x) between layers instead of F(x).")
@gathered(
    "resources",
    _resources,
    device_option,
    click.option("--engine", default="local", show_default=True, help="local, or ray (extra: cluster)."),
    click.option("--address", default=None, help="Of a Ray cluster; without it (or RAY_ADDRESS) one is started here."),
    click.option("--workers", type=int, default=None, help="Processes that train side by side, instead of threads."),
)
@click.option(
    "--store",
    "--out",
    "store",
    type=click.Path(path_type=Path),
    default=Path("out/fit"),
    show_default=True,
    callback=checked(check_folder),
    help="Folder of finished runs, weights and checkpoints: the same call goes on where it stopped.",
)
@seconds_option(None, "Stop cleanly after this time; call again to go on.")
@json_option
def command(
    models: Models, resources: "Resources", store: Path, seconds: float | None, as_json: bool, **recipe: Any
) -> None:
    """Train ARCH on a target or task from several seeds in one pass; a finished run is never trained again.

    TARGET is a named target, a task (task:mqar, task:induction, task:modular_addition, task:sorting, task:parity,
    task:largest_token, with sizes as in task:mqar,pairs=8) or file.py:NAME of your own.

    \b
    infoflow fit pairwise_max:D=2,d=4 "heads=2,2 embed=12,12" -T 64 --seeds 16
    infoflow fit pairwise_max:D=2,d=4 heads=2,2 embed=12 -T 16 --seeds 4 --samples 4000 --epochs 20
    infoflow fit task:mqar,pairs=8 "heads=1,1 embed=32,32" --seeds 64 --lr 3e-3 --ffn-skip
    """
    from infoflow.provenance import noted
    from infoflow.train.fit import fit_many, summary

    runs, shape = models.runs(recipe_of(recipe)), models.arch
    with resumable(store):
        results = fit_many(
            runs,
            store,
            resources.device,
            resources.engine,
            True,
            seconds,
            address=resources.address,
            workers=resources.workers,
        )
    found = [result for result in results if result is not None]
    unfinished = len(runs) - len(found)
    if as_json:
        totals = {"asked": str(shape), "summary": summary(found).to_json(), "unfinished": unfinished}
        emit(
            {
                **_about(runs[0]),
                **totals,
                "runs": [r.to_json() for r in found],
                "trained": noted(store),
            }
        )
    else:
        if runs[0].arch != shape:
            click.echo(f"{shape} leaves sizes open; trained as {runs[0].arch}, the paper's ratios")
        click.echo(_text(runs[0], found, store))
    if unfinished:
        raise JobError(
            f"expected all {len(runs)} runs to finish, {unfinished} did not within {seconds:g} s; the same call goes "
            "on from the checkpoints in the store."
        )


def _about(run: Any) -> dict[str, Any]:
    about = {"target": run.task.name, "arch": str(run.arch), "T": run.T, "steps": run.recipe.total_steps}
    starts = {"starts": run.recipe.starts, "start_steps": run.recipe.start_steps} if run.recipe.starts > 1 else {}
    return about | starts


def _text(run: Any, found: list[Any], store: Path) -> str:
    from infoflow.train.fit import summary

    about = _about(run)
    lines = [f"{about['target']}  {about['arch']}  T={about['T']}  {about['steps']:,} steps"]
    if "starts" in about:
        lines[0] += f", from the best of {about['starts']} starts of {about['start_steps']:,} steps"
    name = {"nmse": "NMSE"}.get(found[0].measure, found[0].measure) if found else "error"
    lines.append(f"{'seed':>6} {'best ' + name:>10} {'final':>10} {'seconds':>8}  status")
    for result in found:
        numbers = [f"{value:10.2e}" if value is not None else f"{'-':>10}" for value in (result.best, result.final)]
        status = result.status if result.diverged_at is None else f"{result.status} by step {result.diverged_at}"
        status = "collapsed" if result.collapsed else status
        status += f", went back {result.rollbacks}x" if result.rollbacks else ""
        lines.append(f"{result.seed:>6} {' '.join(numbers)} {result.seconds:8.1f}  {status}")
    total = summary(found)
    if total.mean is not None and total.median is not None:
        lines.append(
            f"  mean {total.mean:.2e}  median {total.median:.2e}  quartiles {total.quartiles_text()}  "
            f"failed {total.failed} of {total.models}"
        )
    if total.unlearned:
        half = "half the labels' variance" if name == "NMSE" else "half the error of the best constant"
        lines.append(f"  {total.unlearned} never came below {half}: train longer, or take --warm-up")
    if total.collapsed:
        lines.append(f"  {total.collapsed} learned, then fell back to a constant: take a smaller --lr, or --rollback 8")
    if found:
        choice = found[0].choice
        lines.append(
            f"  chosen on {choice['device']}: {choice['kernel']}, {choice['stack']} models a pass, "
            f"{choice['workers']} x {choice['threads']} threads"
        )
    lines.append(f"  store: {store}")
    return "\n".join(lines)
