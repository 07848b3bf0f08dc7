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
from infoflow.web.answers.said import words
from infoflow.web.questions import length

LONGEST, MOST_STATE = 24, 32  # tokens; numbers of the state
MOST_SECONDS = 60.0
EVERY = 0.12  # seconds between two pictures
EPS = 0.05  # asked of a built model
SPREAD = 3.0  # of random weights, in units of PyTorch's: heads that choose
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
    return {
        **found.to_json(),
        "model": repr(model).strip("<>"),
        "bound": _bound(model),
        "text": str(found),
        "said": _said(question, target, arch),
    }


def _told(seen: Seen) -> dict[str, Any]:
    (Y, Z), (state_Y, state_Z) = seen.pair(), seen.states()
    return {"doing": "searching", "share": seen.share, "gap": seen.gap, "Y": Y, "Z": Z,
            "state_Y": state_Y, "state_Z": state_Z}  # fmt: skip


def _said(question: questions.Refute, target: Target, arch: Architecture) -> dict[str, str]:
    """The same model and search in Python and, where it is built, as two commands."""
    name, T, seed = target.spelling, question.T, question.seed
    recipe = f"iflow.Recipe(samples={TRAINED.samples}, validation={TRAINED.validation}, epochs={TRAINED.epochs})"
    heads = str(arch.with_(embed=None, width=None))
    made = {
        "built": f"model = iflow.build({name!r}, T={T}, eps={EPS}, arch={heads!r})",
        "trained": f"runs = iflow.fit({name!r}, {str(arch)!r}, T={T}, seeds=[{seed}], recipe={recipe})\n"
        "model = runs[0].network().double()",
        "random": "import torch\nfrom infoflow.nn import Transformer, TransformerConfig\n\n"
        f"shape = iflow.Architecture.parse({str(arch)!r})\n"
        f"config = TransformerConfig.of(shape, {target.dim}, {target.outputs}, {T}, activation='gelu')\n"
        f"model = Transformer(config).double()\n"
        f"model.initialise(torch.Generator().manual_seed({seed}), scale={SPREAD})",
    }[question.weights]
    call = f"iflow.refute(model, {name!r}, T={T}, seed={seed}, seconds={question.seconds:g})"
    told = {"python": f"import infoflow as iflow\n\n{made}\nfound = {call}\nprint(found)"}
    if question.weights == "built":  # the others have no command that makes the very same weights
        build = words("build", name, "-T", T, "--eps", EPS, "--arch", heads, "--out", "out/twins")
        file = f"out/twins/{name.replace(':', '_').replace('=', '_').replace(',', '_')}_T{T}_eps{EPS}.safetensors"
        told["command"] = f"infoflow {build} && infoflow {words('refute', file, '--seconds', f'{question.seconds:g}')}"
    return told


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
    model.initialise(torch.Generator().manual_seed(seed), scale=SPREAD)
    return model


def _bound(model: Transformer) -> float | None:
    """What a built model promises; none for others."""
    stated = model.certificate if "certificate" in model.header else None
    return None if stated is None else stated.bound
