"""certify for trained networks: [attacked, bound] of sup |network - target| over all sequences of T tokens in the box.

Three ways, the first that covers network and target is taken:

    averages    one layer, any T: network - target <= sup over m of g(m) - (lower ends), and the same from above
                (`inequalities.py`), m over the averages that a sequence can have (`reachable.py`), each supremum
                bounded by branch and bound (`bound.py`), plus what float64 may lose in g itself (`reduce.py`)
    splitting   any depth, T d of 6 or less: boxes of inputs are halved (`splitting.py`)
    none        no bound is known: the attack alone, and the reasons

The bound holds at any moment of a search and only falls with time.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import nn

from infoflow import arguments
from infoflow.certificates import Certificate, asked_of, error_claim, stated_limit
from infoflow.certificates.attack import Region
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer
from infoflow.proofs import inequalities, splitting
from infoflow.proofs import reduce as reducing
from infoflow.proofs.accuracy import certify_accuracy
from infoflow.proofs.adapter import PROMISE, OneLayer, compared
from infoflow.proofs.attack import attack_trained
from infoflow.proofs.bound import largest, problems, space_of
from infoflow.proofs.reachable import cuts
from infoflow.proofs.reduce import ARITHMETIC, ASSUMPTIONS, Reduced
from infoflow.proofs.vocabulary import certify_vocabulary
from infoflow.targets.named import TargetLike, parse, target_of
from infoflow.targets.target import Target
from infoflow.train.tasks import named_task

ATTACK_SHARE = 0.3  # of the time, at least; a search that ends sooner leaves it more


@dataclass(frozen=True)
class UpperBound:
    """An upper bound of the error, None where there is none, and what is said beside it."""

    bound: float | None
    parts: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Asked:
    """What is to be proved: the network that runs, its reduced form where it has one, target, length, box."""

    exact: nn.Module
    heads: int
    reduced: Reduced | None
    target: Target
    T: int
    low: np.ndarray
    high: np.ndarray


def certify_trained(
    network: Transformer | OneLayer,
    target: TargetLike | None = None,
    T: int | None = None,
    seconds: float = 10.0,
    seed: int = 0,
    eps: float | None = None,
    vocabulary: Any = None,
) -> Certificate:
    """The proved bound of a trained network's error and the largest error an attack found, with its input.

    `target` and `T` default to what the file names. Without `eps` the claim is the bound itself. Of a network trained
    on `task:largest_token` the accuracy over all sequences is bounded from below (`accuracy.py`), under the law whose
    probabilities `vocabulary` gives; else `vocabulary` holds the token vectors that the claim is about
    (`vocabulary.py`).
    """
    header: dict[str, Any] = network.header if isinstance(network, Transformer) else {}
    task = header.get("task")
    labelled = target is None and isinstance(task, str) and task.startswith("task:largest_token")
    if labelled and isinstance(network, Transformer):
        own = named_task(str(task)).length if T is None else T
        return certify_accuracy(network, arguments.integer("T", own), seconds, vocabulary, eps)
    begin = time.monotonic()
    wanted = _target(header, target)
    length = arguments.integer("T", header.get("T") if T is None else T)
    wanted.check_length(length)
    if vocabulary is not None:
        if not isinstance(network, Transformer):
            raise InfoFlowError("expected a network of ours with a vocabulary, got a module; leave the vocabulary out.")
        return certify_vocabulary(network, wanted, length, vocabulary, seconds, seed, eps)
    low, high = (np.full(wanted.dim, end) for end in wanted.domain)
    asked = _asked(network, wanted, length, low, high)
    found, attacked = _searched(asked, network, begin, seconds, seed)
    limit = eps if eps is not None else asked_of(header)
    claim = error_claim(wanted.spelling, limit, length, low.tolist(), high.tolist(), condition=wanted.condition)
    bound = found.bound if found.bound is not None and np.isfinite(found.bound) else None
    certificate = Certificate(
        claim if limit is not None else replace(claim, limit=stated_limit(bound)),
        bound,
        ARITHMETIC,
        ASSUMPTIONS,
        (PROMISE,) if isinstance(network, OneLayer) else (),
        reasons=found.reasons,
        parts=found.parts,
        measured=found.measured,
        seconds=time.monotonic() - begin,
    )
    if isinstance(network, OneLayer) and asked.reduced is not None:
        off = compared(network, asked.reduced, wanted, length, seed)
        certificate = replace(certificate, measured=certificate.measured | {"module - formula, where compared": off})
    if attacked is None:
        return certificate
    return replace(certificate, worst=attacked.worst.tolist()).with_attack(attacked.error)


def _asked(network: Transformer | OneLayer, target: Target, T: int, low: np.ndarray, high: np.ndarray) -> Asked:
    if isinstance(network, OneLayer):
        described = network.reduced()
        made = Asked(network.exact(), described.heads, described, target, T, low, high)
        outputs, dim = len(described.constant), described.dim
    else:
        finite = all(bool(value.isfinite().all()) for value in network.state_dict().values())
        if not finite:
            raise InfoFlowError("expected finite weights, got NaN or infinity; the network has diverged.")
        c = network.config
        if network.stack or c.encoder == "table" or not (c.cls and c.readout):
            got = ", ".join(splitting.network_forms.uncovered(network))
            raise InfoFlowError(f"expected a network from vectors to numbers, got {got}; no error of it is known.")
        reduced = None if reducing.uncovered(network) else reducing.reduce(network)
        exact = Transformer(network.config).double()
        exact.load_state_dict(network.state_dict())
        made = Asked(exact.requires_grad_(False), max(network.config.heads), reduced, target, T, low, high)
        outputs, dim = network.config.outputs, network.config.dim
    if target.dim != dim:
        raise InfoFlowError(f"expected a target on tokens of dimension {dim}, got dimension {target.dim}.")
    if target.outputs != outputs:
        raise InfoFlowError(f"expected a network with {target.outputs} outputs, got one with {outputs}.")
    return made


def _searched(
    asked: Asked, network: Transformer | OneLayer, begin: float, seconds: float, seed: int
) -> tuple[UpperBound, Any]:
    """The bound by the first way that covers, and the attack in the time that is left (before a splitting: it tells the
    splitting where to stop)."""
    why = inequalities.uncovered(asked.target, asked.T)
    if asked.reduced is not None and why is None:
        found = by_averages(asked, (1.0 - ATTACK_SHARE) * seconds)
        left = max(ATTACK_SHARE * seconds, begin + seconds - time.monotonic())
        return found, _attacked(asked, left, seed) if seconds else None
    reasons = reducing.uncovered(network) if isinstance(network, Transformer) else []
    reasons += [] if why is None else [why]
    short = splitting.uncovered(network, asked.target, asked.T) if isinstance(network, Transformer) else ["a module"]
    attacked = _attacked(asked, (ATTACK_SHARE if not short else 1.0) * seconds, seed) if seconds else None
    if short:
        words = f"no bound is known: the argument for any T does not cover {', '.join(reasons)}"
        return UpperBound(None, reasons=(f"{words}; splitting does not cover {', '.join(short)}",)), attacked
    attained = 0.0 if attacked is None else attacked.error
    left = max((1.0 - ATTACK_SHARE) * seconds, begin + seconds - time.monotonic())
    split = splitting.split(asked.exact, asked.target, asked.T, asked.low, asked.high, left, attained)  # type: ignore[arg-type]
    measured = {"boxes": float(split.boxes), "boxes open": float(split.open)}
    return UpperBound(split.bound, {"splitting": split.bound}, measured), attacked


def by_averages(asked: Asked, seconds: float) -> UpperBound:
    """The one-layer argument: any T, through the h d numbers m."""
    reduced = asked.reduced
    assert reduced is not None
    bracketed = inequalities.bracket(asked.target, reduced, asked.T, asked.low, asked.high)
    space = space_of(reduced, cuts(reduced, bracketed, asked.T, asked.low, asked.high), asked.low, asked.high)
    found = largest(space, problems(reduced, bracketed), seconds)
    rounding = float(reduced.rounding(float(np.abs([asked.low, asked.high]).max()), asked.T).max())
    measured = {"met in the search": found.reached, "nodes": float(found.nodes)}
    if not np.isfinite(rounding):
        return UpperBound(None, measured=measured, reasons=("its scores are so large that float64 does not know them",))
    return UpperBound(found.bound + rounding, {**found.parts, "rounding": rounding}, measured)


def _attacked(asked: Asked, seconds: float, seed: int) -> Any:
    region = Region(asked.T, asked.low, asked.high)
    return attack_trained(asked.exact, asked.heads, asked.target, region, seconds, seed, asked.reduced)


def _target(header: dict[str, Any], target: TargetLike | None) -> Target:
    if target is not None:
        return target_of(target)
    spelling: Any = header.get("target")
    if not isinstance(spelling, str) or not spelling:
        raise InfoFlowError("expected the target of the network, its file names none; pass the target.")
    return parse(spelling)
