"""What a built network guarantees, and what an attack found."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from infoflow.errors import InfoFlowError


@dataclass(frozen=True)
class Certificate:
    """`bound`: a proved upper bound on sup |net - target| over the domain, None where nothing is proved.

    `arithmetic` names what the bound holds in ("exact", "float64 with rounding allowance", ...); `attacked` is the
    largest error an attack found; `holds` is false when the stored weights are not the ones the proof speaks of, and
    `reasons` then names tensor and index.
    """

    bound: float | None
    arithmetic: str
    assumptions: tuple[str, ...] = ()
    attacked: float | None = None
    holds: bool = True
    reasons: tuple[str, ...] = ()
    parts: dict[str, float] = field(default_factory=dict)  # the summands of the bound, by name
    measured: dict[str, float] = field(default_factory=dict)  # what was measured or enclosed beside it, by name

    @property
    def ratio(self) -> float | None:
        """bound / attacked: how loose the bound is at worst."""
        return self.bound / self.attacked if self.bound is not None and self.attacked else None

    def with_attack(self, attacked: float) -> "Certificate":
        """Record an attack. A successful one falsifies the certificate: it is never hidden."""
        broken = self.bound is not None and attacked > self.bound
        reasons = (
            (*self.reasons, f"the attack found error {attacked:.6g} above the bound {self.bound:.6g}")
            if broken
            else self.reasons
        )
        return replace(self, attacked=attacked, holds=self.holds and not broken, reasons=reasons)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}

    @classmethod
    def from_json(cls, payload: dict[str, Any]) -> "Certificate":
        """The certificate a file states; anything but our own fields with their own types is refused."""
        if not isinstance(payload, dict) or not isinstance(payload.get("arithmetic"), str):
            raise InfoFlowError("expected a certificate with its arithmetic, got something else; the file is damaged.")
        known = {name: payload[name] for name in cls.__dataclass_fields__ if name in payload}
        numbers = (int, float, type(None))
        plain = all(isinstance(known.get(name), numbers) for name in ("bound", "attacked"))
        for name in ("assumptions", "reasons"):
            known[name] = tuple(str(item) for item in known.get(name, ()))
        tables = all(
            isinstance(known.get(name, {}), dict) and all(isinstance(v, numbers) for v in known.get(name, {}).values())
            for name in ("parts", "measured")
        )
        if not plain or not tables or not isinstance(known.get("holds", True), bool):
            raise InfoFlowError("expected numbers in a certificate, got something else; the file is damaged.")
        return cls(**known)
