"""certify for trained networks: [attacked, bound] of sup |network - target| over all sequences of T tokens in the box.

    network - target <= sup over m of g(m) - (lower ends),     target - network <= sup over m of (upper ends) - g(m)

(`inequalities.py`), m over the averages that a sequence can have (`reachable.py`), each supremum bounded by branch and
bound (`bound.py`), plus what float64 may lose in g itself (`reduce.py`). The bound holds at any moment of the search
and only falls with time.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from infoflow import arguments
from infoflow.certificates import Certificate, asked_of, error_claim, stated_limit
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer
from infoflow.proofs.accuracy import certify_accuracy
from infoflow.proofs.attack import attack_trained
from infoflow.proofs.bound import largest, problems, space_of
from infoflow.proofs.inequalities import bracket
from infoflow.proofs.reachable import cuts
from infoflow.proofs.reduce import reduce
from infoflow.targets.named import TargetLike, parse, target_of
from infoflow.targets.target import Target
from infoflow.train.tasks import named_task

ARITHMETIC = "float64 with rounding allowance"
ASSUMPTIONS = (
    "IEEE float64, round to nearest, exp, erf and tanh within 4 units in the last place",
    "sums in any order",
)
ATTACK_SHARE = 0.3  # of the time, at least; a search that ends sooner leaves it more


def certify_trained(
    network: Transformer,
    target: TargetLike | None = None,
    T: int | None = None,
    seconds: float = 10.0,
    seed: int = 0,
    eps: float | None = None,
) -> Certificate:
    """The proved bound of a trained network's error and the largest error an attack found, with its input.

    `target` and `T` default to what the file names. Without `eps` the claim is the bound itself. Of a network trained
    on `task:largest_token` the accuracy over all sequences is bounded from below (`accuracy.py`).
    """
    task = network.header.get("task")
    if target is None and isinstance(task, str) and task.startswith("task:largest_token"):
        own = named_task(task).length if T is None else T
        return certify_accuracy(network, arguments.integer("T", own), seconds, eps=eps)
    begin = time.monotonic()
    asked = _target(network, target)
    length = arguments.integer("T", network.header.get("T") if T is None else T)
    asked.check_length(length)
    low, high = (np.full(asked.dim, end) for end in asked.domain)
    reduced = reduce(network)
    if asked.outputs != len(reduced.constant):
        raise InfoFlowError(f"expected a network with {asked.outputs} outputs, got one with {len(reduced.constant)}.")
    bracketed = bracket(asked, reduced, length, low, high)
    space = space_of(reduced, cuts(reduced, bracketed, length, low, high), low, high)
    found = largest(space, problems(reduced, bracketed), (1.0 - ATTACK_SHARE) * seconds)
    left = max(ATTACK_SHARE * seconds, begin + seconds - time.monotonic())
    attacked = attack_trained(network, asked, length, low, high, left, seed, reduced) if seconds else None
    rounding = float(reduced.rounding(float(np.abs([low, high]).max())).max())
    bound = found.bound + rounding
    limit = eps if eps is not None else asked_of(network.header)
    claim = error_claim(asked.spelling, limit, length, low.tolist(), high.tolist(), condition=asked.condition)
    certificate = Certificate(
        claim if limit is not None else replace(claim, limit=stated_limit(bound)),
        bound if np.isfinite(bound) else None,
        ARITHMETIC,
        ASSUMPTIONS,
        parts={**found.parts, "rounding": rounding},
        measured={"met in the search": found.reached, "nodes": float(found.nodes)},
        seconds=time.monotonic() - begin,
    )
    if attacked is None:
        return certificate
    return replace(certificate, worst=attacked.worst.tolist()).with_attack(attacked.error)


def _target(network: Transformer, target: TargetLike | None) -> Target:
    if target is not None:
        return target_of(target)
    spelling: Any = network.header.get("target")
    if not isinstance(spelling, str) or not spelling:
        raise InfoFlowError("expected the target of the network, its file names none; pass the target.")
    return parse(spelling)
