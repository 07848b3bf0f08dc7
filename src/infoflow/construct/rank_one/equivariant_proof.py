"""Proposition 1's network under certification: how far it is from the step function where no coordinate is on a ramp.

Three roundings, u = 2^-53: F1 moves each token by at most E1, attention turns that into a shift of t by at most dt,
and as long as dt stays within the plateau (1/16 of the smallest gap) the table's value does not change at all. What
remains is the
rounding of the table's own sum.
"""

import math
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.certificates import Certificate, Claim, asked_of, stated_limit
from infoflow.certificates.certificate import expect_config, expect_float64
from infoflow.certificates.rules import UNIT
from infoflow.construct.rank_one.certificate import gamma, rounding_bound
from infoflow.construct.rank_one.equivariant import Equivariant, approximate_equivariant, function_named, step_function
from infoflow.construct.rank_one.lookup import Lookup
from infoflow.construct.rank_one.lookup import rounding_bound as table_rounding
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, files
from infoflow.nn.transformer import from_saved

PLATEAU = 1 / 16


def shift_of_ids(net: Equivariant) -> float:
    """dt. A coordinate of F1 errs by E1 = (K + 24) u (2/delta + 4): K units, 2 D of size 1/(delta D), rounded biases;

    dp = E1 |v|_1,   ds = rounding of the average + dp + p_max (e^{2e} - 1),  e = beta (2 p_max dp + dp^2),
    dt = dp + A ds + rounding of x + a s and of the product with v.
    """
    units = net.network.config.encoder_width
    first = 1.01 * (units + 24) * UNIT * (2 / net.delta + 4)
    v = net.head.key
    top = float((net.contexts.vocabulary @ v).max())
    beta, amplitude = float(net.head.query[0] / v[0]), float(v @ net.head.output)
    dp = first * float(v.sum()) + gamma(net.d + 4) * top
    e = beta * (2 * top * dp + dp**2)
    ds = rounding_bound(net.contexts, net.head) + dp + top * math.expm1(2 * e)
    return dp + amplitude * ds + 4 * gamma(net.d + 6) * (1 + amplitude) * top


def table_error(net: Equivariant) -> float:
    """Rounding of F2: the ReLU sum, the stored slopes, and the two units a coordinate that cancel the skip."""
    readout: Any = net.network.readout
    first, last = readout.maps
    kinks = 2 * net.classes
    knots, coefficients = -first.bias.detach().numpy()[:kinks], last.weight.detach().numpy().T[:kinks]
    order = np.argsort(knots, kind="stable")
    table = Lookup(
        np.r_[knots[order], knots.max() + 1.0],
        last.bias.detach().numpy(),
        coefficients[order],
        np.empty((0, net.d)),
        np.empty((0, net.d)),
    )
    end = float(net.ids[-1])
    top = float((net.contexts.vocabulary @ net.head.key).max()) + end
    product = gamma(net.d + 2) * top
    slopes = 8 * net.classes * UNIT * 2 * net.bound
    return table_rounding(table, product, end) + slopes + 4 * gamma(kinks + 2 * net.d + 4) * top


def certificate_of(net: Equivariant) -> Certificate:
    """|net - step function| on the cube off the ramps, float64; no bound where F1's rounding may leave a plateau."""
    shift = shift_of_ids(net)
    plateau = PLATEAU * float(np.diff(net.ids).min(initial=math.inf))
    inside = shift < plateau
    parts = {"shift_of_ids": shift, "table": table_error(net)}
    if math.isfinite(plateau):
        parts["plateau"] = plateau
    bound = parts["table"] if inside else None
    inputs = f"X in [0, 1]^({net.n} x {net.d}) with no coordinate within {2 * net.delta:.3g} behind a grid line"
    return Certificate(
        Claim(f"|network - step function of f on {net.D} cells a coordinate|", stated_limit(bound), inputs),
        bound,
        "float64 with rounding allowance" if inside else "float64 measured",
        ("the labels are f as float64 computes it",),
        reasons=() if inside else ("the worst rounding of the first block exceeds a plateau; nothing is proved",),
        parts=parts,
    )


@dataclass
class CertifiedEquivariant:
    """A network beside the construction that its function, its labels and its sizes describe."""

    network: Transformer
    built: Equivariant
    function: str
    labels: str
    asked: float | None

    @cached_property
    def certificate(self) -> Certificate:
        """The bound of the step function it is, for what was asked."""
        return certificate_of(self.built).limited_to(self.asked)

    def save(self, path: str | Path) -> Path:
        """The network, and in the header what it is made of again."""
        return save_equivariant(self.built, self.function, self.labels, path)

    def verify(self) -> list[str]:
        """Entries that differ from the construction, by tensor and index."""
        reasons = []
        expected = self.built.network.state_dict()
        for name, value in self.network.state_dict().items():
            for index in torch.nonzero(value != expected[name]).tolist():
                reasons.append(f"{name}{index} is not what the construction writes there")
        return reasons

    def attack(self, seed: int, seconds: float) -> float:
        """The largest deviation from the step function at random points off the ramps, at least one block of them."""
        rng, end, worst, b = np.random.default_rng(seed), time.monotonic() + seconds, 0.0, self.built
        f = function_named(self.function, b.d, b.n)
        while True:
            X = rng.random((64, b.n, b.d))
            X = X[(X - np.floor(X * b.D) / b.D > 2 * b.delta).all((1, 2))]
            with torch.no_grad():
                out = self.network(torch.from_numpy(X)).numpy()
            step = step_function(f, X, b.D, self.labels)  # type: ignore[arg-type]
            worst = max(worst, float(np.nan_to_num(np.abs(out - step), nan=np.inf).max(initial=0.0)))
            if time.monotonic() > end:
                return worst


def save_equivariant(net: Equivariant, function: str, labels: str, path: str | Path) -> Path:
    """Write the network with the text of its function; `load` computes the bound again."""
    header: dict[str, Any] = {"config": net.network.config.to_json(), "function": function, "labels": labels}
    certificate = certificate_of(net)
    header |= {"n": net.n, "D": net.D, "delta": net.delta, "eps": certificate.claim.limit}
    header["certificate"] = certificate.to_json()
    return files.write(path, "equivariant", net.network.state_dict(), header)


def load_equivariant(tensors: dict[str, Tensor], header: dict[str, Any]) -> CertifiedEquivariant:
    """The loader of kind "equivariant": the header is checked by building what it describes."""
    network = from_saved(tensors, {"config": header.get("config")})
    function, labels, delta = (header.get(name) for name in ("function", "labels", "delta"))
    n, D = header.get("n"), header.get("D")
    if not isinstance(function, str) or type(n) is not int or type(D) is not int or not isinstance(delta, float):
        raise InfoFlowError("expected a function with integers n, D and a width delta in the header, got others.")
    d, kind = network.config.dim, str(labels)
    built = approximate_equivariant(function_named(function, d, n), d, n, D, kind, delta)  # type: ignore[arg-type]
    expect_config(network.config, built.network.config, f"an equivariant network with d={d}, n={n}, D={D}")
    expect_float64(tensors.items())
    return CertifiedEquivariant(network, built, function, kind, asked_of(header))
