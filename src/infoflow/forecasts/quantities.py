"""The quantities of a question that its forecast is made from: floors, steps and sizes, all without units.

None of them names a family of targets: a target enters through its floors, through whether its scores compare several
tokens, and through its dimension.
"""

from math import log10
from statistics import median

import numpy as np
import torch

from infoflow import cost
from infoflow.architecture import Architecture
from infoflow.forecasts.reads import LOOKS, Floors, floors
from infoflow.forecasts.states import BENT, messages_wanted, states
from infoflow.targets import Extremum, Target
from infoflow.train.recipe import Recipe

SAMPLES, SEED = 1_600, 5  # sequences on which the floors are found
LEAST, MOST = 1e-8, 2.0  # errors are clipped to this before their logarithm is taken

NAMES = (
    "least floor",
    "second floor",
    "middle floor",
    "largest floor",
    "least on the way",
    "middle on the way",
    "steps",
    "several tokens a score",
    "length",
    "mlp encoder",
    "one layer",
    "head size",
    "width",
    "embedding over d",
    "embedding over what tokens must know",
    "dimension",
)


def find_floors(target: Target, arch: Architecture, T: int, mlp: bool, device: str = "cpu") -> Floors:
    """The floors of these reads on samples of the target's own law."""
    d = target.dim
    known = d + T * (arch.positions != "none") + messages_wanted(target) + d * (d + 1) // 2 + BENT
    cost.memory(4.0 * SAMPLES * T * known * (arch.layers + 2), f"the token states of T={T} tokens", "T, d or layers")
    X = target.sample(SAMPLES, T, seed=SEED)
    y, terms = (torch.from_numpy(np.asarray(v)).float().to(device) for v in (target(X), target.term_values(X)))
    seen = states(target, X, arch, mlp, device)
    return floors(seen, y.unsqueeze(-1) if y.ndim == 1 else y, arch.embeds[-1], terms)


def quantities(found: Floors, target: Target, arch: Architecture, T: int, recipe: Recipe) -> list[float]:
    """In the order of NAMES; errors, steps and sizes as decimal logarithms."""
    ends = sorted(_log(value) for value in found.ends)
    way = [_log(values[len(LOOKS) - 1]) for values in found.ways]
    wanted = messages_wanted(target)
    values: dict[str, float] = {
        "least floor": ends[0],
        "second floor": ends[1],
        "middle floor": median(ends),
        "largest floor": ends[-1],
        "least on the way": min(way),
        "middle on the way": median(way),
        "steps": log10(recipe.total_steps),
        "several tokens a score": any(isinstance(term, Extremum) and term.arity > 1 for term in target.terms),
        "length": log10(T),
        "mlp encoder": recipe.encoder == "mlp",
        "one layer": arch.layers == 1,
        "head size": log10(arch.head_dims[0]),
        "width": log10(min(arch.widths)),
        "embedding over d": log10(min(arch.embeds) / target.dim),
        "embedding over what tokens must know": log10(arch.embeds[0] / (target.dim + wanted)),
        "dimension": log10(target.dim),
    }
    return [float(values[name]) for name in NAMES]


def _log(error: float) -> float:
    return log10(min(max(error, LEAST), MOST))
