"""An attack on trained one-layer networks that shares no code with `certify`: what a proved bound must stay above.

A sequence is K tokens of the box with counts that sum to T; it is climbed as K d numbers, whatever T is. The network is
written here again from the stored tensors, so a wrong formula in `infoflow.proofs` is not repeated; the target is the
house's own function. Half of the time a population is drawn anew, half of it comes from the best so far,
moved a little, with other counts: projected Adam with a falling step, both signs of the error, many at once. The
error that is returned is that of the network itself in float64, on the whole sequence of T tokens.
"""

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ACTS = {"gelu": nn.functional.gelu, "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}
ROWS, STEPS, KEPT = 384, 120, 24


def averages_net(network: Any) -> Any:
    """(tokens (B, K, d), log counts (B, K)) -> (B,): the CLS of a one-layer network over K distinct tokens."""
    p = {name: value.detach().double() for name, value in network.state_dict().items()}
    c = network.config
    act = ACTS[c.readout_activation or c.activation]
    cls, beta = p["cls_token"], c.betas[0]
    asked = beta * torch.einsum("hne,e->hn", p["attentions.0.query"], cls)

    def run(Y: Tensor, log_counts: Tensor) -> Tensor:
        e = Y @ p["encoder.maps.0.weight"].T + p["encoder.maps.0.bias"]
        scores = torch.einsum("hn,hne,bke->bkh", asked, p["attentions.0.key"], e) + log_counts[..., None]
        values = torch.einsum("hve,bke->bkhv", p.get("attentions.0.value", p["attentions.0.key"]), e)
        read = (torch.softmax(scores, 1)[..., None] * values).sum(1).flatten(1) @ p["attentions.0.output"].T
        state = read + cls if c.residual else read
        hidden = act(state @ p["readout.maps.0.weight"].T + p["readout.maps.0.bias"])
        return (hidden @ p["readout.maps.1.weight"].T + p["readout.maps.1.bias"])[:, 0]

    return run


def counts_of(rng: np.random.Generator, rows: int, K: int, T: int) -> np.ndarray:
    """(rows, K) counts that sum to T: mostly single tokens before one crowd, else several crowds."""
    found = np.ones((rows, K), dtype=int)
    for row in found:
        crowds = 1 + int(rng.integers(0, min(3, K)))
        share = rng.dirichlet(np.full(crowds, 0.5)) * (T - K)
        extra = np.floor(share).astype(int)
        extra[-1] += T - K - extra.sum()
        row[K - crowds :] += extra
    return found


def drawn(rng: np.random.Generator, rows: int, K: int, d: int, low: float, high: float) -> np.ndarray:
    """Uniform tokens, corners, a cluster of any size, all in the box."""
    uniform = rng.uniform(low, high, (rows, K, d))
    corners = np.where(rng.random((rows, K, d)) < 0.5, low, high)
    centre = np.where(rng.random((rows, 1, d)) < 0.5, rng.uniform(low, high, (rows, 1, d)), corners[:, :1])
    cluster = centre + (high - low) * 10 ** rng.uniform(-2, 0, (rows, 1, 1)) * rng.normal(size=(rows, K, d))
    kind = rng.integers(0, 4, (rows, 1, 1))
    mixed = np.where(rng.random((rows, K, d)) < 0.5, uniform, corners)
    return np.clip(np.select([kind == 0, kind == 1, kind == 2], [uniform, mixed, cluster], corners), low, high)


def climb(
    error: Any, Y: np.ndarray, counts: np.ndarray, sign: np.ndarray, low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """Projected Adam from every row, the best point of each path and its value."""
    X = torch.tensor(Y, requires_grad=True)
    logs, signs = torch.tensor(counts, dtype=torch.float64).log(), torch.tensor(sign)
    first, second = torch.zeros_like(X), torch.zeros_like(X)
    best, where = torch.full((len(Y),), -torch.inf, dtype=torch.float64), X.detach().clone()
    size = (high - low) * torch.tensor(10.0 ** np.random.default_rng(len(Y)).uniform(-2.5, -1, (len(Y), 1, 1)))
    for step in range(1, STEPS + 1):
        value = signs * error(X, logs)
        (slope,) = torch.autograd.grad(value.sum(), X)
        with torch.no_grad():
            better = value > best
            best = torch.where(better, value, best)
            where = torch.where(better[:, None, None], X, where)
            first.mul_(0.8).add_(slope, alpha=0.2)
            second.mul_(0.95).addcmul_(slope, slope, value=0.05)
            moved = (first / (1 - 0.8**step)) / ((second / (1 - 0.95**step)).sqrt() + 1e-12)
            X += size * (1 - (step - 1) / STEPS) ** 1.5 * moved
            X.clamp_(low, high)
    return where.numpy(), best.numpy()


def attack(network: Any, target: Any, T: int, seconds: float, seed: int) -> tuple[float, np.ndarray, int]:
    """(largest error of the network itself, its sequence (T, d), sequences climbed) after so many processor seconds;
    one-layer networks with one output."""
    rng = np.random.default_rng(seed)
    (low, high), d = target.domain, target.dim
    run = averages_net(network)
    K = min(T, len(target.terms) + 3)

    def error(Y: Tensor, logs: Tensor) -> Tensor:
        return run(Y, logs) - target(Y).reshape(len(Y))

    pool: list[tuple[float, np.ndarray, np.ndarray, float]] = []
    end, climbed, rounds = time.process_time() + seconds, 0, 0
    while rounds < 2 or time.process_time() < end:
        counts, Y = counts_of(rng, ROWS, K, T), drawn(rng, ROWS, K, d, low, high)
        sign = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
        if rounds:
            for row in range(ROWS // 2):
                _, old, old_counts, old_sign = pool[int(rng.integers(0, len(pool)))]
                scale = (high - low) * 10 ** rng.uniform(-3, 0)
                again = rng.random((K, 1)) < (0.2 if rng.random() < 0.5 else 1.0)
                Y[row] = np.clip(old + again * scale * rng.normal(size=(K, d)), low, high)
                sign[row] = old_sign
                if rng.random() < 0.6:
                    counts[row] = old_counts
        where, best = climb(error, Y, counts, sign, low, high)
        pool += list(zip(best.tolist(), where, counts, sign.tolist(), strict=True))
        pool = sorted(pool, key=lambda each: -each[0])
        pool = [each for i, each in enumerate(pool) if i == 0 or each[0] < pool[i - 1][0] * (1 - 1e-6)][:KEPT]
        climbed, rounds = climbed + ROWS, rounds + 1
    exact = network.double()
    X = np.stack([np.repeat(tokens, often, axis=0) for _, tokens, often, _ in pool])
    with torch.no_grad():
        off = (exact(torch.from_numpy(X)).reshape(len(X)) - target(torch.from_numpy(X)).reshape(len(X))).abs()
    at = int(off.argmax())
    return float(off[at]), X[at], climbed
