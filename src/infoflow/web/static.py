"""The explorer as a folder of files: the same page, and the answers to every question its examples ask.

The page looks an answer up by its verb and its question, spelled as `JSON.stringify` spells it with sorted keys.
`index.html` is written last, so a folder that has one is whole.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infoflow.errors import JobError
from infoflow.files import atomic_path, encode, write_text
from infoflow.progress import Progress
from infoflow.web.app import ASSETS
from infoflow.web.questions import LONGEST_FLOW
from infoflow.web.worker import answered

PAGE = '<meta name="infoflow-static" content="worked examples">\n</head>'
MOST_EVENTS = 80  # pictures of a search that are kept

Question = tuple[str, dict[str, Any]]
Examples = dict[str, list[dict[str, Any]]]


def write_static(folder: Path, examples: Examples | None = None) -> int:
    """Write the page and the answers to its examples into `folder`; the number of answers."""
    if examples is None:
        examples = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
    asked = list(questions_of(examples))
    index: dict[str, str] = {}
    with Progress("working out the examples", len(asked)) as bar:
        for number, (verb, question) in enumerate(asked):
            bar.update(number, verb)
            index[f"{verb} {spelled(question)}"] = _answer(folder, number, verb, question)
    for path in sorted(ASSETS.rglob("*")):
        if path.is_file():
            with atomic_path(folder / "assets" / path.relative_to(ASSETS)) as temporary:
                temporary.write_bytes(path.read_bytes())
    write_text(folder / "assets/examples.json", json.dumps(examples, indent=1) + "\n")
    write_text(folder / "data/index.json", json.dumps(index, indent=1) + "\n")
    page = (ASSETS / "index.html").read_text(encoding="utf-8")
    write_text(folder / "index.html", page.replace("</head>", PAGE))
    return len(index)


def questions_of(examples: Examples) -> Iterator[Question]:
    """Every question the page asks while somebody goes through the examples."""
    yield from ((verb, {}) for verb in ("book", "lab", "heads"))
    yield from (("heads", {"model": model["id"]}) for model in _asked("heads", {})["models"])
    for example in examples["flow"]:
        yield "trace", example["question"]
        if example.get("measure"):
            yield from (("measure", {**example["question"], "weights": kind}) for kind in ("built", "trained"))
    for example in examples["predict"]:
        question = example["question"]
        yield "predict", question
        yield "plan", {key: question[key] for key in ("target", "T")}
        if example.get("forecast"):
            yield "forecast", {**{key: question[key] for key in ("target", "arch", "T")}, "epochs": 60}
    for example in examples["build"]:
        yield from _build(example["question"])
    yield from (("refute", example["question"]) for example in examples["refute"])


def _build(question: dict[str, Any]) -> Iterator[Question]:
    yield "build", question
    yield "certify", {**question, "seconds": 2}
    yield "network", question
    if question["T"] <= LONGEST_FLOW:
        yield "surface", {**question, "seed": 0}
    for layer, sizes in enumerate(_asked("build", question)["layers"], 1):
        for head in range(1, sizes["heads"] + 1):
            yield "attention", {**question, "layer": layer, "head": head, "seed": 0}


def _asked(verb: str, question: dict[str, Any], events: list[Any] | None = None) -> Any:
    """The answer, as a worker gives it; no example may fail. The folder is one without files."""
    tell = (lambda event: None) if events is None else (lambda event: events.append(encode(event)))
    found = answered(verb, question, ASSETS, tell)
    if "error" in found:
        raise JobError(f"expected every example to be answered, {verb} {question} was not: {found['error']}")
    return found["answer"]


def _answer(folder: Path, number: int, verb: str, question: dict[str, Any]) -> str:
    """Work one answer out; the name of its file."""
    events: list[Any] = []
    answer = _asked(verb, question, events)
    name = f"{number:03d}.{'safetensors' if verb == 'network' else 'json'}"
    if verb == "network":
        with atomic_path(folder / "data" / name) as temporary:
            temporary.write_bytes(base64.b64decode(answer["data"]))
    else:
        if verb == "refute":
            answer = {"events": events[:: max(1, -(-len(events) // MOST_EVENTS))], "answer": answer}
        write_text(folder / "data" / name, json.dumps(answer))
    return name


def spelled(question: dict[str, Any]) -> str:
    """As JSON.stringify spells it: sorted keys, no spaces, 8 for 8.0."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return [plain(item) for item in value] if isinstance(value, list) else value

    return json.dumps({key: plain(question[key]) for key in sorted(question)}, separators=(",", ":"))
