"""A worker: a process that answers one question at a time, read as a line of JSON and answered in lines of JSON.

    {"verb": "trace", "question": {...}}   ->   {"progress": ...} any number of times, then {"answer": ...}
                                                or {"error": "one sentence", "status": 400}

Its address space is limited before anything is loaded, so a question that asks for too much memory ends here and not
with the machine. It holds no network connection and reads no file but those of the package and of the chosen folder.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from infoflow.cost import out_of_memory
from infoflow.errors import InfoFlowError, JobError, printable
from infoflow.files import encode
from infoflow.web.questions import read
from infoflow.web.verbs import VERBS

Tell = Callable[[dict[str, Any]], None]


def main() -> None:
    """`python -m infoflow.web.worker BYTES FOLDER LANE`: answer until standard input ends."""
    _limit(int(sys.argv[1]))
    folder = Path(sys.argv[2])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints must not speak the protocol
    if sys.argv[3] == "long":
        importlib.import_module("infoflow.web.answers.build")  # torch, before the first question and its clock
    _say(out, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        _say(
            out,
            answered(
                request["verb"], request["question"], folder, lambda event: _say(out, {"progress": encode(event)})
            ),
        )


def answered(name: str, payload: Any, folder: Path, tell: Tell = lambda event: None) -> dict[str, Any]:
    """The answer to a question, or the sentence of its failure; a bug says that it is one."""
    verb = VERBS[name]
    module, _, function = verb.answer.partition(":")
    try:
        answer = getattr(importlib.import_module(module), function)
        question = read(verb.question, payload)
        extra: dict[str, Any] = {"tell": tell} if verb.streams else {}
        extra |= {"folder": folder} if name == "heads" else {}
        return {"answer": encode(answer(question, **extra))}
    except InfoFlowError as error:
        return {"error": str(error), "status": 400}
    except JobError as error:
        return {"error": str(error), "status": 422}
    except (ArithmeticError, RecursionError) as error:
        return {"error": f"expected numbers this can be computed with, it failed ({error}).", "status": 400}
    except ModuleNotFoundError as error:
        return {"error": f"expected the package {error.name}, it is not installed.", "status": 501}
    except Exception as error:  # the worker must live on; what was asked is told in the terminal
        if out_of_memory(error):
            return {"error": "expected the question to fit in the memory of the explorer; take smaller sizes.",
                    "status": 400}  # fmt: skip
        print(printable(f"infoflow: {name} failed: {type(error).__name__}: {error}"), file=sys.stderr, flush=True)
        return {"error": "this question failed, which is a fault of ours; the terminal says more.", "status": 500}


def _limit(size: int) -> None:
    try:
        import resource  # not on every system
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _say(out: TextIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
