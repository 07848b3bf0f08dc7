"""Ridge ReLU networks fitted to expressions, with a certified sup error: Pinkus gives existence, this gives one.

Neurons ReLU(u_j . x - knot_k) for J directions u_j and m knots each, and a constant; eta by least squares. On cells of
half width h the error is at most its value at the centre plus h sum_i (K_i + N_i), where K_i bounds |df/dx_i| (interval
gradients) and N_i = sum_j |u_ji| max_k |eta_j1 + .. + eta_jk| bounds the network's slope.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.construct.softmax_attention.expression import Expression
from infoflow.construct.softmax_attention.relu_networks import ReluNetwork
from infoflow.errors import InfoFlowError

LARGEST_GRID = 4_000_000


def directions(N: int, J: int, seed: int = 0) -> Float[Tensor, "J N"]:
    """Equispaced angles for N = 2; the axes and pairwise sums and differences, then random ones, else."""
    if N == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    if N == 2:
        angles = math.pi * torch.arange(J, dtype=torch.float64) / J
        return torch.stack([torch.cos(angles), torch.sin(angles)], 1)
    eye = torch.eye(N, dtype=torch.float64)
    pairs = [eye[i] + sign * eye[j] for i in range(N) for j in range(i) for sign in (1, -1)]
    random = torch.randn(J, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    chosen = torch.cat([eye, torch.stack(pairs), random])[:J]
    made: Tensor = chosen / chosen.norm(dim=1, keepdim=True)
    return made


def fit_ridge_relu(
    targets: list[Expression], *, B: float = 1.0, J: int = 8, knots: int = 16, grid: int = 801
) -> tuple[ReluNetwork, float]:
    """(network, certified sup error over all targets). `grid` points per coordinate for the certificate."""
    d, n = targets[0].d, targets[0].n
    N = d * n
    if any((f.d, f.n) != (d, n) for f in targets):
        raise InfoFlowError("expected all targets on the same d x n input, got different shapes.")
    if grid**N > LARGEST_GRID:
        raise InfoFlowError(
            f"expected at most {LARGEST_GRID} points to certify on, got {grid}^{N}; lower grid or the dimension."
        )
    U = directions(N, J)
    reach = U.abs().sum(1) * B
    places = -reach[:, None] + 2 * reach[:, None] * torch.arange(knots, dtype=torch.float64) / knots
    samples = _mesh(N, max(8, min(61, int(40_000 ** (1 / N)))), B)
    features = _features(samples, U, places)
    values = torch.stack([torch.from_numpy(f(samples.reshape(-1, d, n).numpy())) for f in targets], 1)
    weight = 1e-5 * math.sqrt(len(samples))  # Tikhonov: keeps |eta|_1, and with it the attention's error, small
    system = torch.cat([features, weight * torch.eye(features.shape[1], dtype=torch.float64)])
    padded = torch.cat([values, torch.zeros(features.shape[1], len(targets), dtype=torch.float64)])
    eta = torch.linalg.lstsq(system, padded).solution.mT  # outputs x features
    certified = max(_certify(f, row, U, places, B, grid) for f, row in zip(targets, eta, strict=True))
    return _network(eta, U, places, B, d, n), certified


def _mesh(N: int, points: int, B: float) -> Float[Tensor, "points N"]:
    """Centres of equal cells."""
    axis = B * (2 * torch.arange(points, dtype=torch.float64) + 1 - points) / points
    return torch.cartesian_prod(*[axis] * N).reshape(-1, N)


def _features(x: Float[Tensor, "points N"], U: Float[Tensor, "J N"], places: Float[Tensor, "J m"]) -> Tensor:
    hidden = torch.relu((x @ U.mT)[:, :, None] - places).flatten(1)
    return torch.cat([hidden, torch.ones(len(x), 1, dtype=torch.float64)], 1)


def _certify(f: Expression, eta: Tensor, U: Tensor, places: Tensor, B: float, grid: int) -> float:
    slopes = eta[:-1].reshape(places.shape).cumsum(1).abs().amax(1)  # of the network along each direction
    network = (U.abs() * slopes[:, None]).sum(0)
    partials = torch.from_numpy(np.ascontiguousarray(f.partial_bounds(B))).reshape(-1)
    slack = float((network + partials).sum()) * B / grid * (1 + 1e-9)
    worst = 0.0
    for x in _mesh(U.shape[1], grid, B).split(50_000):
        gap = torch.from_numpy(f(x.reshape(-1, f.d, f.n).numpy())) - _features(x, U, places) @ eta
        worst = max(worst, float(gap.abs().max()))
    return worst + slack + 1e-12


def _network(eta: Tensor, U: Tensor, places: Tensor, B: float, d: int, n: int) -> ReluNetwork:
    """Neuron weights in (n, d) order; the constant is ReLU(0.x + 1)."""
    J, m = places.shape
    outputs = len(eta)
    W = U[:, None].expand(J, m, d * n).reshape(J * m, d, n).mT  # a feature's row-major d x n weights, per token
    W = torch.cat([W, torch.zeros(1, n, d, dtype=torch.float64)])
    t = torch.cat([-places.reshape(-1), torch.ones(1, dtype=torch.float64)])
    return ReluNetwork(W.expand(outputs, *W.shape).clone(), t.expand(outputs, -1).clone(), eta.clone(), B)
