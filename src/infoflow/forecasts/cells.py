"""Cells: one question of the forecast each (target, T, architecture, recipe), drawn from the whole grammar by a seed.

Several architectures are drawn for each target, from too few heads to too many, because ranking the architectures for
one target is what a person needs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from infoflow.architecture import Architecture
from infoflow.forecasts.draws import Drawn, Family
from infoflow.forecasts.pilots import pilot_recipe
from infoflow.targets import Target
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run

ARCHITECTURES = 8  # of each target
LENGTHS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
LENGTH_SHARES = (0.07, 0.07, 0.1, 0.12, 0.14, 0.14, 0.12, 0.09, 0.08, 0.04, 0.03)
LAYER_SHARES = (0.4, 0.35, 0.15, 0.1)  # of 1 to 4 layers
HEAD_DIMS = (1, 2, 3, 4, 6, 8, 12)
HEAD_DIM_SHARES = (0.08, 0.12, 0.1, 0.15, 0.35, 0.1, 0.1)
WIDTHS = (8, 16, 24, 32, 64, 128, 160)
WIDTH_SHARES = (0.1, 0.1, 0.1, 0.15, 0.35, 0.1, 0.1)
EPOCHS = (6, 20, 60, 240)
EPOCH_SHARES = (0.2, 0.27, 0.4, 0.13)
ENCODER_WIDTH = 32

# One recipe but for its length and encoder: what `docs/training.md` calls the usual one.
USUAL = Recipe(epochs=60, warm_up=500, rollback=8.0)


@dataclass(frozen=True, eq=False)
class Cell:
    """What is trained: `family` says where the target was drawn."""

    name: str  # "calibration-0-17-3": part, seed, target, architecture
    family: str
    target: Target
    arch: Architecture
    T: int
    recipe: Recipe

    def runs(self, seeds: int, recipe: Recipe | None = None) -> list[Run]:
        return [Run(self.target, self.arch, self.T, seed, recipe or self.recipe) for seed in range(seeds)]

    def pilot(self, share: float) -> Recipe:
        return pilot_recipe(self.recipe, share)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "family": self.family,
            "target": self.target.spelling,
            "arch": str(self.arch),
            "T": self.T,
            "epochs": self.recipe.epochs,
            "encoder": self.recipe.encoder,
        }


def draw_cells(part: str, families: tuple[Family, ...], targets: int, seed: int) -> list[Cell]:
    """`targets` targets, the families in turn, with ARCHITECTURES cells each."""
    cells: list[Cell] = []
    for number, stream in enumerate(np.random.SeedSequence(seed).spawn(targets)):
        rng = np.random.default_rng(stream)
        family = families[number % len(families)]
        drawn = family(rng)
        T = int(rng.choice(LENGTHS, p=LENGTH_SHARES))
        epochs = int(rng.choice(EPOCHS, p=EPOCH_SHARES)) if rng.random() < 0.6 else None
        found: dict[str, Cell] = {}
        while len(found) < ARCHITECTURES:
            name = f"{part}-{seed}-{number}-{len(found)}"
            cell = Cell(name, family.__name__, drawn.target, _architecture(drawn, rng), T, _recipe(epochs, rng))
            found.setdefault(f"{cell.arch} {cell.recipe}", cell)
        cells += found.values()
    return cells


def _architecture(drawn: Drawn, rng: np.random.Generator) -> Architecture:
    layers = int(rng.choice(4, p=LAYER_SHARES)) + 1
    heads = rng.integers(1, drawn.heads + 3, size=layers)
    if rng.random() < 0.5:
        heads[:] = heads[0]
    size, width = int(rng.choice(HEAD_DIMS, p=HEAD_DIM_SHARES)), int(rng.choice(WIDTHS, p=WIDTH_SHARES))
    arch = Architecture(tuple(map(int, heads)), tuple(int(h) * size for h in heads), (width,) * layers)
    return arch.with_(positions="additive") if drawn.positions else arch


def _recipe(epochs: int | None, rng: np.random.Generator) -> Recipe:
    chosen = int(rng.choice(EPOCHS, p=EPOCH_SHARES)) if epochs is None else epochs
    if rng.random() < 0.7:
        return USUAL.with_(epochs=chosen)
    return USUAL.with_(epochs=chosen, encoder="mlp", encoder_width=ENCODER_WIDTH)
