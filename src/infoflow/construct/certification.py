"""certify: recompute the bound of a built network from its tensors, attack it, enclose its rules in balls.

Objects of other constructions carry their own `.certificate` and `.attack(seed, seconds)`; certify calls them.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from infoflow.certificates import Certificate
from infoflow.certificates.attack import attack, batch_of, precision_errors, starts
from infoflow.certificates.measured import fan_error
from infoflow.construct.compiler import ARITHMETIC, ASSUMPTIONS
from infoflow.construct.outer import WithOuter
from infoflow.construct.verification import SAME, Reading, gain_of, layout_of, read
from infoflow.construct.writer import write
from infoflow.errors import InfoFlowError
from infoflow.flow.budget import budget
from infoflow.flow.layout import Refused
from infoflow.flow.normal_form import box
from infoflow.nn import Transformer
from infoflow.targets.spelling import parse, target_of
from infoflow.targets.target import Target

MOST_NAMED = 8  # deviating entries that are named before "and N more"


def certify(
    network: Any,
    target: Target | str | None = None,
    T: int | None = None,
    seconds: float = 10.0,
    seed: int = 0,
    balls: bool | None = None,
) -> Certificate:
    """The certificate of a network as it is stored: bound, attacked, holds with reasons, executions in lower precision.

    `target` and `T` default to what the file names. `balls` encloses every rule in ball arithmetic; None does so where
    python-flint is installed.
    """
    whole = network
    if isinstance(network, WithOuter):
        network = network.network
    if not isinstance(network, Transformer):
        return _other(network, seconds, seed)
    header = network.header
    if whole is not network:
        target = whole.target
    target = _target(header, target)
    T = header.get("T") if T is None else T
    if type(T) is not int or T < 1:
        raise InfoFlowError(f"expected a sequence length of at least 1, got {T!r}; pass T.")
    domain = _domain(header, target)
    low, high = box(domain, target.dim)
    weight_bound = header.get("weight_bound", 1)
    if weight_bound not in (None, 1):
        raise InfoFlowError(f"expected weight_bound 1 or none in the header, got {weight_bound!r}.")
    reading = read(network, target, T, domain, weight_bound)
    measured = _enclose(reading, balls)
    certificate = _judge(network, target, T, domain, reading, measured)
    batch = batch_of(max(network.config.heads), T)
    found = attack(whole, target, T, low, high, seconds, seed, batch)
    sample = low + (high - low) * starts(np.random.default_rng(seed), (batch + 1) // 2, T, target.dim, 0)
    measured.update(precision_errors(whole, target, np.concatenate([sample, found.worst[None]])))
    return replace(certificate, measured=measured).with_attack(found.error)


def _other(network: Any, seconds: float, seed: int) -> Certificate:
    certificate = getattr(network, "certificate", None)
    if not isinstance(certificate, Certificate) or not hasattr(network, "attack"):
        raise InfoFlowError(f"expected a network with a certificate, got {type(network).__name__}; build one first.")
    reasons = network.verify() if hasattr(network, "verify") else []
    if reasons:
        certificate = replace(certificate, bound=None, holds=False, reasons=tuple(reasons[:MOST_NAMED]))
    return certificate.with_attack(float(network.attack(seed, seconds)))


def _target(header: dict[str, Any], target: Target | str | None) -> Target:
    if target is not None:
        return target_of(target)
    spelling = header.get("target")
    if not isinstance(spelling, str) or not spelling:
        raise InfoFlowError("expected the target of the network, its file names none; pass the target.")
    return parse(spelling, files=False)  # a header never runs a user's file


def _domain(header: dict[str, Any], target: Target) -> Any:
    domain = header.get("domain")
    return target.domain if domain is None else tuple(domain)


def _judge(
    network: Transformer, target: Target, T: int, domain: Any, reading: Reading, measured: dict[str, float]
) -> Certificate:
    eps = network.header.get("eps")
    reasons = list(reading.violations)
    finite = math.isfinite(reading.bound)
    if isinstance(eps, (int, float)) and network.header.get("T") == T and reading.bound > eps:
        reasons.append(f"the bound recomputed from the tensors is {reading.bound:.6g}, above eps={eps:g}")
        reasons += _changed(network, target, T, domain)
    holds = finite and not reasons
    if len(reasons) > MOST_NAMED:
        reasons = [*reasons[:MOST_NAMED], f"and {len(reasons) - MOST_NAMED} more"]
    return Certificate(
        reading.bound if finite and not reading.violations else None,
        ARITHMETIC,
        ASSUMPTIONS,
        holds=holds,
        reasons=tuple(reasons),
        parts=reading.parts,
        measured=measured,
    )


def _changed(network: Transformer, target: Target, T: int, domain: Any) -> list[str]:
    """Entries that differ from a fresh build of the same call: tensor, index, both numbers."""
    header = network.header
    try:
        layout = layout_of(network, target, T, domain)
        bound, rule = header.get("weight_bound", 1), header.get("rule", "")
        plan = budget(target, T, header["eps"], layout, domain, bound, rule, gain_of(network))
    except (Refused, KeyError):
        return []
    fresh = write(layout, plan, bound).state_dict()
    names = []
    for name, tensor in network.state_dict().items():
        off = (tensor.double() - fresh[name]).abs() > SAME * fresh[name].abs()
        for place in torch.nonzero(off).tolist():
            index = ",".join(map(str, place))
            now, then = tensor[tuple(place)].item(), fresh[name][tuple(place)].item()
            names.append(f"{name}[{index}] is {now:.17g}, the construction has {then:.17g}")
    return names


def _enclose(reading: Reading, balls: bool | None) -> dict[str, float]:
    """Per block the largest supremum of a rule's error, enclosed: {"ffns.0 rule at least": .., "... at most": ..}."""
    if balls is None:
        try:
            import flint  # noqa: F401
        except ImportError:
            return {}
    elif not balls:
        return {}
    from infoflow.certificates.balls import enclose

    result: dict[str, float] = {}
    for name, fans in reading.fans.items():
        enclosures = [enclose(fan) for fan in fans]
        if not enclosures:
            continue
        result[f"{name} rule at least"] = max(e.lower for e in enclosures)
        result[f"{name} rule at most"] = max(e.upper for e in enclosures)
        for fan, enclosure in zip(fans, enclosures, strict=True):
            stated = fan_error(fan)
            if enclosure.lower > stated or enclosure.upper > stated * (1 + 1e-6) + 1e-12:
                reading.violations.append(
                    f"{name}: ball arithmetic gives {enclosure.upper:.6g}, the series {stated:.6g}"
                )
    return result
