"""certify: recompute the bound of a built network from its tensors, attack it, enclose its rules in balls.

Objects of other constructions carry their own `.certificate` and, where there is one, `.attack(seed, seconds)`; certify
calls them. `.check(certificate)` adds what executing the loaded module shows; `.stored()` is what the file would mean.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from infoflow import arguments
from infoflow.certificates import Certificate, asked_of, error_claim
from infoflow.certificates.attack import (
    CLIMBING,
    LOOKING,
    Region,
    attack,
    batch_of,
    fits,
    precision_errors,
    starts,
    steeper,
)
from infoflow.certificates.measured import bundle_error
from infoflow.compiler.budget import budget
from infoflow.compiler.compile import ARITHMETIC, ASSUMPTIONS, WithOuter, counted_share, promises_of, write
from infoflow.compiler.verification import SAME, Reading, gain_of, layout_of, read
from infoflow.errors import InfoFlowError
from infoflow.flow.layout import Refused
from infoflow.flow.normal_form import box
from infoflow.nn import Transformer
from infoflow.targets.named import TargetLike, parse, target_of
from infoflow.targets.target import Target

MOST_NAMED = 8  # deviating entries that are named before "and N more"


def certify(
    network: Any,
    target: TargetLike | None = None,
    T: int | None = None,
    seconds: float = 10.0,
    seed: int = 0,
    balls: bool | None = None,
    eps: float | None = None,
) -> Certificate:
    """The certificate of a network as it is stored: claim, bound, attacked, verdict with reasons.

    `target`, `T` and `eps` (what is asked) default to what the file names. `balls` encloses every rule in ball
    arithmetic; None does so where python-flint is installed.
    """
    eps = None if eps is None else arguments.eps(eps)
    seconds, seed = arguments.attack_seconds(seconds), arguments.seed(seed)
    try:
        with np.errstate(all="ignore"):  # a bound that is infinite or no number meets no claim
            return _shortened(_certified(network, target, T, seconds, seed, balls, eps))
    except (ArithmeticError, MemoryError) as error:  # numbers of a file, which may be any: products overflow
        reason = str(error) or "more memory than there is"
        raise InfoFlowError(f"expected numbers a bound can be computed with, got others ({reason}).") from None


def _certified(
    network: Any,
    target: TargetLike | None,
    T: int | None,
    seconds: float,
    seed: int,
    balls: bool | None,
    eps: float | None,
) -> Certificate:
    inner = network.network if isinstance(network, WithOuter) else network
    if not isinstance(inner, Transformer):
        if target is not None or T is not None:
            raise InfoFlowError("expected no target and no T for this kind of network; its file names all it needs.")
        return _other(network, seconds, seed, eps)
    header = inner.header
    target = whole_target(network, target)
    T = header.get("T") if T is None else T
    T = arguments.integer("T", T)
    domain = _domain(header, target)
    low, high = box(domain, target.dim)
    weight_bound = header.get("weight_bound", 1)
    if weight_bound is not None and (type(weight_bound) not in (int, float) or weight_bound != 1):
        raise InfoFlowError(f"expected weight_bound 1 or none in the header, got {arguments.shown(weight_bound)}.")
    reading = read(inner, target, T, domain, weight_bound)
    measured = _enclose(reading, balls) | counted_share(target, T)
    asked = asked_of(header) if eps is None else eps
    claim = error_claim(target.spelling, asked, T, low.tolist(), high.tolist(), condition=target.condition)
    certificate = _judge(inner, reading, Certificate(claim, None, ARITHMETIC, ASSUMPTIONS, promises_of(target)))
    if not certificate.holds and not reading.violations and (T, asked) == (header.get("T"), header.get("eps")):
        certificate = certificate.against(*_changed(inner, target, T, domain))
    region = Region(T, low, high, target.slack if target.condition else None)
    return _attacked(network, target, region, seconds, seed, replace(certificate, measured=measured))


def whole_target(network: Any, target: TargetLike | None) -> Target:
    """The target a network is compared with: its own outer map's, the given one, or the one its file names."""
    if isinstance(network, WithOuter):
        return network.target
    if target is not None:
        return target_of(target)
    spelling = network.header.get("target")
    if not isinstance(spelling, str) or not spelling:
        raise InfoFlowError("expected the target of the network, its file names none; pass the target.")
    return parse(spelling)


