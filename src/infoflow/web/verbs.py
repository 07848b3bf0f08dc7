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
}
