"""What was asked of a network, what is proved about it, and what an attack found.

A certificate holds when its bound is within its claim: `bound <= limit`, or `bound >= limit` for a gap that must not be
smaller. Both are floats, so Python compares them exactly. A statement that nobody proved (a Lipschitz constant a user
gave) is a promise, and the verdict is then "holds if ...".

A proof speaks of networks of one configuration, in float64. Another value in any field makes another function, so
certify refuses it by name (`expect_config`) instead of judging a formula that the stored network does not compute.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import Path
from typing import Any, Protocol

from infoflow.arguments import shown
from infoflow.errors import InfoFlowError
from infoflow.report.html import Shown

UNCHECKED = "the file states it and nobody has checked it; certify computes it again"
MOST_TOKENS = 6  # of the worst sequence that are printed
DIGITS = 4  # of a limit that the construction states by itself


class Stated(Protocol):
    """What a network says of itself: a `Certificate`, or the gap certificate of a contextual map."""

    @property
    def holds(self) -> bool:
        """Whether what is stated is within what was asked."""

    def to_json(self) -> dict[str, Any]:
        """As a file's header holds it."""


class Certified(Protocol):
    """What `build` returns: a network of any kind that states a bound and can be saved with it."""

    @property
    def certificate(self) -> Stated:
        """What is proved of it."""

    def save(self, path: str | Path) -> Path:
        """Write it with its certificate."""


@dataclass(frozen=True)
class Claim:
    """`quantity` is at most `limit` (at least, where `least`) for all `inputs`; no limit: nothing was asked."""

    quantity: str
    limit: float | None
    inputs: str
    least: bool = False

    def met_by(self, bound: float | None) -> bool:
        """Whether a bound is within the limit; no bound and no limit meet nothing."""
        if bound is None or self.limit is None:
            return False
        return bound >= self.limit if self.least else bound <= self.limit

    def __str__(self) -> str:
        relation = "at least" if self.least else "at most"
        asked = "(nothing was asked)" if self.limit is None else f"{relation} {_words(self.limit)}"
        return f"{self.quantity} {asked} for {self.inputs}"

    def to_json(self) -> dict[str, Any]:
        """Its fields, and the sentence they make."""
        return {**asdict(self), "text": str(self)}

    @classmethod
    def from_json(cls, payload: Any) -> "Claim":
        """The claim a file states; anything else is refused."""
        names = cls.__dataclass_fields__
        if not isinstance(payload, dict) or not names.keys() <= payload.keys():
            raise InfoFlowError("expected a claim in the certificate, got something else; the file is damaged.")
        known = {name: payload[name] for name in names}
        words = all(isinstance(known[name], str) for name in ("quantity", "inputs"))
        if not words or not isinstance(known["least"], bool) or not _plain(known["limit"]):
            raise InfoFlowError("expected words and a limit in a claim, got something else; the file is damaged.")
        return cls(**known)


