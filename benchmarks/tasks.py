"""The named tasks at the sizes their page states: four seeds each, with their curves.

Writes benchmarks/results/tasks.json and docs/figures/tasks.svg; a folder as first argument changes where the JSON goes.
"""

import sys
from pathlib import Path
from typing import Any

from infoflow.architecture import Architecture
from infoflow.files import write_json
from infoflow.provenance import provenance
from infoflow.train.fit import Recipe, Result, Run, fit_many
from infoflow.train.tasks import named_task

ROOT = Path(__file__).parent.parent
USUAL = Recipe(samples=8192, validation=1024, batch=128, epochs=10, lr=3e-3, ffn_skip=True)
SEEDS = 4
SIZES: dict[str, tuple[str, Recipe]] = {
    "task:mqar,pairs=4,symbols=8": ("heads=1,1 embed=32,32 width=64", USUAL.with_(epochs=6)),
    "task:induction,length=6,symbols=12": ("heads=1,1 embed=32,32 width=64", USUAL.with_(epochs=6)),
    "task:sorting,length=4,symbols=8": ("heads=2,2 embed=32,32 width=64", USUAL.with_(epochs=6)),
    "task:parity,length=6": ("heads=2,2 embed=32,32 width=64", USUAL),
    "task:modular_addition,p=13": ("heads=4,1 embed=32,32 width=128", USUAL.with_(epochs=12, lr=1e-3, decay=1.0)),
}


def command(name: str, arch: str, recipe: Recipe) -> str:
    usual, words = Recipe(), [f'infoflow fit {name} "{arch}" --seeds {SEEDS}']
    for option in ("samples", "validation", "batch", "epochs", "lr", "decay"):
        if getattr(recipe, option) != getattr(usual, option):
            words.append(f"--{option} {getattr(recipe, option):g}")
    return " ".join([*words, *["--ffn-skip"] * recipe.ffn_skip])


def row(name: str, arch: str, recipe: Recipe, results: list[Result]) -> dict[str, Any]:
    return {
        "task": name,
        "arch": arch,
        "command": command(name, arch, recipe),
        "steps": recipe.total_steps,
        "baseline": results[0].baseline,
        "best": [result.best for result in results],
        "curve_steps": results[0].curve_steps,
        "curves": [result.curve for result in results],
        "seconds": sum(result.seconds / result.stacked for result in results),
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    from infoflow.report import style

    figure, axes = style.figure(6.4, 3.4)
    for position, found in enumerate(rows):
        for number, curve in enumerate(found["curves"]):
            label = found["task"].removeprefix("task:") if number == 0 else None
            axes.plot(found["curve_steps"], curve, color=style.COLOURS[position], lw=1, label=label)
    axes.set(xlabel="step", ylabel="share of wrong answers, held out", title="named tasks, four seeds each")
    axes.legend(fontsize=7)
    style.save(figure, path, formats=("svg",))


def main(folder: Path) -> None:
    rows = []
    for name, (arch, recipe) in SIZES.items():
        runs = [Run(named_task(name), Architecture.parse(arch), seed=seed, recipe=recipe) for seed in range(SEEDS)]
        rows.append(row(name, arch, recipe, [result for result in fit_many(runs) if result is not None]))
        print(name, rows[-1]["best"], f"{rows[-1]['seconds']:.0f} s", flush=True)
    write_json(folder / "tasks.json", {"rows": rows, "provenance": provenance(("torch",))})
    draw(rows, ROOT / "docs" / "figures" / "tasks")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