def _other(network: Any, seconds: float, seed: int, eps: float | None) -> Certificate:
    """A construction with its own proof. `verify` names tensors that the proof does not cover, `check` executes it."""
    network = network.stored() if hasattr(network, "stored") else network
    certificate = getattr(network, "certificate", None)
    if not isinstance(certificate, Certificate):
        raise InfoFlowError(f"expected a network with a certificate, got {type(network).__name__}; build one first.")
    if eps is not None and certificate.claim.least:
        raise InfoFlowError("expected no eps for a network whose claim is a smallest gap; leave it out.")
    certificate = certificate if eps is None else certificate.limited_to(eps)
    reasons = network.verify() if hasattr(network, "verify") else []
    if reasons:
        certificate = replace(certificate, bound=None).against(*reasons)
    if hasattr(network, "check"):
        certificate = network.check(certificate, seed, seconds)
    attacked = network.attack(seed, seconds) if hasattr(network, "attack") else None
    return certificate if attacked is None else certificate.with_attack(float(attacked))


def _domain(header: dict[str, Any], target: Target) -> Any:
    domain = header.get("domain")
    if domain is None:
        return target.domain
    if not isinstance(domain, (list, tuple)) or len(domain) != 2:
        raise InfoFlowError("expected a domain (low, high) in the header, got something else; the file is damaged.")
    return tuple(domain)


def _judge(network: Transformer, reading: Reading, blank: Certificate) -> Certificate:
    """The bound of a reading, unless the structure breaks the proof."""
    if reading.violations:
        return blank.against(*reading.violations)
    if not math.isfinite(reading.bound):
        return blank.against("the stored numbers are too large for a finite bound")
    return replace(blank, bound=reading.bound, parts=reading.parts)


def _attacked(
    network: Any,
    target: Target,
    region: Region,
    seconds: float,
    seed: int,
    certificate: Certificate,
) -> Certificate:
    """The attack on the loaded module and on promises; none where not even one sequence fits in memory."""
    heads, (T, low, high, slack) = max(network.config.heads), region
    if not fits(heads, T, LOOKING):
        return certificate
    climb = fits(heads, T, CLIMBING)
    batch = batch_of(heads, T)
    found = attack(network, target, region, seconds, seed, batch, climb)
    if not found.tried:
        return certificate
    sample = low + (high - low) * starts(np.random.default_rng(seed), (batch + 1) // 2, T, target.dim, 0)
    tokens = np.concatenate([sample, found.worst[None]]) if climb else found.worst[None]
    tokens = tokens if slack is None else tokens[slack(tokens) >= 0]
    measured = certificate.measured | precision_errors(network, target, tokens)
    certificate = replace(certificate, measured=measured).with_attack(found.error)
    if isinstance(network, WithOuter):
        with torch.no_grad():
            values = network.values(torch.from_numpy(tokens)).numpy()
        broken = steeper(network.outer, values, network.outer.lipschitz, np.random.default_rng(seed))
        certificate = certificate.against(*([f"the outer map's author is wrong: {broken}"] if broken else []))
    return certificate


def _shortened(certificate: Certificate) -> Certificate:
    if len(certificate.reasons) <= MOST_NAMED:
        return certificate
    more = f"and {len(certificate.reasons) - MOST_NAMED} more"
    return replace(certificate, reasons=(*certificate.reasons[:MOST_NAMED], more))


def _changed(network: Transformer, target: Target, T: int, domain: Any) -> list[str]:
    """Entries that differ from a fresh build of the same call: tensor, index, both numbers."""
    header = network.header
    try:
        layout = layout_of(network, target, T, domain)
        bound, rule = header.get("weight_bound", 1), header.get("rule", "")
        plan = budget(layout, header["eps"], bound, rule, gain_of(network))
    except (Refused, KeyError):
        return []
    fresh = write(layout, plan, bound).state_dict()
    names = []
    for name, tensor in network.state_dict().items():
        if tensor.shape != fresh[name].shape:
            continue
        off = (tensor - fresh[name]).abs() > SAME * fresh[name].abs()
        for place in torch.nonzero(off).tolist()[: MOST_NAMED + 1]:
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
    for name, bundles in reading.bundles.items():
        enclosures = [enclose(bundle) for bundle in bundles]
        if not enclosures:
            continue
        result[f"{name} rule at least"] = max(e.lower for e in enclosures)
        result[f"{name} rule at most"] = max(e.upper for e in enclosures)
        for bundle, enclosure in zip(bundles, enclosures, strict=True):
            stated = bundle_error(bundle)
            if enclosure.lower > stated or enclosure.upper > stated * (1 + 1e-6) + 1e-12:
                reading.violations.append(
                    f"{name}: ball arithmetic gives {enclosure.upper:.6g}, the series {stated:.6g}"
                )
    return result
