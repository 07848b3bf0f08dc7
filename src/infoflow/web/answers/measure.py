"""Predicted sets beside measured ones: the same input through a network, its tokens drawn again one by one."""

from typing import Any

import numpy as np

from infoflow.architecture import Architecture
from infoflow.construct.builders import build
from infoflow.errors import InfoFlowError
from infoflow.flow.trace import trace
from infoflow.nn import Transformer
from infoflow.probes.infosets import measured_sets
from infoflow.probes.measured import MeasuredFlow
from infoflow.targets import Target
from infoflow.train.fit import fit
from infoflow.train.recipe import Recipe
from infoflow.web import questions
from infoflow.web.answers.flow import drawable, target_of, tokens_of
from infoflow.web.questions import length

LONGEST = 16  # tokens: every one of them is drawn again, for every state
EPS = 0.05  # asked of a built network
TRAINED = Recipe(samples=4000, validation=500, epochs=40)  # seconds


def measure(question: questions.Measure) -> dict[str, Any]:
    target = target_of(question.target)
    arch = drawable(question.arch, len(target.terms))
    X = tokens_of(target, question)
    T = length(len(X), LONGEST, "the tokens of a measurement")
    flow = trace(target, arch, X, question.ties)
    network, error = _network(question.weights, target, arch, T)
    found = measured_sets(network, np.array(X))
    if not isinstance(found, MeasuredFlow):
        raise InfoFlowError("expected one short input to measure, got a long one; take fewer tokens.")
    return {
        "predicted": flow.to_json()["sets"],
        "measured": found.to_json()["sets"]["held"],
        "used": found.to_json()["sets"]["content"],
        "threshold": str(found.threshold),
        "network": repr(network).strip("<>"),
        "error": error,
        "text": str(found),
    }


def _network(weights: str, target: Target, arch: Architecture, T: int) -> tuple[Transformer, str]:
    """The network, and how right it is."""
    if weights == "trained":
        run = fit(target, arch, T, seeds=[0], recipe=TRAINED)[0]
        network: Transformer = run.network()
        return network.double(), f"NMSE {run.best:.2g} after {TRAINED.epochs} epochs"
    made = build(target, T, EPS, arch.with_(embed=None, width=None))
    if not isinstance(made, Transformer) or made.certificate is None:
        raise InfoFlowError("expected a target that is built as a Transformer, this one is not; take another.")
    return made, f"certified error {made.certificate.bound:.2g}"
