"""The quantities of a question that its forecast is made from: floors, steps and sizes, all without units.

None of them names a family of targets: a target enters through its floors and its shape (`shape.py`), through how sharp
its reads must be, through what reads that nobody has aimed leave untold (of which the model makes less, the longer the
run), through whether its scores compare several tokens and its parts are known at all, and through the numbers of its
terms and of the inner maxima that tokens must fetch for them, against the number of heads. Some serve the models of
earlier registrations alone.
"""

from math import log10

import numpy as np
import torch

from infoflow import cost
from infoflow.architecture import Architecture
from infoflow.forecasts.model import FADING
from infoflow.forecasts.reads import Floors, floors
from infoflow.forecasts.shape import Shape, shape
from infoflow.forecasts.sharpness import soft_error
from infoflow.forecasts.states import BENT, messages, messages_wanted, states
from infoflow.forecasts.untold import untold
from infoflow.targets import Extremum, Target
from infoflow.train.recipe import Recipe

SAMPLES, SEED = 4_000, 5  # sequences on which the floors are found
INVERSE = 10.0  # temperature of the soft error
LEAST, MOST = 1e-8, 2.0  # errors are clipped to this before their logarithm is taken

NAMES = (
    "floor",
    "least on the way",
    "soft error",
    "steps",
    "several tokens a score",
    "mlp encoder",
    "one layer",
    "layers",
    "head size",
    "width",
    "embedding over d",
    "embedding over what tokens must know",
    "heads over terms and messages",
    FADING,
    "parts not known",
    "positions",
    "degree",
    "growth",
    "tokens that count",
    "directions that count",
    "order of tokens",
)
# What reads leave untold, and whether they are directed: earlier versions have other names, which do not fade.
DIRECTED = {FADING: True, "untold by directed reads": True, "untold by random reads": False}
PILOT_NAMES = ("pilot", "best pilot")


def find_floors(target: Target, arch: Architecture, T: int, mlp: bool, device: str = "cpu") -> Floors:
    """The floors of these reads on samples of the target's own law."""
    X, y = _sampled(target, arch, T, SAMPLES, device)
    terms = torch.from_numpy(np.asarray(target.term_values(X))).float().to(device)
    plain, told = (states(target, X, arch, mlp, device, telling) for telling in (False, True))
    return floors(plain, y, arch.embeds[-1], terms, told=told)


def _sampled(target: Target, arch: Architecture, T: int, count: int, device: str) -> tuple[np.ndarray, torch.Tensor]:
    """Sequences (N, T, d) and their labels (N, o); refused before they are made where they would not fit."""
    d = target.dim
    known = d + T * (arch.positions != "none") + messages_wanted(target) + d * (d + 1) // 2 + BENT
    cost.memory(4.0 * count * T * known * (arch.layers + 2), f"the token states of T={T} tokens", "T, d or layers")
    X = target.sample(count, T, seed=SEED)
    y = torch.from_numpy(np.asarray(target(X))).float().to(device)
    return X, y.unsqueeze(-1) if y.ndim == 1 else y


def quantities(
    found: Floors, target: Target, arch: Architecture, T: int, recipe: Recipe, names: tuple[str, ...] = NAMES
) -> list[float]:
    """In the order of `names`; errors, steps and sizes as decimal logarithms."""
    values = _from_floors(found) | _from_sizes(target, arch, T, recipe)
    if "degree" in names:  # since the eighth version
        values |= _from_shape(shape(target, T))
    for name in DIRECTED.keys() & set(names):
        values[name] = _log(untold(target, T, arch.positions != "none", DIRECTED[name]))
    return [float(values[name]) for name in names]


def _from_floors(found: Floors) -> dict[str, float]:
    uniform = {"error of uniform averages": _log(found.soft[0])} if found.soft else {}
    worst = {"floor of the worst start": _log(max(found.sharp))} if found.sharp else {}
    return (
        uniform
        | worst
        | {
            "floor": _log(found.floor),
            "least floor": _log(min(found.ends)),
            "largest floor": _log(max(found.ends)),
            "least on the way": _log(min(found.ways)),
        }
    )


def _from_sizes(target: Target, arch: Architecture, T: int, recipe: Recipe) -> dict[str, float]:
    wanted, terms = messages_wanted(target), len(target.terms)
    return {
        "soft error": soft_error(target, T, INVERSE),
        "steps": log10(recipe.total_steps),
        "several tokens a score": any(isinstance(term, Extremum) and term.arity > 1 for term in target.terms),
        "length": log10(T),
        "positions": arch.positions != "none",
        "mlp encoder": recipe.encoder == "mlp",
        "one layer": arch.layers == 1,
        "layers": log10(arch.layers),
        "head size": log10(arch.head_dims[0]),
        "width": log10(min(arch.widths)),
        "embedding over d": log10(min(arch.embeds) / target.dim),
        "embedding over what tokens must know": log10(arch.embeds[0] / (target.dim + wanted)),
        "dimension": log10(target.dim),  # of the first registration's model
        "heads over terms": log10(sum(arch.heads) / terms),
        "heads over terms and messages": log10(sum(arch.heads) / (terms + wanted)),
        "parts not known": any(messages(term, target.sample(1, T, seed=SEED)) is None for term in target.terms),
    }


def _from_shape(found: Shape) -> dict[str, float]:
    return {
        "degree": log10(max(found.degree, LEAST)),
        "growth": found.growth,
        "tokens that count": log10(found.tokens),
        "directions that count": log10(found.directions),
        "order of tokens": found.order,
    }


def _log(error: float) -> float:
    return log10(min(max(error, LEAST), MOST))
