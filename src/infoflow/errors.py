"""The two ways a call can fail, and nothing else reaches the user.

`InfoFlowError`: the call is wrong (exit code 2). `JobError`: the call was right and the job failed (exit code 1).
A message is one sentence: what was expected, what came, what to do.
"""

from difflib import get_close_matches


class InfoFlowError(ValueError):
    """A wrong call: bad spelling, impossible shape, input outside the domain."""


class JobError(RuntimeError):
    """A right call whose job failed: a file that vanished, a search that ran out, a cluster that went away."""


def unknown(kind: str, name: str, known: list[str]) -> InfoFlowError:
    """The error for a name nobody knows, with the nearest one that exists."""
    close = get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}."
    return InfoFlowError(f"unknown {kind} {name!r}; {hint}")
