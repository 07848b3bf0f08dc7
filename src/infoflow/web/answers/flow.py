"""Which token knows what: the information flow of one input, with everything the picture shows."""

from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.flow.layout import Refused
from infoflow.flow.program import flow_layout
from infoflow.flow.sets import FlowHead, PositionHead
from infoflow.flow.trace import Flow, check_length
from infoflow.flow.trace import trace as trace_target
from infoflow.targets import NAMED, Target, parse
from infoflow.targets.described import describe
from infoflow.web import questions
from infoflow.web.answers.said import numbers, said, words
from infoflow.web.questions import LONGEST_FLOW, length

DIGITS = 6  # of a token's number, so that what is shown, copied and computed is the same
MOST_HEADS = 64  # in all layers: more cannot be drawn apart

target_of = lru_cache(maxsize=64)(parse)


def targets(question: questions.Targets) -> dict[str, Any]:
    """The named targets, with the dimension of their tokens."""
    return {"targets": [describe(name) for name in NAMED]}


def trace(question: questions.Trace) -> dict[str, Any]:
    target = target_of(question.target)
    arch = drawable(question.arch, len(target.terms))
    X = tokens_of(target, question)
    flow = trace_target(target, arch, X, question.ties)
    return {
        "target": target.spelling,
        "arch": str(arch),
        "T": flow.T,
        "d": target.dim,
        "domain": list(target.domain),
        "tokens": X,
        "value": np.asarray(target(np.array(X))).tolist(),
        **flow.to_json(),
        "heads": _heads(flow),
        "jobs": _jobs(target.spelling, str(arch), flow.T),
        "scores": _scores(flow),
        "costs": _costs(flow),
        "said": _said(target, arch, X, question.ties),
    }


def drawable(spelling: str, terms: int) -> Architecture:
    arch = Architecture.parse(spelling)
    if sum(arch.heads) > MOST_HEADS:
        raise InfoFlowError(f"expected at most {MOST_HEADS} heads in a picture, got {sum(arch.heads)}.")
    return arch if arch.embed is not None else arch.with_(embed=arch.filled(terms).embed)


def tokens_of(target: Target, question: questions.Trace) -> list[list[float]]:
    """The input that is asked about: typed in, or drawn."""
    if (question.tokens is None) == (question.T is None):
        raise InfoFlowError("expected either tokens or T for a random input; give one of them.")
    if question.tokens is not None:
        return question.tokens
    T = length(question.T or 0, LONGEST_FLOW, "the tokens of a picture")
    check_length(target, T)
    drawn: list[list[float]] = target.sample(1, T, seed=question.seed)[0].round(DIGITS).tolist()
    return drawn


def _heads(flow: Flow) -> list[list[dict[str, Any]]]:
    """Per layer and head what it does for the tokens and for the CLS, and the fixed positions it reads."""

    def one(head: FlowHead | None) -> dict[str, Any] | None:
        if head is None:
            return None
        fixed = [p + 1 for p in head.positions] if isinstance(head, PositionHead) else []
        return {"mode": head.mode, "positions": fixed}

    last = flow.layers - 1
    return [[{"tokens": None if l == last else one(slot.tokens), "cls": one(slot.cls)} for slot in layer]
            for l, layer in enumerate(flow.slots)]  # fmt: skip


@lru_cache(maxsize=256)
def _jobs(spelling: str, shape: str, T: int) -> list[list[str]]:
    """What every head is there for, in words."""
    target, arch = target_of(spelling), Architecture.parse(shape)
    words = [["rests"] * h for h in arch.heads]
    try:
        layout = flow_layout(target, arch, T)
    except Refused:
        words[-1][0] = "the CLS takes in everything"
        return words
    for jobs in layout.jobs:
        for job in jobs:
            term = (target.terms[job.term].name or f"term {job.term + 1}").replace("_", " ")
            said = f"the CLS reads {term}" if job.message is None else f"every token finds its best partner for {term}"
            old = words[job.layer][job.head]
            words[job.layer][job.head] = said if old == "rests" else f"{old}; {said}"
    return words


def _scores(flow: Flow) -> list[list[list[list[float] | None]]]:
    """Layer, position, head: the score row."""
    return [[[None if row is None else row.round(DIGITS).tolist() for row in flow.scores(t, l)]
             for t in range(1, flow.T + 2)] for l in range(1, flow.layers + 1)]  # fmt: skip


def _costs(flow: Flow) -> list[list[Fraction]]:
    return [[flow.cost(t, l) for t in range(1, flow.T + 2)] for l in range(1, flow.layers + 1)]


def _said(target: Target, arch: Architecture, X: list[list[float]], ties: str) -> dict[str, str]:
    more = [] if ties == "first" else ["--ties", ties]
    option = "" if ties == "first" else f", ties={ties!r}"
    return said(
        words("trace", target.spelling, *str(arch).split(), "--tokens", numbers(X), *more),
        f"X = {numbers(X)}\nflow = iflow.trace({target.spelling!r}, {str(arch)!r}, X{option})\nprint(flow)",
    )
