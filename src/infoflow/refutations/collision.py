"""What a search for a collision returns: two inputs one state cannot tell apart, or why there is no answer."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from infoflow.report.html import Shown

EXACT = "the theorem speaks of exact arithmetic on the stored weights, not of the rounding of a run"


@dataclass(frozen=True, repr=False)
class Collision(Shown):
    """Two sequences Y, Z of the domain with (nearly) one state R and targets `gap` apart.

    With R(Y) = R(Z) exactly, every read-out of R, of any width and any weights, has error at least gap/2 on Y or on Z.
    `certified_error` is that number when an exact twin was proved to exist for the stored weights, else None, and the
    pair is numerical. What a numerical pair still says is `width_bound`. `sigma_min` is the smallest non-zero
    singular value of dR/dtheta at Z (x = centre + half sin(theta), which keeps x in the box). All of this is about the
    stored weights in exact arithmetic; a run in floating point may tell the two inputs apart by its rounding.
    """

    Y: Float[np.ndarray, "T d"]
    Z: Float[np.ndarray, "T d"]
    gap: float
    state_distance: float
    sigma_min: float
    certified_error: float | None
    state_Y: Float[np.ndarray, " N"] = field(repr=False)
    state_Z: Float[np.ndarray, " N"] = field(repr=False)
    target_Y: float
    target_Z: float
    arithmetic: str  # what state_distance and gap were evaluated in
    proof: str  # what the attempt at a proof says
    seconds: float = 0.0

    @property
    def state_dim(self) -> int:
        """Numbers the read-out sees."""
        return int(self.state_Y.shape[0])

    def width_bound(self, eps: float) -> float:
        """Width of a two-layer tanh read-out with weights at most 1 and error eps: at least (gap - 2 eps)/(sqrt(E) r).

        Each unit a tanh(w.R + b), |a| <= 1, |w|_2 <= sqrt(E), has Lipschitz constant sqrt(E); r is `state_distance`.
        """
        room = max(self.gap - 2 * eps, 0.0)
        slope = math.sqrt(self.state_dim) * self.state_distance
        return room / slope if slope > 0 else (math.inf if room > 0 else 0.0)

    @property
    def read_out_width_bound(self) -> float:
        """`width_bound` at eps = gap/4: halfway between perfect and hopeless."""
        return self.width_bound(self.gap / 4)

    def to_json(self) -> dict[str, Any]:
        """As `infoflow refute --json` prints it."""
        return {
            "collision": True,
            "gap": self.gap,
            "state_distance": self.state_distance,
            "sigma_min": self.sigma_min,
            "read_out_width_bound": self.read_out_width_bound,
            "certified_error": self.certified_error,
            "speaks_of": EXACT,
            "arithmetic": self.arithmetic,
            "proof": self.proof,
            "target_Y": self.target_Y,
            "target_Z": self.target_Z,
            "state_Y": self.state_Y.tolist(),
            "state_Z": self.state_Z.tolist(),
            "Y": self.Y.tolist(),
            "Z": self.Z.tolist(),
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        kind = "proved" if self.certified_error is not None else "numerical"
        lines = [
            f"collision ({kind}): two inputs with targets {self.target_Y:.6g} and {self.target_Z:.6g}, "
            f"gap {self.gap:.6g}, states {self.state_distance:.2g} apart",
            f"  smallest singular value of the state's Jacobian: {self.sigma_min:.2g}",
        ]
        if self.certified_error is not None:
            lines.append(
                f"  every read-out of this state, any width and weights, errs by >= {self.certified_error:.6g}"
            )
            lines.append(f"  {EXACT}")
        else:
            lines.append(f"  no proof of an exact twin: {self.proof}")
        lines.append(
            f"  two-layer tanh read-out with weights <= 1 and error <= {self.gap / 4:.4g}: "
            f"width >= {self.read_out_width_bound:.3g}"
        )
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class NoCollision(Shown):
    """No certificate: the search has nothing to show. This never says that the model is right."""

    reason: str

    def __bool__(self) -> bool:
        return False

    def to_json(self) -> dict[str, Any]:
        """As `infoflow refute --json` prints it."""
        return {"collision": False, "reason": self.reason}

    def __str__(self) -> str:
        return f"no certificate: {self.reason}"