@dataclass(frozen=True, repr=False)
class Certificate(Shown):
    """`bound`: what is proved of the claim's quantity over all its inputs, None where nothing is.

    `arithmetic` names what the bound holds in ("exact", "float64 with rounding allowance", ...); `assumptions` what it
    takes for granted about the machine and the norm; `promises` what somebody stated and nobody proved; `attacked` is
    the largest error (smallest gap) that an attack found, None where there was no attack; `reasons` say what speaks
    against the certificate: tensors that the proof does not cover, by name and index, or an attack that broke it.
    """

    claim: Claim
    bound: float | None
    arithmetic: str
    assumptions: tuple[str, ...] = ()
    promises: tuple[str, ...] = ()
    attacked: float | None = None
    reasons: tuple[str, ...] = ()
    parts: dict[str, float] = field(default_factory=dict)  # the summands of the bound, by name
    measured: dict[str, float] = field(default_factory=dict)  # what was measured or enclosed beside it, by name
    seconds: float | None = None  # what it took, where a search was given time
    worst: list[list[float]] | None = None  # the input that attains `attacked`, token by token, where it is kept

    @property
    def holds(self) -> bool:
        """The bound is within the claim and nothing speaks against it (given the promises, where there are any)."""
        return not self.reasons and self.claim.met_by(self.bound)

    @property
    def verdict(self) -> str:
        """One of `holds`, `holds if ...` and `does not hold`."""
        if not self.holds:
            return "does not hold"
        return "holds if " + " and ".join(self.promises) if self.promises else "holds"

    @property
    def why_not(self) -> tuple[str, ...]:
        """Every reason against it; empty when it holds."""
        if self.bound is None or not math.isfinite(self.bound):
            return (*self.reasons, "nothing is proved") if not self.reasons else self.reasons
        if self.claim.limit is None:
            return (*self.reasons, "nothing was asked; pass eps")
        if not self.claim.met_by(self.bound):
            relation = "below" if self.claim.least else "above"
            return (f"the bound {self.bound!r} is {relation} what was asked, {self.claim.limit!r}", *self.reasons)
        return self.reasons

    @property
    def ratio(self) -> float | None:
        """bound / attacked: how loose the bound is at worst."""
        return self.bound / self.attacked if self.bound is not None and self.attacked else None

    def __str__(self) -> str:
        """What `infoflow certify` prints of it: the verdict, then the claim, the numbers and what they rest on."""
        attacked = "not attacked" if self.attacked is None else f"attacked {_number(self.attacked)}"
        ratio = f", ratio {_number(self.ratio)}" if self.ratio is not None and self.ratio < math.inf else ""
        lines = [
            self.verdict if self.holds else "DOES NOT HOLD",
            f"  claim: {self.claim}",
            f"  bound {_number(self.bound)}, {attacked}{ratio}",
            f"  arithmetic: {self.arithmetic}",
        ]
        lines += [f"  assuming {assumption}" for assumption in self.assumptions]
        lines += [f"  {name}: {value:.4g}" for name, value in {**self.parts, **self.measured}.items()]
        lines += [] if self.worst is None else [f"  attacked at {_tokens(self.worst)}"]
        return "\n".join([*lines, *(f"  because {reason}" for reason in self.why_not)])

    def __repr__(self) -> str:
        return f"<Certificate: {self.verdict}; {self.claim}, proved {_number(self.bound)}>"

    def with_attack(self, attacked: float) -> "Certificate":
        """Record an attack. A successful one falsifies the certificate: it is never hidden. NaN is the worst value."""
        if math.isnan(attacked):
            attacked = -math.inf if self.claim.least else math.inf
        broken = self.bound is not None and (attacked < self.bound if self.claim.least else attacked > self.bound)
        found = replace(self, attacked=attacked)
        if not broken:
            return found
        return found.against(f"the attack found {attacked:.6g} where the bound is {self.bound:.6g}")

    def against(self, *reasons: str) -> "Certificate":
        """The same certificate with reasons against it."""
        return replace(self, reasons=(*self.reasons, *reasons))

    def limited_to(self, limit: float | None) -> "Certificate":
        """The same certificate for another limit; None: nothing was asked."""
        return replace(self, claim=replace(self.claim, limit=limit))

    def to_json(self) -> dict[str, Any]:
        """As headers and `--json` have it; what is not finite is None."""
        plain = {**asdict(self), "claim": self.claim.to_json(), "holds": self.holds, "verdict": self.verdict}
        plain["bound"] = plain["bound"] if is_finite(plain["bound"]) else None
        if plain["attacked"] == math.inf:
            plain["attacked"] = sys.float_info.max  # JSON has no infinity
        return {**plain, "reasons": self.why_not, "ratio": self.ratio if self.ratio and self.ratio < math.inf else None}

    @classmethod
    def from_json(cls, payload: Any) -> "Certificate":
        """The certificate a file states; anything but our own fields with their own types is refused."""
        if not isinstance(payload, dict) or not isinstance(payload.get("arithmetic"), str):
            raise InfoFlowError("expected a certificate with its arithmetic, got something else; the file is damaged.")
        known = {name: payload[name] for name in cls.__dataclass_fields__ if name in payload}
        known["claim"] = Claim.from_json(known.get("claim"))
        known.pop("worst", None)  # what a file states is attacked again, never believed
        numbers = all(_plain(known.get(name)) for name in ("bound", "attacked", "seconds"))
        for name in ("assumptions", "promises", "reasons"):
            words = known.get(name, ())
            if not isinstance(words, (list, tuple)):
                raise InfoFlowError(f"expected a list of {name} in a certificate, got something else.")
            known[name] = tuple(str(item) for item in words)
        tables = [known.get(name, {}) for name in ("parts", "measured")]
        if not numbers or not all(isinstance(t, dict) and all(map(_plain, t.values())) for t in tables):
            raise InfoFlowError("expected numbers in a certificate, got something else; the file is damaged.")
        return cls(**{"bound": None, **known})


