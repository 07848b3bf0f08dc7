"""The floor of a set of reads: the least error of any read-out that sees the sequence through softmax averages.

The CLS of layer l gives the read-out h_l averages, m_i = sum_t softmax_t(k_i'e(t)) V_i e(t), each of n_l numbers, with
e(t) = W z(t) the E_l numbers that are kept of the token's state z(t) (`states.py`). Whatever the read-out computes, its
error is at least E Var(F | all m), so

    floor = min over W, k, V of  E Var(F | m) / Var F,

a problem in W, k and V alone, whatever T and the widths are. The inner minimum over read-outs is a ridge regression on
1, m and random GELU features of m, solved exactly at every step; the outer one is descent in W, k, V (variable
projection: at the inner optimum its coefficients may be held fixed in the gradient). Half of a batch fits, the other
half is descended on, so the read-out cannot remember. Several starts end in several minima: what they end at is also
what luck decides in training. The values returned are measured on samples that nothing has seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoflow.forecasts.states import State

FEATURES = 80  # random GELU features of what the read-out sees
FITTED = 800  # samples of a batch for the ridge, and as many for the descent
RIDGE, LAST_RIDGE = 1e-3, 1e-4  # of each step, and of the last fit, which has more samples
RATE, GAIN_RATE = 0.1, 0.03  # of the outer descent and of its gains, falling to zero over the second half
STEPS = 120
SCALES = (1.0, 3.0, 0.1, 1.0)  # of the first scores, one a start; training begins with averages that are nearly uniform
GAINED = (0.0, 0.0, 1.0, 1.0)  # whether a start's gain may grow: sharp reads need it, soft ones are spoilt by it
LOOKS = (15, 30, 60)  # steps at which the error is noted on the way


@dataclass(frozen=True)
class Floors:
    """For each start of SCALES: the error it ends at, and the errors on the way at LOOKS."""

    ends: list[float]
    ways: list[list[float]]


def floors(states: Sequence[State], y: Tensor, embed: int, seed: int = 0) -> Floors:
    """What the descent finds from each start; y (N, o), `embed` numbers enter the read-out at most."""
    y = (y - y.mean(0)) / (y - y.mean(0)).square().mean().sqrt()
    problem = _Problem(states, embed, torch.Generator(y.device).manual_seed(seed))
    ways = problem.descend(y[: len(y) // 2])
    return Floors(problem.measure(y).tolist(), ways)


class _Problem:
    """All starts at once: every tensor has a leading axis S of starts."""

    def __init__(self, states: Sequence[State], embed: int, generator: torch.Generator) -> None:
        self.generator = generator
        self.layers = [_Layer(state, generator) for state in states]
        seen = sum(layer.outputs for layer in self.layers)
        self.weights = [weight for layer in self.layers for weight in layer.weights if weight.requires_grad]
        self.squeeze = None
        if seen > embed:
            self.squeeze = _normal((len(SCALES), seen, embed), generator, seen).requires_grad_()
            self.weights.append(self.squeeze)
        size = min(seen, embed)
        self.directions = _normal((size, FEATURES), generator, size)
        self.offsets = _normal((FEATURES,), generator, 1)

    def descend(self, y: Tensor) -> list[list[float]]:
        noted = []
        gains = [layer.gains for layer in self.layers]
        groups = [{"params": self.weights, "lr": RATE}, {"params": gains, "lr": GAIN_RATE}]
        optimiser = torch.optim.Adam(groups)
        fitted = min(FITTED, len(y) // 2)
        for step in range(STEPS):
            for group, rate in zip(optimiser.param_groups, (RATE, GAIN_RATE), strict=True):
                group["lr"] = rate * min(1.0, 2.0 * (1.0 - step / STEPS))
            chosen = torch.randperm(len(y), generator=self.generator, device=y.device)[: 2 * fitted]
            features = self._features(self._seen(chosen))
            with torch.no_grad():
                answer = _ridge(features[:, :fitted], y[chosen[:fitted]], RIDGE)
            error = (features[:, fitted:] @ answer - y[chosen[fitted:]]).square().mean((1, 2))
            if step in LOOKS:
                noted.append(error.tolist())
            optimiser.zero_grad()
            error.sum().backward()
            optimiser.step()
        return [list(way) for way in zip(*noted, strict=True)]

    @torch.no_grad()
    def measure(self, y: Tensor) -> Tensor:
        """Fit on the first half, measure on the second."""
        half = len(y) // 2
        everything = torch.arange(len(y), device=y.device)
        averages = torch.cat([self._averages(part) for part in everything.split(FITTED)], 1)
        seen = self._squeezed(averages, averages[:, :half])
        features = self._features(seen, seen[:, :half])
        answer = _ridge(features[:, :half], y[:half], LAST_RIDGE)
        rest = y[half:]
        return (features[:, half:] @ answer - rest).square().mean((1, 2)) / (rest - rest.mean(0)).square().mean()

    def _averages(self, chosen: Tensor) -> Tensor:
        return torch.cat([layer(chosen) for layer in self.layers], -1)

    def _seen(self, chosen: Tensor) -> Tensor:
        averages = self._averages(chosen)
        return self._squeezed(averages, averages)

    def _squeezed(self, averages: Tensor, reference: Tensor) -> Tensor:
        return averages if self.squeeze is None else _standard(averages, reference) @ self.squeeze

    def _features(self, seen: Tensor, reference: Tensor | None = None) -> Tensor:
        normal = _standard(seen, seen if reference is None else reference)
        bent = torch.nn.functional.gelu(normal @ self.directions + self.offsets)
        return torch.cat([torch.ones_like(normal[..., :1]), normal, bent], -1)


@dataclass
class _Layer:
    """The reads of one layer: W (S, E, p), k (S, h, E), V (S, h, n, E); identities where they would hide nothing.

    Scores have a gain of their own, learned as its logarithm: how sharp an average must be spans orders of magnitude.
    """

    state: State
    generator: torch.Generator

    def __post_init__(self) -> None:
        S, h, p = len(SCALES), self.state.heads, self.state.tokens.shape[-1]
        E = min(self.state.embed, p)
        n = min(self.state.size, E)
        device, generator = self.state.tokens.device, self.generator
        scales = torch.tensor(SCALES, device=device).view(S, 1, 1)
        self.keep = torch.eye(p, device=device).expand(S, p, p) if p == E else _normal((S, E, p), generator, p)
        self.keys = scales * _normal((S, h, E), generator, E)
        self.gains = torch.zeros(S, h, 1, device=device, requires_grad=True)
        self.gained = torch.tensor(GAINED, device=device).view(S, 1, 1)
        self.values = torch.eye(E, device=device).expand(S, h, E, E) if n == E else _normal((S, h, n, E), generator, E)
        self.keep.requires_grad_(p > E)
        self.keys.requires_grad_()
        self.values.requires_grad_(n < E)
        self.weights = [self.keep, self.keys, self.values]
        self.outputs = h * n

    def __call__(self, chosen: Tensor) -> Tensor:
        tokens = self.state.tokens[chosen]  # (B, T, p)
        scores = torch.einsum("she,sep,btp->sbht", self.keys * (self.gained * self.gains).exp(), self.keep, tokens)
        pooled = torch.einsum("sbht,btp->sbhp", torch.softmax(scores, -1), tokens)
        return torch.einsum("sbhp,sep,shve->sbhv", pooled, self.keep, self.values).flatten(2)


def _normal(shape: tuple[int, ...], generator: torch.Generator, fan: int) -> Tensor:
    return torch.randn(shape, generator=generator, device=generator.device) / fan**0.5


def _standard(x: Tensor, reference: Tensor) -> Tensor:
    """Centred and scaled by the reference's mean and deviation, which carry no gradient."""
    with torch.no_grad():
        mean, deviation = reference.mean(1, keepdim=True), reference.std(1, keepdim=True).clamp_min(1e-9)
    return (x - mean) / deviation


def _ridge(features: Tensor, y: Tensor, ridge: float) -> Tensor:
    """Coefficients in float64: the normal matrix of sharp averages is nearly singular."""
    F = features.double()
    normal = F.transpose(-1, -2) @ F
    penalty = ridge * F.shape[1] * torch.eye(F.shape[-1], dtype=F.dtype, device=F.device)
    return torch.linalg.solve(normal + penalty, F.transpose(-1, -2) @ y.double()).to(features.dtype)
