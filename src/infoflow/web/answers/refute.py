"""Two inputs that a small one-layer model cannot tell apart, with the search as it goes."""

import time
from collections.abc import Callable
from typing import Any

import torch

from infoflow import arguments
from infoflow.architecture import Architecture
from infoflow.construct.builders import build as build_target
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig
from infoflow.refutations.search import Seen
from infoflow.refutations.search import refute as refute_model
from infoflow.targets import Target
from infoflow.train.fit import fit
from infoflow.train.recipe import Recipe
from infoflow.web import questions
from infoflow.web.answers.flow import drawable, target_of
from infoflow.web.questions import length

LONGEST, MOST_STATE = 24, 32  # tokens; numbers of the state
MOST_SECONDS = 60.0
EVERY = 0.12  # seconds between two pictures
EPS = 0.05  # asked of a built model
TRAINED = Recipe(samples=3000, validation=500, epochs=15)  # a few seconds

Tell = Callable[[dict[str, Any]], None]


def refute(question: questions.Refute, tell: Tell) -> dict[str, Any]:
    target = target_of(question.target)
    arch = drawable(question.arch, len(target.terms)).filled(len(target.terms))
    T = length(question.T, LONGEST, "the tokens of a search in the explorer")
    seconds = arguments.seconds(question.seconds)
    if seconds > MOST_SECONDS or arch.layers > 1 or arch.embeds[0] > MOST_STATE:
        raise InfoFlowError(
            f"expected one layer, embed of at most {MOST_STATE} and {MOST_SECONDS:g} seconds, got {arch} and "
            f"{seconds:g} s; infoflow refute takes more."
        )
    tell({"doing": "training the model" if question.weights == "trained" else "making the model"})
    model = _model(question.weights, target, arch, T, question.seed)
    last = 0.0

    def watch(seen: Seen) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            tell(_told(seen))

    found = refute_model(model, target, T, seed=question.seed, seconds=seconds, watch=watch)
    return {**found.to_json(), "model": repr(model).strip("<>"), "bound": _bound(model), "text": str(found)}


def _told(seen: Seen) -> dict[str, Any]:
    (Y, Z), (state_Y, state_Z) = seen.pair(), seen.states()
    return {"doing": "searching", "share": seen.share, "gap": seen.gap, "Y": Y, "Z": Z,
            "state_Y": state_Y, "state_Z": state_Z}  # fmt: skip


def _model(weights: str, target: Target, arch: Architecture, T: int, seed: int) -> Transformer:
    if weights == "built":
        made = build_target(target, T, EPS, arch.with_(embed=None, width=None))
        if not isinstance(made, Transformer):
            raise InfoFlowError("expected a target that is built as a Transformer, this one is not; take another.")
        return made
    if weights == "trained":
        network: Transformer = fit(target, arch, T, seeds=[seed], recipe=TRAINED)[0].network()
        return network.double()
    config = TransformerConfig.of(arch, target.dim, target.outputs, T, activation="gelu")
    model = Transformer(config).double()
    model.initialise(torch.Generator().manual_seed(seed), scale=3.0)
    return model


def _bound(model: Transformer) -> float | None:
    """What a built model promises; none for others."""
    stated = model.certificate if "certificate" in model.header else None
    return None if stated is None else stated.bound
