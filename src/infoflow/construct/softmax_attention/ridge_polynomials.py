"""General losses l(s, y): a sum of polynomials in J directions, each of one variable, fitted by least squares.

    l(s, y) ~ sum_j P_j(cos(theta_j) s/S + sin(theta_j) y/Y),   theta_j = pi j / J,   degree J + 1,

on a Chebyshev grid of [-S, S] x [-Y, Y]. Only d/ds matters for descent; its error is certified on a grid plus the
Lipschitz constants of both derivatives when the user gives those of dl/ds, else it is not claimed.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from numpy.polynomial import Chebyshev
from torch import Tensor

from infoflow.construct.softmax_attention.gradient_heads import Bounds, Branch, GradientHeads, entry_scale
from infoflow.construct.softmax_attention.losses import Loss
from infoflow.construct.softmax_attention.table_head import Derivatives, extension, slope_error, table

CHECK = 301  # points per side of the grid on which dl/ds is compared


def fit(loss: Loss, S: float, Y: float, J: int) -> list[tuple[float, float, Chebyshev]]:
    """(a, b, P) with l ~ sum P(a s + b y); P lives on [-sqrt 2, sqrt 2]."""
    nodes = np.cos(np.pi * (np.arange(4 * J + 8) + 0.5) / (4 * J + 8))
    s, y = (axis.reshape(-1) for axis in np.meshgrid(nodes, nodes, indexing="ij"))
    angles = np.pi * np.arange(J) / J
    root = math.sqrt(2)
    blocks = [np.polynomial.chebyshev.chebvander((np.cos(t) * s + np.sin(t) * y) / root, J + 1) for t in angles]
    values = loss.value(torch.from_numpy(S * s), torch.from_numpy(Y * y)).numpy()
    coefficients, *_ = np.linalg.lstsq(np.concatenate(blocks, 1), values, rcond=1e-12)
    return [
        (float(np.cos(t)) / S, float(np.sin(t)) / Y, Chebyshev(row, domain=[-root, root]))
        for t, row in zip(angles, coefficients.reshape(J, J + 2), strict=True)
    ]


def slope_gap(loss: Loss, ridges: list[tuple[float, float, Chebyshev]], S: float, Y: float) -> Float[ndarray, "s y"]:
    """|dl/ds - fitted| on a uniform grid."""
    s, y = np.meshgrid(np.linspace(-S, S, CHECK), np.linspace(-Y, Y, CHECK), indexing="ij")
    fitted = sum(a * P.deriv()(a * s + b * y) for a, b, P in ridges)
    return np.abs(loss.slope(torch.from_numpy(s), torch.from_numpy(y)).numpy() - fitted)


def general_heads(
    loss: Loss, p: int, limits: Bounds, J: int, lipschitz: tuple[float, float] | None, c: float = 0.3
) -> GradientHeads:
    """2J soft heads per coordinate for |s| and |y| within the limits; `lipschitz` bounds |d2l/ds2| and |d2l/dsdy|."""
    reach, entry, labels = limits.arguments, limits.entry, limits.labels
    tau = 0.01 * entry_scale(entry) * reach
    S = reach + tau * entry
    Y = max(labels, 1e-12)
    ridges = fit(loss, S, Y, J)
    branches, tables_error, bend_s, bend_y = [], 0.0, 0.0, 0.0
    for a, b, P in ridges:
        half = math.sqrt(2) * (1 + 1e-9)
        built = table(_tensor(P), -half, half, p, c, _tensor(P.deriv(2)))
        sup = _suprema(P, half + extension(c) * built.spacing)
        third = sup.third or 0.0
        shift = abs(a)
        tables_error += shift * entry * slope_error(built.spacing, c, sup, True)
        tables_error += tau**2 * (shift * entry) ** 3 * third / 6 + built.rounding / tau
        bend_s += a * a * (sup.second or 0.0)
        bend_y += abs(a * b) * (sup.second or 0.0)
        branches.append(Branch(a, b, ((1.0, built),)))
    error = None
    if lipschitz is not None:
        steps = S / (CHECK - 1), Y / (CHECK - 1)  # half of a grid step
        slack = (lipschitz[0] + bend_s) * steps[0] + (lipschitz[1] + bend_y) * steps[1]
        error = entry * (float(slope_gap(loss, ridges, S, Y).max()) + slack) + tables_error
    return GradientHeads(tuple(branches), tau, entry, error)


def _tensor(P: Chebyshev):  # type: ignore[no-untyped-def]
    def call(z: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
        return torch.from_numpy(np.ascontiguousarray(P(z.numpy())))

    return call


def _suprema(P: Chebyshev, half: float) -> Derivatives:
    """sup |P^(j)| <= sum of |Chebyshev coefficients| on [-half, half]."""
    wide = P.convert(domain=[-half, half])
    first, second, third, fourth, fifth = (float(np.abs(wide.deriv(j).coef).sum()) for j in range(1, 6))
    return Derivatives(first, second, third, fourth, fifth)
