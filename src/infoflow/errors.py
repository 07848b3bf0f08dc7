"""The two ways a call can fail, and nothing else reaches the user.

`InfoFlowError`: the call is wrong (exit code 2). `JobError`: the call was right and the job failed (exit code 1).
A message is one sentence: what was expected, what came, what to do.
"""

from difflib import get_close_matches

NEAR = 0.7  # likeness (difflib's ratio) from which on a name is offered for another: a letter or two in six
LONGEST = 2000  # characters of a sentence
SHOWN = 60  # characters of a value that a sentence repeats


class InfoFlowError(ValueError):
    """A wrong call: bad spelling, impossible shape, input outside the domain."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class JobError(RuntimeError):
    """A right call whose job failed: a file that vanished, a search that ran out, a cluster that went away."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def printable(message: str) -> str:
    """A message on one line without control characters, which a foreign name or value may hold for a terminal to obey;
    of a very long one the middle is left out."""
    text = " ".join(str(message).split("\n"))
    text = text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def first_line(error: BaseException) -> str:
    """What a stranger's error says, in a line; its kind where it says nothing."""
    words = str(error).strip()
    return words.splitlines()[0] if words else type(error).__name__


def unknown(kind: str, name: object, known: list[str]) -> InfoFlowError:
    """The error for a name nobody knows, with one that exists where it is near: few letters differ, or are missing."""
    text = " ".join(str(name).split())
    text = text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
    close = get_close_matches(text, known, n=1, cutoff=NEAR)
    close = close or [other for other in sorted(known) if len(text) >= 3 and other.startswith(text)][:1]
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}."
    return InfoFlowError(f"unknown {kind} {text!r}; {hint}")
