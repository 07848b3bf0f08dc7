"""The floors of drawn cells: what `forecasts/reads.py` finds for each, and how long it takes. The same call goes on.

python benchmarks/forecast_floors.py results/forecast/floors.jsonl --part trained --share 0/2
python benchmarks/forecast_floors.py results/forecast/NAME_floors.jsonl --part newest --targets 264 --most-flops 1.5e11

The first are of the cells that the model is calibrated on, the second what a registration is made from. `--most-flops`
leaves out cells whose four seeds take more, `--least-epochs` those of shorter runs, before anything is known of them.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from forecast_plan import TEACHING, TESTS
from forecast_plan import cells as plan_cells
from infoflow.forecasts import families, flops
from infoflow.forecasts.cells import Cell, draw_cells
from infoflow.forecasts.pilots import SEEDS
from infoflow.forecasts.quantities import find_floors

FOLDER = Path(__file__).parents[1] / "results/forecast"
# Cells that may teach: those of the calibration families and of the registrations that were scored before this version.
SCORED = ("calibration", "registered", "second", "fifth", "sixth", "seventh", "eighth", "ninth")
TRAINED = tuple(FOLDER / f"{name}.jsonl" for name in SCORED)
DRAWS = (("calibration", 48, 0), ("test", 9, 1), ("test", 18, 2), ("later", 132, 11), ("further", 60, 21),
         ("fresh", 264, 31), ("newest", 330, 41), ("newest", 120, 51))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", choices=(*families.GROUPS, "trained"), default="calibration")
    parser.add_argument("--targets", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-flops", type=float, help="Only cells whose four seeds take at most so many.")
    parser.add_argument("--least-epochs", type=int, default=0, help="Only cells of so many epochs or more.")
    parser.add_argument("--share", default="0/1", help="2/3: of three processes side by side, this is number 2.")
    parser.add_argument("--seconds", type=float, default=1e9, help="Stop after so much processor time.")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    number, of = map(int, options.share.split("/"))
    done = names(options.out) if options.out.exists() else set()
    cells = drawn(options.part, options.targets, options.seed, options.most_flops, options.least_epochs)
    with open(options.out, "a", encoding="utf-8") as file:
        for cell in [cell for cell in cells[number::of] if cell.name not in done]:
            if time.process_time() > options.seconds:
                break
            file.write(json.dumps(record(cell, options.device), separators=(",", ":")) + "\n")
            file.flush()


def names(path: Path) -> set[str]:
    return {json.loads(line)["name"] for line in path.read_text(encoding="utf-8").splitlines()}


def drawn(part: str, targets: int, seed: int, most_flops: float | None = None, least_epochs: int = 0) -> list[Cell]:
    if part in TESTS:
        return plan_cells(TESTS[part])
    if part == "trained":
        known = set().union(*map(names, TRAINED))
        return [cell for draw in DRAWS for cell in drawn(*draw) if cell.name in known] + [
            cell for test in TEACHING for cell in drawn(test.name, 0, 0)
        ]
    cells = draw_cells(part, families.GROUPS[part], targets, seed)
    affordable = [cell for cell in cells if most_flops is None or training_flops(cell, SEEDS) <= most_flops]
    return [cell for cell in affordable if cell.recipe.epochs >= least_epochs]


def training_flops(cell: Cell, seeds: int) -> float:
    return seeds * flops.training(cell.arch, cell.target.dim, cell.T, cell.recipe, cell.target.outputs)


def record(cell: Cell, device: str) -> dict[str, Any]:
    began = time.process_time()
    found = asdict(find_floors(cell.target, cell.arch, cell.T, cell.recipe.encoder == "mlp", device))
    del found["soft"]
    short = {key: _short(value) for key, value in found.items()}
    return {"name": cell.name, **short, "seconds": round(time.process_time() - began, 2)}


def _short(value: Any) -> Any:
    """To six digits, more than a forecast can use."""
    return [_short(each) for each in value] if isinstance(value, list) else float(f"{value:.6g}")


if __name__ == "__main__":
    main()
