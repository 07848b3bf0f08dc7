"""Every verb of the page: its question, the function that answers, the lane it runs in and the time it may take."""

from dataclasses import dataclass
from typing import Literal

from infoflow.web import questions

Lane = Literal["quick", "long"]


@dataclass(frozen=True)
class Verb:
    """`module:function` answers `question`. A quick answer is numpy's work of milliseconds and is kept; a long one may
    load torch, and ends with its client. `streams`: it tells of its progress; `kept`: the same question has one answer.
    """

    question: type
    answer: str
    lane: Lane = "quick"
    seconds: float = 10.0
    streams: bool = False
    kept: bool = True


VERBS: dict[str, Verb] = {
    "targets": Verb(questions.Targets, "infoflow.web.answers.flow:targets"),
    "trace": Verb(questions.Trace, "infoflow.web.answers.flow:trace"),
    "measure": Verb(questions.Measure, "infoflow.web.answers.measure:measure", "long", 120.0),
    "predict": Verb(questions.Predict, "infoflow.web.answers.predict:predict"),
    "plan": Verb(questions.Plan, "infoflow.web.answers.predict:plan"),
    "forecast": Verb(questions.Forecast, "infoflow.web.answers.predict:forecast", "long", 120.0),
    "build": Verb(questions.Build, "infoflow.web.answers.build:build", "long", 60.0),
    "certify": Verb(questions.Certify, "infoflow.web.answers.build:certify", "long", 60.0),
    "attention": Verb(questions.Attention, "infoflow.web.answers.build:attention", "long", 60.0),
    "surface": Verb(questions.Surface, "infoflow.web.answers.build:surface", "long", 60.0),
    "network": Verb(questions.Network, "infoflow.web.answers.build:network", "long", 60.0, kept=False),
    "refute": Verb(questions.Refute, "infoflow.web.answers.refute:refute", "long", 120.0, streams=True, kept=False),
    "book": Verb(questions.Book, "infoflow.web.answers.book:book"),
    "check": Verb(questions.Check, "infoflow.web.answers.book:check", "long", 180.0, kept=False),
    "lab": Verb(questions.Lab, "infoflow.web.answers.lab:lab"),
    "heads": Verb(questions.Heads, "infoflow.web.answers.heads:heads", kept=False),
}
