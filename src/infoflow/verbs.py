"""Verbs that serve several rooms: each finds out what it was given and asks the room that knows.

The last module before the commands; rooms are imported when a verb is called.
"""

from typing import TYPE_CHECKING, Any

from infoflow import arguments

if TYPE_CHECKING:
    from infoflow.certificates import Certificate
    from infoflow.targets.named import TargetLike


def certify(
    network: Any,
    target: "TargetLike | None" = None,
    T: int | None = None,
    seconds: float = 10.0,
    seed: int = 0,
    balls: bool | None = None,
    eps: float | None = None,
) -> "Certificate":
    """How wrong can this network be? The proved bound, the largest error an attack found, and the verdict.

    A built network is read again and held against its construction (`compiler/`); of a trained one the error over all
    sequences of the box is bounded within `seconds` (`proofs/`). `target`, `T` and `eps` (what is asked) default to
    what the file names. `balls` encloses the rules of a built network in ball arithmetic; None does so where
    python-flint is installed.
    """
    from infoflow.compiler.certification import certify as certify_built
    from infoflow.nn import Transformer

    if isinstance(network, Transformer) and not {"certificate", "weight_bound"} & network.header.keys():
        from infoflow.proofs.trained import certify_trained

        eps = None if eps is None else arguments.eps(eps)
        seconds, seed = arguments.attack_seconds(seconds), arguments.seed(seed)
        return certify_trained(network, target, T, seconds, seed, eps)
    return certify_built(network, target, T, seconds, seed, balls, eps)