def error_claim(
    name: str,
    eps: float | None,
    T: int,
    low: Sequence[float],
    high: Sequence[float],
    shorter: bool = False,
    condition: str = "",
) -> Claim:
    """|network - target| on a box; `shorter`: for every length up to T too; `condition`: which inputs of it count."""
    sides = list(dict.fromkeys(zip(map(_words, low), map(_words, high), strict=True)))
    box = f"[{sides[0][0]}, {sides[0][1]}]^{len(low)}" if len(sides) == 1 else _product(low, high)
    tokens = f"{'at most ' if shorter else ''}{T} tokens"
    inputs = f"every sequence of {tokens} in {box}{f' {condition}' if condition else ''}"
    return Claim(f"|network - {name or 'the given target'}|", eps, inputs)


def _product(low: Sequence[float], high: Sequence[float]) -> str:
    return " x ".join(f"[{_words(a)}, {_words(b)}]" for a, b in zip(low, high, strict=True))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _tokens(worst: list[list[float]]) -> str:
    """A sequence as its distinct tokens and how often each stands there, the first few of them."""
    counts: dict[str, int] = {}
    for token in worst:
        words = "(" + ", ".join(f"{value:.3g}" for value in token) + ")"
        counts[words] = counts.get(words, 0) + 1
    shown = [f"{count} x {words}" for words, count in list(counts.items())[:MOST_TOKENS]]
    return ", ".join(shown) + (f" and {len(counts) - MOST_TOKENS} more" if len(counts) > MOST_TOKENS else "")


def _words(number: float) -> str:
    return repr(float(number)).removesuffix(".0")


def is_finite(value: Any) -> bool:
    """A number that a float64 can hold; JSON also brings NaN, infinities and integers of any length."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _plain(value: Any) -> bool:
    return value is None or is_finite(value)


def stated_limit(bound: float | None, least: bool = False) -> float | None:
    """The limit a construction states by itself where the caller asked for none: the bound, rounded outwards to four
    digits, so that another machine's last bits do not decide."""
    if bound is None or not math.isfinite(bound):
        return None
    rounding = ROUND_FLOOR if least else ROUND_CEILING
    limit = float(Context(prec=DIGITS, rounding=rounding).create_decimal(Decimal(bound)))
    return min(limit, bound) if least else max(limit, bound)


def asked_of(header: dict[str, Any]) -> float | None:
    """What a saved network was asked for, the `eps` of its header; None when it says nothing."""
    eps = header.get("eps")
    if eps is not None and not is_finite(eps):
        raise InfoFlowError("expected eps (what was asked of the network) as a finite number, got something else.")
    return None if eps is None else float(eps)


def expect_config(stored: Any, proved: Any, kind: str) -> None:
    """Refuse the first field in which a stored configuration is not the one the proof is about."""
    expect_fields(stored, {each.name: getattr(proved, each.name) for each in fields(proved)}, kind)


def expect_fields(stored: Any, proved: dict[str, Any], kind: str) -> None:
    """Refuse a configuration that differs in a field the proof speaks of."""
    for name, wanted in proved.items():
        found = getattr(stored, name)
        if found != wanted:
            raise InfoFlowError(
                f"expected {name}={wanted!r} in the configuration of {kind} (its proof covers no other value), "
                f"got {name}={shown(found)}; build the network again."
            )


def expect_float64(tensors: Iterable[tuple[str, Any]]) -> None:
    """A certificate speaks of float64 weights."""
    import torch

    for name, tensor in tensors:
        if tensor.dtype != torch.float64:
            raise InfoFlowError(
                f"expected float64 in tensor {name!r} (what a certificate speaks of), got {tensor.dtype}; "
                "convert the network with .double() or build it again."
            )
