"""A pilot: the network in question trained for a small share of its steps, a whole schedule of its own, a few seeds."""

from math import log10
from statistics import median

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError, JobError
from infoflow.targets import Target
from infoflow.train.fit import fit_many
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run

SHARE = 0.05  # of the steps
SEEDS = 4
LEAST, MOST = 1e-9, 2.0


def pilot_recipe(recipe: Recipe, share: float = SHARE) -> Recipe:
    """The same recipe in a share of its steps: a whole cosine, a warm-up in proportion."""
    steps = max(1, round(share * recipe.total_steps))
    return recipe.with_(epochs=None, steps=steps, warm_up=round(share * recipe.warm_up))


def run_pilot(target: Target, arch: Architecture, T: int, recipe: Recipe, device: str = "cpu") -> list[float]:
    """The best validation errors of the pilot's seeds."""
    if recipe.schedule != "cosine" or recipe.starts > 1:
        raise InfoFlowError("expected one start and one cosine for a pilot, got another recipe; leave the pilot out.")
    short = pilot_recipe(recipe)
    found = fit_many([Run(target, arch, T, seed, short) for seed in range(SEEDS)], device=device)
    errors = [result.best for result in found if result is not None and result.best is not None]
    if not errors:
        raise JobError("expected one seed of the pilot to stay finite, none did; take a smaller --lr.")
    return errors


def pilot_quantities(errors: list[float]) -> list[float]:
    """What a forecast takes of a pilot: decimal logarithms of the middle and the best of its errors."""
    logs = [log10(min(max(error, LEAST), MOST)) for error in errors]
    return [median(logs), min(logs)]
